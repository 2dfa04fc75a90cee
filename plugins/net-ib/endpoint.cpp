// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/endpoint.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <net/if.h>
#include <new>
#include <poll.h>
#include <unistd.h>

#include "plugins/support/descriptors.hpp"
#include "plugins/support/errno_text.hpp"
#include "plugins/support/port_setting.hpp"

namespace plexus::net_ib {
namespace {

using namespace std::chrono_literals;

/// A caller says its hello at once; one that is silent for longer is no peer.
constexpr auto kHelloTimeout = 20s;
constexpr auto kRetryPause = 200ms;
/// Limits what pending peers can make this side hold. Beyond it the oldest is dropped.
constexpr size_t kPendingPeersMax = 128;
/// Limits the duration of one call under a flood.
constexpr int kAcceptsPerCall = 64;
/// Limits log lines caused by a port scan.
constexpr uint32_t kRefusalsLogged = 8;
constexpr std::align_val_t kAreaAlignment{4096};
constexpr const char* kNotFound = "the network does not find the hardware address of its port";

AreaPtr make_area() {
  void* const raw = ::operator new(sizeof(Area), kAreaAlignment);
  return AreaPtr(new (raw) Area{});  // NOLINT(cppcoreguidelines-owning-memory): owned by AreaPtr
}

std::string own_host_name() {
  std::array<char, kHostBytes> name{};
  (void)::gethostname(name.data(), name.size() - 1);
  return name.data();
}

Result<void> make_rails(const Place& place, Role role, uint32_t rails, uint32_t qps, Link& link) {
  link.area = make_area();
  for (uint32_t i = 0; i < rails; ++i) {
    PLEXUS_TRY(rail,
               Rail::create({place.device->ports[i], place.settings, role, qps, link.area.get()}));
    link.rails.push_back(std::move(rail));
  }
  return ok();
}

/// A device with fewer ports than its peer's is slower than a user who merged them expects.
void tell_unused_ports(const Place& place, size_t peer_ports, const std::string& peer_name) {
  const size_t ports = place.device->ports.size();
  if (ports != peer_ports) {
    place.log.info("net-ib: {} has {} port{} and the device of {} has {}: the connection uses {}",
                   place.device->name, ports, ports == 1 ? "" : "s", peer_name, peer_ports,
                   std::min(ports, peer_ports));
  }
}

/// kPending: some rail cannot reach its peer yet.
Result<Progress> connect_rails(Link& link) {
  auto progress = Progress::kDone;
  for (size_t i = 0; i < link.rails.size(); ++i) {
    PLEXUS_TRY(made, link.rails[i]->connect(link.peer.rail[i]));
    progress = made == Progress::kPending ? made : progress;
  }
  return progress;
}

WireHello describe(const Link& link) {
  WireHello hello{};
  hello.magic = kWireMagic;
  hello.area_address = reinterpret_cast<uintptr_t>(link.area.get());
  hello.rails = static_cast<uint16_t>(link.rails.size());
  hello.qps = static_cast<uint16_t>(link.rails.front()->qps());
  write_text(hello.host, own_host_name());
  std::transform(link.rails.begin(), link.rails.end(), hello.rail.begin(),
                 [](const std::unique_ptr<Rail>& rail) { return rail->describe(); });
  return hello;
}

/// Reads a hello; kDone: `link.peer` has it.
Result<Progress> receive_hello(Link& link) {
  WireHello bytes{};
  PLEXUS_TRY(progress, link.control.receive(writable_bytes_of(bytes)));
  if (progress == Progress::kDone) {
    PLEXUS_TRY(hello, read_hello(bytes_of(bytes)));
    link.peer = hello;
  }
  return progress;
}

/// The interface for the handshake: the first one that the user selects.
Result<plugin::Nic> choose_interface(const Settings& settings) {
  PLEXUS_TRY(nics, plugin::find_nics(settings.family));
  PLEXUS_TRY(chosen, plugin::choose_nics(nics, settings.interfaces));
  if (chosen.empty()) {
    return fail(PLEXUS_SYSTEM_ERROR,
                "no network interface is up, which net-ib needs to make connections by TCP; bring "
                "one up");
  }
  return chosen.front();
}

bool is_transient_refusal(int error) {
  constexpr int kTransient[] = {ECONNREFUSED, ECONNRESET, ETIMEDOUT, ENETUNREACH, EHOSTUNREACH};
  return std::find(std::begin(kTransient), std::end(kTransient), error) != std::end(kTransient);
}

}  // namespace

void AreaDeleter::operator()(Area* area) const noexcept { ::operator delete(area, kAreaAlignment); }

// --------------------------------------------------------------------------------------- Listener

Result<std::unique_ptr<Listener>> Listener::create(const Place& place,
                                                   plexus_net_handle_t& handle) {
  std::unique_ptr<Listener> listener(new Listener(place));
  PLEXUS_TRY(nic, choose_interface(*place.settings));
  plugin::Address address;
  PLEXUS_TRY(socket,
             plugin::listen_at_nic(nic, place.settings->ports, &make_control_socket, address));
  listener->socket_ = std::move(socket);
  listener->wire_.magic = kWireMagic;
  listener->wire_.address = plugin::to_wire(address);
  listener->wire_.mode = place.settings->security;
  if (!security::fill_random(listener->wire_.key)) {
    return fail(PLEXUS_SYSTEM_ERROR, "this system has no source of randomness");
  }
  handle = {};
  std::memcpy(handle.bytes, &listener->wire_, sizeof listener->wire_);
  return listener;
}

Result<Progress> Listener::try_accept(Link& link) {
  PLEXUS_TRY(accept_pending_peers());
  for (auto it = pending_peers_.begin(); it != pending_peers_.end();) {
    const auto heard = hear(**it);
    if (heard.has_value() && heard.value() == Progress::kPending) {
      ++it;
      continue;
    }
    const std::unique_ptr<PendingPeer> pending = std::move(*it);
    it = pending_peers_.erase(it);
    if (heard.has_value()) {
      link = std::move(pending->link);
      return Progress::kDone;
    }
    if (heard.error().code != PLEXUS_REMOTE_ERROR) {
      return heard.error();  // not the peer's fault
    }
    refuse(*pending, heard.error().text);
  }
  return Progress::kPending;
}

Result<void> Listener::accept_pending_peers() {
  for (int i = 0; i < kAcceptsPerCall; ++i) {
    plugin::Address peer;
    socklen_t size = sizeof peer.storage;
    auto fd = plugin::UniqueFd::open(
        [&] { return ::accept4(socket_.get(), peer.raw(), &size, SOCK_NONBLOCK | SOCK_CLOEXEC); });
    if (!fd.is_open()) {
      const int error = errno;
      if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS) {
        return fail(PLEXUS_SYSTEM_ERROR, "cannot accept a connection: {}",
                    plugin::refused_descriptor_text(error));
      }
      if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR) {
        return ok();
      }
      continue;  // it connected and left again
    }
    PLEXUS_TRY(prepare_control_socket(fd.get()));
    if (pending_peers_.size() == kPendingPeersMax) {
      refuse(*pending_peers_.front(), "too many other connections have sent nothing yet");
      pending_peers_.erase(pending_peers_.begin());
    }
    auto pending = std::make_unique<PendingPeer>();
    pending->deadline = Clock::now() + kHelloTimeout;
    pending->address = peer.text();
    pending->link.control = ControlSocket(std::move(fd), security::Role::kListener,
                                          {.mode = wire_.mode, .key = wire_.key});
    pending_peers_.push_back(std::move(pending));
  }
  return ok();
}

