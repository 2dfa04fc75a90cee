// SPDX-License-Identifier: Apache-2.0
// Hand-over of the hub to the process of another member. It happens when the last rank of the hub's
// own process has left in order, or as soon as all have joined when no rank lives in that process
// (a launcher made the id). Steps:
//
// 1. The hub sends kPause to every member present. Each answers kPause as its last message to this
// hub and keeps what it wants to send from then on, so no message to the hub is in flight.
// 2. The hub sends its state in kHost to the heir, the lowest rank present. The heir starts a hub
// with that state and answers with its address. If it dies, refuses or is slow, the next rank is
// asked.
// 3. The hub sends kMove to every member as its last message. Each connects to the new hub, sends
// what it kept, and goes on. If no rank takes over, kMove has no address and the members continue
// with this hub.
//
// Every message is thus taken by exactly one of the two hubs, in the order in which it was sent. A
// pure state machine, driven by the HubServer.
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
  /// The hub moves after no rank has left for this long, at the latest after ten times this: ranks
  /// that leave in quick succession must not each cause a move.
  std::chrono::milliseconds grace{100};
  /// Time for a member to answer kPause; after that it counts as dead.
  std::chrono::milliseconds pause{std::chrono::seconds(5)};
  /// Time for an heir to take over; after that the next member is asked.
  std::chrono::milliseconds offer{std::chrono::seconds(2)};
  /// Time for the members to connect to the new hub.
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
    kMoved,  // the new hub serves; this one must send nothing more
    kStays,  // no member could take over
  };
  HandOver(Hub& hub, const HandOverTimes& times, Hub::Send send)
      : hub_(hub), times_(times), send_(std::move(send)) {}

  /// Starts a hand-over. `at_once`: without waiting for `HandOverTimes::grace`.
  void begin(Clock::time_point now, bool at_once);
  /// Takes a message that a member sent after its kPause, or one of type kPause or kHost. An Error:
  /// the member breaks the protocol.
  Result<void> take(uint32_t member, const Message& message, Clock::time_point now);
  /// Tells the hand-over that this member has left or is lost.
  void miss(uint32_t member, Clock::time_point now);
  /// To be called often. Returns the members to drop because they did not answer in time.
  std::vector<uint32_t> advance(Clock::time_point now);

  [[nodiscard]] Stage stage() const { return stage_; }
  /// Whether this message of the member is for take() here rather than for the hub.
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
  Clock::time_point first_{};  // when the grace began
  Clock::time_point until_{};  // deadline of the current stage
  std::set<uint32_t> awaited_;
  std::set<uint32_t> paused_;
  std::set<uint32_t> refused_;
  uint32_t heir_ = 0;
};

}  // namespace plexus
