// SPDX-License-Identifier: Apache-2.0
// A plan: all tasks of one rank in one group, ready to execute. It is built once per shape of call
// and cached; the next call of the same shape only fills in buffers, scalars and the call's number.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/result.hpp"
#include "core/engine/execution.hpp"
#include "core/schedule/call_log.hpp"
#include "core/schedule/channel_order.hpp"
#include "core/schedule/choose_algorithm.hpp"
#include "core/schedule/device_plan.hpp"
#include "core/schedule/task.hpp"
#include "core/transport/connections.hpp"
#include "core/transport/user_memory.hpp"

namespace plexus {

/// What a plan depends on of a task: everything but addresses, scalars and streams.
struct TaskShape {
  Collective collective;
  DataType type;
  ReduceKind kind;
  bool scales;
  bool divides;
  bool in_place;
  bool of_vector;
  int root;
  uint64_t count;
  friend bool operator==(const TaskShape&, const TaskShape&) = default;
};
TaskShape shape_of(const Task& task) noexcept;

/// What planning needs from the communicator. Borrowed members outlive all plans.
struct PlanContext {
  RankState* state;
  int rank;
  int nranks;
  std::span<const ChannelOrder> orders;  // channel c runs in orders[c % orders.size()]
  const LoopCosts* costs;
  ConnectionSet* connections;
  const UserMemory* memory;
  const AlgorithmFilter* filter;
  Tuner* tuner;  // nullptr: use the built-in rules
  const CollnetAbility* collnet;
  bool deterministic;
  bool shares_memory;  // some ranks of the communicator do
  int channels_min;
  int channels_max;
  uint32_t slot_bytes;
  DeviceRank* device;  // CUDA ranks only; nullptr: a host rank
};

class Plan {
 public:
  static Result<std::unique_ptr<Plan>> build(const PlanContext& context,
                                             std::span<const Task> tasks);
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  [[nodiscard]] bool fits(std::span<const Task> tasks) const noexcept;
  /// Fills in what changes from call to call, and notes the calls in `log`.
  void prepare(std::span<const Task> tasks, CallLog& log, const UserMemory& memory);

  /// The same for a plan with is_one_call(), if only the addresses changed.
  void prepare_again(const void* send, void* recv, CallLog& log, const UserMemory& memory);
  /// Whether it is one task outside groups and not a message of the rank to itself.
  [[nodiscard]] bool is_one_call() const noexcept {
    return shapes_.size() == 1 && !items_.empty() &&
           items_.front().task == items_.front().recv_task;
  }

  [[nodiscard]] bool on_device() const noexcept { return on_device_; }
  /// For a CUDA rank it only describes the work; device_plan() is what runs.
  [[nodiscard]] Execution& execution() noexcept { return execution_; }
  /// The plan as kernels read it. Made by the first call, which requires connected ends.
  Result<DevicePlan*> device_plan(DeviceRank& rank);
  [[nodiscard]] const Choice& choice() const noexcept { return choice_; }
  // in use by a host stream; not to be reused before it has finished
  std::atomic<bool> busy{false};
  // launches in flight of a CUDA rank; a graph counts as one for ever
  std::atomic<int> launches{0};

  /// An item of work and the task in the group that it belongs to.
  struct ItemTask {
    WorkQueue::Item* item = nullptr;
    size_t task = 0;                  // the task with the item's buffers and call
    size_t recv_task = 0;             // for a message to itself the receiving task; else the same
    uint64_t collectives_before = 0;  // in the group, from which its number follows
    bool is_first = true;             // the first item of its task
    uint32_t shape_hash = 0;          // hashes what ranks must agree on but the call's number
    uint64_t input_bytes = 0;         // size of the rank's buffers
    uint64_t output_bytes = 0;
  };
  [[nodiscard]] std::span<const ItemTask> items() const noexcept { return items_; }

 private:
  explicit Plan(std::span<const Task> tasks);
  Result<void> add_collective(const PlanContext& context, std::span<const Task> tasks, size_t task);
  Result<void> add_point_to_point(const PlanContext& context, std::span<const Task> tasks);
  Result<void> add_to_self(const PlanContext& context, std::span<const Task> tasks, bool of_vector);
  Result<void> add_item(const PlanContext& context,
                        WorkQueue& queue,
                        const Task& task,
                        const ItemTask& origin,
                        const Choice& choice,
                        int channel);
  void connect(const PlanContext& context, Work& work, int index);
  void prepare_item(const ItemTask& entry,
                    const void* send,
                    void* recv,
                    const UserMemory& memory) const noexcept;
  void number_calls(CallLog& log);

  std::vector<TaskShape> shapes_;
  std::vector<std::unique_ptr<Program>> programs_;
  std::vector<ItemTask> items_;
  Execution execution_;
  Choice choice_{.algorithm = &local_copy(),
                 .protocol = Protocol::kSimple,
                 .channels = 1,
                 .chunk_bytes = 0};  // the last task's
  std::unique_ptr<DevicePlan> device_plan_;
  bool on_device_ = false;
  uint64_t collectives_ = 0;
  bool borrows_mapped_ = false;  // a receiver may map memory from ncclMemAlloc
};

/// The plans of one communicator, most recently used first.
class PlanCache {
 public:
  /// A plan for `tasks` that is not busy: from the cache or new. Shared, because the cache may drop
  /// it at the next call.
  Result<std::shared_ptr<Plan>> find_or_build(const PlanContext& context,
                                              std::span<const Task> tasks);

 private:
  std::vector<std::shared_ptr<Plan>> plans_;
};

}  // namespace plexus
