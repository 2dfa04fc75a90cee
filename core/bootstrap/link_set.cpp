// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/link_set.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <utility>

#include "core/base/log.hpp"
#include "core/os/descriptors.hpp"

namespace plexus {
namespace {

constexpr size_t kStrangersMax = 256;  // connections that have not passed the handshake
constexpr auto kStrangerGrace = std::chrono::seconds(1);
constexpr size_t kReadBytes = size_t{64} * 1024;
constexpr uint64_t kListener = 0;

template <class Value>
std::string_view bytes_of(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace

Result<std::unique_ptr<LinkSet>> LinkSet::make(const Secret& secret,
                                               Socket listener,
                                               const Times& times,
                                               Handler handler) {
  std::unique_ptr<LinkSet> set(new LinkSet(secret, std::move(listener), times, std::move(handler)));
  set->epoll_ = OwnFds::instance().open([] { return epoll_create1(EPOLL_CLOEXEC); });
  if (set->epoll_ < 0) {
    return describe_refused_descriptor("cannot wait for connections (epoll_create1)");
  }
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListener}};
  if (set->listener_.is_open()) {
    epoll_ctl(set->epoll_, EPOLL_CTL_ADD, set->listener_.fd(), &event);
  }
  set->reserve_ = Socket::reserve();
  return set;
}

LinkSet::~LinkSet() {
  links_.clear();
  if (epoll_ >= 0 && forks_ == Forks::count()) {
    OwnFds::instance().close(epoll_);
  }
}

LinkSet::Entry* LinkSet::find(Link link) {
  const auto at = links_.find(link);
  return at == links_.end() ? nullptr : at->second.get();
}

LinkSet::Link LinkSet::add(Entry entry) {
  const Link link = next_++;
  auto& made = links_[link] = std::make_unique<Entry>(std::move(entry));
  made->watches_out = made->state == Entry::State::kConnecting || !made->out.empty();
  epoll_event event{.events = made->watches_out ? EPOLLIN | EPOLLOUT : EPOLLIN,
                    .data = {.u64 = link}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, made->socket.fd(), &event);
  return link;
}

void LinkSet::watch(Link link, Entry& entry) {
  const bool wants_out = entry.state == Entry::State::kConnecting || !entry.out.empty();
  if (wants_out != std::exchange(entry.watches_out, wants_out)) {
    epoll_event event{.events = wants_out ? EPOLLIN | EPOLLOUT : EPOLLIN, .data = {.u64 = link}};
    epoll_ctl(epoll_, EPOLL_CTL_MOD, entry.socket.fd(), &event);
  }
}

Result<LinkSet::Link> LinkSet::connect(const SocketAddress& address) {
  PLEXUS_TRY(socket, Socket::start_connect(address));
  return add({.state = Entry::State::kConnecting,
              .socket = std::move(socket),
              .address = address,
              .deadline = Deadline::after(times_.connect),
              .is_mutual = false});
}

Result<LinkSet::Link> LinkSet::adopt(Socket socket) {
  return add({.state = Entry::State::kOpen, .socket = std::move(socket)});
}

void LinkSet::send(Link link, const Message& message) {
  Entry* const entry = find(link);
  if (entry == nullptr || entry->state == Entry::State::kFinishing) {
    return;
  }
  if (entry->state != Entry::State::kOpen) {
    entry->waiting += encode(message);
    return;
  }
  entry->out += encode(message);
  flush(link, *entry);
}

void LinkSet::finish(Link link) {
  Entry* const entry = find(link);
  if (entry == nullptr || entry->state == Entry::State::kFinishing) {
    return;
  }
  if (entry->is_stranger) {
    erase(link);
    return;
  }
  entry->finishes = true;
  entry->deadline = Deadline::after(times_.finish);
  if (entry->state == Entry::State::kOpen) {
    entry->state = Entry::State::kFinishing;
    flush(link, *entry);
  }
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
  Entry* const entry = find(link);
  if (entry == nullptr) {
    return;
  }
  const auto state = entry->state;
  const bool was_made = state == Entry::State::kOpen && entry->is_mutual;
  const bool is_told = !entry->is_stranger && !entry->finishes;
  if (!entry->finishes) {
    PLEXUS_INFO(
        kBootstrap, "bootstrap: the connection to {} ends: {}",
        state == Entry::State::kConnecting ? entry->address.to_string() : entry->socket.peer_name(),
        why);
  }
  erase(link);
  if (is_told) {
    handler_.end(link, was_made ? End::kBroken : End::kRefused, why);
  }
}

void LinkSet::erase(Link link) {
  const auto at = links_.find(link);
  // Closing alone would not end it while a child made by a plain clone has it open.
  shutdown(at->second->socket.fd(), SHUT_RDWR);
  epoll_ctl(epoll_, EPOLL_CTL_DEL, at->second->socket.fd(), nullptr);
  links_.erase(at);
}

void LinkSet::stop_listening() {
  if (listener_.is_open()) {
    epoll_ctl(epoll_, EPOLL_CTL_DEL, listener_.fd(), nullptr);
    listener_.close();
  }
}

bool LinkSet::is_empty() const {
  return std::all_of(links_.begin(), links_.end(),
                     [](const auto& link) { return link.second->is_stranger; });
}

bool LinkSet::is_busy() const {
  return is_full_ || std::any_of(links_.begin(), links_.end(), [](const auto& link) {
           return link.second->state != Entry::State::kOpen;
         });
}

void LinkSet::wait(std::chrono::milliseconds time) const {
  epoll_event event{};
  (void)epoll_wait(epoll_, &event, 1, static_cast<int>(time.count()));
}

void LinkSet::progress() {
  constexpr int kEvents = 64;
  std::array<epoll_event, kEvents> events{};
  const int count = epoll_wait(epoll_, events.data(), kEvents, 0);
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<size_t>(i)];
    const auto link = static_cast<Link>(event.data.u64);
    if (event.data.u64 == kListener) {
      accept();
      continue;
    }
    Entry* entry = find(link);
    if (entry != nullptr && entry->state == Entry::State::kConnecting) {
      if (auto made = entry->socket.finish_connect(entry->address); made.has_error()) {
        drop(link, made.error().message());
        continue;
      }
      auto hello = make_hello();
      if (hello.has_error()) {
        drop(link, hello.error().message());
        continue;
      }
      entry->hello = hello.value();
      entry->out += bytes_of(entry->hello);
      entry->state = Entry::State::kAnswer;
      flush(link, *entry);
    }
    if (entry != nullptr && (event.events & EPOLLOUT) != 0) {
      flush(link, *entry);
    }
    if ((event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
      read(link);
    }
  }
  expire();
  if (listener_.is_open() && std::exchange(is_full_, false)) {
    watch_listener(EPOLLIN);
  }
}

