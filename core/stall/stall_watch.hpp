// SPDX-License-Identifier: Apache-2.0
// Finds calls that can never end: ranks that made different calls, wait for each other, or wait for
// a rank that has destroyed the communicator. Deadlock detection by edge chasing: K. M. Chandy, J.
// Misra, L. M. Haas, "Distributed Deadlock Detection", ACM TOCS 1(2), 1983 (the AND model).
//
// A rank whose call has not moved for a second sends a probe to each peer that it waits for. A
// probe lists the ranks that it has passed, each with the call that it waits in. The peer compares:
//   - it has made a call of that number: the two must agree, or the ranks' calls differ;
//   - it has not, and waits in another call itself: it passes the probe on to those it waits for;
//   - it has not, and is not waiting: it is late, and the probe ends here.
// A probe that returns to its sender has passed a circle of ranks, each of which waits for a call
// that the next one cannot make. A second probe along the same circle proves that no rank has moved
// meanwhile, so the circle existed at one moment.
//
// Calls are compared by number: collectives by their number in the communicator, sends and receives
// by their number per peer and direction (CallLog), splits by theirs. A rank has one call, or one
// group, in progress per communicator and begins the next one afterwards, so a wait belongs to the
// rank. Calls of different communicators are tied by the thread that makes them. If several threads
// use a communicator, that tie is uncertain and nothing is concluded; otherwise it counts after
// kThreadPatience.
//
// A rank that is only late is no error. But after PLEXUS_STALL_S a rank that still waits asks all
// others what they do (inquiry.hpp), and every rank logs who keeps them waiting (verdict.hpp).
//
// One per process; its thread starts with the first wait that lasts a second. Threads: any.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <pthread.h>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"
#include "core/bootstrap/exchange.hpp"
#include "core/engine/execution.hpp"
#include "core/schedule/call_log.hpp"
#include "core/stall/inquiry.hpp"
#include "core/stall/stall_probe.hpp"
#include "core/stall/verdict.hpp"

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

class StallWatch {
 public:
  StallWatch() = default;
  ~StallWatch();
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  /// One rank of a communicator. Everything it points to must live until remove() returns.
  struct Member {
    uint64_t group = 0;
    int rank = 0;
    int nranks = 0;
    Exchange* exchange = nullptr;
    const CallLog* calls = nullptr;
    const CallingThread* thread = nullptr;
    std::function<void(const Error&)> fail;  // fails the communicator on all ranks
    std::function<bool()> is_busy;  // a thread is in a call, or a call is on a stream; never blocks
    std::chrono::seconds patience{0};  // PLEXUS_STALL_S; 0: never inquires
    std::string file;                  // PLEXUS_STALL_FILE; "": none
  };
  void add(Member member);
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

  /// See RankState.
  void on_stalled(uint64_t group, int rank, Standstill standstill);
  void on_moved(uint64_t group, int rank);

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
  static constexpr std::chrono::seconds kProbeEvery{1};
  using Key = std::pair<uint64_t, int>;  // group and rank
  using TimePoint = Clock::time_point;

  /// The wait of a member that has stalled.
  struct Stall {
    uint64_t epoch = 0;  // unique for each stall in the process
    Standstill standstill;
    bool is_split = false;
    pthread_t thread{};
    TimePoint since;
    TimePoint checked;           // last confirmation that it still lasts
    std::set<int> needs;         // peers that have not begun its collective or split
    uint32_t inquiries = 0;      // that it has caused
    std::set<std::string> told;  // causes that some process of the job has said on standard error
  };
  struct Entry {
    Member member;
    std::optional<Stall> stall;
    uint64_t splits = 0;  // number of splits begun
    TimePoint probed;
    // A peer that waits for a message which this rank has sent, as probes of it say.
    struct Lost {
      int peer = -1;
      TimePoint since;
      TimePoint seen;
    };
    Lost lost;
    TimePoint awaited;    // the last probe for a call that this rank has not made
    TimePoint heard;      // when the last verdict came
    std::string verdict;  // that verdict
    std::unique_ptr<Inquiries> inquiries;
    int pins = 0;  // uses by the watch's thread without the lock
  };
  /// An inquiry of this process's member that has its answers.
  struct Finding {
    Key member;
    uint64_t inquiry;
    RankStatus status;
    StatusSummary summary;
    bool is_asked = false;  // by inquire()
  };
  /// A message from the control plane.
  struct Arrival {
    Key to;
    int from;
    bool left;
    std::string payload;
    TimePoint at;
  };
  struct Outgoing {
    Key from;
    int peer;
    std::string payload;
  };
  /// A call that can never end.
  struct Failure {
    Key member;
    Error error;
  };

