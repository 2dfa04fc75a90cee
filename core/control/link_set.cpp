// SPDX-License-Identifier: Apache-2.0
#include "core/control/link_set.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <utility>

#include "core/base/log.hpp"
#include "core/os/descriptors.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr size_t kPendingPeersMax = 256;  // connections that have not passed the handshake
constexpr auto kPendingPeerGrace = std::chrono::seconds(1);
// An introducer has a connection per process: not all of them are to be looked at in each turn.
constexpr auto kExpiryPause = std::chrono::milliseconds(10);
constexpr size_t kReadBytes = size_t{64} * 1024;
constexpr uint64_t kListener = 0;

void control_epoll(int epoll, int operation, int fd, uint64_t link, uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = link}};
  epoll_ctl(epoll, operation, fd, &event);
}

/// No descriptor is left but the one that was kept in reserve: accepts a caller with it, and
/// refuses it. False: there is none.
bool refuse_caller(Socket& listener) {
  auto accepted = listener.try_accept();
  if (accepted.has_error() || !accepted.value().has_value()) {
    return false;
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  PLEXUS_WARN(
      "bootstrap: {} cannot connect: this process has no file descriptor left (ulimit -n is {}); "
      "raise the limit",
      accepted.value()->peer_name(), limit.rlim_cur);
  const auto refusal = security::refuse_for_descriptors(static_cast<uint32_t>(limit.rlim_cur));
  (void)accepted.value()->try_send({reinterpret_cast<const char*>(&refusal), sizeof(refusal)});
  return true;
}

}  // namespace

security::Key LinkSet::key_of(const security::Key& job, const SocketAddress& listener) {
  std::array<uint8_t, SocketAddress::kPackedBytes> packed{};
  listener.pack(packed.data());
  return security::authenticate(job, "agent", std::as_bytes(std::span(packed)));
}

Result<std::unique_ptr<LinkSet>> LinkSet::make(const security::Terms& terms,
                                               ListenerKey key,
                                               Socket listener,
                                               const Times& times,
                                               Handler handler) {
  std::unique_ptr<LinkSet> set(new LinkSet(terms, std::move(listener), times, std::move(handler)));
  set->listener_key_ = terms.key;
  if (set->listener_.is_open()) {
    PLEXUS_TRY(address, set->listener_.local_address());
    set->own_ = address;
    set->listener_key_ = key == ListenerKey::kOfAddress ? key_of(terms.key, address) : terms.key;
  }
  set->epoll_ = OwnFd(OwnFds::instance().open([] { return epoll_create1(EPOLL_CLOEXEC); }));
  if (set->epoll_.get() < 0) {
    return describe_refused_descriptor("cannot wait for connections (epoll_create1)");
  }
  if (set->listener_.is_open()) {
    control_epoll(set->epoll_.get(), EPOLL_CTL_ADD, set->listener_.fd(), kListener, EPOLLIN);
  }
  set->reserve_ = Socket::reserve();
  if (!set->reserve_.is_open()) {
    return describe_refused_descriptor("cannot keep a file descriptor in reserve");
  }
  return set;
}

ControlLink* LinkSet::find(Link link) {
  const auto at = links_.find(link);
  return at == links_.end() ? nullptr : at->second.get();
}

LinkSet::Link LinkSet::add(ControlLink entry) {
  const Link link = next_++;
  PLEXUS_DCHECK(link != kListener && links_.count(link) == 0, link);
  security::Silence::start_probes(entry.socket.fd(), times_.silence);
  auto& made = links_[link] = std::make_unique<ControlLink>(std::move(entry));
  pending_count_ += made->is_pending ? 1 : 0;
  flush(link, *made);
  return link;
}

/// Sends what can be, and has what is awaited then watched for.
void LinkSet::flush(Link link, ControlLink& entry) {
  entry.flush();
  if (const uint32_t events = entry.awaited(); events != entry.watched) {
    const int operation = entry.watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    control_epoll(epoll_.get(), operation, entry.socket.fd(), link, events);
    entry.watched = events;
  }
}

Result<LinkSet::Link> LinkSet::connect(const SocketAddress& address,
                                       const std::optional<security::Key>& key) {
  PLEXUS_TRY(socket, Socket::start_connect(address.as_seen_from(own_)));
  return add({.state = ControlLink::State::kConnecting,
              .socket = std::move(socket),
              .address = address,
              .key = key.has_value() ? *key : key_of(terms_.key, address),
              .deadline = Deadline::after(times_.connect),
              .is_mutual = false});
}

Result<LinkSet::Link> LinkSet::connect_by_reserve(const SocketAddress& address) {
  reserve_.close();
  return connect(address);
}

