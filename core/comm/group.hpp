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
  static Group& current() {
    return this_thread_.group != nullptr ? *this_thread_.group : make_current();
  }

  /// Is the calling thread between a start and the outermost end?
  [[nodiscard]] static bool open() noexcept { return this_thread_.depth > 0; }
  static void start() {
    current();
    ++this_thread_.depth;
  }
  static Result<void> end();
  void fail(const Error& error);
  /// Takes the call that stood at this place in the thread's last group, with other addresses.
  /// False: it is another one, to be checked and added.
  bool repeat(const Communicator& comm,
              const CallShape& shape,
              const void* send,
              void* recv) noexcept;
  void add(const Task& task, const CallShape& shape);
  void add(LifeJob job) { jobs_.push_back(std::move(job)); }

 private:
  class Reset;
  Result<void> finish();
  Result<void> run_jobs();
  void differ() noexcept;
  static Group& make_current();
  // Looking up what is a thread's costs most of what a group's calls do: one object without
  // constructor is found at once.
  struct ThisThread {
    int depth = 0;
    Group* group = nullptr;
  };
  // NOLINTNEXTLINE(*-avoid-non-const-global-variables,*-identifier-naming): private, a thread's own
  static thread_local constinit ThisThread this_thread_;
  // Of this group; from place ntaken_ on, of the last one, which may be repeated.
  std::vector<Task> tasks_;
  std::vector<CallShape> shapes_;
  size_t ntaken_ = 0;
  Communicator* last_comm_ = nullptr;  // of the last group's calls; nullptr: not to be repeated
  uint64_t last_group_ = 0;            // its number, distinct in the process
  std::vector<LifeJob> jobs_;
  std::optional<Error> error_;
};

}  // namespace plexus