  void begin_split(const Key& key);
  void end_split(const Key& key);
  void take(Arrival arrival);
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

  void initiate(const Key& key, Entry& entry);
  [[nodiscard]] bool is_handled(const Arrival& arrival, TimePoint now);
  [[nodiscard]] bool is_fresh(const Stall& stall, TimePoint arrived) const;
  [[nodiscard]] bool handle_left(const Arrival& arrival, Entry& entry);
  [[nodiscard]] bool handle_probe(const Arrival& arrival, Entry& entry);
  [[nodiscard]] bool handle_search(const Arrival& arrival, Entry& entry, StallProbe probe);
  [[nodiscard]] bool handle_proof(const Arrival& arrival, StallProbe probe);
  void pass_on(const Key& key, Entry& entry, const StallProbe& probe);
  [[nodiscard]] bool pass_thread(const Arrival& arrival, const Entry& entry, StallProbe probe);
  void start_proof(StallProbe probe);
  void learn(Entry& entry, const StallProbe& probe);
  void conclude(const StallProbe& probe);
  void send(const Key& from, int peer, const StallProbe& probe);
  [[nodiscard]] static StallHop hop_of(const Key& key, const Entry& entry, const StallEdge& edge);
  [[nodiscard]] static std::vector<StallEdge> edges_of(const Entry& entry);
  Entry* find_stalled_by(pthread_t thread, Key& key);

  std::unique_ptr<Inquiries> make_inquiries(const Key& key, const Member& member);
  [[nodiscard]] bool handle_inquiry(const Arrival& arrival, Entry& entry, TimePoint now);
  static std::chrono::milliseconds delay_of(int rank);
  void look_into(Entry& entry, TimePoint now);
  void note_finding(const Key& key, uint64_t inquiry, const StatusSummary& summary);
  void note_verdict(const Key& key, std::string_view verdict, bool is_own);
  void tell_findings(const std::vector<Finding>& findings);
  static void note_lost(Entry& entry, const StallHop& waiting, TimePoint now);
  [[nodiscard]] RankStatus status_of(const Key& key, const Entry& entry, TimePoint now);

  mutable std::mutex mutex_;
  std::condition_variable unpinned_;
  std::map<Key, Entry> entries_;  // guarded by mutex_, as all members up to inbox_mutex_
  std::vector<Arrival> waiting_;  // waiting for the engine's next check
  std::vector<Outgoing> outgoing_;
  std::vector<Failure> failures_;
  std::vector<Finding> findings_;
  /// A verdict that is to be logged.
  struct Sentence {
    std::string text;
    bool is_notice = false;  // this process says it for the job
  };
  std::vector<Sentence> sentences_;
  std::map<uint64_t, std::string> asked_;  // inquiry of inquire() -> its JSON, when it is there
  std::condition_variable answered_;
  uint64_t epochs_ = 0;

  std::mutex inbox_mutex_;  // lock order: mutex_ before inbox_mutex_
  std::condition_variable arrived_;
  std::deque<Arrival> inbox_;  // guarded by inbox_mutex_, as the members below
  bool awake_ = false;         // there is something to check
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace plexus
