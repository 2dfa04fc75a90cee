// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/flow.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "guest/assert.hpp"

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
/// How long it may take to withdraw the operations on a link that another connection uses. The rest
/// of a message that has begun to arrive takes less, if its sender is there.
constexpr auto kWithdrawTime = 3ms;
/// The clock is read once per this many idle calls.
constexpr uint32_t kIdleCallsPerLook = 32;

/// A wait of close(), in which this thread drives the link. The time is over only after some turns,
/// because a busy host may give the core to others for longer than that.
class ShortWait {
 public:
  explicit ShortWait(Clock::duration time) : deadline_(Clock::now() + time) {}
  /// To be called once in each turn.
  [[nodiscard]] bool is_over() { return ++turns_ > kTurnsLeast && Clock::now() >= deadline_; }

 private:
  static constexpr uint32_t kTurnsLeast = 100;
  Clock::time_point deadline_;
  uint32_t turns_ = 0;
};

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

// --------------------------------------------------------------------------------------- Flow

Flow::Flow(const Options& options)
    : device_(*options.device),
      settings_(*options.settings),
      log_(options.log),
      tags_(options.nonce, options.device->tag_mask()),
      here_(this_process(settings_.host_id)),
      nonce_(options.nonce),
      buffers_(std::make_unique<Buffers>()),
      rail_count_(options.rails),
      link_number_(options.link),
      last_event_(Clock::now()),
      last_look_(last_event_),
      next_probe_(last_event_ + settings_.probe_time),
      probe_pause_(settings_.probe_time) {}

Result<std::unique_ptr<Flow>> Flow::open(const Options& options) {
  std::unique_ptr<Flow> flow(new Flow(options));
  PLEXUS_TRY(found, options.links->join({options.device, options.peer, options.direction,
                                         options.link, flow->tags_.make(TagKind::kMessage)},
                                        *flow));
  flow->link_ = std::move(found.link);
  flow->link_number_ = found.number;
  const auto lock = flow->lock();
  PLEXUS_TRY(flow->open_rails(options));
  return flow;
}

