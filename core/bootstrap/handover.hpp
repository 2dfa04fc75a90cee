// SPDX-License-Identifier: Apache-2.0
// The hub moves to the process of another member when the last rank of its own has left in order
// (or at once, when all have joined and none lives beside it: a launcher made the id). Steps:
//
//   1. kPause to every member present. Each answers kPause as its last message to this hub, and
//   keeps
//      what it wants to send from then on. So nothing is under way to the hub any more.
//   2. kHost to the heir, the lowest rank present: the hub's state. It starts a hub of that state
//   and
//      answers where that listens. One that dies, refuses or is slow: the next.
//   3. kMove to every member, its last message from this hub: each connects to the new hub, sends
//   what
//      it kept, and goes on. Nobody takes over: kMove without an address, and all goes on as
//      before.
//
// So every message is taken by exactly one of the hubs, in the order in which it was sent. A pure
// state machine; the HubServer drives it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "core/base/clock.hpp"
#include "core/bootstrap/hub.hpp"
#include "core/bootstrap/message.hpp"

namespace plexus {

struct HandOverTimes {
  /// Ranks that leave one after the other need no new hub: it waits until nobody has left for so
  /// long, and ten times that at most.
  std::chrono::milliseconds grace{100};
  /// For a member to answer: after that it counts as dead.
  std::chrono::milliseconds pause{std::chrono::seconds(5)};
  /// For an heir to take over: after that the next is asked.
  std::chrono::milliseconds offer{std::chrono::seconds(2)};
  /// For members to come to the new hub.
  std::chrono::milliseconds come{std::chrono::seconds(10)};
};

/// Threads: one at a time.
class HandOver {
 public:
  enum class Stage {
    kIdle,
    kGrace,
    kPausing,
    kOffering,
    kMoved,  // the new hub serves: this one must say nothing more
    kStays,  // nobody could take over
  };
  HandOver(Hub& hub, const HandOverTimes& times, Hub::Send send)
      : hub_(hub), times_(times), send_(std::move(send)) {}

  /// The hub needs an heir.
  void begin(Clock::time_point now, bool at_once);
  /// A member's message after kPause, or of type kPause or kHost. An Error: it breaks the rules.
  Result<void> take(uint32_t member, const Message& message, Clock::time_point now);
  /// The hub knows that this member is not present any more.
  void miss(uint32_t member, Clock::time_point now);
  /// To be called often. Returns members that have to be dropped, since they did not answer.
  std::vector<uint32_t> advance(Clock::time_point now);

  [[nodiscard]] Stage stage() const { return stage_; }
  /// Whether what this member sends is for take() here, not for the hub.
  [[nodiscard]] bool takes(uint32_t member, MessageType type) const {
    return type == MessageType::kPause || type == MessageType::kHost || paused_.count(member) != 0;
  }

 private:
  void pause(Clock::time_point now);
  void offer(Clock::time_point now);
  void stay();
  void move(const std::string& address);

  Hub& hub_;
  HandOverTimes times_;
  Hub::Send send_;
  Stage stage_ = Stage::kIdle;
  Clock::time_point first_{};  // begin of the grace
  Clock::time_point until_{};  // end of the stage
  std::set<uint32_t> awaited_;
  std::set<uint32_t> paused_;
  std::set<uint32_t> refused_;
  uint32_t heir_ = 0;
};

}  // namespace plexus
