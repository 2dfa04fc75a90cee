// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/rates_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/base/config.hpp"
#include "core/base/hash.hpp"
#include "core/base/log.hpp"
#include "core/base/stdio_held.hpp"
#include "core/os/host.hpp"
#include "core/tuning/measure_rates.hpp"
#include "guest/file.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFileBytesMax = 4096;

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

/// "AMD EPYC family 26 model 2": of the first processor.
std::string processor_model() {
  std::string name;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::string value = line.substr(std::min(line.find(": ") + 2, line.size()));
    if (line.starts_with("model name")) {
      name.insert(0, value);
    } else if (line.starts_with("cpu family")) {
      name += " family " + value;
    } else if (line.starts_with("model\t")) {
      name += " model " + value;
    }
  }
  return name;
}

/// $XDG_CACHE_HOME, or its default; empty: there is none.
fs::path cache_folder() {
  const auto lock = hold_environment();
  const auto folder_of = [](const char* variable) {
    const char* const value = std::getenv(variable);
    return fs::path(value == nullptr ? "" : value);
  };
  fs::path folder = folder_of("XDG_CACHE_HOME");
  if (!folder.is_absolute()) {
    folder = folder_of("HOME") / ".cache";
  }
  return folder.is_absolute() ? folder / "plexus" : fs::path();
}

Error refuse(const fs::path& path, const char* what) {
  return fail(Code::kSystemError, "{} cannot be {}: {}", path.string(), what, std::strerror(errno));
}

}  // namespace

std::string describe_measured_host() {
  utsname kernel{};
  uname(&kernel);
  std::string host =
      fmt::format("{}, {}, {} {}, {} cores", host_identity("").name, processor_model(),
                  kernel.sysname, kernel.release, sysconf(_SC_NPROCESSORS_CONF));
  std::replace_if(
      host.begin(), host.end(), [](char each) { return each < ' '; }, ' ');
  return host;
}

std::optional<fs::path> rates_path(const std::string& setting) {
  if (setting == "none") {
    return std::nullopt;
  }
  if (!setting.empty()) {
    return fs::path(setting);
  }
  const fs::path folder = cache_folder();
  if (folder.empty()) {
    return std::nullopt;
  }
  Fnv1a hash;
  hash.mix(describe_measured_host());
  return folder / fmt::format("rates-{:016x}.txt", hash.value());
}

Result<HostRates> read_rates(const fs::path& path) {
  const File file(
      open_above_stdio([&] { return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  struct stat status {};
  if (file.fd() < 0 || fstat(file.fd(), &status) != 0) {
    return refuse(path, "read");
  }
  std::array<char, kFileBytesMax> text{};
  const ssize_t size = S_ISREG(status.st_mode) && status.st_size < ssize_t{kFileBytesMax}
                           ? read(file.fd(), text.data(), text.size())
                           : 0;
  auto rates = parse_rates({text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))},
                           describe_measured_host());
  if (rates.has_error()) {
    return std::move(rates).error().with_context(path.string());
  }
  return rates;
}

Result<void> write_rates(const fs::path& path, const HostRates& rates) {
  std::error_code ignored;  // told by open()
  fs::create_directories(path.parent_path(), ignored);
  // Readers see the old file or the new one, and two writers do not meet.
  const fs::path temporary = fmt::format("{}.{:x}-{:x}.tmp", path.string(), process_id(),
                                         std::hash<std::thread::id>{}(std::this_thread::get_id()));
  const std::string text = format_rates(rates, describe_measured_host());
  {
    const File file(open_above_stdio(
        [&] { return open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); }));
    if (file.fd() < 0) {
      return refuse(temporary, "written");
    }
    if (write_without_signals(file.fd(), text) != static_cast<ssize_t>(text.size())) {
      const Error error = refuse(temporary, "written");
      unlink(temporary.c_str());
      return error.clone();
    }
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error = refuse(path, "replaced");
    unlink(temporary.c_str());
    return error.clone();
  }
  return ok();
}

std::optional<HostRates> RatesCache::find(const std::string& setting) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(looked_, true)) {
    return rates_;
  }
  const auto path = rates_path(setting);
  if (!path) {
    return std::nullopt;
  }
  if (auto read = read_rates(*path); read.has_value()) {
    rates_ = read.value();
    return rates_;
  }
  auto measured = measure_host_rates();
  if (measured.has_error()) {
    PLEXUS_INFO(kTuning, "{}: built-in rates are used", measured.error().message());
    return std::nullopt;
  }
  rates_ = measured.value();
  const auto written = write_rates(*path, *rates_);
  PLEXUS_INFO(kTuning, "measured this host: a cache line in {} ns; {}", rates_->slowest().line_ns,
              written.has_error() ? written.error().message() : "kept in " + path->string());
  return rates_;
}

}  // namespace plexus
