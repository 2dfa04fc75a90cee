// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/connection.hpp"

#include <algorithm>
#include <array>

#include "plugins/support/errno_text.hpp"
#include "plugins/support/handle.hpp"

namespace plexus::net_ib {
namespace {

using namespace std::chrono_literals;

/// Calls without a completion between two looks at the control socket and the ports.
constexpr uint32_t kIdleCalls = 256;
constexpr size_t kCompletionsPerPoll = 16;
constexpr auto kOfferPause = 1s;
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
    rails_.push_back({std::move(rail), RailState::kUp, 0, {}});
  }
}

Connection::~Connection() = default;

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
  if (has_any) {
    idle_calls_ = 0;
  } else if (++idle_calls_ % kIdleCalls == 0 && !is_broken()) {
    look_around();
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
  return count > 0;
}

void Connection::take_completion(uint32_t index, const ibv_wc& completion) {
  RailSlot& slot = rails_[index];
  if (completion.status != IBV_WC_SUCCESS) {
    if (slot.state != RailState::kStopping) {  // there, what was under way ends like this
      lose_rail(index, slot.rail->explain(completion));
    }
    return;
  }
  switch (WorkId::unpack(completion.wr_id).kind) {
    case WorkKind::kProbe:
      take_rail_up(index);
      tell(ControlType::kRailUp, index, "", nullptr);
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
  WireControl control{};
  control.type = static_cast<uint32_t>(ControlType::kFailed);
  control.code = failure_->code;
  write_text(control.text, failure_->text);
  if (!peer_loss_) {
    (void)control_.send(bytes_of(control));
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
  if (is_broken() || slot.state == RailState::kStopping || slot.state == RailState::kDown) {
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
  tell(ControlType::kRailDown, index, why, nullptr);
}

/// Both ends have stopped the rail's queue pairs.
void Connection::finish_stop(uint32_t index) {
  while (!is_broken() && drain(index)) {
  }
  if (is_broken()) {
    return;
  }
  RailSlot& slot = rails_[index];
  slot.rail->destroy();
  slot.state = RailState::kDown;
  slot.next_offer = Clock::now() + kOfferPause;
  resend(index);
}

// ----------------------------------------------------------------------------------- looking
// around

void Connection::look_around() {
  watch_ports();
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
      if (slot.state != RailState::kStopping) {
        lose_rail(control.rail, "the peer has lost it: " + readable(control.text));
      }
      if (slot.state == RailState::kStopping) {
        finish_stop(control.rail);
      }
      return;
    case ControlType::kRailAnswer:
      take_answer(control);
      return;
    case ControlType::kRailRefused:
      if (slot.state == RailState::kOffered) {
        slot.rail->destroy();
        slot.state = RailState::kDown;
        slot.next_offer = Clock::now() + kOfferPause;
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

void Connection::tell(ControlType type,
                      uint32_t index,
                      const std::string& text,
                      const WireRail* info) {
  WireControl control{};
  control.type = static_cast<uint32_t>(type);
  control.rail = index;
  control.generation = rails_[index].generation;
  write_text(control.text, text);
  if (info != nullptr) {
    control.info = *info;
  }
  (void)control_.send(bytes_of(control));  // its end is noticed in read_control()
}

// ----------------------------------------------------------------------------- rails that come
// back

void Connection::offer_lost_rails() {
  for (uint32_t i = 0; i < rails(); ++i) {
    RailSlot& slot = rails_[i];
    if (slot.state != RailState::kDown || Clock::now() < slot.next_offer) {
      continue;
    }
    slot.next_offer = Clock::now() + kOfferPause;
    const Port& port = slot.rail->port();
    const auto state = query_port(port.card->context(), port.number);
    if (state.has_error() || state.value().state != IBV_PORT_ACTIVE ||
        slot.rail->renew().has_error()) {
      continue;
    }
    port.card->set_port_up(port.number, true);
    ++slot.generation;
    slot.state = RailState::kOffered;
    const WireRail info = slot.rail->describe();
    tell(ControlType::kRailOffer, i, "", &info);
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
  const bool works = state.has_value() && state.value().state == IBV_PORT_ACTIVE &&
                     slot.rail->renew().has_value() && slot.rail->connect(control.info).has_value();
  if (!works) {
    slot.rail->destroy();
    tell(ControlType::kRailRefused, control.rail, "", nullptr);
    return;
  }
  port.card->set_port_up(port.number, true);
  slot.state = RailState::kProving;
  const WireRail info = slot.rail->describe();
  tell(ControlType::kRailAnswer, control.rail, "", &info);
}

void Connection::take_answer(const WireControl& control) {
  RailSlot& slot = rails_[control.rail];
  if (slot.state != RailState::kOffered) {
    return;
  }
  slot.state = RailState::kProving;
  if (const auto made = slot.rail->connect(control.info); made.has_error()) {
    lose_rail(control.rail, made.error().text);
    return;
  }
  if (const int error = slot.rail->post_probe({peer_area_, slot.rail->peer().area_rkey});
      error != 0) {
    lose_rail_posting(control.rail, error);
  }
}

void Connection::take_rail_up(uint32_t index) {
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
  WireControl control{};
  control.type = static_cast<uint32_t>(ControlType::kBye);
  write_done(control.done);
  (void)control_.send(bytes_of(control));
}

}  // namespace plexus::net_ib