Result<void> Flow::open_rails(const Options& options) {
  for (uint32_t rail = 0; rail < options.rails; ++rail) {
    PLEXUS_TRY(memory, OwnMemory::create(domain(rail), buffers_.get(), sizeof *buffers_));
    rails_.push_back({FI_ADDR_UNSPEC, FI_ADDR_UNSPEC, std::move(memory)});
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
  if (options.direction == Direction::kIn) {
    return ok();  // it sends the answer
  }
  const ssize_t result =
      receive(0, {&buffers_->greeting_in, sizeof(WireGreeting), rails_[0].memory.descriptor()},
              tags_.make(TagKind::kGreeting), greeting_receive_);
  return check_call(result, "post a receive", domain(0).name());
}

Flow::~Flow() {
  if (link_ != nullptr) {  // otherwise it could not be opened
    const auto held = lock();
    close(0);
  }
}

bool Flow::is_shared_memory() const noexcept { return domain(0).provider() == "shm"; }

ssize_t Flow::note(ssize_t result, Operation& operation) noexcept {
  if (result == 0) {
    PLEXUS_DCHECK(!operation.hook.is_linked(), operation.kind);
    operation.sink = this;
    operations_.push_back(operation);
  }
  return result;
}

bool Flow::post_control_receive(uint32_t index) {
  const uint32_t rail = index / kControlReceives;
  return receive(
             rail,
             {&buffers_->incoming[index], sizeof(WireControl), rails_[rail].memory.descriptor()},
             tags_.make(TagKind::kControl), control_receives_[index]) == 0;
}

Result<WireGreeting> Flow::make_greeting() const {
  WireGreeting greeting{};
  greeting.magic = kWireMagic;
  if (!security::fill_random(greeting.challenge)) {
    return fail(PLEXUS_SYSTEM_ERROR, "this system has no source of randomness");
  }
  greeting.nonce = nonce_;
  greeting.rails = static_cast<uint16_t>(rails());
  greeting.link = link_number_;
  greeting.process = here_;
  for (uint32_t rail = 0; rail < rails(); ++rail) {
    PLEXUS_TRY(size, endpoint(rail).read_address(greeting.addresses[rail]));
    greeting.address_bytes = static_cast<uint16_t>(size);
  }
  return greeting;
}

Result<Progress> Flow::send_greeting(const WireGreeting& greeting, fi_addr_t to, uint64_t tag) {
  if (greeting_state_ != Sending::kNot) {
    return is_greeting_sent() ? Progress::kDone : Progress::kPending;
  }
  if (!is_open_) {
    return *reason_;
  }
  buffers_->greeting_out = greeting;
  has_called_ = true;
  const ssize_t result = note(endpoint(0).send({&buffers_->greeting_out, sizeof greeting,
                                                rails_.front().memory.descriptor()},
                                               to, tag, greeting_send_),
                              greeting_send_);
  if (result == 0) {
    greeting_state_ = Sending::kPosted;
  } else if (result != -FI_EAGAIN) {
    return fail(is_peer_gone(result) ? PLEXUS_REMOTE_ERROR : PLEXUS_SYSTEM_ERROR, "{}",
                error_text(result));
  }
  return Progress::kPending;
}

Result<std::optional<WireGreeting>> Flow::receive_greeting(const security::Key& key,
                                                           const security::Nonce& asked) {
  if (!greeting_bytes_) {
    return std::optional<WireGreeting>();
  }
  const auto bytes = std::as_bytes(std::span(&buffers_->greeting_in, 1));
  PLEXUS_TRY(greeting,
             read_greeting(bytes.first(std::min(*greeting_bytes_, bytes.size())), key, &asked));
  return std::optional<WireGreeting>(greeting);
}

Result<void> Flow::meet(const WireGreeting& peer) {
  rail_count_ = std::min<uint32_t>(rail_count_, peer.rails);
  for (uint32_t rail = 0; rail < rails(); ++rail) {
    PLEXUS_TRY(address, endpoint(rail).insert(peer.addresses[rail]));
    rails_[rail].peer = address;
  }
  peer_text_ = fmt::format("{} at {}", process_text(peer.process),
                           endpoint(0).address_text(peer.addresses[0]));
  watch_ = PeerWatch(here_, peer.process);
  is_peer_inside_ =
      peer.process.host_id == here_.host_id && peer.process.process_id == here_.process_id;
  is_met_ = true;
  greeted_.reset();
  return ok();
}

bool Flow::progress() {
  link_->progress();
  if (!std::exchange(has_completed_, false)) {
    return false;
  }
  idle_calls_ = 0;
  last_event_ = Clock::now();
  probe_pause_ = settings_.probe_time;
  next_probe_ = last_event_ + probe_pause_;
  return true;
}

void Flow::take(const Event& event) {
  if (event.operation != nullptr) {  // an endpoint error that persists is no news
    PLEXUS_DCHECK(event.operation->sink == this && event.operation->hook.is_linked(),
                  event.operation->kind);
    operations_.erase(operations_.iterator_to(*event.operation));
    has_completed_ = true;
  }
  if (event.operation == nullptr || event.error != 0) {
    return take_error(event);
  }
  switch (event.operation->kind) {
    case OperationKind::kControlSend:
      end_control_send(event.operation->index);
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
      if (messages_ != nullptr) {
        messages_->take(event);
      }
  }
}

void Flow::end_control_send(uint32_t index) noexcept {
  PLEXUS_DCHECK(is_control_busy_[index] && free_controls_ < kControlSends, index, free_controls_);
  is_control_busy_[index] = false;
  ++free_controls_;
}

void Flow::take_control(const Event& event) {
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

void Flow::expect_ready(const security::Key& key, const Challenges& challenges) {
  expected_ready_.clear();
  for (uint32_t rail = 0; rail < rails(); ++rail) {
    expected_ready_.push_back(make_ready(key, challenges, rail));
  }
}

void Flow::take_ready(const WireControl& ready, uint32_t rail) {
  if (rail < expected_ready_.size() && is_same(ready, expected_ready_[rail])) {
    ready_rails_ |= 1u << rail;
  } else {
    depart(fail(PLEXUS_REMOTE_ERROR, "{} did not prove that it knows the secret", peer_text_));
  }
}

void Flow::take_error(const Event& event) {
  const bool is_message =
      event.operation != nullptr && (event.operation->kind == OperationKind::kMessage ||
                                     event.operation->kind == OperationKind::kPart ||
                                     event.operation->kind == OperationKind::kFlush);
  if (is_message) {
    if (messages_ != nullptr) {
      messages_->take(event);
    }
    return;
  }
  if (event.operation != nullptr && event.operation->kind == OperationKind::kControlSend) {
    end_control_send(event.operation->index);
  }
  depart(fail(is_peer_gone(event.error) ? PLEXUS_REMOTE_ERROR : PLEXUS_SYSTEM_ERROR,
              "lost the connection with {}: {}", peer_text_, error_text(event.error)));
}

void Flow::depart(Failure failure) {
  if (!reason_) {
    reason_ = std::move(failure);
    last_event_ = Clock::now();
  }
}

ssize_t Flow::read_back(uint32_t index, ReadBack read, Operation& operation) {
  Rail& rail = rails_[index];
  const Endpoint& endpoint = link_->endpoint(index);
  if (!is_open_) {
    return -FI_ESHUTDOWN;
  }
  if (rail.self == FI_ADDR_UNSPEC) {
    AddressBytes address{};
    auto self = endpoint.read_address(address).has_value() ? endpoint.insert(address)
                                                           : Result<fi_addr_t>(FI_ADDR_UNSPEC);
    if (self.has_error() || self.value() == FI_ADDR_UNSPEC) {
      return -FI_EADDRNOTAVAIL;
    }
    rail.self = self.value();
  }
  uint64_t& target = buffers_->read_back[index];
  const size_t size_bytes = std::min<size_t>(read.size_bytes, sizeof target);
  return note(endpoint.read({&target, size_bytes, rail.memory.descriptor()}, rail.self,
                            read.address, read.key, operation),
              operation);
}

bool Flow::send_control(const WireControl& message, uint32_t rail) {
  const auto* const found = std::find(is_control_busy_.begin(), is_control_busy_.end(), false);
  if (found == is_control_busy_.end()) {
    return false;
  }
  const auto index = static_cast<uint32_t>(found - is_control_busy_.begin());
  WireControl& control = buffers_->outgoing[index];
  control = message;
  const ssize_t result = send(rail, {&control, sizeof control, rails_[rail].memory.descriptor()},
                              tags_.make(TagKind::kControl), control_sends_[index]);
  if (result == 0) {
    PLEXUS_DCHECK(free_controls_ > 0, index);
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

void Flow::wait_idle() {
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

void Flow::probe(Clock::time_point now) {
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

void Flow::say_bye(uint64_t count) {
  ShortWait wait(kByeTime);
  bool is_sent = false;
  do {
    link_->progress();  // first, because the peer's message may already be there
    is_sent = is_sent || (!reason_ && send_control(ControlType::kBye, count));
  } while (!(is_sent && are_controls_sent()) && !reason_ && !wait.is_over());
}

void Flow::withdraw() {
  for (Operation& operation : operations_) {
    link_->cancel(operation);
  }
  ShortWait wait(kWithdrawTime);
  do {
    link_->progress();
  } while (!operations_.empty() && !wait.is_over());
}

void Flow::lose() {
  if (is_met_ && !reason_) {
    say_bye(0);
  }
  depart(fail(PLEXUS_REMOTE_ERROR,
              "lost the connection with {}: the one of the other direction was closed in the "
              "middle of a message",
              peer_text_));
  is_open_ = false;
  has_ended_ = true;
}

void Flow::close(uint64_t count) noexcept {
  if (std::exchange(has_left_, true)) {
    return;
  }
  messages_ = nullptr;
  if (is_open_ && is_met_ && !reason_) {
    say_bye(count);
  }
  is_open_ = false;
  if (has_called_ && !is_met_) {
    link_->expect_unauthenticated_peer();
  }
  if (link_->is_shared()) {
    withdraw();
  }
  const bool is_first = link_->is_shared() && operations_.empty();
  link_->leave(*this);
  const bool is_known_elsewhere = is_met_ && !is_peer_inside_;
  const bool is_unknown = !is_met_ && !has_called_;
  if (is_shared_memory() && !is_known_elsewhere && !is_unknown) {
    close_with_peer(nonce_, link_->release(), greeted_);
  } else if (!is_first) {
    link_->close();
  }
  greeted_.reset();
  operations_.clear();
}

}  // namespace plexus::net_ofi
