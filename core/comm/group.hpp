// SPDX-License-Identifier: Apache-2.0
// Groups: what a thread issues between ncclGroupStart and the outermost ncclGroupEnd, then done
// together. The depth and the queue are thread-local, as NCCL's API asks.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "core/base/result.hpp"
#include "core/comm/communicator.hpp"

namespace plexus {

/// A communicator being made or ended inside a group: runs in a thread of its own at the group's
/// end, side by side with the others of the group, since they wait for each other.
using LifeJob = std::function<Result<void>()>;

class Group {
 public:
  /// The calling thread's.
  static Group& current();

  /// Is the calling thread between a start and the outermost end?
  [[nodiscard]] static bool open() noexcept { return depth_ > 0; }
  void start() noexcept { ++depth_; }
  Result<void> end();
  void fail(const Error& error);
  void add(const Task& task) { tasks_.push_back(task); }
  void add(LifeJob job) { jobs_.push_back(std::move(job)); }

 private:
  Result<void> finish();
  // Beside the object, so that a call outside groups need not look whether that exists.
  static thread_local int depth_;
  std::vector<Task> tasks_;
  std::vector<LifeJob> jobs_;
  std::optional<Error> error_;
};

/// Runs tasks of any communicators, in order per communicator, side by side.
Result<void> run_tasks(std::span<const Task> tasks);

}  // namespace plexus
