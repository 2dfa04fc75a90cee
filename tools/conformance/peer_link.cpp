// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/peer_link.hpp"

#include <cerrno>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "tools/conformance/finding.hpp"
#include "tools/conformance/run_delay.hpp"

namespace plexus::conformance {
namespace {

Error left_alone() {
  return fail(kLeftAloneCode, "the other process of the check ended too early");
}

}  // namespace

Result<std::array<PeerLink, 2>> PeerLink::make_pair() {
  std::array<int, 2> fds{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return fail(Code::kSystemError, "cannot create a socket pair for a check");
  }
  std::array<PeerLink, 2> ends;
  ends[0].fd_ = fds[0];
  ends[1].fd_ = fds[1];
  return ends;
}

PeerLink::PeerLink(PeerLink&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      status_(other.status_),
      peer_(other.peer_),
      trace_(other.trace_),
      limit_(other.limit_) {}

PeerLink& PeerLink::operator=(PeerLink&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(status_, other.status_);
  std::swap(peer_, other.peer_);
  std::swap(trace_, other.trace_);
  std::swap(limit_, other.limit_);
  return *this;
}

PeerLink::~PeerLink() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void PeerLink::attach(ProcessStatus& status,
                      const ProcessStatus* peer,
                      std::chrono::milliseconds limit,
                      Trace& trace) {
  trace_ = &trace;
  status_ = &status;
  peer_ = peer;
  limit_ = limit;
}

Result<void> PeerLink::send_bytes(std::span<const std::byte> bytes) {
  // A few hundred bytes, which fit in the socket's buffer.
  if (::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
    return left_alone();
  }
  return ok();
}

Result<bool> PeerLink::wait_readable() {
  status_->place = Place::kWaitingForPeer;
  PLEXUS_TRY(events, wait_for_peer(fd_));
  if (events == 0) {
    return fail(kLeftAloneCode, "the other process of the check did not start within {} ms",
                limit_.count());
  }
  status_->place = Place::kKit;
  return (events & POLLIN) != 0;
}

Result<int> PeerLink::wait_for_peer(int fd) const {
  constexpr int kLookMs = 100;
  FairDeadline deadline(limit_, peer_->pid);
  while (!deadline.is_over()) {
    pollfd wanted{fd, POLLIN, 0};
    if (::poll(&wanted, 1, kLookMs) > 0) {
      return static_cast<int>(wanted.revents);
    }
  }
  return 0;
}

Result<void> PeerLink::receive_bytes(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    PLEXUS_TRY(wait_readable());
    const ssize_t n = ::recv(fd_, bytes.data(), bytes.size(), 0);
    if (n == 0 || (n < 0 && errno != EINTR)) {
      return left_alone();
    }
    bytes = bytes.subspan(static_cast<size_t>(n < 0 ? 0 : n));
  }
  return ok();
}

Result<void> PeerLink::meet() {
  trace_->add("meet");
  PLEXUS_TRY(send(std::byte{1}));
  PLEXUS_TRY(receive<std::byte>());
  return ok();
}

Result<void> PeerLink::wait_for_end() {
  // End-of-file is not sufficient, because a dying process closes one descriptor after the other.
  FairDeadline deadline(limit_);
  while (peer_->pid == 0 && !deadline.is_over()) {  // the peer is being started
    ::sched_yield();
  }
  const auto pid_fd = static_cast<int>(::syscall(SYS_pidfd_open, peer_->pid.load(), 0));
  if (pid_fd < 0) {
    return ok();  // ended, and reaped by the kit
  }
  status_->place = Place::kWaitingForPeer;
  const auto events = wait_for_peer(pid_fd);
  ::close(pid_fd);
  status_->place = Place::kKit;
  if (!events.has_value() || events.value() == 0) {
    return fail(kLeftAloneCode, "the other process of the check did not end within {} ms",
                limit_.count());
  }
  return ok();
}

}  // namespace plexus::conformance
