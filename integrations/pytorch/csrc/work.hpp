// SPDX-License-Identifier: Apache-2.0
// One call of a process group, from issue to end, and the queue that all calls of a group go
// through.
//
// A small call that finds the group idle is not put on a stream at once but kept for some
// microseconds: when its caller comes to wait for it, as most do, it runs in that thread, and no
// other one has to wake up. If nobody comes, the queue's thread puts it on the stream.
//
// A message goes to the lane of its pair and direction (message_lane.hpp), where it waits until the
// lane is made.
//
// A call on a stream ends in the library's thread, where only the waiting thread is woken. Copies
// out of staging memory and callbacks of futures, which may be Python's, run in threads of the
// queue, the finishers: one, and more while callbacks wait for other calls. A finisher also issues
// the second part of a call that has two; later calls wait meanwhile, as they keep their order.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "communicator.hpp"
#include "message_lane.hpp"

namespace torch_plexus {

class CallQueue;

/// What a call does.
struct Call {
  c10d::OpType type;
  const char* name;  // static; for profiles and messages
  // Issues it on a stream; nullptr: in the calling thread, complete on return. Throws.
  std::function<void(ncclComm_t, cudaStream_t)> issue;
  // The same for a second part, which needs the results of the first; empty: there is none.
  std::function<void(ncclComm_t, cudaStream_t)> issue_rest{};
  std::function<void()> copy_out{};  // after success: from staging memory to the outputs
  std::vector<at::Tensor> inputs{};  // live as long as the call
  // What the future gets: the list that is alone, or a list of lists.
  std::vector<std::vector<at::Tensor>> outputs{};
  size_t bytes = 0;
};

/// Threads: any.
class CallWork : public c10d::Work {
 public:
  CallWork(Call call, CallQueue& queue);

  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::vector<at::Tensor> result() override;
  void synchronize() override {}
  void abort() override;

 private:
  friend class CallQueue;
  /// Who ends the work: nobody yet; the thread in which it has arrived; a finisher.
  enum class End { kNone, kHere, kFinisher };

  static void on_stream_done(void* work);
  void arrive(std::exception_ptr error);
  void finish_with(std::exception_ptr error);
  void finish_late();
  void mark_future();

  Call call_;
  CallQueue* queue_;              // there until the work has ended
  Communicator* comm_ = nullptr;  // on whose stream it is
  std::chrono::steady_clock::time_point issued_at_{};
  // guarded by mutex_ of the base class:
  End end_ = End::kNone;
  std::exception_ptr arrived_error_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool is_marked_ = false;
};

/// All calls of a process group in their order, and the threads that watch and finish them.
/// Threads: any.
class CallQueue {
 public:
  CallQueue(std::unique_ptr<Communicator> comm, std::chrono::milliseconds timeout);
  ~CallQueue();
  /// Ends it in a thread of its own where the caller is one of its finishers, who cannot wait for
  /// itself: a callback, or the tensors of a call, may have held the last reference to a group.
  static void close(std::unique_ptr<CallQueue> queue, c10::intrusive_ptr<c10d::Store> store);
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  [[nodiscard]] Communicator& comm() noexcept { return *comm_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }

  c10::intrusive_ptr<c10d::Work> add(Call call);
  c10::intrusive_ptr<c10d::Work> add_message(Call call, c10d::Store& store, int source, int target);
  /// Puts the kept call, if there is one, on the stream.
  void flush();
  /// Ends all calls with an error: here.
  void revoke(const std::string& reason);
  /// And on the other ranks.
  void abort(const std::string& reason);
  /// Lets the calls of all queues of this process and what follows them end, at most for some
  /// seconds. Before Python ends: then its lock, which a finisher needs to free tensors and to run
  /// callbacks, ends the thread that asks for it, and with it the process.
  static void drain_all();
  /// While nothing else is issued.
  std::unique_ptr<Communicator> shrink(const std::vector<int>& excluded);
  [[nodiscard]] std::vector<int> gone_ranks() const { return comm_->gone_ranks(); }
  [[nodiscard]] uint64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  friend class CallWork;
  using WorkPtr = c10::intrusive_ptr<CallWork>;
  struct Lane {
    std::unique_ptr<MessageLane> lane;
    std::deque<WorkPtr> waiting;  // until it is made
  };

  [[nodiscard]] bool is_drained();
  [[nodiscard]] bool is_finisher(std::thread::id thread);
  void begin(const WorkPtr& work);
  void put_in_order(const WorkPtr& work);
  void put_on_stream(const WorkPtr& work, Communicator& comm);
  void issue_rest(const WorkPtr& work, std::exception_ptr error);
  void flush_locked();
  void flush_in_time();
  void start_timer();
  void run_if_kept(CallWork& work);
  void hand_over(WorkPtr work);
  void forget(const CallWork& work);
  void watch();
  void finish_arrived();
  void start_finisher();
  bool serve_lanes();
  void serve_lane(Lane& lane);
  void end_overdue();
  void end_lanes(const std::string& reason, void (Communicator::*end)(const std::string&));
  void wake();

  std::unique_ptr<Communicator> comm_;
  std::chrono::milliseconds timeout_;
  std::atomic<uint64_t> count_{0};
  std::atomic<int> on_streams_{0};  // calls whose references streams hold
  std::mutex issue_mutex_;          // held while a call of comm_ is issued or runs without a stream
  WorkPtr kept_;                    // guarded by issue_mutex_, as what follows
  WorkPtr half_issued_;             // its second part is to be issued before the deferred calls
  std::deque<WorkPtr> deferred_;
  std::mutex lanes_mutex_;
  std::map<std::pair<int, int>, Lane> lanes_;  // by source and target; guarded by lanes_mutex_
  std::mutex mutex_;                           // locked last
  std::list<WorkPtr> running_;                 // guarded by mutex_
  std::condition_variable all_ended_;          // nothing is running
  std::deque<WorkPtr> arrived_;  // to be ended by a finisher; guarded by mutex_, as what follows
  std::condition_variable has_arrived_;
  std::vector<std::thread> finishers_;
  size_t idle_finishers_ = 0;
  bool stop_ = false;
  int wake_fd_ = -1;
  int timer_fd_ = -1;
  std::thread watch_;
};

}  // namespace torch_plexus
