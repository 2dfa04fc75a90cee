// SPDX-License-Identifier: Apache-2.0
// A plan: all tasks of one rank in one group, ready to execute. It is built once per shape of call
// and cached; the next call of the same shape only fills in buffers, scalars and the call's number.
//
//   PlanCache plans;
//   Plan* plan = plans.find(tasks);
//   if (plan == nullptr) {
//     PLEXUS_TRY(built, plans.build(context, tasks, nullptr));
//     plan = built;
//   }
//   plan->prepare(tasks, log, places);
//   return ok();
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.hpp"
#include "core/engine/execution.hpp"
#include "core/schedule/call_log.hpp"
#include "core/schedule/device_plan.hpp"
#include "core/schedule/task.hpp"
#include "core/transport/connections.hpp"
#include "core/transport/memory/user_memory.hpp"
#include "core/tuning/channel_order.hpp"
#include "core/tuning/choose_algorithm.hpp"
#include "core/tuning/copy_methods.hpp"

namespace plexus {

/// What planning needs from the communicator. Borrowed members outlive all plans.
struct PlanContext {
  RankState* state;
  int rank;
  int nranks;
  std::span<const ChannelOrder> orders;  // channel c runs in orders[c % orders.size()]
  const LoopCosts* costs;
  ConnectionSet* connections;
  const AlgorithmFilter* filter;
  Tuner* tuner;  // nullptr: use the built-in rules
  const CollnetAbility* collnet;
  std::span<const Algorithm> recorded = {};  // from files, beside the table
  bool deterministic;
  bool shares_memory;          // some ranks of the communicator do
  bool shares_device = false;  // all ranks do, in one process
  int channels_min;
  int channels_max;
  int blocks = 0;        // as in ChoiceInput
  int net_channels = 1;  // that share a long message over the network
  uint32_t slot_bytes;
  const HostCopyMethods* copy_methods;  // between processes of one host
  DeviceRank* device;                   // CUDA ranks only; nullptr: a host rank
};

/// What is known of `call`, one of `tasks`, before its algorithm is chosen.
ChoiceInput input_of(const PlanContext& context, std::span<const Task> tasks, const Task& call);

/// A choice that was made before planning. That of a trial is one of several for the same call.
struct MadeChoice {
  Choice choice{};
  uint64_t trial = 0;  // its number; 0: it holds for good
};

class Plan {
 public:
  /// `made`: for the first collective, and the built-in rules choose for others; nullptr: the tuner
  /// chooses for all.
  static Result<std::unique_ptr<Plan>> build(const PlanContext& context,
                                             std::span<const Task> tasks,
                                             const MadeChoice* made = nullptr);
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// `trial`: see MadeChoice.
  [[nodiscard]] bool fits(std::span<const Task> tasks, uint64_t trial = 0) const noexcept;
  /// Is it a plan of this one call, which is neither of a group nor a message to oneself?
  [[nodiscard]] bool fits(const CallShape& shape) const noexcept {
    return shapes_.size() == 1 && trial_ == 0 && shapes_.front() == shape;
  }
  /// Its choice is a trial, whose calls are counted.
  [[nodiscard]] bool is_trial() const noexcept { return trial_ != 0; }
  /// Fills in what changes from call to call, and notes the calls in `log`.
  void prepare(std::span<const Task> tasks, CallLog& log, KnownPlaces& places);

  /// The same for a plan of one call without scalar, of which only the addresses change.
  void prepare_again(const void* send, void* recv, CallLog& log, KnownPlaces& places);

  /// Tells those of `tasks`, the calls of this plan, that asked for it what was chosen and why.
  void tell(std::span<const Task> tasks) const;

  /// Distinct among the plans of a cache.
  [[nodiscard]] uint64_t number() const noexcept { return number_; }

