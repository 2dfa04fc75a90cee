// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/flow.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "guest/assert.hpp"

namespace plexus::net_ofi {
namespace {

/// The clock is read once per this many idle calls.
constexpr uint32_t kIdleCallsPerLook = 32;

}  // namespace

Flow::Flow(const Options& options)
    : log_(options.log),
      tags_(options.nonce, options.device->tag_mask()),
      here_(this_process(options.settings->host_id)),
      nonce_(options.nonce),
      rails_(*options.device, options.rails, *this),
      greetings_(rails_, here_, options.nonce),
      timer_(options.settings->probe_time, Clock::now()) {}

Result<std::unique_ptr<Flow>> Flow::open(const Options& options) {
  std::unique_ptr<Flow> flow(new Flow(options));
  PLEXUS_TRY(found, options.links->join({options.device, options.peer, options.direction,
                                         options.link, flow->tags_.make(TagKind::kMessage)},
                                        *flow));
  flow->greetings_.set_link(found.number);
  const std::unique_lock lock(found.link->mutex());
  PLEXUS_TRY(flow->rails_.open(found.link));
  PLEXUS_TRY(flow->post_receives(options.direction));
  return flow;
}

Result<void> Flow::post_receives(Direction direction) {
  for (uint32_t i = 0; i < kControlSends; ++i) {
    control_sends_[i].kind = OperationKind::kControlSend;
    control_sends_[i].index = i;
  }
  for (uint32_t i = 0; i < rails_.count() * kControlReceives; ++i) {
    control_receives_[i].kind = OperationKind::kControlReceive;
    control_receives_[i].index = i;
    if (!post_control_receive(i)) {
      return fail(PLEXUS_SYSTEM_ERROR, "{} refused to post receives on a new endpoint",
                  library_text());
    }
  }
  if (direction == Direction::kIn) {
    return ok();  // it sends the answer
  }
  return greetings_.expect_answer(tags_.make(TagKind::kGreeting));
}

Flow::~Flow() {
  if (rails_.link() != nullptr) {  // otherwise it could not be opened
    const auto held = lock();
    close(0);
  }
}

bool Flow::post_control_receive(uint32_t index) {
  const uint32_t rail = index / kControlReceives;
  return rails_.receive(rail, rails_.own(rails_.buffers().incoming[index], rail),
                        tags_.make(TagKind::kControl), control_receives_[index]) == 0;
}

Result<void> Flow::meet(const WireGreeting& peer) {
  PLEXUS_TRY(rails_.meet(peer));
  peer_text_ = fmt::format("{} at {}", process_text(peer.process),
                           rails_.endpoint(0).address_text(peer.addresses[0]));
  watch_ = PeerWatch(here_, peer.process);
  is_peer_inside_ =
      peer.process.host_id == here_.host_id && peer.process.process_id == here_.process_id;
  is_met_ = true;
  greetings_.keep_open(nullptr);
  return ok();
}

bool Flow::progress() {
  rails_.link()->progress();
  if (!std::exchange(has_completed_, false)) {
    return false;
  }
  idle_calls_ = 0;
  timer_.note_event(Clock::now());
  return true;
}

void Flow::take(const Event& event) {
  if (event.operation != nullptr) {  // an endpoint error that persists is no news
    rails_.note_end(*event.operation);
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
    case OperationKind::kGreetingReceive:
      greetings_.note_end(event);
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
  const auto bytes = std::as_bytes(std::span(&rails_.buffers().incoming[index], 1));
  const Result<WireControl> control =
      read_control(bytes.first(std::min<size_t>(event.size_bytes, bytes.size())));
  if (control.has_error()) {
    return depart(fail(PLEXUS_REMOTE_ERROR,
                       "{} sent {}: use the same version of net-ofi on both ends", peer_text_,
                       control.error().text));
  }
  switch (static_cast<ControlType>(control.value().type)) {
    case ControlType::kReady:
      if (!greetings_.take_ready(control.value(), index / kControlReceives)) {
        depart(fail(PLEXUS_REMOTE_ERROR, "{} did not prove that it knows the secret", peer_text_));
      }
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
    timer_.note_departure(Clock::now());
  }
}

bool Flow::send_control(const WireControl& message, uint32_t rail) {
  const auto* const found = std::find(is_control_busy_.begin(), is_control_busy_.end(), false);
  if (found == is_control_busy_.end()) {
    return false;
  }
  const auto index = static_cast<uint32_t>(found - is_control_busy_.begin());
  WireControl& control = rails_.buffers().outgoing[index];
  control = message;
  const ssize_t result = rails_.send(rail, rails_.own(control, rail), tags_.make(TagKind::kControl),
                                     control_sends_[index]);
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
  if (++idle_calls_ % kIdleCallsPerLook != 0 || !is_met_ || !rails_.is_open()) {
    return;
  }
  const auto now = Clock::now();
  if (reason_) {
    has_ended_ = timer_.is_silent(now);
    return;
  }
  if (!timer_.look_is_due(now)) {
    return;
  }
  if (watch_.has_ended()) {
    return depart(fail(PLEXUS_REMOTE_ERROR, "lost the connection with {}: the process has ended",
                       peer_text_));
  }
  // A probe that is out may never end, so others follow it. The rest is for credits and kBye.
  if (timer_.is_probe_due(now) && free_controls_ > kControlSends / 2 &&
      !timer_.note_probe(send_control(make_control(ControlType::kAlive)), now)) {
    depart(fail(PLEXUS_REMOTE_ERROR, "lost the connection with {}: it is no longer reachable",
                peer_text_));
  }
}

void Flow::say_bye(uint64_t count) {
  ShortWait wait;
  bool is_sent = false;
  do {
    rails_.link()->progress();  // first, because the peer's message may already be there
    is_sent = is_sent || (!reason_ && send_control(make_control(ControlType::kBye, count)));
  } while (!(is_sent && are_controls_sent()) && !reason_ && !wait.is_over());
}

void Flow::lose() {
  if (is_met_ && !reason_) {
    say_bye(0);
  }
  depart(fail(PLEXUS_REMOTE_ERROR,
              "lost the connection with {}: the one of the other direction was closed in the "
              "middle of a message",
              peer_text_));
  rails_.stop();
  has_ended_ = true;
}

void Flow::close(uint64_t count) noexcept {
  if (std::exchange(has_left_, true)) {
    return;
  }
  messages_ = nullptr;
  if (rails_.is_open() && is_met_ && !reason_) {
    say_bye(count);
  }
  rails_.stop();
  Link& link = *rails_.link();
  if (greetings_.has_called() && !is_met_) {
    link.expect_unauthenticated_peer();
  }
  if (link.is_shared()) {
    rails_.withdraw();
  }
  const bool is_first = link.is_shared() && rails_.are_idle();
  link.leave(*this);
  const bool is_known_elsewhere = is_met_ && !is_peer_inside_;
  const bool is_unknown = !is_met_ && !greetings_.has_called();
  if (is_shared_memory() && !is_known_elsewhere && !is_unknown) {
    close_with_peer(nonce_, link.release(), greetings_.greeted());
  } else if (!is_first) {
    link.close();
  }
  greetings_.keep_open(nullptr);
  rails_.forget();
}

}  // namespace plexus::net_ofi
