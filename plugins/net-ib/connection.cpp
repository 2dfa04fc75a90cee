// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/connection.hpp"

#include <algorithm>
#include <array>
#include <sched.h>

#include "guest/assert.hpp"
#include "plugins/net-ib/neighbours.hpp"
#include "plugins/support/errno_text.hpp"
#include "plugins/support/handle.hpp"

namespace plexus::net_ib {
namespace {

using namespace std::chrono_literals;

/// Calls without a completion between two looks at the control socket and the ports, and calls of
/// any kind, for a connection that is never idle.
constexpr uint32_t kIdleCalls = 256;
constexpr uint32_t kCalls = 4 * 1024;
constexpr size_t kCompletionsPerPoll = 16;
constexpr auto kOfferPause = 1s;
/// For what had arrived over a rail that is stopped: the card has it already.
constexpr auto kDrainTime = 5s;
/// For messages that the peer knows to be here when it leaves.
constexpr auto kPatience = 5s;

}  // namespace

Connection::Connection(Link link, const Place& place, Role role)
    : log_(place.log),
      place_(place),
      role_(role),
      peer_name_(std::move(link.peer_name)),
      peer_area_(link.peer.area_address),
      area_(std::move(link.area)),
      control_(std::move(link.control)) {
  for (auto& rail : link.rails) {
    RailSlot& slot = rails_.emplace_back();
    slot.rail = std::move(rail);
  }
}

Connection::~Connection() = default;

void Connection::enlist() { Neighbours::instance().add(*this); }

void Connection::retire() { Neighbours::instance().remove(*this); }

void Connection::Turn::yield() noexcept { ::sched_yield(); }

// ----------------------------------------------------------------------------------- registration

Result<plexus_net_memory_t*> Connection::register_memory(const plexus_net_region_t& region) {
  if (region.size_bytes == 0) {
    return nullptr;
  }
  auto memory = std::make_unique<plexus_net_memory_t>();
  memory->kind = region.kind;
  for (const RailSlot& slot : rails_) {
    Card& card = *slot.rail->port().card;
    auto registered =
        (region.kind & card.memory_kinds()) != 0
            ? card.memory().acquire(region, card.name().c_str())
            : Result<ibv_mr*>(fail(PLEXUS_INVALID_ARGUMENT,
                                   "{} cannot access memory of this kind (PLEXUS_MEMORY_* {}): its "
                                   "driver lacks nvidia_peermem or dma-buf",
                                   card.name(), region.kind));
    if (registered.has_error()) {
      deregister(*memory);
      return registered.error();
    }
    memory->rails.push_back({&card, registered.value()});
  }
  return plugin::give_to_host(std::move(memory));
}

void deregister(plexus_net_memory_t& memory) {
  for (const auto& each : memory.rails) {
    each.card->memory().release(each.region);
  }
  memory.rails.clear();
}

// ------------------------------------------------------------------------------------ completions

void Connection::poll() {
  bool has_any = false;
  for (uint32_t i = 0; i < rails() && !is_broken(); ++i) {
    has_any = drain(i) || has_any;
  }
  idle_calls_ = has_any ? 0 : idle_calls_ + 1;
  const bool looks = idle_calls_ == kIdleCalls || ++calls_ % kCalls == 0;
  if (looks && !is_broken()) {
    idle_calls_ = 0;
    look_around();
    Neighbours::instance().serve_others(*this);
  }
  if (looks || has_any) {
    drain_stopping();
  }
}

void Connection::try_serve() {
  if (is_taken_.test_and_set(std::memory_order_acquire)) {
    return;  // the host asks itself
  }
  for (uint32_t i = 0; i < rails() && !is_broken(); ++i) {
    (void)drain(i);
  }
  if (!is_broken()) {
    look_around();
  }
  drain_stopping();
  is_taken_.clear(std::memory_order_release);
}

/// The peer waits for the report of a rail that is stopped here, and this may be the last call.
void Connection::drain_stopping() {
  for (uint32_t i = 0; i < rails(); ++i) {
    while (!is_broken() && rails_[i].state == RailState::kStopping && drain(i)) {
    }
  }
}

/// Takes some completions of a rail. True: there were some.
bool Connection::drain(uint32_t index) {
  std::array<ibv_wc, kCompletionsPerPoll> completions;  // NOLINT(*-member-init): written by poll
  size_t count = 0;
  if (!rails_[index].rail->poll(completions, count)) {
    lose_rail(index, fmt::format("the completion queue of {} failed", rail(index).port().name));
    return false;
  }
  for (size_t i = 0; i < count && !is_broken(); ++i) {
    take_completion(index, completions[i]);
  }
  if (rails_[index].state == RailState::kStopping && !is_broken()) {
    try_report_stop(index);
  }
  return count > 0;
}

void Connection::take_completion(uint32_t index, const ibv_wc& completion) {
  RailSlot& slot = rails_[index];
  if (completion.status != IBV_WC_SUCCESS) {
    lose_rail(index, slot.rail->explain(completion));  // if it is not stopped, when all ends so
    return;
  }
  switch (WorkId::unpack(completion.wr_id).kind) {
    case WorkKind::kProbe:
      if (slot.state == RailState::kProving) {
        take_rail_up(index);
        send_control(message_about(ControlType::kRailUp, index));
      }
      return;
    case WorkKind::kControl:
      return;
    default:
      take_done(index, completion);
  }
}

// ---------------------------------------------------------------------------------------- failure

uint32_t Connection::rails_up() const noexcept {
  return static_cast<uint32_t>(
      std::count_if(rails_.begin(), rails_.end(),
                    [](const RailSlot& each) { return each.state == RailState::kUp; }));
}

void Connection::break_off(Failure failure) {
  if (is_broken()) {
    return;
  }
  failure_ = std::move(failure);
  if (!peer_loss_) {
    WireControl control = message_about(ControlType::kFailed, 0);
    control.code = failure_->code;
    write_text(control.text, failure_->text);
    send_control(control);
  }
  for (const RailSlot& slot : rails_) {
    slot.rail->destroy();
  }
}

int32_t Connection::report_failure() const noexcept {
  log_.error(failure_->text.c_str());
  return failure_->code;
}

void Connection::lose_rail_posting(uint32_t index, int error) {
  lose_rail(index, fmt::format("{} port {}: cannot post: {}", rail(index).port().card->name(),
                               rail(index).port().number, plugin::errno_text(error)));
}

void Connection::lose_rail(uint32_t index, const std::string& why) {
  RailSlot& slot = rails_[index];
  const bool is_in_use = slot.state == RailState::kUp || slot.state == RailState::kOffered ||
                         slot.state == RailState::kProving;
  if (is_broken() || !is_in_use) {
    return;
  }
  const bool is_last = slot.state == RailState::kUp && rails_up() == 1;
  if (is_last) {
    read_control();  // the peer may have said why, or be gone
    if (!is_broken() && !peer_loss_) {
      break_off(fail(PLEXUS_REMOTE_ERROR, "lost the connection to {}: {}", peer_name_, why));
    }
    return;
  }
  stop_rail(index, why);
}

void Connection::stop_rail(uint32_t index, const std::string& why) {
  RailSlot& slot = rails_[index];
  if (slot.state == RailState::kUp) {
    log_.warn("net-ib: the connection to {} goes on without {}: {}", peer_name_,
              slot.rail->port().name, why);
  }
  slot.rail->stop();
  slot.state = RailState::kStopping;
  slot.is_peer_stopped = false;
  slot.reason = why;
  slot.deadline = Clock::now() + kDrainTime;
  try_report_stop(index);
}

/// Tells the peer that the rail is stopped here, when all that had arrived is taken: what is not
/// reported as here comes again.
void Connection::try_report_stop(uint32_t index) {
  RailSlot& slot = rails_[index];
  PLEXUS_DCHECK(slot.state == RailState::kStopping, index, slot.state);
  if (!slot.rail->is_drained()) {
    return;
  }
  slot.state = RailState::kStopped;
  WireControl control = message_about(ControlType::kRailDown, index);
  write_text(control.text, slot.reason);
  write_done(control.done);
  send_control(control);
  if (slot.is_peer_stopped) {
    finish_stop(index, {});  // only a receiver waits for its drain
  }
}

void Connection::take_peer_stopped(uint32_t index, const WireDone& done) {
  RailSlot& slot = rails_[index];
  switch (slot.state) {
    case RailState::kStopping:
      slot.is_peer_stopped = true;
      return;
    case RailState::kStopped:
      finish_stop(index, done);
      return;
    case RailState::kDown:  // refused, and lost there at the same time: it waits for this
      send_control(message_about(ControlType::kRailDown, index));
      return;
    default:
      return;
  }
}

/// Both ends have stopped the rail's queue pairs.
void Connection::finish_stop(uint32_t index, const WireDone& done) {
  PLEXUS_DCHECK(rails_[index].state == RailState::kStopped, index, rails_[index].state);
  while (!is_broken() && drain(index)) {
  }
  if (is_broken()) {
    return;
  }
  RailSlot& slot = rails_[index];
  slot.rail->destroy();
  slot.state = RailState::kDown;
  slot.deadline = Clock::now() + kOfferPause;
  resend(index, done);
}

// --------------------------------------------------------------------------------- looking around

void Connection::look_around() {
  watch_ports();
  check_stops();
  if (peer_loss_) {
    end_without_peer();
    return;
  }
  if (!is_broken()) {
    read_control();
  }
  if (!is_broken() && role_ == Role::kSender) {
    offer_lost_rails();
  }
}

void Connection::watch_ports() {
  for (uint32_t i = 0; i < rails() && !is_broken(); ++i) {
    const Port& port = rail(i).port();
    port.card->take_events();
    if (!port.card->is_port_up(port.number)) {
      lose_rail(i, fmt::format("{} port {} is down (last event: {}); check its cable, switch and "
                               "network interface",
                               port.card->name(), port.number, port.card->last_event()));
    }
  }
}

void Connection::check_stops() {
  for (uint32_t i = 0; i < rails() && !is_broken(); ++i) {
    if (rails_[i].state == RailState::kStopping && Clock::now() > rails_[i].deadline) {
      break_off(fail(PLEXUS_SYSTEM_ERROR,
                     "lost the connection to {}: {} does not end what was under way when it was "
                     "lost ({}); see the kernel's log for the card",
                     peer_name_, rail(i).port().name, rails_[i].reason));
    }
  }
}

void Connection::read_control() {
  (void)control_.flush();  // an end is noticed below
  while (!is_broken() && !peer_loss_) {
    WireControl bytes{};
    const auto progress = control_.receive(writable_bytes_of(bytes));
    if (progress.has_error()) {
      lose_peer(progress.error().text);
      return;
    }
    if (progress.value() == Progress::kPending) {
      return;
    }
    const auto control = net_ib::read_control(bytes_of(bytes));
    if (control.has_error()) {
      break_off(fail(PLEXUS_REMOTE_ERROR, "{} sent what is not of net-ib: {}", peer_name_,
                     control.error().text));
      return;
    }
    take_control(control.value());
  }
}

void Connection::take_control(const WireControl& control) {
  const auto type = static_cast<ControlType>(control.type);
  if (type == ControlType::kFailed) {
    for (uint32_t i = 0; i < rails(); ++i) {
      while (!is_broken() && drain(i)) {
      }
    }
    const bool is_code = control.code >= PLEXUS_CUDA_ERROR && control.code <= PLEXUS_REMOTE_ERROR;
    break_off(fail(is_code ? control.code : PLEXUS_REMOTE_ERROR, "{} has failed: {}", peer_name_,
                   readable(control.text)));
  } else if (type == ControlType::kBye) {
    peer_done_ = control.done;
  } else if (control.rail < rails()) {
    take_rail_control(control);
  }
}

void Connection::take_rail_control(const WireControl& control) {
  RailSlot& slot = rails_[control.rail];
  const auto type = static_cast<ControlType>(control.type);
  if (type == ControlType::kRailOffer) {
    take_offer(control);
    return;
  }
  if (control.generation != slot.generation) {
    return;  // of queue pairs that are gone
  }
  switch (type) {
    case ControlType::kRailDown:
      lose_rail(control.rail, "the peer has lost it: " + readable(control.text));
      if (!is_broken()) {
        take_peer_stopped(control.rail, control.done);
      }
      return;
    case ControlType::kRailAnswer:
      take_answer(control);
      return;
    case ControlType::kRailRefused:
      if (slot.state == RailState::kOffered) {
        slot.rail->destroy();
        slot.state = RailState::kDown;
        slot.deadline = Clock::now() + kOfferPause;
      }
      return;
    case ControlType::kRailUp:
      if (slot.state == RailState::kProving) {
        take_rail_up(control.rail);
      }
      return;
    default:
      return;
  }
}

WireControl Connection::message_about(ControlType type, uint32_t index) const {
  WireControl control{};
  control.type = static_cast<uint32_t>(type);
  control.rail = index;
  control.generation = rails_[index].generation;
  return control;
}

void Connection::send_control(const WireControl& control) {
  (void)control_.send(bytes_of(control));  // its end is noticed in read_control()
}

// ----------------------------------------------------------------------- rails that come back

void Connection::offer_lost_rails() {
  for (uint32_t i = 0; i < rails(); ++i) {
    RailSlot& slot = rails_[i];
    if (slot.state != RailState::kDown || Clock::now() < slot.deadline) {
      continue;
    }
    slot.deadline = Clock::now() + kOfferPause;
    const Port& port = slot.rail->port();
    const auto state = query_port(port.card->context(), port.number);
    if (state.has_error() || state.value().state != IBV_PORT_ACTIVE ||
        slot.rail->renew().has_error()) {
      continue;
    }
    port.card->set_port_up(port.number, true);
    ++slot.generation;
    slot.state = RailState::kOffered;
    WireControl control = message_about(ControlType::kRailOffer, i);
    control.info = slot.rail->describe();
    send_control(control);
  }
}

void Connection::take_offer(const WireControl& control) {
  RailSlot& slot = rails_[control.rail];
  if (slot.state != RailState::kDown || role_ != Role::kReceiver) {
    return;  // the sender offers what both ends have stopped
  }
  slot.generation = control.generation;
  const Port& port = slot.rail->port();
  const auto state = query_port(port.card->context(), port.number);
  bool works =
      state.has_value() && state.value().state == IBV_PORT_ACTIVE && slot.rail->renew().has_value();
  if (works) {
    const auto made = slot.rail->connect(control.info);
    works = made.has_value() && made.value() == Progress::kDone;  // there are further offers
  }
  if (!works) {
    slot.rail->destroy();
    send_control(message_about(ControlType::kRailRefused, control.rail));
    return;
  }
  port.card->set_port_up(port.number, true);
  slot.state = RailState::kProving;
  WireControl answer = message_about(ControlType::kRailAnswer, control.rail);
  answer.info = slot.rail->describe();
  send_control(answer);
}

void Connection::take_answer(const WireControl& control) {
  RailSlot& slot = rails_[control.rail];
  if (slot.state != RailState::kOffered) {
    return;
  }
  slot.state = RailState::kProving;
  if (const auto made = slot.rail->connect(control.info);
      made.has_error() || made.value() == Progress::kPending) {
    lose_rail(control.rail,
              made.has_error() ? made.error().text : "its peer's address is not found");
    return;
  }
  if (const int error = slot.rail->post_probe({peer_area_, slot.rail->peer().area_rkey});
      error != 0) {
    lose_rail_posting(control.rail, error);
  }
}

void Connection::take_rail_up(uint32_t index) {
  PLEXUS_DCHECK(rails_[index].state == RailState::kProving, index, rails_[index].state);
  rails_[index].state = RailState::kUp;
  log_.info("net-ib: {} is back in the connection to {}", rail(index).port().name, peer_name_);
}

// ---------------------------------------------------------------------------------- the peer's end

void Connection::lose_peer(const std::string& why) {
  peer_loss_ = why;
  patience_ = Clock::now() + kPatience;
  end_without_peer();
}

/// What has arrived still counts; then the connection has failed.
void Connection::end_without_peer() {
  for (uint32_t i = 0; i < rails(); ++i) {
    while (!is_broken() && drain(i)) {
    }
  }
  if (is_broken() || (peer_done_ && !has_all(*peer_done_) && Clock::now() < patience_)) {
    return;
  }
  if (peer_done_) {
    take_bye(*peer_done_);
  }
  break_off(fail(PLEXUS_REMOTE_ERROR, "lost the connection to {}: {}", peer_name_, *peer_loss_));
}

void Connection::say_bye() {
  if (is_broken() || peer_loss_) {
    return;
  }
  WireControl control = message_about(ControlType::kBye, 0);
  write_done(control.done);
  send_control(control);
}

}  // namespace plexus::net_ib