Result<LinkSet::Link> LinkSet::adopt(ProvenSocket proven) {
  return add({.state = ControlLink::State::kOpen,
              .socket = std::move(proven.socket),
              .session = std::move(proven.session)});
}

void LinkSet::send(Link link, const Message& message) {
  ControlLink* const entry = find(link);
  if (entry != nullptr && entry->state != ControlLink::State::kFinishing) {
    entry->out += encode(message);
    flush(link, *entry);
  }
}

void LinkSet::finish(Link link) {
  ControlLink* const entry = find(link);
  if (entry == nullptr || entry->state == ControlLink::State::kFinishing) {
    return;
  }
  if (entry->is_pending) {
    erase(link);
    return;
  }
  entry->finish(times_.finish);
  flush(link, *entry);
}

void LinkSet::finish_all() {
  std::vector<Link> all;
  for (const auto& [link, entry] : links_) {
    all.push_back(link);
  }
  for (const Link link : all) {
    finish(link);
  }
}

void LinkSet::drop(Link link, const std::string& why) {
  ControlLink* const entry = find(link);
  if (entry == nullptr) {
    return;
  }
  const bool was_made = entry->state == ControlLink::State::kOpen && entry->is_mutual;
  const bool is_reported = !entry->is_pending && !entry->finishes;
  if (!entry->finishes) {
    PLEXUS_INFO(kBootstrap, "bootstrap: the connection to {} ends: {}", entry->peer_name(), why);
  }
  erase(link);
  if (is_reported) {
    handler_.end(link, was_made ? End::kBroken : End::kRefused, why);
  }
}

void LinkSet::erase(Link link) {
  const auto at = links_.find(link);
  // Closing alone would not end it while a child made by a plain clone has it open.
  PLEXUS_DCHECK(at != links_.end(), link);
  shutdown(at->second->socket.fd(), SHUT_RDWR);
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, at->second->socket.fd(), nullptr);
  PLEXUS_DCHECK(pending_count_ >= (at->second->is_pending ? 1U : 0U), pending_count_);
  pending_count_ -= at->second->is_pending ? 1 : 0;
  links_.erase(at);
  PLEXUS_DCHECK(pending_count_ <= links_.size(), pending_count_, links_.size());
}

void LinkSet::stop_listening() {
  if (listener_.is_open()) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.fd(), nullptr);
    listener_.close();
  }
}

bool LinkSet::is_empty() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& link) { return link.second->is_pending; });
}

bool LinkSet::is_delivered() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& link) { return link.second->is_delivered(); });
}

bool LinkSet::is_busy() const {
  return is_full_ || std::any_of(links_.begin(), links_.end(), [](const auto& link) {
           return link.second->state != ControlLink::State::kOpen;
         });
}

void LinkSet::wait(std::chrono::milliseconds time) const {
  epoll_event event{};
  const int count = epoll_wait(epoll_.get(), &event, 1, static_cast<int>(time.count()));
  if (count < 0 && errno != EINTR) {
    std::this_thread::sleep_for(time);
  }
}

void LinkSet::progress() {
  if (!reserve_.is_open()) {
    reserve_ = Socket::reserve();
  }
  constexpr int kEvents = 64;
  std::array<epoll_event, kEvents> events{};
  const int count = epoll_wait(epoll_.get(), events.data(), kEvents, 0);
  is_lost_ = is_lost_ || (count < 0 && errno != EINTR);
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<size_t>(i)];
    const auto link = static_cast<Link>(event.data.u64);
    if (event.data.u64 == kListener) {
      accept();
      continue;
    }
    advance(link, event.events);
  }
  expire();
  drop_silent();
  if (listener_.is_open() && std::exchange(is_full_, false)) {
    control_epoll(epoll_.get(), EPOLL_CTL_MOD, listener_.fd(), kListener, EPOLLIN);
  }
}