void LinkSet::expire() {
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

// ---- accepting ----

void LinkSet::accept() {
  if (!reserve_.is_open()) {
    reserve_ = Socket::reserve();
  }
  // Without a reserve, and with too many strangers, new connections wait in the listener's queue,
  // and the listener is looked at again after the next wait.
  while (reserve_.is_open() && has_room()) {
    auto accepted = listener_.try_accept();
    if (accepted.has_error()) {
      refuse();
      return;
    }
    if (!accepted.value().has_value()) {
      return;
    }
    add({.state = Entry::State::kHello,
         .socket = std::move(*accepted.value()),
         .deadline = Deadline::after(times_.handshake),
         .is_stranger = true});
  }
  if (!std::exchange(is_full_, true)) {
    watch_listener(0);
  }
}

void LinkSet::watch_listener(uint32_t events) {
  epoll_event event{.events = events, .data = {.u64 = kListener}};
  epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_.fd(), &event);
}

/// No descriptor is left for a new connection: accepts it with the reserve descriptor and refuses
/// it.
void LinkSet::refuse() {
  reserve_.close();
  auto accepted = listener_.try_accept();
  if (accepted.has_error() || !accepted.value().has_value()) {
    return;
  }
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  PLEXUS_WARN(
      "bootstrap: {} cannot connect: this process has no file descriptor left (ulimit -n is {}); "
      "raise the limit",
      accepted.value()->peer_name(), limit.rlim_cur);
  const Answer refusal = make_refusal(static_cast<uint32_t>(limit.rlim_cur));
  (void)accepted.value()->try_send(bytes_of(refusal));
}

/// Whether one more stranger may be accepted. At the limit, the oldest stranger is dropped if it
/// has had a second. So neither a port scan nor many silent connections keep members out.
bool LinkSet::has_room() {
  size_t strangers = 0;
  std::optional<Link> oldest;
  for (const auto& [link, entry] : links_) {
    if (entry->is_stranger) {
      ++strangers;
      oldest = oldest.value_or(link);
    }
  }
  if (strangers < kStrangersMax) {
    return true;
  }
  if (find(*oldest)->deadline.time() - times_.handshake + kStrangerGrace > Clock::now()) {
    return false;
  }
  drop(*oldest, "it had to make room for others");
  return true;
}

