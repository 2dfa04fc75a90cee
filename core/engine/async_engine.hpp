// SPDX-License-Identifier: Apache-2.0
// The thread that serves host streams: runs submitted executions with one Engine, each as soon as
// all earlier ones on the same streams and of the same ranks are finished, and the mark it waits
// for is reached. Marks are of streams that this thread serves, and work waits only for earlier
// work, so there is always some that can start. Sleeps when there is nothing to do.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/device/host_stream.hpp"
#include "core/engine/engine.hpp"

namespace plexus {

/// One rank's execution on streams. `finished` is called by the engine thread when it is over (see
/// Execution::error), before the streams learn of it. Without an execution: a place in the order of
/// the streams, which fails as `after` did.
struct Submission {
  Execution* execution;
  std::vector<HostStream*> streams;
  std::function<void()> finished;             // may be empty
  std::shared_ptr<const StreamMark> after{};  // not nullptr: does not start before
};

/// Threads: submit() from any. One per process.
class AsyncEngine {
 public:
  AsyncEngine() = default;
  ~AsyncEngine();
  AsyncEngine(const AsyncEngine&) = delete;
  AsyncEngine& operator=(const AsyncEngine&) = delete;

  /// Before anything is submitted: with the first stream, or the first CUDA rank. kSystemError: the
  /// system refuses the thread. No-op when it is there.
  Result<void> start();
  void submit(Submission submission);

 private:
  Result<void> start_locked();
  void serve();
  void start_ready();
  bool finish_done();
  [[nodiscard]] bool may_start(size_t index) const;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Submission> incoming_;  // guarded by mutex_
  bool stop_ = false;                // guarded by mutex_
  std::thread thread_;               // started under mutex_
  // of the thread:
  struct Pending {
    Submission submission;
    bool started = false;
  };
  std::deque<Pending> pending_;
  Engine engine_;
};

}  // namespace plexus
