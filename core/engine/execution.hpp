// SPDX-License-Identifier: Apache-2.0
// One rank's plan in execution, and what the engine needs to know of the rank: when to stop, whom
// to tell of a failure. core/schedule fills it, core/engine drives it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <boost/container/stable_vector.hpp>

#include "core/base/result.hpp"
#include "core/transport/connection.hpp"
#include "kernels/host/executor.hpp"

namespace plexus {

/// What a rank waits for: a message, room for one, or a connection.
struct Wait {
  CallRecord call;  // the one that the rank waits in
  int peer;
  bool certain;  // that it cannot go on without `peer`; false: a kernel waits, somewhere
  friend bool operator==(const Wait& a, const Wait& b) {
    return a.peer == b.peer && a.call.sequence == b.call.sequence &&
           a.call.collective == b.call.collective;
  }
};

/// The communicator as seen from below. Threads: any.
class RankState {
 public:
  virtual ~RankState() = default;
  /// Set once, by abort, by a peer's failure or by our own: everything that waits gives up.
  std::atomic<bool> stop{false};
  /// More ranks on this host than cores: waiting gives the core away at once.
  bool oversubscribed = false;
  /// Ends with messages of earlier calls in their care. Only the engine that drives the rank looks.
  std::vector<ConnectionEnd*> unsettled;
  /// Why `stop` is set.
  [[nodiscard]] virtual Error stop_reason() const = 0;
  /// This rank cannot go on: sets `stop` and tells all ranks.
  virtual void fail(const Error& error) = 0;
  /// Nothing of its execution has moved for a second, and it waits for these. Told again and again
  /// while that lasts, by the thread that drives it (slow path: finds calls that cannot end).
  virtual void on_stalled(std::vector<Wait> waits) = 0;
  /// What stalled goes on, or is over.
  virtual void on_moved() = 0;
};

/// Work that something else than the engine does: a kernel. The engine moves the pumps of its
/// connections and waits for its end.
class RemoteWork {
 public:
  virtual ~RemoteWork() = default;
  /// True: it has ended. An Error: it has ended, and failed. The engine's thread asks repeatedly.
  virtual Result<bool> poll() noexcept = 0;
  /// One of its calls, for messages.
  [[nodiscard]] virtual const CallRecord& call() const noexcept = 0;
};

struct Execution;
struct WorkQueue;

/// What the engine finds by a lane that it drives.
struct LaneOwner {
  Execution* execution = nullptr;
  WorkQueue* queue = nullptr;
};

/// Works that run one after the other; queues of an execution run side by side.
struct WorkQueue {
  struct Item {
    Work work;                   // for a CUDA rank a description only, without connections
    std::vector<LaneRun> lanes;  // does not grow: lanes point to each other
    size_t lanes_left = 0;
    int index = 0;  // ConnectionKey::index of its connections
    // For a CUDA rank, in place of the work's `sends` and `recvs`, [program->peers]:
    std::vector<DeviceEnd*> device_sends;
    std::vector<DeviceEnd*> device_recvs;
  };
  boost::container::stable_vector<Item> items;
  size_t current = 0;
  bool awaits_connections = false;  // the current item has not begun
  LaneOwner owner;                  // owns the lanes of the current item
};

/// Calls `use` with each step of `item` and how often it sends to, or receives from, the peer of
/// `key`.
template <class Use>
void for_uses(const WorkQueue::Item& item, const ConnectionKey& key, Use use) {
  if (item.index != key.index) {
    return;
  }
  const std::vector<int>& peers = item.work.program->peers;
  for (const Lane& lane : item.work.program->lanes) {
    for (const Step& step : lane.steps) {
      const auto first = peers.begin() + step.peers_first + (key.sends ? step.receives : 0);
      const auto last = first + (key.sends ? step.sends : step.receives);
      if (const auto uses = std::count(first, last, key.peer); uses > 0) {
        use(step, static_cast<uint64_t>(uses));
      }
    }
  }
}

/// Hears of an execution's begin and end and of its items', in the thread that drives it.
class ExecutionWatch {
 public:
  virtual ~ExecutionWatch() = default;
  /// A kernel was launched, or captured; in the calling thread. `times`: by queue, when it began
  /// and ended by the device's clock, in ns; there until the end. nullptr: captured.
  virtual void on_launch(void* stream, const uint64_t* times) noexcept = 0;
  virtual void on_begin() noexcept = 0;
  virtual void on_item_begin(const WorkQueue::Item& item) noexcept = 0;
  virtual void on_item_end(const WorkQueue::Item& item) noexcept = 0;
  virtual void on_end() noexcept = 0;
};

/// What one run takes from an end with a pump.
struct ExpectedMessages {
  ConnectionEnd* end;
  uint64_t messages;
};

struct Execution {
  RankState* rank = nullptr;
  boost::container::stable_vector<WorkQueue> queues;
  std::vector<ConnectionEnd*> ends;     // all that the works use, each once
  std::vector<DeviceEnd*> device_ends;  // the same, for a CUDA rank
  std::vector<ExpectedMessages> expected;
  bool connected = false;                 // all of them stand
  bool pumps = false;                     // one that stands has a pump
  std::shared_ptr<ExecutionWatch> watch;  // hears of this run; null: nobody does
  RemoteWork* remote = nullptr;           // not null: in place of `queues`, which are empty
  // state of the current run:
  size_t queues_left = 0;
  std::optional<Error> error;
  bool finished = true;
  bool moved = false;    // since the engine last looked for what stalls
  bool stalled = false;  // and the rank was told
  std::chrono::steady_clock::time_point still_since{};
};

}  // namespace plexus
