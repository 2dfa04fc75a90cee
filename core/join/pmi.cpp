// SPDX-License-Identifier: Apache-2.0
#include "core/join/pmi.hpp"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>

#include "core/base/text.hpp"

namespace plexus {
namespace {

constexpr size_t kLineBytesMax = 4096;
constexpr const char* kPmiKey = "plexus-id";

/// The socket to the launcher, which owns the other end. Every request has one answer.
class PmiSocket {
 public:
  PmiSocket(int fd, const Deadline& deadline) : fd_(fd), deadline_(deadline) {}

  /// Sends "cmd=NAME ..."; the answer must be of the kind `expected`.
  Result<std::string> ask(const std::string& request, std::string_view expected) {
    PLEXUS_TRY(send_line(request + "\n"));
    PLEXUS_TRY(line, recv_line());
    const std::string rc = field(line, "rc");
    if (field(line, "cmd") != expected || (!rc.empty() && rc != "0")) {
      return fail(Code::kSystemError, "the launcher answers '{}' to '{}' of PMI",
                  printable(line.substr(0, 128)), request.substr(0, request.find(' ')));
    }
    return line;
  }

  /// The value of NAME=VALUE in a line; empty: there is none.
  static std::string field(std::string_view line, std::string_view name) {
    for (const std::string_view word : split_list(line, ' ')) {
      if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=') {
        return std::string(word.substr(name.size() + 1));
      }
    }
    return "";
  }

 private:
  Result<void> wait(short events) {
    constexpr int kPollMs = 1000;
    for (;;) {
      pollfd entry{fd_, events, 0};
      const int ready = poll(&entry, 1, deadline_.poll_ms(kPollMs));
      if (ready > 0) {
        return ok();
      }
      if (ready < 0 && errno != EINTR) {
        return fail(Code::kSystemError, "poll failed on PMI_FD: {}", std::strerror(errno));
      }
      if (deadline_.expired()) {
        return fail(Code::kTimeout,
                    "the launcher did not answer over PMI within PLEXUS_BOOTSTRAP_TIMEOUT: another "
                    "rank has not come so far");
      }
    }
  }
  Result<void> send_line(std::string_view bytes) {
    while (!bytes.empty()) {
      PLEXUS_TRY(wait(POLLOUT));
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) {
        return fail(Code::kSystemError, "cannot send over PMI_FD: {}", std::strerror(errno));
      }
      bytes.remove_prefix(sent > 0 ? static_cast<size_t>(sent) : 0);
    }
    return ok();
  }
  Result<std::string> recv_line() {
    std::string line;
    for (char next = 0; line.size() < kLineBytesMax;) {  // a few hundred bytes, once
      PLEXUS_TRY(wait(POLLIN));
      const ssize_t got = ::recv(fd_, &next, 1, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
        return fail(Code::kSystemError, "the launcher has closed PMI_FD: {}",
                    got == 0 ? "end of the connection" : std::strerror(errno));
      }
      if (got > 0 && next == '\n') {
        return line;
      }
      line.append(got > 0 ? 1 : 0, next);
    }
    return fail(Code::kSystemError, "the launcher sent a line of more than {} bytes over PMI",
                kLineBytesMax);
  }

  int fd_;
  const Deadline& deadline_;
};

/// A process whose parent closed the descriptor may have another file there.
Result<int> parse_fd(const std::string& text) {
  int fd = -1;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, fd);
  struct stat status {};
  if (read.ec != std::errc() || read.ptr != end || fd < 0 || fstat(fd, &status) != 0 ||
      !S_ISSOCK(status.st_mode)) {
    return fail(Code::kInvalidUsage,
                "PMI_FD='{}' is not an open socket: the launcher's connection was closed on its "
                "way to this process, or used before (MPI_Init)",
                printable(text.substr(0, 16)));
  }
  return fd;
}

}  // namespace

Result<std::string> pass_on_by_pmi(const std::string& fd_text,
                                   int rank,
                                   const std::string& value,
                                   const Deadline& deadline) {
  PLEXUS_TRY(fd, parse_fd(fd_text));
  PmiSocket pmi(fd, deadline);
  PLEXUS_TRY(pmi.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init"));
  PLEXUS_TRY(named, pmi.ask("cmd=get_my_kvsname", "my_kvsname"));
  const std::string space = PmiSocket::field(named, "kvsname");
  if (rank == 0) {
    PLEXUS_TRY(pmi.ask(fmt::format("cmd=put kvsname={} key={} value={}", space, kPmiKey, value),
                       "put_result"));
  }
  PLEXUS_TRY(pmi.ask("cmd=barrier_in", "barrier_out"));
  PLEXUS_TRY(got, pmi.ask(fmt::format("cmd=get kvsname={} key={}", space, kPmiKey), "get_result"));
  // Without it the launcher takes the end of this process for a crash.
  PLEXUS_TRY(pmi.ask("cmd=finalize", "finalize_ack"));
  return PmiSocket::field(got, "value");
}

}  // namespace plexus
