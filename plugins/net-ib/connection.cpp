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
      rails_(std::move(link.rails), {log_, role, peer_name_, peer_area_}, *this),
      control_(std::move(link.control)) {}

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
  for (uint32_t i = 0; i < rails(); ++i) {
    Card& card = *rail(i).port().card;
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
    while (!is_broken() && rails_.is_stopping(i) && drain(i)) {
    }
  }
}

/// Takes some completions of a rail. True: there were some.
bool Connection::drain(uint32_t index) {
  std::array<ibv_wc, kCompletionsPerPoll> completions;  // NOLINT(*-member-init): written by poll
  size_t count = 0;
  if (!rail(index).poll(completions, count)) {
    rails_.lose(index, fmt::format("the completion queue of {} failed", rail(index).port().name));
    return false;
  }
  for (size_t i = 0; i < count && !is_broken(); ++i) {
    take_completion(index, completions[i]);
  }
  if (rails_.is_stopping(index) && !is_broken()) {
    rails_.try_report_stop(index);
  }
  return count > 0;
}

void Connection::take_completion(uint32_t index, const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) {
    rails_.lose(index, rail(index).explain(completion));  // if it is not stopped, when all ends so
    return;
  }
  switch (WorkId::unpack(completion.wr_id).kind) {
    case WorkKind::kProbe:
      if (rails_.is_proving(index)) {
        rails_.take_up(index);
        send_control(rails_.message_about(ControlType::kRailUp, index));
      }
      return;
    case WorkKind::kControl:
      return;
    default:
      take_done(index, completion);
  }
}

// ---------------------------------------------------------------------------------------- failure

void Connection::break_off(Failure failure) {
  if (is_broken()) {
    return;
  }
  failure_ = std::move(failure);
  if (!peer_loss_) {
    WireControl control = rails_.message_about(ControlType::kFailed, 0);
    control.code = failure_->code;
    write_text(control.text, failure_->text);
    send_control(control);
  }
  for (uint32_t i = 0; i < rails(); ++i) {
    rail(i).destroy();
  }
}

int32_t Connection::report_failure() const noexcept {
  log_.error(failure_->text.c_str());
  return failure_->code;
}

// --------------------------------------------------------------------------------- looking around

void Connection::look_around() {
  rails_.watch_ports();
  rails_.check_stops();
  if (peer_loss_) {
    end_without_peer();
    return;
  }
  if (!is_broken()) {
    read_control();
  }
  if (!is_broken() && role_ == Role::kSender) {
    rails_.offer_lost();
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
    rails_.take_control(control);
  }
}

void Connection::send_control(const WireControl& control) {
  (void)control_.send(bytes_of(control));  // its end is noticed in read_control()
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
  WireControl control = rails_.message_about(ControlType::kBye, 0);
  write_done(control.done);
  send_control(control);
}

}  // namespace plexus::net_ib
