// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/rail_set.hpp"

#include <algorithm>
#include <utility>

#include "plugins/support/errno_text.hpp"

namespace plexus::net_ib {
namespace {

using namespace std::chrono_literals;

constexpr auto kOfferPause = 1s;
/// For what had arrived over a rail that is stopped: the card has it already.
constexpr auto kDrainTime = 5s;

}  // namespace

RailSet::RailSet(std::vector<std::unique_ptr<Rail>> rails, const Options& options, End& end)
    : log_(options.log),
      role_(options.role),
      peer_name_(options.peer_name),
      peer_area_(options.peer_area),
      end_(end) {
  for (auto& rail : rails) {
    slots_.emplace_back().rail = std::move(rail);
  }
}

uint32_t RailSet::up() const noexcept {
  return static_cast<uint32_t>(std::count_if(
      slots_.begin(), slots_.end(), [](const Slot& each) { return each.state == State::kUp; }));
}

void RailSet::lose_posting(uint32_t index, int error) {
  lose(index, fmt::format("{} port {}: cannot post: {}", rail(index).port().card->name(),
                          rail(index).port().number, plugin::errno_text(error)));
}

void RailSet::lose(uint32_t index, const std::string& why) {
  Slot& slot = slots_[index];
  const bool is_in_use =
      slot.state == State::kUp || slot.state == State::kOffered || slot.state == State::kProving;
  if (end_.is_broken() || !is_in_use) {
    return;
  }
  const bool is_last = slot.state == State::kUp && up() == 1;
  if (is_last) {
    end_.read_control();  // the peer may have said why, or be gone
    if (!end_.is_broken() && !end_.has_peer_left()) {
      end_.break_off(fail(PLEXUS_REMOTE_ERROR, "lost the connection to {}: {}", peer_name_, why));
    }
    return;
  }
  stop(index, why);
}

void RailSet::stop(uint32_t index, const std::string& why) {
  Slot& slot = slots_[index];
  if (slot.state == State::kUp) {
    log_.warn("net-ib: the connection to {} goes on without {}: {}", peer_name_,
              slot.rail->port().name, why);
  }
  slot.rail->stop();
  slot.state = State::kStopping;
  slot.is_peer_stopped = false;
  slot.reason = why;
  slot.deadline = Clock::now() + kDrainTime;
  try_report_stop(index);
}

/// Tells the peer that the rail is stopped here, when all that had arrived is taken: what is not
/// reported as here comes again.
void RailSet::try_report_stop(uint32_t index) {
  Slot& slot = slots_[index];
  PLEXUS_DCHECK(slot.state == State::kStopping, index, slot.state);
  if (!slot.rail->is_drained()) {
    return;
  }
  slot.state = State::kStopped;
  WireControl control = message_about(ControlType::kRailDown, index);
  write_text(control.text, slot.reason);
  end_.write_done(control.done);
  end_.send_control(control);
  if (slot.is_peer_stopped) {
    finish_stop(index, {});  // only a receiver waits for its drain
  }
}

void RailSet::take_peer_stopped(uint32_t index, const WireDone& done) {
  Slot& slot = slots_[index];
  switch (slot.state) {
    case State::kStopping:
      slot.is_peer_stopped = true;
      return;
    case State::kStopped:
      finish_stop(index, done);
      return;
    case State::kDown:  // refused, and lost there at the same time: it waits for this
      end_.send_control(message_about(ControlType::kRailDown, index));
      return;
    default:
      return;
  }
}

/// Both ends have stopped the rail's queue pairs.
void RailSet::finish_stop(uint32_t index, const WireDone& done) {
  PLEXUS_DCHECK(slots_[index].state == State::kStopped, index, slots_[index].state);
  while (!end_.is_broken() && end_.drain(index)) {
  }
  if (end_.is_broken()) {
    return;
  }
  Slot& slot = slots_[index];
  slot.rail->destroy();
  slot.state = State::kDown;
  slot.deadline = Clock::now() + kOfferPause;
  end_.resend(index, done);
}

void RailSet::watch_ports() {
  for (uint32_t i = 0; i < count() && !end_.is_broken(); ++i) {
    const Port& port = rail(i).port();
    port.card->take_events();
    if (!port.card->is_port_up(port.number)) {
      lose(i, fmt::format("{} port {} is down (last event: {}); check its cable, switch and "
                          "network interface",
                          port.card->name(), port.number, port.card->last_event()));
    }
  }
}

void RailSet::check_stops() {
  for (uint32_t i = 0; i < count() && !end_.is_broken(); ++i) {
    if (slots_[i].state == State::kStopping && Clock::now() > slots_[i].deadline) {
      end_.break_off(
          fail(PLEXUS_SYSTEM_ERROR,
               "lost the connection to {}: {} does not end what was under way when it was "
               "lost ({}); see the kernel's log for the card",
               peer_name_, rail(i).port().name, slots_[i].reason));
    }
  }
}

void RailSet::take_control(const WireControl& control) {
  Slot& slot = slots_[control.rail];
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
      lose(control.rail, "the peer has lost it: " + readable(control.text));
      if (!end_.is_broken()) {
        take_peer_stopped(control.rail, control.done);
      }
      return;
    case ControlType::kRailAnswer:
      take_answer(control);
      return;
    case ControlType::kRailRefused:
      if (slot.state == State::kOffered) {
        slot.rail->destroy();
        slot.state = State::kDown;
        slot.deadline = Clock::now() + kOfferPause;
      }
      return;
    case ControlType::kRailUp:
      if (slot.state == State::kProving) {
        take_up(control.rail);
      }
      return;
    default:
      return;
  }
}

WireControl RailSet::message_about(ControlType type, uint32_t index) const {
  WireControl control{};
  control.type = static_cast<uint32_t>(type);
  control.rail = index;
  control.generation = slots_[index].generation;
  return control;
}

void RailSet::offer_lost() {
  for (uint32_t i = 0; i < count(); ++i) {
    Slot& slot = slots_[i];
    if (slot.state != State::kDown || Clock::now() < slot.deadline) {
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
    slot.state = State::kOffered;
    WireControl control = message_about(ControlType::kRailOffer, i);
    control.info = slot.rail->describe();
    end_.send_control(control);
  }
}

void RailSet::take_offer(const WireControl& control) {
  Slot& slot = slots_[control.rail];
  if (slot.state != State::kDown || role_ != Role::kReceiver) {
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
    end_.send_control(message_about(ControlType::kRailRefused, control.rail));
    return;
  }
  port.card->set_port_up(port.number, true);
  slot.state = State::kProving;
  WireControl answer = message_about(ControlType::kRailAnswer, control.rail);
  answer.info = slot.rail->describe();
  end_.send_control(answer);
}

void RailSet::take_answer(const WireControl& control) {
  Slot& slot = slots_[control.rail];
  if (slot.state != State::kOffered) {
    return;
  }
  slot.state = State::kProving;
  if (const auto made = slot.rail->connect(control.info);
      made.has_error() || made.value() == Progress::kPending) {
    lose(control.rail, made.has_error() ? made.error().text : "its peer's address is not found");
    return;
  }
  if (const int error = slot.rail->post_probe({peer_area_, slot.rail->peer().area_rkey});
      error != 0) {
    lose_posting(control.rail, error);
  }
}

void RailSet::take_up(uint32_t index) {
  PLEXUS_DCHECK(slots_[index].state == State::kProving, index, slots_[index].state);
  slots_[index].state = State::kUp;
  log_.info("net-ib: {} is back in the connection to {}", rail(index).port().name, peer_name_);
}

}  // namespace plexus::net_ib