// ---- receiving ----

void LinkSet::read(Link link) {
  std::array<char, kReadBytes> bytes;  // NOLINT: written by recv
  for (;;) {
    Entry* const entry = find(link);
    if (entry == nullptr) {
      return;
    }
    auto received = entry->socket.try_recv(bytes.data(), bytes.size());
    if (received.has_error()) {
      drop(link, "the other side closed it");
      return;
    }
    if (received.value() == 0 || !take_bytes(link, bytes.data(), received.value())) {
      return;
    }
  }
}

bool LinkSet::take_bytes(Link link, const char* bytes, size_t size_bytes) {
  Entry& entry = *find(link);
  switch (entry.state) {
    case Entry::State::kFinishing:
      return true;
    case Entry::State::kOpen:
      entry.reader.append(bytes, size_bytes);
      return take_messages(link);
    default:
      break;
  }
  entry.received.append(bytes, size_bytes);
  if (entry.state == Entry::State::kHello && !take_hello(link, entry)) {
    return false;
  }
  if (entry.state == Entry::State::kAnswer) {
    return take_answer(link, entry);
  }
  return entry.state != Entry::State::kProof || take_proof(link, entry);
}

bool LinkSet::take_hello(Link link, Entry& entry) {
  if (entry.received.size() < sizeof(Hello)) {
    return true;
  }
  std::memcpy(&entry.hello, entry.received.data(), sizeof(Hello));
  entry.received.erase(0, sizeof(Hello));
  auto answer = make_answer(secret_, entry.hello);
  if (answer.has_error()) {
    drop(link, "it does not speak our protocol");
    return false;
  }
  entry.answer = answer.value();
  entry.out += bytes_of(entry.answer);
  entry.state = Entry::State::kProof;
  flush(link, entry);
  return true;
}

bool LinkSet::take_answer(Link link, Entry& entry) {
  if (entry.received.size() < sizeof(Answer)) {
    return true;
  }
  std::memcpy(&entry.answer, entry.received.data(), sizeof(Answer));
  if (const auto limit = read_refusal(entry.answer); limit.has_value()) {
    drop(link,
         fmt::format("the process there has no file descriptor left (ulimit -n is {})", *limit));
    return false;
  }
  auto proof = check_answer(secret_, entry.hello, entry.answer);
  if (proof.has_error()) {
    drop(link, proof.error().message());
    return false;
  }
  entry.out += bytes_of(proof.value());
  const std::string rest = entry.received.substr(sizeof(Answer));
  open(entry);
  flush(link, entry);
  entry.reader.append(rest.data(), rest.size());
  return take_messages(link);
}

bool LinkSet::take_proof(Link link, Entry& entry) {
  Proof proof{};
  if (entry.received.size() < sizeof(proof)) {
    return true;
  }
  std::memcpy(proof.data(), entry.received.data(), sizeof(proof));
  if (!is_proof_good(secret_, entry.hello, entry.answer, proof)) {
    drop(link, "it does not know the secret of the unique id");
    return false;
  }
  const std::string rest = entry.received.substr(sizeof(proof));
  open(entry);
  entry.reader.append(rest.data(), rest.size());
  return take_messages(link);
}

void LinkSet::open(Entry& entry) {
  entry.state = entry.finishes ? Entry::State::kFinishing : Entry::State::kOpen;
  if (entry.finishes) {
    entry.deadline = Deadline::after(times_.finish);
  } else if (!entry.is_stranger) {
    entry.deadline = Deadline::never();
  }  // else until its first message
  entry.received.clear();
  entry.out += std::exchange(entry.waiting, {});
}

bool LinkSet::take_messages(Link link) {
  for (;;) {
    Entry* const entry = find(link);
    if (entry == nullptr) {
      return false;
    }
    if (entry->state == Entry::State::kFinishing) {
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
    entry->is_mutual = true;
    if (std::exchange(entry->is_stranger, false)) {
      entry->deadline = Deadline::never();
    }
    handler_.take(link, std::move(*message.value()));
  }
}

/// A failed send shows as a failed receive.
void LinkSet::flush(Link link, Entry& entry) {
  while (!entry.out.empty() && entry.state != Entry::State::kConnecting) {
    auto sent = entry.socket.try_send(entry.out);
    if (sent.has_error() || sent.value() == 0) {
      break;
    }
    entry.out.erase(0, sent.value());
  }
  if (entry.state == Entry::State::kFinishing && entry.out.empty()) {
    shutdown(entry.socket.fd(), SHUT_WR);
  }
  watch(link, entry);
}

}  // namespace plexus
