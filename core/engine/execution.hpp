// SPDX-License-Identifier: Apache-2.0
// A rank's plan in execution, and what the engine needs to know about the rank: when to stop and
// where to report a failure. core/schedule fills it in, core/engine drives it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/ptr_container/ptr_vector.hpp>

#include "core/base/result.hpp"
#include "core/engine/arrival_times.hpp"
#include "core/engine/input_check.hpp"
#include "core/transport/connection.hpp"
#include "kernels/host/executor.hpp"

namespace plexus {

/// A rank waits for `peer`: for a message, for a free slot, or for a connection.
struct Wait {
  CallRecord call;  // the waiting rank's call
  int peer;
  bool certain;  // true: it cannot proceed without `peer`; false: a kernel waits for some peer
  std::string where = {};  // for people: connection, and how far the call has come
  // Where it waits for a message: of which connection, and how many came before.
  struct Arrival {
    int index;
    uint64_t received;
  };
  std::optional<Arrival> arrival = {};
  friend bool operator==(const Wait& a, const Wait& b) {
    return a.peer == b.peer && a.call.sequence == b.call.sequence &&
           a.call.collective == b.call.collective;
  }
};

/// Messages that a rank handed to a connection in all its calls.
struct Sent {
  int peer;
  int index;  // ConnectionKey::index
  uint64_t messages;
};

inline constexpr uint64_t kAllCalls = ~uint64_t{0};

/// What is told of an execution that has not moved for long.
struct Standstill {
  std::vector<Wait> waits;
  std::vector<Sent> sent;
  std::string held_up;  // by a network's plugin, as HeldUp::what; empty: nothing is known
  uint64_t calls_end = kAllCalls;  // as Execution's: later calls of the rank have not begun
  std::chrono::steady_clock::time_point since = {};  // when it last moved; {}: nobody knows
};

/// The engine's view of the communicator. Threads: any.
class RankState {
 public:
  virtual ~RankState() = default;
  /// Set once, by abort or by a failure of a peer or of this rank: everything that waits gives up.
  std::atomic<bool> stop{false};
  /// A process with peers has died, and this rank goes on until it misses a message: what they had
  /// sent before still counts.
  std::atomic<bool> has_lost_peers{false};
  /// The peers whose processes have died or left (slow path).
  [[nodiscard]] virtual std::vector<int> list_gone() const { return {}; }
  /// On the cores that this rank may use, rounded up.
  uint32_t ranks_per_core = 1;
  /// More ranks than cores: waiting yields the core.
  [[nodiscard]] bool oversubscribed() const noexcept { return ranks_per_core > 1; }
  /// Ends that still have to deliver messages of earlier calls. Used only by the engine that drives
  /// the rank.
  std::vector<ConnectionEnd*> unsettled;
  /// Calls that had not begun and have ended at their deadline: they count as not made. Used only
  /// by the thread that makes the rank's calls.
  std::vector<CallRecord> taken_back;
  /// As on_stalled(), of an execution whose deadline is over: the rank that keeps it waiting, and
  /// why, as half a sentence; "": none is proved to. nullopt: the ranks have been asked, and not
  /// all have answered yet. nullptr: nobody can be asked.
  std::function<std::optional<std::string>(Standstill)> find_culprit;
  /// nullptr: PLEXUS_CHECK_NAN is not set, or the rank computes on a device.
  std::unique_ptr<InputCheck> input_check;
  /// The reason why `stop` is set.
  [[nodiscard]] virtual Error stop_reason() const = 0;
  /// This rank has failed: sets `stop` and notifies all ranks.
  virtual void fail(const Error& error) = 0;
  /// There is no memory to go on with: as fail(), even if there is none to say so.
  virtual void fail_for_memory() noexcept = 0;
  /// An execution of this rank has not moved for a second and waits for these; what it sent over
  /// its connections (of many, some). Called repeatedly while that lasts, by the thread that drives
  /// the execution (slow path: finds calls that cannot end).
  virtual void on_stalled(Standstill standstill) = 0;
  /// The stalled execution moves again or has ended.
  virtual void on_moved() = 0;
};

/// Work that is not done by the engine: a kernel. The engine moves the pumps of its connections and
/// waits for its end.
class RemoteWork {
 public:
  virtual ~RemoteWork() = default;
  /// Whether it has ended; an Error: it has ended and failed. Polled by the engine's thread.
  virtual Result<bool> poll() noexcept = 0;
  /// Times that the call has begun since it was asked last: a graph with it may be replayed before
  /// the engine has ended the replay before.
  virtual uint64_t take_begun() noexcept = 0;
  /// One of its calls, for error messages.
  [[nodiscard]] virtual const CallRecord& call() const noexcept = 0;
};

struct Execution;
struct WorkQueue;

/// What the engine finds by a lane that it drives.
struct LaneOwner {
  Execution* execution = nullptr;
  WorkQueue* queue = nullptr;
};

/// The words in shared memory through which the two ends of the connection at which a lane waits
/// wake each other.
inline FifoEnd& own_end(LaneRun& lane) {
  return lane.waits_to_recv() != nullptr ? lane.waits_to_recv()->fifo().receiver
                                         : lane.waits_to_send()->fifo().sender;
}
inline FifoEnd& other_end(LaneRun& lane) {
  return lane.waits_to_recv() != nullptr ? lane.waits_to_recv()->fifo().sender
                                         : lane.waits_to_send()->fifo().receiver;
}

/// Works that run one after the other. The queues of an execution run concurrently.
struct WorkQueue {
  struct Item {
    Work work;                   // for a CUDA rank a description only, without connections
    std::vector<LaneRun> lanes;  // never grows, because lanes point to each other
    size_t lanes_left = 0;
    int index = 0;  // ConnectionKey::index of its first connection to each peer
    // For a CUDA rank, in place of the work's `sends` and `recvs`, [program->peers]:
    std::vector<DeviceEnd*> device_sends;
    std::vector<DeviceEnd*> device_recvs;
  };
  boost::ptr_vector<Item> items;
  size_t current = 0;
  bool awaits_connections = false;  // the current item has not begun
  LaneOwner owner;                  // owns the lanes of the current item
};

/// ConnectionKey::index of the connections that a lane uses.
inline int index_of(const WorkQueue::Item& item, int connection) {
  return item.index + connection * kIndexStride;
}

/// Calls `use` with each step of `item`, the first one for each message, and how often it sends to,
/// or receives from, the peer of `key`.
template <class Use>
void for_uses(const WorkQueue::Item& item, const ConnectionKey& key, Use use) {
  const std::vector<int>& peers = item.work.program->peers;
  for (const Lane& lane : item.work.program->lanes) {
    if (index_of(item, lane.connection) != key.index) {
      continue;
    }
    for (size_t i = 0; i < lane.steps.size(); i += steps_of_message(&lane.steps[i])) {
      const Step& step = lane.steps[i];
      const auto first = peers.begin() + step.peers_first + (key.sends ? step.receives : 0);
      const auto last = first + (key.sends ? step.sends : step.receives);
      if (const auto uses = std::count(first, last, key.peer); uses > 0) {
        use(step, static_cast<uint64_t>(uses));
      }
    }
  }
}

/// Notified when an execution and its items begin and end, in the thread that drives it.
class ExecutionWatch {
 public:
  virtual ~ExecutionWatch() = default;
  /// A kernel was launched or captured; called in the launching thread. `times`: for each queue,
  /// when it began and ended by the device's clock in ns, valid until on_end(); nullptr: captured.
  virtual void on_launch(void* stream, const uint64_t* times) noexcept = 0;
  virtual void on_begin() noexcept = 0;
  virtual void on_item_begin(const WorkQueue::Item& item) noexcept = 0;
  virtual void on_item_end(const WorkQueue::Item& item) noexcept = 0;
  virtual void on_end() noexcept = 0;
};

/// Number of messages that one run receives from an end with a pump.
struct ExpectedMessages {
  ConnectionEnd* end;
  uint64_t messages;
};

struct Execution {
  RankState* rank = nullptr;
  boost::ptr_vector<WorkQueue> queues;
  std::vector<ConnectionEnd*> ends;     // all ends that the works use, each once
  std::vector<DeviceEnd*> device_ends;  // the same, for a CUDA rank
  std::vector<ExpectedMessages> expected;
  bool connected = false;                 // all ends are connected
  bool pumps = false;                     // a connected end has a pump
  std::shared_ptr<ExecutionWatch> watch;  // for this run; null: no watch
  RemoteWork* remote = nullptr;           // not null: replaces `queues`, which are empty
  // Ends with an error when nothing has moved for so long; 0: never.
  std::chrono::milliseconds deadline{0};
  // How long the rank is inside its calls; null: nobody wants to know.
  ArrivalTimes* arrivals = nullptr;
  bool has_collectives = false;
  uint64_t collectives_end = 0;  // how many the rank had made with those of this run
  bool is_submitted = false;     // later calls of the rank may have their numbers already
  // state of the current run:
  // how many calls the rank had made with those of this run; kAllCalls where they have no number
  uint64_t calls_end = kAllCalls;
  size_t queues_left = 0;
  std::optional<Error> error;
  bool finished = true;
  bool moved = false;    // since the last check for stalls
  bool stalled = false;  // and the rank was notified
  std::chrono::steady_clock::time_point still_since{};
  std::chrono::steady_clock::time_point began{};  // zero: `arrivals` does not want it
};

}  // namespace plexus
