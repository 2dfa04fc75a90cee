// SPDX-License-Identifier: Apache-2.0
// The thread that serves host streams. It runs submissions with one Engine. A submission starts
// when all earlier ones on the same streams and of the same ranks have finished and the mark that
// it waits for is reached. All marks are of streams that this thread serves and work waits only for
// earlier work, so there is always a submission that can start. A round looks at what runs and at
// what is next on its streams and ranks, not at what waits behind. The thread sleeps when there is
// nothing to do.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/device/host_stream.hpp"
#include "core/engine/engine.hpp"

namespace plexus {

/// Work that starts together on its streams: one rank's execution, or those of all ranks and
/// communicators of a group, which may wait for one another. Without parts it only takes a place in
/// the order of the streams, and fails as `after` did.
struct Submission {
  struct Part {
    Execution* execution;
    /// Called when the part's submission has ended (see Execution::error), before the streams learn
    /// of it: by the engine thread, or by who withdraws it.
    std::function<void()> finished;
  };
  std::vector<Part> parts;
  std::vector<HostStream*> streams;
  std::function<void()> function{};  // called when all parts have ended; may be empty
  // not null: the submission does not start before this is reached
  std::shared_ptr<const StreamMark> after{};
  std::shared_ptr<const Error> withdrawn{};  // why a part is no longer in it; nullptr: all are
};

/// Threads: submit() and withdraw() from any. One per process.
class AsyncEngine {
 public:
  /// `begin` is called by the thread before anything else.
  explicit AsyncEngine(std::function<void()> begin = {}) : begin_(std::move(begin)) {}
  ~AsyncEngine();
  AsyncEngine(const AsyncEngine&) = delete;
  AsyncEngine& operator=(const AsyncEngine&) = delete;

  /// Starts the thread if it does not run. To be called before anything is submitted: with the
  /// first stream or the first CUDA rank. kSystemError: the system refuses the thread.
  Result<void> start();
  void submit(Submission submission);
  /// Ends what has not begun of `rank`, which has stopped, whatever it waits for. The rest of its
  /// submissions, and their places in the order of their streams, stay.
  void withdraw(const RankState& rank);

 private:
  /// A stream or a rank: what keeps submissions in order.
  using Order = const void*;
  struct Pending {
    struct Follower {
      Order order;
      Pending* pending;
    };
    Submission submission{};
    std::vector<Order> orders{};
    std::vector<Follower> followers{};  // the next in each order
    size_t ahead = 0;                   // number of orders in which an earlier one has not ended
    bool started = false;
    std::list<Pending>::iterator self{};
  };

  Result<void> start_locked();
  void serve();
  bool serve_round();
  void take(Submission& submission);
  void start_ready();
  bool try_start(Pending& pending);
  bool finish_done();
  void finish(Pending& pending);
  void follow(Pending& pending);
  void release_from(const RankState& rank);
  static void withdraw_from(Submission& submission,
                            const RankState& rank,
                            std::vector<Submission::Part>& ended);

  const std::function<void()> begin_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Submission> incoming_;  // guarded by mutex_
  bool stop_ = false;                // guarded by mutex_
  std::thread thread_;               // started under mutex_
  // Guarded by mutex_. The thread alone adds and removes; it reads them, and uses what has started,
  // without.
  std::list<Pending> pending_;
  std::unordered_map<Order, Pending*> last_;  // the latest in each order
  std::vector<Pending*> ready_;    // guarded by mutex_: whose turn it is, and that have not started
  std::vector<Pending*> running_;  // used by the thread only, as below
  Engine engine_;
};

}  // namespace plexus
