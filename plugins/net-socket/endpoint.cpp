// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-socket/endpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <net/if.h>
#include <poll.h>
#include <span>

#include "guest/assert.hpp"
#include "plugins/net-socket/fault.hpp"
#include "plugins/net-socket/liveness.hpp"
#include "plugins/net-socket/option.hpp"
#include "plugins/support/descriptors.hpp"
#include "plugins/support/port_setting.hpp"

namespace plexus::net_socket {
namespace {

using namespace std::chrono_literals;

/// A connecting socket sends its hello at once; a socket that is silent for longer is no peer.
constexpr auto kHelloTimeout = 10s;
/// For all sockets of a connection, which connect at the same time.
constexpr auto kGatherTimeout = 60s;
/// Longer than three TCP SYN retries (1 + 2 + 4 s) on a rebooting switch.
constexpr auto kTcpTimeout = 20s;
/// So many attempts in a row without any answer are enough: a firewall drops them.
constexpr uint32_t kSilentAttemptsMax = 2;
/// Limits what pending peers can make this side hold. Beyond them the oldest is dropped.
constexpr size_t kPendingPeersMax = 128;
constexpr size_t kGatheringsMax = 64;
/// Limits the duration of one call under a flood.
constexpr int kAcceptsPerCall = 64;
/// Limits log lines caused by a port scan.
constexpr uint32_t kRefusalsLogged = 8;

Result<void> fill_random(std::span<uint8_t> target) {
  if (!security::fill_random(target)) {
    return fail(PLEXUS_SYSTEM_ERROR, "this system has no source of randomness");
  }
  return ok();
}

/// Buffer sizes must be set before connecting, because they determine the TCP window scale.
/// Accepted sockets inherit those of the listening socket.
Result<UniqueFd> make_socket(int family, const Settings& settings) {
  UniqueFd socket = UniqueFd::open(
      [&] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (!socket.is_open()) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot make a socket: {}", plugin::refused_descriptor_text());
  }
  PLEXUS_TRY(set_option(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  if (settings.send_buffer_bytes >= 0) {
    PLEXUS_TRY(set_option(socket.get(), SOL_SOCKET, SO_SNDBUF, settings.send_buffer_bytes,
                          "NCCL_SOCKET_SNDBUF"));
  }
  if (settings.recv_buffer_bytes >= 0) {
    PLEXUS_TRY(set_option(socket.get(), SOL_SOCKET, SO_RCVBUF, settings.recv_buffer_bytes,
                          "NCCL_SOCKET_RCVBUF"));
  }
  return socket;
}

/// Continues a fixed-size message. False: the socket failed (errno) or ended (errno 0).
bool read_some(Socket& socket, void* target, size_t size, size_t& done) {
  const ssize_t n = socket.session.receive(static_cast<uint8_t*>(target) + done, size - done);
  if (n > 0) {
    done += static_cast<size_t>(n);
    return true;
  }
  if (n == 0) {
    errno = 0;
    return false;
  }
  return is_would_block(errno);
}
bool write_some(Socket& socket, const void* source, size_t size, size_t& done) {
  const ssize_t n = socket.session.send(static_cast<const uint8_t*>(source) + done, size - done);
  if (n >= 0) {
    done += static_cast<size_t>(n);
    return true;
  }
  return is_would_block(errno);
}

/// The connecting side sends nothing between hello and answer; anything else means that it is gone.
bool is_still_there(int fd) {
  uint8_t byte = 0;
  return ::recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && is_would_block(errno);
}

/// Notifies the connecting side, on all its sockets, that it is connected. False: it has left.
bool answer(Link& link) {
  return std::all_of(link.sockets.begin(), link.sockets.end(), [&](Socket& socket) {
    size_t done = 0;  // the empty send buffer of a new socket takes all of these bytes
    return is_still_there(socket.fd.get()) &&
           write_some(socket, &kAccepted, sizeof kAccepted, done) && done == sizeof kAccepted;
  });
}

bool is_transient(int error) {
  constexpr int kTransient[] = {0,           ECONNREFUSED, ECONNRESET, ECONNABORTED,  ETIMEDOUT,
                                ENETUNREACH, EHOSTUNREACH, EPIPE,      EADDRNOTAVAIL, ENETDOWN};
  return std::find(std::begin(kTransient), std::end(kTransient), error) != std::end(kTransient);
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::create(const Nic& nic,
                                                   const Settings& settings,
                                                   const plugin::Log& log,
                                                   plexus_net_handle_t& handle) {
  std::unique_ptr<Listener> listener(new Listener(settings, log));
  Address address;
  PLEXUS_TRY(socket, plugin::listen_at_nic(
                         nic, settings.ports,
                         [&](int family) { return make_socket(family, settings); }, address));
  listener->wire_.address = plugin::to_wire(address);
  listener->wire_.magic = kWireMagic;
  listener->wire_.mode = settings.security;
  PLEXUS_TRY(fill_random(listener->wire_.key));
  listener->socket_ = std::move(socket);
  handle = {};
  std::memcpy(handle.bytes, &listener->wire_, sizeof listener->wire_);
  return listener;
}

Result<Progress> Listener::try_accept(Link& link) {
  PLEXUS_TRY(accept_pending_peers());
  hear_pending_peers();
  const auto now = Clock::now();
  std::erase_if(gatherings_, [&](const Gathering& gathering) { return now > gathering.deadline; });
  while (true) {
    const auto complete =
        std::find_if(gatherings_.begin(), gatherings_.end(), [](const Gathering& gathering) {
          return gathering.arrived == gathering.link.sockets.size();
        });
    if (complete == gatherings_.end()) {
      return Progress::kPending;
    }
    Link found = std::move(complete->link);
    gatherings_.erase(complete);
    if (answer(found)) {
      link = std::move(found);
      return Progress::kDone;
    }
  }
}

Result<void> Listener::accept_pending_peers() {
  for (int i = 0; i < kAcceptsPerCall; ++i) {
    PendingPeer pending;
    socklen_t size = sizeof pending.address.storage;
    pending.socket.fd = UniqueFd::open([&] {
      return ::accept4(socket_.get(), pending.address.raw(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    });
    if (!pending.socket.fd.is_open()) {
      const int error = errno;
      if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
        return fail(PLEXUS_SYSTEM_ERROR, "cannot accept a connection: {}",
                    plugin::refused_descriptor_text(error));
      }
      if (is_would_block(error)) {
        return ok();
      }
      continue;  // it connected and left again
    }
    PLEXUS_TRY(set_option(pending.socket.fd.get(), IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
    pending.socket.session = security::Session(pending.socket.fd.get(), security::Role::kListener,
                                               {.mode = wire_.mode, .key = wire_.key});
    pending.deadline = Clock::now() + kHelloTimeout;
    if (pending_peers_.size() == kPendingPeersMax) {
      refuse(pending_peers_.front(), "too many other connections have sent nothing yet");
      pending_peers_.erase(pending_peers_.begin());
    }
    pending_peers_.push_back(std::move(pending));
  }
  return ok();
}

void Listener::hear_pending_peers() {
  std::erase_if(pending_peers_, [&](PendingPeer& pending) { return hear(pending); });
}

bool Listener::hear(PendingPeer& pending) {
  const auto progress = hear_out(pending);
  if (progress.has_error()) {
    refuse(pending, progress.error().text);
    return true;
  }
  if (progress.value() == Progress::kPending) {
    return false;
  }
  admit(pending);
  return true;
}

Result<Progress> Listener::hear_out(PendingPeer& pending) {
  if (!pending.is_proven) {
    const auto state = pending.socket.session.advance();
    if (state == security::Session::State::kFailed) {
      return fail(PLEXUS_REMOTE_ERROR, "{}", pending.socket.session.error());
    }
    pending.is_proven = state == security::Session::State::kProven;
  }
  if (pending.is_proven &&
      !read_some(pending.socket, &pending.hello, sizeof pending.hello, pending.hello_bytes)) {
    return fail(PLEXUS_REMOTE_ERROR, "it closed the connection before its hello was complete");
  }
  if (pending.hello_bytes == sizeof pending.hello) {
    return Progress::kDone;
  }
  if (Clock::now() > pending.deadline) {
    return fail(PLEXUS_REMOTE_ERROR, "its hello did not arrive in time");
  }
  return Progress::kPending;
}

void Listener::admit(PendingPeer& pending) {
  const WireHello& hello = pending.hello;
  if (hello.magic != kWireMagic) {
    return refuse(pending, "its hello is not one of net-socket");
  }
  const uint32_t data_sockets = hello.socket_count - 1u;
  const bool is_sane = hello.socket_count >= 1 && data_sockets <= kDataSocketsMax &&
                       hello.threads <= kThreadsMax && hello.threads <= data_sockets &&
                       (data_sockets == 0 || hello.threads > 0) &&
                       hello.socket_index < hello.socket_count;
  if (!is_sane) {
    return refuse(pending, "its hello has invalid numbers");
  }
  auto gathering = std::find_if(
      gatherings_.begin(), gatherings_.end(),
      [&](const Gathering& other) { return other.connection_id == hello.connection_id; });
  if (gathering == gatherings_.end()) {
    if (gatherings_.size() == kGatheringsMax) {
      gatherings_.erase(gatherings_.begin());
    }
    Gathering fresh;
    fresh.connection_id = hello.connection_id;
    fresh.deadline = Clock::now() + kGatherTimeout;
    fresh.link.sockets.resize(hello.socket_count);
    fresh.link.threads = hello.threads;
    gatherings_.push_back(std::move(fresh));
    gathering = std::prev(gatherings_.end());
  }
  Link& link = gathering->link;
  if (link.sockets.size() != hello.socket_count || link.threads != hello.threads ||
      link.sockets[hello.socket_index].fd.is_open()) {
    return refuse(pending, "its hello contradicts that of another socket of the connection");
  }
  const std::chrono::seconds timeout_of_peer{hello.timeout_s};
  if (const auto watched =
          watch_sender(pending.socket.fd.get(), settings_.timeout, timeout_of_peer);
      watched.has_error()) {
    return refuse(pending, watched.error().text);
  }
  if (hello.socket_index == 0) {
    link.peer = pending.address;
  }
  link.sockets[hello.socket_index] = std::move(pending.socket);
  PLEXUS_DCHECK(gathering->arrived < link.sockets.size(), gathering->arrived);
  ++gathering->arrived;
}

void Listener::refuse(const PendingPeer& pending, const std::string& reason) {
  ++refusals_;
  if (refusals_ <= kRefusalsLogged) {
    log_.info("net-socket: refused a connection from {}: {}{}", pending.address.text(), reason,
              refusals_ == kRefusalsLogged ? " (further ones are not logged)" : "");
  }
}

Result<Connector> Connector::create(const Nic& nic,
                                    const Settings& settings,
                                    const plexus_net_handle_t& handle) {
  Connector connector;
  connector.settings_ = settings;
  connector.nic_name_ = nic.name;
  std::memcpy(&connector.wire_, handle.bytes, sizeof connector.wire_);
  const WireHandle& wire = connector.wire_;
  if (wire.magic != kWireMagic || !plugin::is_usable(wire.address)) {
    return fail(PLEXUS_INVALID_ARGUMENT,
                "the handle was not made by net-socket; use the same network plugin on all ranks");
  }
  if (wire.mode != settings.security) {
    return fail(PLEXUS_INVALID_USAGE, "net-socket: {}",
                security::describe_difference(settings.security, wire.mode, "the peer"));
  }
  connector.target_ = plugin::from_wire(wire.address, ::if_nametoindex(nic.name.c_str()));
  connector.first_time_ = Clock::now();
  PLEXUS_TRY(connector.start_attempt());
  return connector;
}

Result<void> Connector::start_attempt() {
  ++attempt_count_;
  attempt_time_ = Clock::now();
  uint64_t connection_id = 0;
  PLEXUS_TRY(fill_random({reinterpret_cast<uint8_t*>(&connection_id), sizeof connection_id}));
  const uint32_t socket_count = 1 + settings_.data_sockets();
  for (uint32_t index = 0; index < socket_count; ++index) {
    Attempt attempt;
    PLEXUS_TRY(socket, make_socket(target_.family(), settings_));
    PLEXUS_TRY(watch_receiver(socket.get(), settings_.timeout));
    attempt.socket.fd = std::move(socket);
    attempt.hello.magic = kWireMagic;
    attempt.hello.connection_id = connection_id;
    attempt.hello.socket_index = static_cast<uint16_t>(index);
    attempt.hello.socket_count = static_cast<uint16_t>(socket_count);
    attempt.hello.threads = static_cast<uint16_t>(settings_.threads);
    attempt.hello.timeout_s = static_cast<uint16_t>(settings_.timeout.count());
    const bool is_refused =
        ::connect(attempt.socket.fd.get(), target_.raw(), target_.size()) != 0 &&
        errno != EINPROGRESS && errno != EINTR;
    if (is_refused) {
      return retry({errno, errno_text()});
    }
    attempts_.push_back(std::move(attempt));
  }
  return ok();
}

Result<Progress> Connector::try_connect(Link& link) {
  if (attempts_.empty()) {
    if (Clock::now() < retry_time_) {
      return Progress::kPending;
    }
    PLEXUS_TRY(start_attempt());
  }
  for (Attempt& attempt : attempts_) {
    const AttemptError error = advance(attempt);
    if (error.has_happened()) {
      PLEXUS_TRY(retry(error));
      return Progress::kPending;
    }
  }
  const bool is_ready = !attempts_.empty() &&
                        std::all_of(attempts_.begin(), attempts_.end(), [](const Attempt& attempt) {
                          return attempt.step == Step::kReady;
                        });
  if (!is_ready) {
    return Progress::kPending;
  }
  for (Attempt& attempt : attempts_) {
    link.sockets.push_back(std::move(attempt.socket));
  }
  link.threads = settings_.threads;
  link.peer = target_;
  return Progress::kDone;
}

/// Proceeds as far as possible without waiting.
Connector::AttemptError Connector::advance(Attempt& attempt) {
  Step before = Step::kReady;
  while (attempt.step != Step::kReady && attempt.step != before) {
    before = attempt.step;
    AttemptError error;
    switch (attempt.step) {
      case Step::kConnecting:
        error = finish_tcp(attempt);
        break;
      case Step::kProving:
        error = prove(attempt);
        break;
      case Step::kHello:
        error = say_hello(attempt);
        break;
      default:
        error = read_answer(attempt);
        break;
    }
    if (error.has_happened()) {
      return error;
    }
  }
  return {};
}

Connector::AttemptError Connector::finish_tcp(Attempt& attempt) {
  pollfd state{attempt.socket.fd.get(), POLLOUT, 0};
  if (::poll(&state, 1, 0) <= 0) {
    if (Clock::now() - attempt_time_ > kTcpTimeout) {
      return {ETIMEDOUT, "no answer"};
    }
    return {};
  }
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(attempt.socket.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    return {error, errno_text(error)};
  }
  if (plugin::is_connected_to_itself(attempt.socket.fd.get())) {
    return {ECONNREFUSED, errno_text(ECONNREFUSED)};
  }
  attempt.socket.session = security::Session(attempt.socket.fd.get(), security::Role::kCaller,
                                             {.mode = wire_.mode, .key = wire_.key});
  attempt.step = Step::kProving;
  return {};
}

Connector::AttemptError Connector::prove(Attempt& attempt) {
  const auto state = attempt.socket.session.advance();
  if (state == security::Session::State::kFailed) {
    return {0, attempt.socket.session.error()};
  }
  if (state == security::Session::State::kProven) {
    attempt.step = Step::kHello;
  }
  return {};
}

Connector::AttemptError Connector::say_hello(Attempt& attempt) {
  if (!write_some(attempt.socket, &attempt.hello, sizeof attempt.hello, attempt.bytes)) {
    return {errno, errno_text()};
  }
  if (attempt.bytes == sizeof attempt.hello) {
    attempt.step = Step::kAnswer;
    attempt.bytes = 0;
  }
  return {};
}

Connector::AttemptError Connector::read_answer(Attempt& attempt) {
  if (!read_some(attempt.socket, &attempt.answer, sizeof attempt.answer, attempt.bytes)) {
    return {errno, errno == 0 ? std::string("it closed the connection during the handshake")
                              : errno_text()};
  }
  if (attempt.bytes < sizeof attempt.answer) {
    return {};
  }
  if (attempt.answer != kAccepted) {
    return {0, "its answer is not one of net-socket"};
  }
  attempt.step = Step::kReady;
  return {};
}

Result<void> Connector::retry(const AttemptError& error) {
  attempts_.clear();  // closes the sockets of this attempt
  const auto now = Clock::now();
  silent_attempts_ = error.code == ETIMEDOUT ? silent_attempts_ + 1 : 0;
  if (!is_transient(error.code) || attempt_count_ > settings_.connect_retries ||
      silent_attempts_ == kSilentAttemptsMax) {
    const double seconds = std::chrono::duration<double>(now - first_time_).count();
    return fail(PLEXUS_REMOTE_ERROR,
                "cannot connect to {} over {}: {} ({} attempt{} in {:.1f} s); check that the peer "
                "runs and that no firewall is between (PLEXUS_PORT_RANGE limits the ports), or "
                "choose another interface with NCCL_SOCKET_IFNAME",
                target_.text(), nic_name_, error.reason, attempt_count_,
                attempt_count_ == 1 ? "" : "s", seconds);
  }
  retry_time_ = now + settings_.connect_retry_sleep * attempt_count_;
  return ok();
}

}  // namespace plexus::net_socket
