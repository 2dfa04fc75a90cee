// SPDX-License-Identifier: Apache-2.0
// Reductions of one communicator by their ncclRedOp_t: the built-in ones, and those that users made
// with ncclRedOpCreatePreMulSum.
#pragma once

#include <cstdint>
#include <map>

#include "core/base/result.hpp"
#include "core/schedule/task.hpp"

namespace plexus {

/// Threads: one at a time, as the communicator's calls.
class UserReductions {
 public:
  /// For a communicator that is not ready: there are no calls yet.
  UserReductions() = default;
  UserReductions(uint64_t group, int nranks) : group_(group), nranks_(nranks) {}

  /// Returns an ncclRedOp_t (kFirstUserOp.. 0x7ffffffe) that no other communicator is likely to
  /// have, so that one used with the wrong communicator is refused. `on_device`: `scalar` is read
  /// when a call runs, else now.
  int add(DataType type, const void* scalar, bool on_device);
  /// kInvalidArgument: `op` was not made by add().
  Result<void> remove(int op);
  /// Sets the reduction of `task`, whose shape has the user's op and a checked type.
  Result<void> resolve(Task* task) const;

 private:
  struct Entry {
    DataType type;
    ReduceOp op;
    const void* scalar;  // not nullptr: read when the call runs; on host ranks it is host memory
  };
  uint64_t group_ = 0;
  int nranks_ = 0;
  uint64_t nmade_ = 0;
  std::map<int, Entry> entries_;  // by op
};

}  // namespace plexus
