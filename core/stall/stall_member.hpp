// SPDX-License-Identifier: Apache-2.0
// What is known of the ranks of this process: who they are, and in what they wait. Plain data that
// StallWatch guards, CircleSearch follows, and inquiries answer from.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <pthread.h>
#include <set>
#include <string>
#include <utility>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"
#include "core/control/exchange.hpp"
#include "core/engine/execution.hpp"
#include "core/schedule/call_log.hpp"
#include "core/stall/inquiry.hpp"
#include "core/stall/roll_record.hpp"
#include "core/stall/stall_probe.hpp"

namespace plexus {

/// Records which thread makes the calls of a communicator.
class CallingThread {
 public:
  /// The thread that made the communicator; it counts as the caller until another one calls.
  void set_maker(pthread_t maker) noexcept {
    state_.store(maker | kMaker, std::memory_order_relaxed);
  }
  /// The calling thread makes a call.
  void note() noexcept {
    const pthread_t self = pthread_self();
    const pthread_t before = state_.load(std::memory_order_relaxed);
    if (before != self && before != kSeveral) {
      state_.store((before & kMaker) != 0 ? self : kSeveral, std::memory_order_relaxed);
    }
  }
  /// nullopt: several threads make calls.
  [[nodiscard]] std::optional<pthread_t> find() const noexcept {
    const pthread_t state = state_.load(std::memory_order_relaxed);
    return state == kSeveral ? std::nullopt : std::optional(state & ~kMaker);
  }

 private:
  // bit 0 is free, because pthread_t values are addresses in glibc
  static constexpr pthread_t kMaker = 1;
  static constexpr pthread_t kSeveral = 2;
  std::atomic<pthread_t> state_{kMaker};
};

/// One rank of a communicator. Everything it points to must live until StallWatch::remove()
/// returns.
struct StallMember {
  uint64_t group = 0;
  int rank = 0;
  int nranks = 0;
  Exchange* exchange = nullptr;
  const CallLog* calls = nullptr;
  const CallingThread* thread = nullptr;
  std::function<void(const Error&)> fail;  // fails the communicator on all ranks
  std::function<bool()> is_busy;  // a thread is in a call, or a call is on a stream; never blocks
  std::function<MemberState()> look;  // never blocks for long
  int device = -1;                    // -1: computes on the host
  std::string host;                   // the name of this process's host
  std::string address;                // of this process; "": there is no other
  std::chrono::seconds patience{0};   // PLEXUS_STALL_S; 0: never inquires
  std::string file;                   // PLEXUS_STALL_FILE; "": none
};
using StallKey = std::pair<uint64_t, int>;  // group and rank

/// The wait of a member that has stalled.
struct Stall {
  uint64_t epoch = 0;  // unique for each stall in the process
  Standstill standstill;
  bool is_split = false;
  pthread_t thread{};
  Clock::time_point since;
  Clock::time_point checked;           // last confirmation that it still lasts
  std::set<int> needs;                 // peers that have not begun its collective or split
  uint32_t inquiries = 0;              // that it has caused
  uint64_t culprit_inquiry = 0;        // of find_culprit(); 0: none
  std::optional<std::string> culprit;  // what that has found
  std::set<std::string>
      reported_causes;  // causes that some process of the job has said on standard error
};

struct StallEntry {
  StallMember member;
  std::optional<Stall> stall;
  uint64_t splits = 0;  // number of splits begun
  Clock::time_point probed;
  /// A peer that waits for a message which this rank has sent, as probes of it say.
  struct Lost {
    int peer = -1;
    Clock::time_point since;
    Clock::time_point seen;
  };
  Lost lost;
  Clock::time_point awaited;  // the last probe for a call that this rank has not made
  Clock::time_point heard;    // when the last verdict came
  std::string verdict;        // that verdict
  std::unique_ptr<Inquiries> inquiries;
  int pins = 0;  // uses by the watch's thread without the lock
};
using StallEntries = std::map<StallKey, StallEntry>;

inline constexpr std::chrono::seconds kProbeEvery{1};
/// The engine confirms a stall more often, and peers repeat their probes so.
inline constexpr std::chrono::seconds kStallFresh{3};

/// Makes the id of an inquiry or a roll call.
[[nodiscard]] uint64_t random_id();

/// The member that this thread waits in; nullptr: none.
[[nodiscard]] StallEntries::value_type* find_stalled_by(StallEntries& entries, pthread_t thread);

/// The record for peers that probe the member after it has left (Exchange::leave).
[[nodiscard]] LeaveRecord make_leave_record(const StallEntry& entry, Departure how);

/// `waiting` waits for a message of a call that the member has made: notes whether it is lost.
void note_lost(StallEntry& entry, const StallHop& waiting, Clock::time_point now);

/// What the member does, for inquiries and reports.
[[nodiscard]] RankStatus find_status(StallEntries& entries,
                                     const StallKey& key,
                                     Clock::time_point now);

}  // namespace plexus
