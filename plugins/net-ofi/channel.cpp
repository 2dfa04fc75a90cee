// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/channel.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "plugins/net-ofi/parking.hpp"

namespace plexus::net_ofi {
namespace {

using namespace std::chrono_literals;

/// Checking the peer takes a system call, so it happens at most this often.
constexpr auto kLookPause = 5ms;
/// After the peer is gone, its earlier messages are still received until none has come for this
/// long.
constexpr auto kGrace = 100ms;
/// If nothing can be sent to a peer for this long, it is dead: the provider tries to reconnect for
/// the message, and there is no answer. A busy peer still has its connection.
constexpr auto kUnreachable = 5s;
/// Limits the rate of probes to an idle peer.
constexpr auto kProbePauseMax = 60s;
/// How long close() may take to send kBye.
constexpr auto kByeTime = 3ms;
/// The clock is read once per this many idle calls.
constexpr uint32_t kIdleCallsPerLook = 32;

}  // namespace

// ------------------------------------------------------------------------------------- OwnMemory

Result<OwnMemory> OwnMemory::create(Domain& domain, void* data, size_t size_bytes) {
  OwnMemory memory;
  if (domain.needs_registration(PLEXUS_MEMORY_HOST)) {
    const plexus_net_region_t region = {data, size_bytes, 0, -1, PLEXUS_MEMORY_HOST};
    PLEXUS_TRY(registration, domain.memory().acquire(region, domain.name().c_str()));
    memory.cache_ = &domain.memory();
    memory.registration_ = registration;
  }
  return memory;
}

OwnMemory::OwnMemory(OwnMemory&& other) noexcept
    : cache_(other.cache_), registration_(std::exchange(other.registration_, nullptr)) {}

OwnMemory& OwnMemory::operator=(OwnMemory&& other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(registration_, other.registration_);
  return *this;
}

OwnMemory::~OwnMemory() {
  if (registration_ != nullptr) {
    cache_->release(registration_);
  }
}

// --------------------------------------------------------------------------------------- Channel

Channel::Channel(const Options& options)
    : settings_(*options.settings),
      log_(options.log),
      tags_(options.nonce, options.device->tag_mask()),
      here_(this_process(settings_.host_id)),
      nonce_(options.nonce),
      buffers_(std::make_unique<Buffers>()),
      last_event_(Clock::now()),
      last_look_(last_event_),
      next_probe_(last_event_ + settings_.probe_time),
      probe_pause_(settings_.probe_time) {}

Result<std::unique_ptr<Channel>> Channel::open(const Options& options) {
  std::unique_ptr<Channel> channel(new Channel(options));
  PLEXUS_TRY(channel->open_rails(options));
  return channel;
}

Result<void> Channel::open_rails(const Options& options) {
  for (uint32_t rail = 0; rail < options.rails; ++rail) {
    Domain& domain = *options.device->rails[rail];
    PLEXUS_TRY(endpoint, Endpoint::open(options.device->rails[rail]));
    PLEXUS_TRY(memory, OwnMemory::create(domain, buffers_.get(), sizeof *buffers_));
    const bool is_shared_memory = domain.provider() == "shm";
    rails_.push_back(
        {std::move(endpoint), FI_ADDR_UNSPEC, FI_ADDR_UNSPEC, std::move(memory), is_shared_memory});
  }
  for (uint32_t i = 0; i < kControlSends; ++i) {
    control_sends_[i].kind = OperationKind::kControlSend;
    control_sends_[i].index = i;
  }
  for (uint32_t i = 0; i < options.rails * kControlReceives; ++i) {
    control_receives_[i].kind = OperationKind::kControlReceive;
    control_receives_[i].index = i;
    if (!post_control_receive(i)) {
      return fail(PLEXUS_SYSTEM_ERROR, "{} refused to post receives on a new endpoint",
                  library_text());
    }
  }
  greeting_send_.kind = OperationKind::kGreetingSend;
  greeting_receive_.kind = OperationKind::kGreetingReceive;
  const ssize_t result = rails_[0].endpoint.receive(
      {&buffers_->greeting_in, sizeof(WireGreeting), rails_[0].memory.descriptor()},
      tags_.make(TagKind::kGreeting), greeting_receive_);
  return check_call(result, "post a receive", rails_[0].endpoint.domain().name());
}

Channel::~Channel() { close(0); }

bool Channel::is_shared_memory() const noexcept { return rails_.front().is_shared_memory; }

bool Channel::post_control_receive(uint32_t index) {
  const Rail& rail = rails_[index / kControlReceives];
  return rail.endpoint.receive(
             {&buffers_->incoming[index], sizeof(WireControl), rail.memory.descriptor()},
             tags_.make(TagKind::kControl), control_receives_[index]) == 0;
}

Result<WireGreeting> Channel::make_greeting() const {
  WireGreeting greeting{};
  greeting.magic = kWireMagic;
  if (!security::fill_random(greeting.challenge)) {
    return fail(PLEXUS_SYSTEM_ERROR, "this system has no source of randomness");
  }
  greeting.nonce = nonce_;
  greeting.rails = static_cast<uint16_t>(rails());
  greeting.process = here_;
  for (uint32_t rail = 0; rail < rails(); ++rail) {
    PLEXUS_TRY(size, rails_[rail].endpoint.read_address(greeting.addresses[rail]));
    greeting.address_bytes = static_cast<uint16_t>(size);
  }
  return greeting;
}

Result<Progress> Channel::send_greeting(const WireGreeting& greeting, fi_addr_t to, uint64_t tag) {
  if (greeting_state_ != Sending::kNot) {
    return is_greeting_sent() ? Progress::kDone : Progress::kPending;
  }
  buffers_->greeting_out = greeting;
  has_called_ = true;
  const Rail& rail = rails_.front();
  const ssize_t result =
      rail.endpoint.send({&buffers_->greeting_out, sizeof greeting, rail.memory.descriptor()}, to,
                         tag, greeting_send_);
  if (result == 0) {
    greeting_state_ = Sending::kPosted;
  } else if (result != -FI_EAGAIN) {
    return fail(is_peer_gone(result) ? PLEXUS_REMOTE_ERROR : PLEXUS_SYSTEM_ERROR, "{}",
                error_text(result));
  }
  return Progress::kPending;
}

Result<std::optional<WireGreeting>> Channel::receive_greeting(const security::Key& key,
                                                              const security::Nonce& asked) {
  if (!greeting_bytes_) {
    return std::optional<WireGreeting>();
  }
  const auto bytes = std::as_bytes(std::span(&buffers_->greeting_in, 1));
  PLEXUS_TRY(greeting,
             read_greeting(bytes.first(std::min(*greeting_bytes_, bytes.size())), key, &asked));
  return std::optional<WireGreeting>(greeting);
}

Result<void> Channel::meet(const WireGreeting& peer) {
  while (rails() > peer.rails) {
    rails_.pop_back();
  }
  for (uint32_t rail = 0; rail < rails(); ++rail) {
    PLEXUS_TRY(address, rails_[rail].endpoint.insert(peer.addresses[rail]));
    rails_[rail].peer = address;
  }
  peer_text_ = fmt::format("{} at {}", process_text(peer.process),
                           rails_[0].endpoint.address_text(peer.addresses[0]));
  watch_ = PeerWatch(here_, peer.process);
  is_peer_inside_ =
      peer.process.host_id == here_.host_id && peer.process.process_id == here_.process_id;
  is_met_ = true;
  return ok();
}

bool Channel::progress(Sink* sink) {
  constexpr size_t kEvents = 16;
  std::array<Event, kEvents> events;
  bool is_any = false;
  for (const Rail& rail : rails_) {
    if (!is_open_) {
      break;  // an earlier event ended the connection
    }
    const size_t count = rail.endpoint.poll(events);
    for (size_t i = 0; i < count; ++i) {
      take(events[i], sink);
      // an endpoint error that persists is no progress
      is_any = is_any || events[i].operation != nullptr;
    }
  }
  if (is_any) {
    idle_calls_ = 0;
    last_event_ = Clock::now();
    probe_pause_ = settings_.probe_time;
    next_probe_ = last_event_ + probe_pause_;
  }
  return is_any;
}

void Channel::take(const Event& event, Sink* sink) {
  if (event.operation == nullptr || event.error != 0) {
    return take_error(event, sink);
  }
  switch (event.operation->kind) {
    case OperationKind::kControlSend:
      is_control_busy_[event.operation->index] = false;
      ++free_controls_;
      break;
    case OperationKind::kControlReceive:
      take_control(event);
      break;
    case OperationKind::kGreetingSend:
      greeting_state_ = Sending::kSent;
      break;
    case OperationKind::kGreetingReceive:
      greeting_bytes_ = event.size_bytes;
      break;
    default:
      if (sink != nullptr) {
        sink->take(event);
      }
  }
}

void Channel::take_control(const Event& event) {
  const uint32_t index = event.operation->index;
  const auto bytes = std::as_bytes(std::span(&buffers_->incoming[index], 1));
  const Result<WireControl> control =
      read_control(bytes.first(std::min<size_t>(event.size_bytes, bytes.size())));
  if (control.has_error()) {
    return depart(fail(PLEXUS_REMOTE_ERROR,
                       "{} sent {}: use the same version of net-ofi on both ends", peer_text_,
                       control.error().text));
  }
  switch (static_cast<ControlType>(control.value().type)) {
    case ControlType::kReady:
      take_ready(control.value(), index / kControlReceives);
      break;
    case ControlType::kCredit:
      peer_count_ = std::max(peer_count_, control.value().count);
      break;
    case ControlType::kAlive:
      break;
    case ControlType::kBye:
      depart(fail(PLEXUS_REMOTE_ERROR, "{} closed the connection", peer_text_));
      break;
  }
  if (!post_control_receive(index)) {
    depart(fail(PLEXUS_SYSTEM_ERROR,
                "libfabric refused to post a receive for control messages of {}", peer_text_));
  }
}

void Channel::expect_ready(const security::Key& key, const Challenges& challenges) {
  expected_ready_.clear();
  for (uint32_t rail = 0; rail < rails(); ++rail) {
    expected_ready_.push_back(make_ready(key, challenges, rail));
  }
}

void Channel::take_ready(const WireControl& ready, uint32_t rail) {
  if (rail < expected_ready_.size() && is_same(ready, expected_ready_[rail])) {
    ready_rails_ |= 1u << rail;
  } else {
    depart(fail(PLEXUS_REMOTE_ERROR, "{} did not prove that it knows the secret", peer_text_));
  }
}

void Channel::take_error(const Event& event, Sink* sink) {
  const bool is_message =
      event.operation != nullptr && (event.operation->kind == OperationKind::kMessage ||
                                     event.operation->kind == OperationKind::kPart ||
                                     event.operation->kind == OperationKind::kFlush);
  if (is_message && sink != nullptr) {
    return sink->take(event);
  }
  if (event.operation != nullptr && event.operation->kind == OperationKind::kControlSend) {
    is_control_busy_[event.operation->index] = false;
    ++free_controls_;
  }
  depart(fail(is_peer_gone(event.error) ? PLEXUS_REMOTE_ERROR : PLEXUS_SYSTEM_ERROR,
              "lost the connection with {}: {}", peer_text_, event.text));
}

void Channel::depart(Failure failure) {
  if (!reason_) {
    reason_ = std::move(failure);
    last_event_ = Clock::now();
  }
}

ssize_t Channel::read_back(uint32_t index, ReadBack read, Operation& operation) {
  Rail& rail = rails_[index];
  if (rail.self == FI_ADDR_UNSPEC) {
    AddressBytes address{};
    auto self = rail.endpoint.read_address(address).has_value() ? rail.endpoint.insert(address)
                                                                : Result<fi_addr_t>(FI_ADDR_UNSPEC);
    if (self.has_error() || self.value() == FI_ADDR_UNSPEC) {
      return -FI_EADDRNOTAVAIL;
    }
    rail.self = self.value();
  }
  uint64_t& target = buffers_->read_back[index];
  const size_t size_bytes = std::min<size_t>(read.size_bytes, sizeof target);
  return rail.endpoint.read({&target, size_bytes, rail.memory.descriptor()}, rail.self,
                            read.address, read.key, operation);
}

bool Channel::send_control(const WireControl& message, uint32_t rail) {
  const auto* const found = std::find(is_control_busy_.begin(), is_control_busy_.end(), false);
  if (found == is_control_busy_.end()) {
    return false;
  }
  const auto index = static_cast<uint32_t>(found - is_control_busy_.begin());
  WireControl& control = buffers_->outgoing[index];
  control = message;
  const ssize_t result = rails_[rail].endpoint.send(
      {&control, sizeof control, rails_[rail].memory.descriptor()}, rails_[rail].peer,
      tags_.make(TagKind::kControl), control_sends_[index]);
  if (result == 0) {
    is_control_busy_[index] = true;
    --free_controls_;
    return true;
  }
  if (result != -FI_EAGAIN) {
    depart(fail(is_peer_gone(result) ? PLEXUS_REMOTE_ERROR : PLEXUS_SYSTEM_ERROR,
                "lost the connection with {}: {}", peer_text_, error_text(result)));
  }
  return false;
}

void Channel::wait_idle() {
  if (++idle_calls_ % kIdleCallsPerLook != 0 || !is_met_ || !is_open_) {
    return;
  }
  const auto now = Clock::now();
  if (reason_) {
    has_ended_ = now - last_event_ > kGrace;
    return;
  }
  if (now - last_look_ < kLookPause) {
    return;
  }
  last_look_ = now;
  if (watch_.has_ended()) {
    return depart(fail(PLEXUS_REMOTE_ERROR, "lost the connection with {}: the process has ended",
                       peer_text_));
  }
  if (now >= next_probe_) {
    probe(now);
  }
}

void Channel::probe(Clock::time_point now) {
  // One that is out may never end, so others follow it. The rest is for credits and kBye.
  if (free_controls_ <= kControlSends / 2) {
    return;
  }
  if (send_control(ControlType::kAlive, 0)) {
    refused_since_.reset();
    probe_pause_ = std::min<Clock::duration>(probe_pause_ * 2, kProbePauseMax);
    next_probe_ = now + probe_pause_;
    return;
  }
  refused_since_ = refused_since_.value_or(now);
  if (now - *refused_since_ > kUnreachable) {
    depart(fail(PLEXUS_REMOTE_ERROR, "lost the connection with {}: it is no longer reachable",
                peer_text_));
  }
}

void Channel::close(uint64_t count) noexcept {
  if (!std::exchange(is_open_, false) || rails_.empty()) {  // empty: it could not be opened
    return;
  }
  if (is_met_ && !reason_) {
    const auto deadline = Clock::now() + kByeTime;
    bool is_said = false;
    do {
      is_open_ = true;
      progress(nullptr);  // first, because the peer's message may already be there
      is_open_ = false;
      is_said = is_said || (!reason_ && send_control(ControlType::kBye, count));
    } while (!(is_said && are_controls_sent()) && !reason_ && Clock::now() < deadline);
  }
  const bool is_known_elsewhere = is_met_ && !is_peer_inside_;
  const bool is_unknown = !is_met_ && !has_called_;
  if (has_called_ && !is_met_) {
    rails_.front().endpoint.settle();
  }
  std::vector<Endpoint> endpoints;
  for (Rail& rail : rails_) {
    endpoints.push_back(std::move(rail.endpoint));
  }
  if (is_shared_memory() && !is_known_elsewhere && !is_unknown) {
    park(nonce_, std::move(endpoints));
  }
}

}  // namespace plexus::net_ofi
