// SPDX-License-Identifier: Apache-2.0
#include "core/os/shared_memory.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/base/stdio_held.hpp"
#include "core/base/units.hpp"
#include "core/os/descriptors.hpp"
#include "core/os/host.hpp"
#include "core/os/memory_server.hpp"

namespace plexus {
namespace {

constexpr size_t kPage = 4096;
constexpr int kFirstFreeFd = STDERR_FILENO + 1;
constexpr size_t kSizeMax = static_cast<size_t>(std::numeric_limits<off_t>::max()) - 2 * kPage;
constexpr uint64_t kMagic = 0x504c5853484d3031;  // "PLXSHM01"

struct Mark {
  uint64_t magic;
  uint64_t id;
};

/// The kernel would send SIGXFSZ, which ends the process.
Result<void> check_file_size(size_t size_bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size_bytes) {
    return fail(Code::kSystemError,
                "cannot make {} bytes of shared memory: the limit of the size of files (ulimit -f) "
                "is {} bytes, and counts here, too",
                size_bytes, limit.rlim_cur);
  }
  return ok();
}

/// A file without a name: of the kernel's memory, or where that is refused (a seccomp filter, an
/// old sandbox) of /dev/shm, whose space is taken at once, since who writes to a page that it lacks
/// gets SIGBUS. -1: there is none, and errno says why.
int open_unnamed(size_t size_bytes) {
  const int made = memfd_create("plexus", MFD_CLOEXEC);
  if (made >= 0 || errno == EMFILE || errno == ENFILE) {
    return made;
  }
  const int refused = errno;
  const int file = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || posix_fallocate(file, 0, static_cast<off_t>(size_bytes)) != 0) {
    if (file >= 0) {
      close(file);
    }
    errno = refused;
    return -1;
  }
  return file;
}

}  // namespace

Result<SharedMemory> SharedMemory::create(size_t size_bytes, uint64_t id) {
  if (size_bytes > kSizeMax) {
    return fail(Code::kSystemError, "{} bytes of shared memory exceed the address space",
                size_bytes);
  }
  SharedMemory memory;
  memory.size_bytes_ = align_up(size_bytes == 0 ? size_t{1} : size_bytes, kPage);
  const size_t total = kPage + memory.size_bytes_;
  PLEXUS_TRY(check_file_size(total));
  memory.fd_ = open_above_stdio([&] { return open_unnamed(total); });
  if (memory.fd_ < 0) {
    return describe_refused_descriptor(fmt::format(
        "cannot make {} bytes of shared memory, neither by memfd_create nor in /dev/shm", total));
  }
  if (ftruncate(memory.fd_, static_cast<off_t>(total)) != 0) {
    return fail(Code::kSystemError, "cannot allocate {} bytes of shared memory: {}", total,
                std::strerror(errno));
  }
  void* const mapping = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd_, 0);
  if (mapping == MAP_FAILED) {
    return fail(Code::kSystemError, "cannot map {} bytes of shared memory: {}", total,
                std::strerror(errno));
  }
  memory.mapping_ = static_cast<std::byte*>(mapping);
  memory.id_ = id;
  if (id == 0) {
    PLEXUS_TRY(fresh, MemoryServer::new_id());
    memory.id_ = fresh;
  }
  const Mark mark{kMagic, memory.id_};
  std::memcpy(memory.mapping_, &mark, sizeof(mark));
  MemoryServer::instance().add(memory.id_, memory.fd_);
  return memory;
}

Result<SharedMemory> SharedMemory::create_private(size_t size_bytes) {
  SharedMemory memory;
  memory.size_bytes_ = align_up(size_bytes == 0 ? size_t{1} : size_bytes, kPage);
  const size_t total = kPage + memory.size_bytes_;
  void* const mapping =
      mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) {
    return fail(Code::kSystemError, "cannot map {} bytes of memory: {}", total,
                std::strerror(errno));
  }
  memory.mapping_ = static_cast<std::byte*>(mapping);
  return memory;
}