Result<Progress> Listener::hear(PendingPeer& pending) const {
  if (pending.step == Step::kProving) {
    PLEXUS_TRY(progress, pending.link.control.prove());
    pending.step = progress == Progress::kDone ? Step::kHello : Step::kProving;
  }
  if (pending.step == Step::kHello) {
    PLEXUS_TRY(progress, take_hello(pending));
    pending.step = progress == Progress::kDone ? Step::kRails : Step::kHello;
  }
  if (pending.step == Step::kRails) {
    PLEXUS_TRY(progress, answer(pending.link));
    pending.step = progress == Progress::kDone ? Step::kReady : Step::kRails;
  }
  if (pending.step == Step::kReady) {
    PLEXUS_TRY(pending.link.control.flush());
    WireControl bytes{};
    PLEXUS_TRY(progress, pending.link.control.receive(writable_bytes_of(bytes)));
    if (progress == Progress::kDone) {
      PLEXUS_TRY(control, read_control(bytes_of(bytes)));
      if (control.type != static_cast<uint32_t>(ControlType::kReady)) {
        return fail(PLEXUS_REMOTE_ERROR, "it did not say that it is ready: {}",
                    readable(control.text));
      }
      return Progress::kDone;
    }
  }
  if (Clock::now() > pending.deadline) {
    return fail(PLEXUS_REMOTE_ERROR, "{}",
                pending.step == Step::kRails ? kNotFound : "its hello did not arrive in time");
  }
  return Progress::kPending;
}

