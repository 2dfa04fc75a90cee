// SPDX-License-Identifier: Apache-2.0
// PLEXUS_CHECK=1: wrong uses of NCCL by the program, each said once with rank, call and place:
//
//   plexus: check: rank 1 of 2: cudaMemcpyAsync at train+0x1a2f writes 4096 bytes of the buffer
//   0x7f... that all_reduce at train+0x19c0 reads on another stream: ...
//
// What cannot go on (freed memory, two threads in one communicator) is refused besides, and fails
// the communicator, so that no rank waits for it. docs/checking-programs.md tells what is found.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/result.hpp"
#include "core/comm/buffer_check.hpp"
#include "core/comm/check_report.hpp"
#include "core/schedule/task.hpp"

namespace plexus {

class Process;

/// Which thread is in which communicator, and groups that are open. Threads: any.
class CallCheck {
 public:
  explicit CallCheck(CheckReport& report) : report_(report) {}

  /// A thread makes a call: until leave(), or the end of its group. kInvalidUsage: another thread
  /// is in the communicator.
  Result<void> enter(const Communicator& comm, Collective call, const void* caller);
  void leave(const Communicator& comm);
  /// The calling thread's group has this call, of the communicator that it has entered.
  void add_to_group(const Task& task);
  void end_group();
  /// It was destroyed.
  void forget(const void* comm);
  /// Says which groups were never ended.
  void report_open_groups();

 private:
  struct Claim {
    std::thread::id thread;
    int depth = 0;
    Collective call{};
    const void* caller = nullptr;
  };
  struct OpenGroup {
    std::vector<const Communicator*> comms;  // one for each call
    std::string first_call;
    size_t calls = 0;
  };
  void release(const Communicator* comm);

  CheckReport& report_;
  std::timed_mutex mutex_;
  std::map<const Communicator*, Claim> claims_;  // guarded by mutex_, as all below
  std::map<const void*, std::thread::id> last_callers_;
  std::map<std::thread::id, OpenGroup> groups_;
};

/// Threads: any.
class UseCheck {
 public:
  explicit UseCheck(Process& process);

  /// A communicator was finalized or destroyed, behind its work, of which `mark` was the last.
  void note_end(const void* comm, const StreamOrder::Clock& mark);
  /// Communicators that were not destroyed, and groups that were not ended.
  void report_at_end();

  CheckReport report;
  CallCheck calls{report};
  BufferCheck buffers;

 private:
  Process& process_;
};

}  // namespace plexus
