// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/channel.hpp"

#include <cerrno>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "tools/conformance/finding.hpp"

namespace plexus::conformance {
namespace {

using Clock = std::chrono::steady_clock;

Error left_alone() {
  return fail(kLeftAloneCode, "the other process of the check ended too early");
}

}  // namespace

Result<std::array<Channel, 2>> Channel::make_pair() {
  std::array<int, 2> fds{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) != 0) {
    return fail(Code::kSystemError, "cannot make a socket pair for a check");
  }
  std::array<Channel, 2> ends;
  ends[0].fd_ = fds[0];
  ends[1].fd_ = fds[1];
  return ends;
}

Channel::Channel(Channel&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      seat_(other.seat_),
      peer_(other.peer_),
      limit_(other.limit_) {}

Channel& Channel::operator=(Channel&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(seat_, other.seat_);
  std::swap(peer_, other.peer_);
  std::swap(limit_, other.limit_);
  return *this;
}

Channel::~Channel() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void Channel::attach(Seat& seat, const Seat* peer, std::chrono::milliseconds limit) {
  seat_ = &seat;
  peer_ = peer;
  limit_ = limit;
}

Result<void> Channel::send_bytes(std::span<const std::byte> bytes) {
  // A few hundred bytes: they fit in the socket's buffer.
  if (::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size())) {
    return left_alone();
  }
  return ok();
}

Result<bool> Channel::wait_readable() {
  const auto deadline = Clock::now() + limit_;
  seat_->place = Place::kWaitingForPeer;
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      return fail(kLeftAloneCode, "the other process of the check did not come within {} ms",
                  limit_.count());
    }
    pollfd wanted{fd_, POLLIN, 0};
    const int n = ::poll(&wanted, 1, static_cast<int>(left.count()));
    if (n > 0) {
      seat_->place = Place::kKit;
      return (wanted.revents & POLLIN) != 0;
    }
  }
}

Result<void> Channel::receive_bytes(std::span<std::byte> bytes) {
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

Result<void> Channel::meet() {
  PLEXUS_TRY(send(std::byte{1}));
  PLEXUS_TRY(receive<std::byte>());
  return ok();
}

Result<void> Channel::wait_for_end() {
  // The end of the line is not enough: a dying process closes one descriptor after the other.
  const auto deadline = Clock::now() + limit_;
  while (peer_->pid == 0 && Clock::now() < deadline) {  // it is only being started
    ::sched_yield();
  }
  const auto pid_fd = static_cast<int>(::syscall(SYS_pidfd_open, peer_->pid.load(), 0));
  if (pid_fd < 0) {
    return ok();  // ended, and collected by the kit
  }
  seat_->place = Place::kWaitingForPeer;
  pollfd wanted{pid_fd, POLLIN, 0};
  const int n = ::poll(&wanted, 1, static_cast<int>(limit_.count()));
  ::close(pid_fd);
  seat_->place = Place::kKit;
  if (n != 1) {
    return fail(kLeftAloneCode, "the other process of the check did not end within {} ms",
                limit_.count());
  }
  return ok();
}

}  // namespace plexus::conformance