Result<Progress> Listener::take_hello(PendingPeer& pending) const {
  Link& link = pending.link;
  PLEXUS_TRY(progress, receive_hello(link));
  if (progress == Progress::kPending) {
    return progress;
  }
  link.peer_name = fmt::format("{} ({})", readable(link.peer.host), pending.address);
  tell_unused_ports(place_, link.peer.rails, link.peer_name);
  const auto rails =
      std::min<uint32_t>(link.peer.rails, static_cast<uint32_t>(place_.device->ports.size()));
  PLEXUS_TRY(make_rails(place_, Role::kReceiver, rails, link.peer.qps, link));
  pending.deadline = Clock::now() + place_.settings->connect_timeout;  // it has authenticated
  return Progress::kDone;
}

Result<Progress> Listener::answer(Link& link) {
  PLEXUS_TRY(progress, connect_rails(link));
  if (progress == Progress::kDone) {
    PLEXUS_TRY(link.control.send(bytes_of(describe(link))));
  }
  return progress;
}

void Listener::refuse(const PendingPeer& pending, const std::string& reason) {
  ++refusals_;
  if (refusals_ <= kRefusalsLogged) {
    place_.log.info("net-ib: refused a connection from {}: {}{}", pending.address, reason,
                    refusals_ == kRefusalsLogged ? " (further ones are not logged)" : "");
  }
}

// -------------------------------------------------------------------------------------- Connector

Result<Connector> Connector::create(const Place& place, const plexus_net_handle_t& handle) {
  Connector connector(place);
  PLEXUS_TRY(wire, read_handle(handle));
  if (wire.mode != place.settings->security) {
    return fail(PLEXUS_INVALID_USAGE, "net-ib: {}",
                security::describe_difference(place.settings->security, wire.mode, "the peer"));
  }
  connector.wire_ = wire;
  uint32_t scope = 0;
  if (auto nic = choose_interface(*place.settings); nic.has_value()) {
    scope = ::if_nametoindex(nic.value().name.c_str());
  }
  connector.target_ = plugin::from_wire(wire.address, scope);
  connector.first_time_ = Clock::now();
  connector.retry_time_ = connector.first_time_;
  return connector;
}

Result<void> Connector::start_tcp() {
  PLEXUS_TRY(socket, make_control_socket(target_.family()));
  PLEXUS_TRY(prepare_control_socket(socket.get()));
  connecting_ = std::move(socket);
  step_ = Step::kTcp;
  if (::connect(connecting_.get(), target_.raw(), target_.size()) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    may_retry_ = is_transient_refusal(errno);
    return fail(PLEXUS_REMOTE_ERROR, "{}", plugin::errno_text());
  }
  return ok();
}

