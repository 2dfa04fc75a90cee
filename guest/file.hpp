// SPDX-License-Identifier: Apache-2.0
// Files that settings name. A name may be wrong in ways that must not harm the program: a FIFO
// without a writer, a device that never ends, a limit of file sizes, a pipe that nobody reads.
//
//   const FileText file = read_regular_file(path);
//   if (!file.refusal.empty()) {
//     return path + " cannot be read: " + file.refusal;
//   }
//   return file.text;
#pragma once

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "guest/descriptors.hpp"

namespace plexus {

/// Writes what it can of `bytes` with one write(2); returns as that does. Neither SIGPIPE nor
/// SIGXFSZ reaches the program.
inline ssize_t write_without_signals(int fd, std::string_view bytes) noexcept {
  sigset_t raised;
  sigset_t before;
  sigset_t pending;
  ::sigemptyset(&raised);
  ::sigaddset(&raised, SIGPIPE);
  ::sigaddset(&raised, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &raised, &before);
  ::sigpending(&pending);
  const ssize_t written = ::write(fd, bytes.data(), bytes.size());
  const int error = errno;
  const int signal = error == EPIPE ? SIGPIPE : SIGXFSZ;
  if (written < 0 && (error == EPIPE || error == EFBIG) && ::sigismember(&pending, signal) == 0) {
    const timespec now{};
    while (::sigtimedwait(&raised, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return written;
}

/// The text of a file, or why it cannot be had.
struct FileText {
  std::string text;
  std::string refusal;  // the end of "FILE cannot be read: "; empty: it was read
};

/// More than any file that a setting names has in earnest.
inline constexpr size_t kTextFileBytesMax = size_t{64} << 20;

/// Reads a regular file of at most `bytes_max`; never blocks.
inline FileText read_regular_file(const std::string& path, size_t bytes_max = kTextFileBytesMax) {
  const int fd = above_stdio(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  FileText file;
  struct stat about {};
  if (fd < 0 || ::fstat(fd, &about) != 0) {
    file.refusal = std::strerror(errno);
  } else if (!S_ISREG(about.st_mode)) {
    file.refusal = "it is not a regular file";
  }
  for (ssize_t got = 1; file.refusal.empty() && got != 0;) {
    char part[4096];  // small: the caller's stack may be
    got = ::read(fd, part, sizeof(part));
    if (got < 0 && errno != EINTR) {
      file.refusal = std::strerror(errno);
    } else if (got > 0) {
      file.text.append(part, static_cast<size_t>(got));
    }
    if (file.text.size() > bytes_max) {
      file.refusal = "it is larger than " + std::to_string(bytes_max) + " bytes";
    }
  }
  if (fd >= 0) {
    ::close(fd);
  }
  return file;
}

/// Writes all of `bytes`, or a part of it when nobody reads a pipe for a second; errno is then set.
inline bool write_all(int fd, std::string_view bytes) noexcept {
  constexpr int kPatienceMs = 1000;
  while (!bytes.empty()) {
    const ssize_t written = write_without_signals(fd, bytes);
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    pollfd room{fd, POLLOUT, 0};
    if (errno != EINTR && (errno != EAGAIN || ::poll(&room, 1, kPatienceMs) == 0)) {
      return false;
    }
  }
  return true;
}

/// Opens a file to write text into (`flags`: O_TRUNC, O_APPEND). Never blocks: a pipe that nobody
/// reads is refused (ENXIO). -1 with errno.
inline int open_text_file(const std::string& path, int flags) noexcept {
  constexpr mode_t kReadableByAll = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;
  return above_stdio(::open(path.c_str(),
                            O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags,
                            kReadableByAll));
}

/// Writes all of `text` into such a file; the end of "FILE cannot be written: ", empty: done.
inline std::string write_text_file(const std::string& path, std::string_view text, int flags) {
  const int fd = open_text_file(path, flags);
  std::string refusal;
  if (fd < 0 || !write_all(fd, text)) {
    refusal = errno == ENXIO ? "nobody reads this pipe" : std::strerror(errno);
  }
  if (fd >= 0) {
    ::close(fd);
  }
  return refusal;
}

}  // namespace plexus
