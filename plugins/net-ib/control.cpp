// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/control.hpp"

#include <algorithm>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "plugins/support/descriptors.hpp"
#include "plugins/support/errno_text.hpp"

namespace plexus::net_ib {
namespace {

/// A dead host is noticed after about kProbeIdle + kProbeCount * kProbePace seconds.
constexpr int kProbeIdle = 5;
constexpr int kProbePace = 5;
constexpr int kProbeCount = 5;

bool is_nothing_yet(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

Result<void> set_socket_option(int fd, int level, int name, int value) {
  if (::setsockopt(fd, level, name, &value, sizeof value) != 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot set option {} of a socket: {}", name,
                plugin::errno_text());
  }
  return ok();
}

}  // namespace

Result<plugin::UniqueFd> make_control_socket(int family) {
  auto fd = plugin::UniqueFd::open(
      [&] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (!fd.is_open()) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot make a socket: {}", plugin::refused_descriptor_text());
  }
  return fd;
}

Result<void> prepare_control_socket(int fd) {
  PLEXUS_TRY(set_socket_option(fd, IPPROTO_TCP, TCP_NODELAY, 1));
  PLEXUS_TRY(set_socket_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1));
  PLEXUS_TRY(set_socket_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kProbeIdle));
  PLEXUS_TRY(set_socket_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbePace));
  return set_socket_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbeCount);
}

ControlSocket::ControlSocket(plugin::UniqueFd fd, security::Role role, const security::Terms& terms)
    : fd_(std::move(fd)), session_(fd_.get(), role, terms) {}

Result<Progress> ControlSocket::prove() {
  switch (session_.advance()) {
    case security::Session::State::kPending:
      return Progress::kPending;
    case security::Session::State::kProven:
      return Progress::kDone;
    default:
      return fail(PLEXUS_REMOTE_ERROR, "{}", session_.error());
  }
}

Result<void> ControlSocket::send(std::span<const std::byte> bytes) {
  output_.insert(output_.end(), bytes.begin(), bytes.end());
  return flush();
}

Result<void> ControlSocket::flush() {
  while (!output_.empty()) {
    const ssize_t n = session_.send(output_.data(), output_.size());
    if (n < 0) {
      if (is_nothing_yet(errno)) {
        return ok();
      }
      return fail(PLEXUS_REMOTE_ERROR, "{}", plugin::errno_text());
    }
    output_.erase(output_.begin(), output_.begin() + n);
  }
  return ok();
}

Result<Progress> ControlSocket::receive(std::span<std::byte> message) {
  const size_t had = input_.size();
  input_.resize(message.size());
  const ssize_t n = session_.receive(input_.data() + had, input_.size() - had);
  input_.resize(had + static_cast<size_t>(std::max<ssize_t>(n, 0)));
  if (n < 0 && !is_nothing_yet(errno)) {
    return fail(PLEXUS_REMOTE_ERROR, "{}", plugin::errno_text());
  }
  if (n == 0) {
    return fail(PLEXUS_REMOTE_ERROR, "the peer closed it");
  }
  if (input_.size() < message.size()) {
    return Progress::kPending;
  }
  std::copy(input_.begin(), input_.end(), message.begin());
  input_.clear();
  return Progress::kDone;
}

}  // namespace plexus::net_ib