void LinkSet::advance(Link link, uint32_t events) {
  ControlLink* const entry = find(link);
  if (entry == nullptr) {
    return;
  }
  if (entry->state == ControlLink::State::kConnecting) {
    if (const auto made = entry->start_proof(terms_.mode); made.has_error()) {
      drop(link, made.error().message());
      return;
    }
  }
  const bool was_proving = entry->state == ControlLink::State::kProving;
  if (was_proving && !prove(link, *entry)) {
    return;
  }
  if (was_proving || (events & EPOLLOUT) != 0) {
    flush(link, *entry);
  }
  if (was_proving || (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
    read(link);
  }
}

void LinkSet::expire() {
  const auto now = Clock::now();
  if (now < next_expiry_) {
    return;
  }
  next_expiry_ = now + kExpiryPause;
  std::vector<Link> late;
  for (const auto& [link, entry] : links_) {
    if (entry->deadline.expired()) {
      late.push_back(link);
    }
  }
  for (const Link link : late) {
    drop(link, "it did not answer in time");
  }
}

/// The kernel does so where nothing waits to be sent.
void LinkSet::drop_silent() {
  const auto now = Clock::now();
  if (now < next_look_) {
    return;
  }
  next_look_ = now + times_.silence / (security::Silence::kLooks + 1);
  std::vector<std::pair<Link, uint32_t>> silent;
  for (const auto& [link, entry] : links_) {
    if (entry->silence.look(entry->socket.fd(), entry->is_open() && !entry->out.empty())) {
      silent.emplace_back(link, entry->silence.lost_segment_bytes());
    }
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(times_.silence).count();
  for (const auto& [link, lost_segment_bytes] : silent) {
    drop(link, security::describe_silence(lost_segment_bytes, seconds));
  }
}

// ---- accepting ----

void LinkSet::accept() {
  // Without a reserve, and with too many pending peers, new connections wait in the listener's
  // queue, and the listener is looked at again after the next wait.
  while (reserve_.is_open() && may_accept()) {
    auto accepted = listener_.try_accept();
    if (accepted.has_error()) {
      reserve_.close();
      refusals_ += refuse_caller(listener_) ? 1 : 0;
      return;
    }
    if (!accepted.value().has_value()) {
      return;
    }
    security::Session session(accepted.value()->fd(), security::Role::kListener,
                              {.mode = terms_.mode, .key = listener_key_});
    add({.state = ControlLink::State::kProving,
         .socket = std::move(*accepted.value()),
         .session = std::move(session),
         .deadline = Deadline::after(times_.handshake),
         .is_pending = true});
  }
  if (!std::exchange(is_full_, true)) {
    control_epoll(epoll_.get(), EPOLL_CTL_MOD, listener_.fd(), kListener, 0);
  }
}

/// Whether one more peer may be accepted. At the limit, the oldest pending peer is dropped if it
/// has had a second. So neither a port scan nor many silent connections keep members out.
bool LinkSet::may_accept() {
  if (pending_count_ < kPendingPeersMax) {
    return true;
  }
  const auto oldest = std::find_if(links_.begin(), links_.end(),
                                   [](const auto& link) { return link.second->is_pending; });
  PLEXUS_DCHECK(oldest != links_.end(), pending_count_, links_.size());
  if (oldest->second->deadline.time() - times_.handshake + kPendingPeerGrace > Clock::now()) {
    return false;
  }
  drop(oldest->first, "it had to make room for others");
  return true;
}

// ---- the handshake ----

bool LinkSet::prove(Link link, ControlLink& entry) {
  switch (entry.session.advance()) {
    case security::Session::State::kPending:
      flush(link, entry);
      return false;
    case security::Session::State::kProven:
      entry.open(times_.finish);
      return true;
    case security::Session::State::kFailed:
      break;
  }
  const std::string why = entry.session.error();
  const bool differs = entry.session.is_member_of_other_mode();
  if (differs) {
    PLEXUS_WARN("bootstrap: {} of this job cannot connect: {}", entry.socket.peer_name(), why);
  }
  drop(link, why);
  if (differs && handler_.differ) {
    handler_.differ(why);
  }
  return false;
}

// ---- receiving ----

void LinkSet::read(Link link) {
  received_.resize(kReadBytes);  // not on the stack: that of a thread may be small (ulimit -s)
  for (;;) {
    ControlLink* const entry = find(link);
    if (entry == nullptr) {
      return;
    }
    const ssize_t received = entry->session.receive(received_.data(), received_.size());
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    if (received <= 0) {
      drop(link,
           received < 0 && errno == EBADMSG ? entry->session.error() : "the other side closed it");
      return;
    }
    if (entry->state == ControlLink::State::kFinishing && !handler_.take_late) {
      continue;
    }
    entry->reader.append(received_.data(), static_cast<size_t>(received));
    if (!take_messages(link)) {
      return;
    }
  }
}

bool LinkSet::take_messages(Link link) {
  for (;;) {
    ControlLink* const entry = find(link);
    if (entry == nullptr) {
      return false;
    }
    if (entry->state == ControlLink::State::kFinishing && !handler_.take_late) {
      return true;
    }
    auto message = entry->reader.next();
    if (message.has_error()) {
      drop(link, message.error().message());
      return false;
    }
    if (!message.value().has_value()) {
      return true;
    }
    if (entry->state == ControlLink::State::kFinishing) {
      handler_.take_late(link, std::move(*message.value()));
      continue;
    }
    entry->is_mutual = true;
    if (std::exchange(entry->is_pending, false)) {
      PLEXUS_DCHECK(pending_count_ > 0, link);
      --pending_count_;
      entry->deadline = Deadline::never();
    }
    handler_.take(link, std::move(*message.value()));
  }
}

}  // namespace plexus