Result<Progress> Connector::try_connect(Link& link) {
  const auto now = Clock::now();
  if (step_ == Step::kWaiting && now < retry_time_) {
    return Progress::kPending;
  }
  auto progress = advance();
  const bool is_late = now - first_time_ > place_.settings->connect_timeout;
  if (progress.has_value() && progress.value() == Progress::kDone) {
    link = std::move(link_);
    return Progress::kDone;
  }
  if (progress.has_value() && is_late) {
    progress = fail(PLEXUS_REMOTE_ERROR, "{}", step_ == Step::kRails ? kNotFound : "no answer");
  }
  if (progress.has_value()) {
    return Progress::kPending;
  }
  if (may_retry_ && !is_late) {
    link_ = {};
    connecting_.reset();
    step_ = Step::kWaiting;
    retry_time_ = now + kRetryPause;
    return Progress::kPending;
  }
  return fail(
      progress.error().code,
      "cannot connect to {} over {}: {} (after {:.1f} s); check that the peer runs and that "
      "no firewall is between, or choose another interface with NCCL_SOCKET_IFNAME",
      target_.text(), place_.device->name, progress.error().text,
      std::chrono::duration<double>(now - first_time_).count());
}

/// Proceeds as far as possible without waiting.
Result<Progress> Connector::advance() {
  may_retry_ = false;
  if (step_ == Step::kWaiting) {
    PLEXUS_TRY(start_tcp());
  }
  if (step_ == Step::kTcp) {
    PLEXUS_TRY(progress, finish_tcp());
    if (progress == Progress::kPending) {
      return progress;
    }
    step_ = Step::kProving;
  }
  if (step_ == Step::kProving) {
    PLEXUS_TRY(progress, say_hello());
    if (progress == Progress::kPending) {
      return progress;
    }
    step_ = Step::kAnswer;
  }
  if (step_ == Step::kAnswer) {
    PLEXUS_TRY(link_.control.flush());
    PLEXUS_TRY(progress, take_answer());
    if (progress == Progress::kPending) {
      return progress;
    }
    step_ = Step::kRails;
  }
  return say_ready();
}

Result<Progress> Connector::finish_tcp() {
  pollfd state{connecting_.get(), POLLOUT, 0};
  if (::poll(&state, 1, 0) <= 0) {
    return Progress::kPending;
  }
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(connecting_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    may_retry_ = is_transient_refusal(error);
    return fail(PLEXUS_REMOTE_ERROR, "{}", plugin::errno_text(error));
  }
  if (plugin::is_connected_to_itself(connecting_.get())) {
    may_retry_ = true;
    return fail(PLEXUS_REMOTE_ERROR, "{}", plugin::errno_text(ECONNREFUSED));
  }
  link_.control = ControlSocket(std::move(connecting_), security::Role::kCaller,
                                {.mode = wire_.mode, .key = wire_.key});
  return Progress::kDone;
}

Result<Progress> Connector::say_hello() {
  PLEXUS_TRY(progress, link_.control.prove());
  if (progress == Progress::kPending) {
    return progress;
  }
  const auto rails = static_cast<uint32_t>(place_.device->ports.size());
  PLEXUS_TRY(make_rails(place_, Role::kSender, rails, place_.settings->qps, link_));
  PLEXUS_TRY(link_.control.send(bytes_of(describe(link_))));
  return Progress::kDone;
}

Result<Progress> Connector::take_answer() {
  PLEXUS_TRY(progress, receive_hello(link_));
  if (progress == Progress::kPending) {
    return progress;
  }
  if (link_.peer.rails > link_.rails.size() || link_.peer.qps != place_.settings->qps) {
    return fail(PLEXUS_REMOTE_ERROR, "its answer contradicts the hello");
  }
  link_.peer_name = fmt::format("{} ({})", readable(link_.peer.host), target_.text());
  tell_unused_ports(place_, link_.peer.rails, link_.peer_name);
  link_.rails.resize(link_.peer.rails);
  return Progress::kDone;
}

Result<Progress> Connector::say_ready() {
  PLEXUS_TRY(progress, connect_rails(link_));
  if (progress == Progress::kDone) {
    WireControl ready{};
    ready.type = static_cast<uint32_t>(ControlType::kReady);
    PLEXUS_TRY(link_.control.send(bytes_of(ready)));
  }
  return progress;
}

}  // namespace plexus::net_ib