  [[nodiscard]] bool on_device() const noexcept { return on_device_; }
  /// For a CUDA rank it only describes the work; device_plan() is what runs.
  [[nodiscard]] Execution& execution() noexcept { return execution_; }
  /// The plan as kernels read it. Made by the first call, which requires connected ends; another
  /// one for calls with private buffers, see DevicePlan::build.
  Result<DevicePlan*> device_plan(DeviceRank& rank, bool has_private_buffers);
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
  friend class PlanCache;
  explicit Plan(std::span<const Task> tasks);
  Result<void> add_collective(const PlanContext& context,
                              std::span<const Task> tasks,
                              size_t task,
                              const MadeChoice* made);
  Result<Choice> choose(const PlanContext& context,
                        std::span<const Task> tasks,
                        size_t task,
                        const MadeChoice* made);
  Result<void> add_point_to_point(const PlanContext& context, std::span<const Task> tasks);
  Result<void> add_to_self(const PlanContext& context, std::span<const Task> tasks, bool of_vector);
  Result<void> add_item(const PlanContext& context,
                        WorkQueue& queue,
                        const Task& task,
                        const ItemTask& origin,
                        const Choice& choice,
                        int channel);
  void connect(const PlanContext& context, WorkQueue::Item& item);
  void prepare_item(const ItemTask& entry,
                    const void* send,
                    void* recv,
                    KnownPlaces& places) const noexcept;
  void number_calls(CallLog& log);

  uint64_t number_ = 0;
  uint64_t trial_ = 0;
  std::vector<CallShape> shapes_;                             // of its tasks
  std::vector<std::pair<size_t, std::string>> explanations_;  // by task, see Task::on_choice
  std::vector<std::unique_ptr<Program>> programs_;
  std::vector<ItemTask> items_;
  Execution execution_;
  Choice choice_{.algorithm = &local_copy(),
                 .protocol = Protocol::kSimple,
                 .channels = 1,
                 .chunk_bytes = 0};  // the last task's; of a trial the first collective's
  std::unique_ptr<DevicePlan> device_plans_[2];  // for open and for private buffers
  bool on_device_ = false;
  uint64_t collectives_ = 0;
  bool maps_ = true;             // mapping is the fastest copy method of registered memory
  bool borrows_mapped_ = false;  // a receiver may map memory from ncclMemAlloc
};

/// The plans of one communicator, most recently used first. A plan that is under way on a stream or
/// a device, or in a graph, stays; others may go at the next build().
class PlanCache {
 public:
  /// A cached plan for `tasks` that is not busy, from now on newest(); nullptr: there is none.
  /// `trial`: see MadeChoice.
  Plan* find(std::span<const Task> tasks, uint64_t trial = 0) noexcept;
  /// A new plan, from now on newest(); see Plan::build. A failure changes nothing.
  Result<Plan*> build(const PlanContext& context,
                      std::span<const Task> tasks,
                      const MadeChoice* made);
  /// A plan for the one call of this shape, not busy, from now on newest(); nullptr: there is none.
  Plan* find(const CallShape& shape) noexcept {
    Plan* const last = newest();
    return last != nullptr && !last->busy && last->fits(shape) ? last : find_shape(shape);
  }
  /// What the plans were chosen by has changed: none of them is found from now on.
  void forget() noexcept;
  /// Forgets the plans. False: one is busy or in a graph, and all are kept.
  [[nodiscard]] bool release() noexcept;
  /// Size of the plans' scratch memory.
  [[nodiscard]] size_t held_bytes() const noexcept;
  /// The one that was found or built last; nullptr: none yet.
  [[nodiscard]] Plan* newest() const noexcept {
    return plans_.empty() ? nullptr : plans_.front().get();
  }

 private:
  Plan* find_shape(const CallShape& shape) noexcept;
  template <class Fits>
  Plan* find_if(const Fits& fits) noexcept;

  std::vector<std::unique_ptr<Plan>> plans_;
  uint64_t nmade_ = 0;
};

}  // namespace plexus
