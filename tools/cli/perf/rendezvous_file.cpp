// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/rendezvous_file.hpp"

#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <fmt/core.h>

namespace plexus::perf {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(2);
constexpr mode_t kPrivate = S_IRUSR | S_IWUSR;

class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

std::string reason() { return std::generic_category().message(errno); }

/// nullopt: not there yet, or left by an earlier job.
Result<std::optional<UniqueIdBytes>> try_read(const std::filesystem::path& path,
                                              std::filesystem::file_time_type oldest) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (file.get() < 0) {
    if (errno == ENOENT) {
      return std::optional<UniqueIdBytes>();
    }
    return fail(Code::kSystemError, "cannot read {}: {}; pass --rendezvous HOST:PORT instead",
                path.string(), reason());
  }
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != geteuid() ||
      (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fail(Code::kSystemError,
                "{} is not a private file of this user; remove it or pass --rendezvous HOST:PORT",
                path.string());
  }
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  UniqueIdBytes id;
  if (error || written < oldest ||
      read(file.get(), id.data(), id.size()) != static_cast<ssize_t>(id.size())) {
    return std::optional<UniqueIdBytes>();
  }
  return std::optional(id);
}

}  // namespace

std::filesystem::path rendezvous_path(const std::filesystem::path& folder, const std::string& job) {
  std::string name = fmt::format("plexus-{}-", geteuid());
  for (const char c : job) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    name += plain ? c : '-';
  }
  return folder / name;
}

Result<void> publish_unique_id(const std::filesystem::path& path, const UniqueIdBytes& id) {
  const std::string draft = fmt::format("{}.{}", path.string(), getpid());
  const Descriptor file(
      open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, kPrivate));
  const bool written =
      file.get() >= 0 && write(file.get(), id.data(), id.size()) == static_cast<ssize_t>(id.size());
  if (!written || rename(draft.c_str(), path.c_str()) != 0) {
    const std::string why = reason();
    unlink(draft.c_str());
    return fail(Code::kSystemError,
                "cannot create {} for the other ranks: {}; pass --rendezvous HOST:PORT instead",
                path.string(), why);
  }
  return ok();
}

Result<UniqueIdBytes> wait_unique_id(const std::filesystem::path& path,
                                     std::filesystem::file_time_type oldest,
                                     std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    PLEXUS_TRY(id, try_read(path, oldest));
    if (id) {
      return *id;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return fail(Code::kTimeout, "rank 0 did not start within {} s (it creates {})",
                  std::chrono::duration_cast<std::chrono::seconds>(timeout).count(), path.string());
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace plexus::perf
