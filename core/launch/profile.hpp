// SPDX-License-Identifier: Apache-2.0
// The events that profilers get for one communicator. Made only when a profiler is loaded;
// CallRunner then calls `prepare` for each plan that it is about to run, and the plan's execution
// reports the rest: its begin, each message over a network, its end.
//
// Events of one group of calls, each the parent of the next:
//   group API > collective or p2p API > collective, or send/recv > proxy op > proxy step
// and, in place of the first two for old profilers, group. A proxy op is one item of work on one
// network connection; a step is a message. Each call has kernel channels too: of host ranks one
// for each item of its work, of CUDA ranks one for each queue of blocks with work of it, whose
// group API has a kernel launch as well.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>

#include "core/plugin/nccl_profiler/profiler.hpp"
#include "core/schedule/plan.hpp"

namespace plexus {

class ProfiledPlan;

/// Threads: prepare() one at a time, as the communicator's calls.
class Profile {
 public:
  Profile(std::unique_ptr<ProfilerSet> profilers, int rank);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// `plan` is prepared for `tasks` and runs next; `sequence` is the number of its first
  /// collective.
  void prepare(Plan& plan, std::span<const Task> tasks, uint64_t sequence);

 private:
  friend class ProfiledPlan;
  /// Messages on a connection count for one run at a time, the oldest that has not ended.
  void enter(ProfiledPlan& run);
  void leave(ProfiledPlan& run);

  std::unique_ptr<ProfilerSet> profilers_;
  int rank_;
  std::mutex mutex_;
  std::deque<ProfiledPlan*> under_way_;  // guarded by mutex_; the first hears of messages
};

}  // namespace plexus
