// SPDX-License-Identifier: Apache-2.0
#include "core/os/local_socket.hpp"

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "core/base/clock.hpp"
#include "core/base/stdio_held.hpp"
#include "core/base/thread.hpp"
#include "core/os/descriptors.hpp"
#include "core/os/own_fds.hpp"

namespace plexus {
namespace {

struct Address {
  sockaddr_un raw{};
  socklen_t size = 0;
};

Result<Address> address_of(const std::string& name) {
  Address address;
  address.raw.sun_family = AF_UNIX;
  if (name.empty() || name.size() + 1 > sizeof(address.raw.sun_path)) {
    return fail(Code::kInvalidArgument, "'{}' cannot be the name of a local socket", name);
  }
  std::memcpy(address.raw.sun_path + 1, name.data(), name.size());  // a leading 0: abstract
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

int open_socket() {
  return OwnFds::instance().open(
      [] { return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
}

/// Room for one descriptor beside a byte.
struct DescriptorMessage {
  DescriptorMessage() : parts{.iov_base = &byte, .iov_len = 1} {
    header.msg_iov = &parts;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  char byte = 0;
  iovec parts;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
};

Result<void> wait_for(int fd, short events, const Deadline& deadline) {
  for (;;) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    if (poll(&entry, 1, deadline.poll_ms(1000)) > 0) {
      return ok();
    }
    if (deadline.expired()) {
      return fail(Code::kTimeout, "the process at the other end of a local socket does not answer");
    }
  }
}

}  // namespace

Result<LocalSocket> LocalSocket::listen(const std::string& name) {
  constexpr int kBacklog = 128;  // ranks of a host that connect at the same time
  PLEXUS_TRY(address, address_of(name));
  LocalSocket made(open_socket());
  if (made.fd_.get() < 0) {
    return describe_refused_descriptor("cannot make a local socket");
  }
  if (bind(made.fd_.get(), reinterpret_cast<const sockaddr*>(&address.raw), address.size) != 0 ||
      ::listen(made.fd_.get(), kBacklog) != 0) {
    return fail(Code::kSystemError, "cannot listen at the local socket @{}: {}", name,
                std::strerror(errno));
  }
  return made;
}

Result<LocalSocket> LocalSocket::connect(const std::string& name) {
  PLEXUS_TRY(address, address_of(name));
  LocalSocket made(open_socket());
  if (made.fd_.get() < 0) {
    return describe_refused_descriptor("cannot make a local socket");
  }
  if (::connect(made.fd_.get(), reinterpret_cast<const sockaddr*>(&address.raw), address.size) !=
      0) {
    return fail(errno == ECONNREFUSED ? Code::kRemoteError : Code::kSystemError,
                "cannot connect to the local socket @{}: {}", name, std::strerror(errno));
  }
  return made;
}

Result<LocalSocket> LocalSocket::accept(From from) const {
  for (;;) {
    LocalSocket made(OwnFds::instance().open(
        [this] { return accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); }));
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (made.fd_.get() >= 0 &&
        getsockopt(made.fd_.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
        (peer.uid == geteuid() || peer.uid == 0 || from == From::kAnyUser)) {
      return made;
    }
    if (made.fd_.get() < 0 && errno != EINTR && errno != ECONNABORTED && errno != EAGAIN) {
      return fail(Code::kSystemError, "cannot accept at a local socket: {}", std::strerror(errno));
    }
    pollfd entry{.fd = fd_.get(), .events = POLLIN, .revents = 0};
    (void)poll(&entry, 1, -1);
  }
}

Result<void> LocalSocket::send_all(std::string_view bytes, std::chrono::milliseconds time) const {
  const Deadline deadline = Deadline::after(time);
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EINTR) {
      PLEXUS_TRY(wait_for(fd_.get(), POLLOUT, deadline));
    } else {
      return fail(Code::kRemoteError, "cannot send over a local socket: {}", std::strerror(errno));
    }
  }
  return ok();
}

Result<std::string> LocalSocket::recv_until(char end,
                                            size_t size_max,
                                            std::chrono::milliseconds time) const {
  const Deadline deadline = Deadline::after(time);
  std::string received;
  char part[4096];
  for (;;) {
    PLEXUS_TRY(wait_for(fd_.get(), POLLIN, deadline));
    const ssize_t size = recv(fd_.get(), part, sizeof(part), MSG_DONTWAIT);
    if (size == 0) {
      return received;
    }
    if (size < 0 && errno != EAGAIN && errno != EINTR) {
      return fail(Code::kRemoteError, "cannot receive from a local socket: {}",
                  std::strerror(errno));
    }
    if (size > 0) {
      received.append(part, static_cast<size_t>(size));
    }
    if (const size_t at = received.find(end); at != std::string::npos) {
      received.resize(at);
      return received;
    }
    if (received.size() > size_max) {
      return fail(Code::kRemoteError, "more than {} bytes came over a local socket", size_max);
    }
  }
}

Result<void> LocalSocket::send_descriptor(int fd) const {
  DescriptorMessage message;
  cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(sizeof(fd));
  std::memcpy(CMSG_DATA(control), &fd, sizeof(fd));
  if (sendmsg(fd_.get(), &message.header, MSG_NOSIGNAL | MSG_DONTWAIT) != 1) {
    return fail(Code::kRemoteError, "cannot send a descriptor over a local socket: {}",
                std::strerror(errno));
  }
  return ok();
}

Result<int> LocalSocket::recv_descriptor(std::chrono::milliseconds time) const {
  const Deadline deadline = Deadline::after(time);
  for (;;) {
    PLEXUS_TRY(wait_for(fd_.get(), POLLIN, deadline));
    DescriptorMessage message;
    const StdioHeld held;
    const ssize_t size = recvmsg(fd_.get(), &message.header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
      continue;
    }
    const cmsghdr* const control = size == 1 ? CMSG_FIRSTHDR(&message.header) : nullptr;
    if (control == nullptr || control->cmsg_type != SCM_RIGHTS) {
      return fail(Code::kRemoteError, "no descriptor came over a local socket");
    }
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(control), sizeof(fd));
    return above_stdio(fd);
  }
}

Result<void> serve_local_socket(const std::string& name,
                                std::string_view purpose,
                                LocalSocket::From from,
                                std::function<void(const LocalSocket& client)> answer) {
  PLEXUS_TRY(made, LocalSocket::listen(name));
  auto serve = [from, answer = std::move(answer),
                listener = std::make_shared<LocalSocket>(std::move(made))] {
    constexpr auto kRetryPause = std::chrono::seconds(1);
    for (;;) {
      try {
        if (const auto client = listener->accept(from); client.has_value()) {
          answer(client.value());
          continue;
        }
      } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the client sees the end
      }
      std::this_thread::sleep_for(kRetryPause);  // no descriptor is left, or no memory
    }
  };
  PLEXUS_TRY(thread, start_thread(purpose, std::move(serve)));
  thread.detach();
  return ok();
}

}  // namespace plexus