/// Or is in another pid namespace. One that nobody has waited for yet has a folder in /proc, too,
/// but no program any more.
static bool has_died(int32_t pid) {
  char target = 0;
  return readlink(fmt::format("/proc/{}/exe", pid).c_str(), &target, sizeof(target)) < 0 &&
         (errno == ENOENT || errno == ESRCH);
}

static Error describe_refusal(int32_t pid, const std::string& path, int error) {
  if (error == EMFILE || error == ENFILE) {
    return describe_refused_descriptor("cannot open " + path + " (shared memory of another rank)",
                                       error);
  }
  if (has_died(pid)) {
    return fail(
        Code::kRemoteError,
        "process {} has died, or is in another pid namespace (cannot open {}, shared memory "
        "of another rank: {}); run all ranks of a host in one pid namespace, or set "
        "NCCL_SHM_DISABLE=1",
        pid, path, std::strerror(error));
  }
  return fail(Code::kSystemError,
              "cannot open {} (shared memory of another rank): {}; run all ranks of a host as one "
              "user and in one pid namespace, or set NCCL_SHM_DISABLE=1",
              path, std::strerror(error));
}

Result<SharedMemory> SharedMemory::open_peer(const Place& place) {
  const std::string path = fmt::format("/proc/{}/fd/{}", place.pid, place.fd);
  const int fd = place.owner == process_id()
                     ? fcntl(place.fd, F_DUPFD_CLOEXEC, kFirstFreeFd)
                     : open_above_stdio([&] { return open(path.c_str(), O_RDWR | O_CLOEXEC); });
  auto shown = fd < 0 ? Result<SharedMemory>(describe_refusal(place.pid, path, errno))
                      : map(fd, place, path);
  if (shown.has_value() || place.owner == 0 || place.owner == process_id()) {
    return shown;
  }
  const auto given = MemoryServer::ask(place.owner, place.id);
  if (given.has_error()) {
    return fail(shown.error().code(), "{} (and it was not given: {})", shown.error().message(),
                given.error().message());
  }
  return map(given.value(), place, "the descriptor that a rank gave");
}

Result<SharedMemory> SharedMemory::map(int fd, const Place& place, std::string_view path) {
  SharedMemory memory;
  memory.fd_ = fd;
  const size_t total = kPage + place.size_bytes;
  struct stat status {};
  if (fstat(fd, &status) != 0 || static_cast<size_t>(status.st_size) != total) {
    return fail(
        Code::kSystemError,
        "{} is not the shared memory that its owner described: it has {} bytes, expected {}", path,
        status.st_size, total);
  }
  void* const mapping = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapping == MAP_FAILED) {
    return fail(Code::kSystemError, "cannot map {} bytes of {}: {}", total, path,
                std::strerror(errno));
  }
  memory.mapping_ = static_cast<std::byte*>(mapping);
  memory.size_bytes_ = place.size_bytes;
  Mark mark{};
  std::memcpy(&mark, memory.mapping_, sizeof(mark));
  if (mark.magic != kMagic || mark.id != place.id) {
    return fail(Code::kSystemError,
                "{} is not the shared memory that its owner described: if the ranks are in "
                "different pid namespaces, set NCCL_SHM_DISABLE=1",
                path);
  }
  memory.id_ = place.id;
  close(std::exchange(memory.fd_, -1));
  return memory;
}

SharedMemory::~SharedMemory() {
  if (mapping_ != nullptr) {
    munmap(mapping_, kPage + size_bytes_);
  }
  if (fd_ >= 0) {
    MemoryServer::remove(id_, fd_);
    close(fd_);
  }
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      id_(std::exchange(other.id_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(mapping_, other.mapping_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(id_, other.id_);
  std::swap(fd_, other.fd_);
  return *this;
}

size_t SharedMemory::mapped_bytes() const noexcept {
  return mapping_ == nullptr ? 0 : kPage + size_bytes_;
}

std::byte* SharedMemory::data() const noexcept {
  return mapping_ == nullptr ? nullptr : mapping_ + kPage;
}

}  // namespace plexus
