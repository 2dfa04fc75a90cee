// SPDX-License-Identifier: Apache-2.0
// Finds calls that can never end: ranks that made different calls, wait for each other, or wait for
// a rank that has destroyed the communicator (circle_search.hpp has the method). This is what has
// locks, a thread and a clock: it takes what engines and the control plane report, and does what
// the search and the inquiries have decided.
//
// A rank that is only late is no error. But after PLEXUS_STALL_S a rank that still waits asks all
// others what they do (inquiry.hpp), and every rank logs who keeps them waiting (verdict.hpp).
//
// One per process; its thread starts with the first wait that lasts a second. Threads: any.
//
//   const uint64_t group = member.group;
//   const int rank = member.rank;
//   watch.add(std::move(member));
//   const std::string report = watch.report();  // what `plexus doctor` shows
//   watch.remove(group, rank);
//   return report;
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "core/engine/execution.hpp"
#include "core/stall/circle_search.hpp"
#include "core/stall/stall_member.hpp"
#include "core/stall/stall_rolls.hpp"
#include "core/stall/verdict.hpp"

namespace plexus {

class StallWatch {
 public:
  StallWatch() = default;
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  void add(StallMember member);
  /// Returns when no part of the member is in use any more. No-op for a member that was never
  /// added.
  void remove(uint64_t group, int rank);
  /// The record for peers that probe the member after it has left (Exchange::leave).
  [[nodiscard]] std::string leave_record(uint64_t group, int rank, Departure how) const;

  /// What this process's members do, as a JSON array. Never blocks for long.
  [[nodiscard]] std::string report();
  /// Asks all ranks of this process's communicators what they do; a JSON array with an object for
  /// each communicator. Blocks until the answers are there, at most Inquiries::kTime.
  [[nodiscard]] std::string inquire();

  /// What all processes of the job say that answer in `time`. Blocks for little longer than that.
  [[nodiscard]] JobRoll call_roll(std::chrono::milliseconds time);
  /// Calls `look` with one member of each communicator of this process, without the lock.
  void visit(const std::function<void(const StallMember&)>& look);

  /// See RankState.
  void on_stalled(uint64_t group, int rank, Standstill standstill);
  void on_moved(uint64_t group, int rank);
  [[nodiscard]] std::optional<std::string> find_culprit(uint64_t group,
                                                        int rank,
                                                        Standstill standstill);

  /// Marks that the calling thread is in ncclCommSplit of the member, which ends when all ranks
  /// are.
  class Splitting {
   public:
    Splitting(StallWatch& watch, uint64_t group, int rank) : watch_(watch), key_(group, rank) {
      watch_.begin_split(key_);
    }
    ~Splitting() { watch_.end_split(key_); }
    Splitting(const Splitting&) = delete;
    Splitting& operator=(const Splitting&) = delete;

   private:
    StallWatch& watch_;
    std::pair<uint64_t, int> key_;
  };

 private:
  using Key = StallKey;
  using Entry = StallEntry;
  using TimePoint = Clock::time_point;

  /// An inquiry of this process's member that has its answers.
  struct Finding {
    Key member;
    uint64_t inquiry;
    RankStatus status;
    StatusSummary summary;
    bool is_asked = false;       // inquire() waits for it
    bool is_of_culprit = false;  // find_culprit() does
  };

  void begin_split(const Key& key);
  void end_split(const Key& key);
  void take(StallArrival arrival);
  void start_thread();
  void serve();
  void serve_round();
  void take_inbox();
  void look(TimePoint now);
  void send_all();
  Entry* pin(const Key& key);
  void unpin(const Key& key);
  /// Keeps an entry from being removed.
  class Pin {
   public:
    Pin(StallWatch& watch, const Key& key) : entry(watch.pin(key)), watch_(watch), key_(key) {}
    ~Pin() {
      if (entry != nullptr) {
        watch_.unpin(key_);
      }
    }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    Entry* const entry;  // nullptr: there is none

   private:
    StallWatch& watch_;
    const Key key_;
  };

  std::unique_ptr<Inquiries> make_inquiries(const Key& key, const StallMember& member);
  [[nodiscard]] bool is_handled(const StallArrival& arrival, TimePoint now);
  [[nodiscard]] static bool handle_inquiry(const StallArrival& arrival,
                                           Entry& entry,
                                           TimePoint now);
  static void look_into(Entry& entry, TimePoint now);
  void note_finding(const Key& key, uint64_t inquiry, const StatusSummary& summary);
  void note_verdict(const Key& key, std::string_view verdict, bool is_own);
  void tell_findings(const std::vector<Finding>& findings);

  mutable std::mutex mutex_;
  std::condition_variable unpinned_;
  StallEntries entries_;               // guarded by mutex_, as all members up to inbox_mutex_
  std::vector<StallArrival> waiting_;  // waiting for the engine's next check
  StallOutbox out_;
  CircleSearch search_{entries_, out_};
  std::vector<Finding> findings_;
  /// A verdict that is to be logged.
  struct Sentence {
    std::string text;
    bool is_notice = false;  // this process says it for the job
  };
  std::vector<Sentence> sentences_;
  std::map<uint64_t, std::string> asked_;  // inquiry of inquire() -> its JSON, when it is there
  std::condition_variable answered_;
  StallRolls rolls_{mutex_, entries_, out_};
  uint64_t epochs_ = 0;

  std::mutex inbox_mutex_;  // lock order: mutex_ before inbox_mutex_
  std::condition_variable arrived_;
  std::deque<StallArrival> inbox_;  // guarded by inbox_mutex_, as the members below
  bool awake_ = false;              // there is something to check
  bool stop_ = false;
  std::thread thread_;
};

/// The ranks of all communicators of this process, and where they are.
[[nodiscard]] std::vector<KnownRank> list_known(StallWatch& watch);

}  // namespace plexus
