// SPDX-License-Identifier: Apache-2.0
#include "work.hpp"

#include <ATen/core/ivalue.h>
#include <algorithm>
#include <c10/util/Exception.h>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <set>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "quiet_thread.hpp"

namespace torch_plexus {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Larger calls take so long that two wake-ups do not matter.
constexpr size_t kKeptBytes = size_t{1} << 20;
// From a call to the wait for it, Python takes a few microseconds.
constexpr auto kKeptFor = std::chrono::microseconds(50);
// Overdue calls are looked for so often, more often where the timeout is short.
constexpr auto kLookEvery = milliseconds(1000);
constexpr auto kLookEveryMin = milliseconds(10);
constexpr int kLooksPerTimeout = 10;
// Callbacks that wait for other calls of the group, which need a finisher too, may be as deep.
constexpr size_t kFinishersMax = 16;
constexpr auto kLookAtLanesEvery = milliseconds(2);  // while one is being made
constexpr auto kDrainMax = std::chrono::seconds(5);
constexpr auto kLookAtDrainEvery = milliseconds(1);

/// The queues of a process, for its end.
struct LiveQueues {
  std::mutex mutex;  // never held during a wait: what is waited for may make or end a queue
  std::set<CallQueue*> queues;
  int ending = 0;  // in threads of their own
  pid_t process = getpid();

  static LiveQueues& instance() {
    static auto* const all = new LiveQueues;  // threads may outlive static objects
    return *all;
  }
};

/// As Gloo's: only several lists are a list of lists.
bool is_nested(const Call& call) { return call.outputs.size() > 1; }

c10::intrusive_ptr<c10::ivalue::Future> make_future(const Call& call) {
  c10::TypePtr list = c10::ListType::create(c10::TensorType::get());
  return c10::make_intrusive<c10::ivalue::Future>(is_nested(call) ? c10::ListType::create(list)
                                                                  : list);
}

}  // namespace

// ---- CallWork ----

CallWork::CallWork(Call call, CallQueue& queue)
    : Work(queue.comm().rank(), call.type, call.name, call.inputs),
      call_(std::move(call)),
      queue_(&queue) {}

bool CallWork::wait(milliseconds timeout) {
  if (!isCompleted()) {
    if (timeout == kNoTimeout) {
      queue_->run_if_kept(*this);
    } else {
      queue_->flush();  // this thread may have to leave before the call ends
    }
  }
  std::unique_lock lock(mutex_);
  const auto is_done = [this] { return completed_; };
  if (timeout == kNoTimeout) {
    cv_.wait(lock, is_done);  // bounded by the timeout of the group
  } else {
    TORCH_CHECK(cv_.wait_for(lock, timeout, is_done), "plexus: ", call_.name,
                " did not end within ", timeout.count(),
                " ms; it goes on, and may be waited for again");
  }
  if (exception_ != nullptr) {
    std::rethrow_exception(exception_);
  }
  return true;
}

void CallWork::abort() {
  TORCH_CHECK(false, "plexus: a single call cannot be aborted; destroy the group");
}

std::vector<at::Tensor> CallWork::result() {
  std::vector<at::Tensor> all;
  for (const auto& list : call_.outputs) {
    all.insert(all.end(), list.begin(), list.end());
  }
  return all;
}

c10::intrusive_ptr<c10::ivalue::Future> CallWork::getFuture() {
  if (!isCompleted()) {
    queue_->flush();  // who takes the future does not come to wait here
  }
  std::unique_lock lock(mutex_);
  if (future_ == nullptr) {
    future_ = make_future(call_);
  }
  if (end_ == End::kHere) {  // it arrived before there was a future
    cv_.wait(lock, [this] { return completed_; });
  }
  const bool is_late = completed_;
  lock.unlock();
  if (is_late) {
    mark_future();
  }
  return future_;
}

/// The host function of a call's stream: runs in the library's thread.
void CallWork::on_stream_done(void* work) {
  auto self = c10::intrusive_ptr<CallWork>::reclaim(static_cast<CallWork*>(work));
  CallQueue& queue = *self->queue_;  // is not destroyed before its streams are idle
  const std::string failure = self->comm_->stream_failure();
  self->arrive(failure.empty() ? nullptr : make_error(failure));
  self.reset();  // perhaps the last reference
  queue.on_streams_.fetch_sub(1, std::memory_order_release);
}

/// The call itself has ended.
void CallWork::arrive(std::exception_ptr error) {
  bool to_finisher = false;
  {
    const std::lock_guard lock(mutex_);
    const bool must_copy = call_.copy_out != nullptr && error == nullptr;
    // Who frees the last tensor of a work that its caller has dropped may need Python's lock. The
    // other two are the queue and the caller of this.
    const bool is_dropped = c10::raw::intrusive_ptr::use_count(this) <= 2;
    to_finisher = future_ != nullptr || must_copy || is_dropped || call_.issue_rest != nullptr;
    end_ = to_finisher ? End::kFinisher : End::kHere;
    arrived_error_ = error;
  }
  if (to_finisher) {
    queue_->hand_over(c10::intrusive_ptr<CallWork>::reclaim_copy(this));
  } else {
    finish_with(std::move(error));
  }
}

void CallWork::finish_with(std::exception_ptr error) {
  queue_->forget(*this);
  call_.issue = nullptr;
  call_.copy_out = nullptr;
  finish(std::move(error));
}

/// In a finisher.
void CallWork::finish_late() {
  std::exception_ptr error = arrived_error_;
  if (call_.issue_rest != nullptr) {
    queue_->issue_rest(c10::intrusive_ptr<CallWork>::reclaim_copy(this), std::move(error));
    return;
  }
  if (error == nullptr && call_.copy_out) {
    try {
      call_.copy_out();
    } catch (const std::exception&) {
      error = std::current_exception();
    }
  }
  finish_with(std::move(error));
  mark_future();
}

/// After the end. Once, if there is a future.
void CallWork::mark_future() {
  {
    const std::lock_guard lock(mutex_);
    if (future_ == nullptr || std::exchange(is_marked_, true)) {
      return;
    }
  }
  if (exception_ != nullptr) {
    future_->setError(exception_);
  } else if (is_nested(call_)) {
    future_->markCompleted(c10::IValue(call_.outputs));
  } else {
    future_->markCompleted(
        c10::IValue(call_.outputs.empty() ? std::vector<at::Tensor>{} : call_.outputs.front()));
  }
}

// ---- CallQueue ----

CallQueue::CallQueue(std::unique_ptr<Communicator> comm, milliseconds timeout)
    : comm_(std::move(comm)),
      timeout_(timeout),
      wake_fd_(above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      timer_fd_(above_stdio(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK))) {
  TORCH_CHECK(wake_fd_ >= 0 && timer_fd_ >= 0,
              "plexus: no descriptor for the process group: ", std::strerror(errno),
              "; raise the limit of open files (ulimit -n)");
  start_finisher();
  watch_ = start_quiet_thread([this] { watch(); });
  LiveQueues& live = LiveQueues::instance();
  const std::lock_guard lock(live.mutex);
  live.queues.insert(this);
}

CallQueue::~CallQueue() {
  if (!comm_->is_own_process()) {
    // The threads are the parent's; here there is nothing to join.
    new std::thread(std::move(watch_));
    new std::vector<std::thread>(std::move(finishers_));
    ::close(wake_fd_);
    ::close(timer_fd_);
    return;
  }
  {
    LiveQueues& live = LiveQueues::instance();
    const std::lock_guard lock(live.mutex);
    live.queues.erase(this);
  }
  flush();
  {
    std::unique_lock lock(mutex_);
    // Bounded by the timeout, while the thread watches.
    all_ended_.wait(lock, [this] { return running_.empty(); });
    stop_ = true;
  }
  comm_->wait_stream();  // host functions return after the ends of their works
  wake();
  has_arrived_.notify_all();
  watch_.join();
  for (std::thread& finisher : finishers_) {
    finisher.join();
  }
  ::close(wake_fd_);
  ::close(timer_fd_);
}

void CallQueue::close(std::unique_ptr<CallQueue> queue, c10::intrusive_ptr<c10d::Store> store) {
  LiveQueues& live = LiveQueues::instance();
  if (!queue->comm_->is_own_process() || !queue->is_finisher(std::this_thread::get_id())) {
    queue.reset();  // before the store, which its lanes use
    return;
  }
  {
    const std::lock_guard lock(live.mutex);
    ++live.ending;
  }
  start_quiet_thread([&live, queue = std::move(queue), store = std::move(store)]() mutable {
    queue.reset();
    store.reset();
    const std::lock_guard lock(live.mutex);
    --live.ending;
  }).detach();
}

bool CallQueue::is_finisher(std::thread::id thread) {
  const std::lock_guard lock(mutex_);
  return std::any_of(finishers_.begin(), finishers_.end(),
                     [&](const std::thread& each) { return each.get_id() == thread; });
}

void CallQueue::drain_all() {
  LiveQueues& live = LiveQueues::instance();
  if (live.process != getpid()) {
    return;  // of a child made by fork, which leaves its parent's queues alone
  }
  const auto is_drained = [&live] {
    const std::lock_guard lock(live.mutex);
    return live.ending == 0 && std::all_of(live.queues.begin(), live.queues.end(),
                                           [](CallQueue* queue) { return queue->is_drained(); });
  };
  const auto until = steady_clock::now() + kDrainMax;
  while (!is_drained() && steady_clock::now() < until) {
    std::this_thread::sleep_for(kLookAtDrainEvery);
  }
}

/// No call runs, and no thread of the queue or of a stream holds one that has ended.
bool CallQueue::is_drained() {
  const std::unique_lock issue(issue_mutex_, std::try_to_lock);
  const std::unique_lock lanes(lanes_mutex_, std::try_to_lock);
  if (!issue.owns_lock() || !lanes.owns_lock()) {
    return false;
  }
  flush_locked();
  const std::lock_guard lock(mutex_);
  return running_.empty() && arrived_.empty() && idle_finishers_ == finishers_.size() &&
         on_streams_.load(std::memory_order_acquire) == 0;
}

c10::intrusive_ptr<c10d::Work> CallQueue::add(Call call) {
  (void)comm_->usable();
  auto work = c10::make_intrusive<CallWork>(std::move(call), *this);
  const std::lock_guard lock(issue_mutex_);
  flush_locked();
  const bool is_idle = [&] {
    const std::lock_guard running(mutex_);
    return running_.empty();
  }();
  begin(work);
  if (!is_idle || work->call_.bytes > kKeptBytes) {
    put_in_order(work);
  } else {
    kept_ = work;
    start_timer();
  }
  return work;
}

c10::intrusive_ptr<c10d::Work> CallQueue::add_message(Call call,
                                                      c10d::Store& store,
                                                      int source,
                                                      int target) {
  (void)comm_->usable();
  auto work = c10::make_intrusive<CallWork>(std::move(call), *this);
  {
    const std::lock_guard lock(lanes_mutex_);
    Lane& lane = lanes_[{source, target}];
    if (lane.lane == nullptr) {
      lane.lane = std::make_unique<MessageLane>(store, source, target, source == comm_->rank());
    }
    begin(work);
    if (lane.lane->comm() != nullptr) {
      put_on_stream(work, *lane.lane->comm());
      return work;
    }
    lane.waiting.push_back(work);
  }
  wake();
  return work;
}

void CallQueue::begin(const WorkPtr& work) {
  count_.fetch_add(1, std::memory_order_relaxed);
  work->issued_at_ = steady_clock::now();
  const std::lock_guard lock(mutex_);
  running_.push_back(work);
}

/// Under issue_mutex_.
void CallQueue::put_in_order(const WorkPtr& work) {
  if (half_issued_ != nullptr) {
    deferred_.push_back(work);
    return;
  }
  if (work->call_.issue_rest != nullptr) {
    half_issued_ = work;
  }
  put_on_stream(work, *comm_);
}

/// In a finisher, when the first part of `work` has ended: with `error`, or nullptr.
void CallQueue::issue_rest(const WorkPtr& work, std::exception_ptr error) {
  const std::lock_guard lock(issue_mutex_);
  half_issued_.reset();
  work->call_.issue = std::exchange(work->call_.issue_rest, nullptr);
  if (error != nullptr) {
    work->arrive(std::move(error));
  } else {
    put_on_stream(work, *comm_);
  }
  while (!deferred_.empty() && half_issued_ == nullptr) {
    const WorkPtr next = std::move(deferred_.front());
    deferred_.pop_front();
    put_in_order(next);
  }
}

/// Ends the work with the error if it cannot be issued.
void CallQueue::put_on_stream(const WorkPtr& work, Communicator& comm) {
  work->comm_ = &comm;
  auto* const owned = WorkPtr(work).release();  // on_stream_done takes it back
  on_streams_.fetch_add(1, std::memory_order_relaxed);
  try {
    work->call_.issue(comm.usable(), comm.stream());
    check(plexusLaunchHostFunc(comm.stream(), CallWork::on_stream_done, owned),
          "plexusLaunchHostFunc", nullptr);
  } catch (const std::exception&) {
    WorkPtr::reclaim(owned);
    on_streams_.fetch_sub(1, std::memory_order_relaxed);
    work->arrive(comm.explain(std::current_exception()));
  }
}

void CallQueue::flush() {
  const std::lock_guard lock(issue_mutex_);
  flush_locked();
}

void CallQueue::flush_locked() {
  if (kept_ != nullptr) {
    put_in_order(std::exchange(kept_, WorkPtr()));
  }
}

/// In the watching thread, which must not wait for a call that runs in its caller.
void CallQueue::flush_in_time() {
  const std::unique_lock lock(issue_mutex_, std::try_to_lock);
  if (lock.owns_lock()) {
    flush_locked();
  } else {
    start_timer();
  }
}

void CallQueue::start_timer() {
  const itimerspec soon{.it_interval = {},
                        .it_value = {0, std::chrono::nanoseconds(kKeptFor).count()}};
  timerfd_settime(timer_fd_, 0, &soon, nullptr);
}

/// In the thread that waits for `work`.
void CallQueue::run_if_kept(CallWork& work) {
  const std::lock_guard lock(issue_mutex_);
  if (kept_.get() != &work) {
    return;
  }
  const WorkPtr kept = std::exchange(kept_, WorkPtr());
  const auto rest = std::exchange(work.call_.issue_rest, nullptr);
  std::exception_ptr error;
  try {
    work.call_.issue(comm_->usable(), nullptr);
    if (rest) {
      rest(comm_->usable(), nullptr);
    }
    if (work.call_.copy_out) {
      work.call_.copy_out();
      work.call_.copy_out = nullptr;
    }
  } catch (const std::exception&) {
    error = comm_->explain(std::current_exception());
  }
  work.arrive(std::move(error));
}

void CallQueue::hand_over(WorkPtr work) {
  const std::lock_guard lock(mutex_);
  arrived_.push_back(std::move(work));
  if (arrived_.size() > idle_finishers_ && finishers_.size() < kFinishersMax && !stop_) {
    try {
      start_finisher();
    } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch): there is at least one
    }
  }
  has_arrived_.notify_one();
}

/// Under mutex_, or before there are threads.
void CallQueue::start_finisher() {
  finishers_.push_back(start_quiet_thread([this] { finish_arrived(); }));
}

void CallQueue::forget(const CallWork& work) {
  const std::lock_guard lock(mutex_);
  running_.remove_if([&](const WorkPtr& each) { return each.get() == &work; });
  if (running_.empty()) {
    all_ended_.notify_all();
  }
}

void CallQueue::revoke(const std::string& reason) {
  comm_->revoke(reason);
  end_lanes(reason, &Communicator::revoke);
}

void CallQueue::abort(const std::string& reason) {
  comm_->abort(reason);
  end_lanes(reason, &Communicator::abort);
}

void CallQueue::end_lanes(const std::string& reason,
                          void (Communicator::*end)(const std::string&)) {
  const std::lock_guard lock(lanes_mutex_);
  for (auto& [ends, lane] : lanes_) {
    if (lane.lane->comm() != nullptr) {
      (lane.lane->comm()->*end)(reason);
    }
    for (const WorkPtr& work : std::exchange(lane.waiting, {})) {
      work->arrive(make_error(reason));
    }
  }
}

std::unique_ptr<Communicator> CallQueue::shrink(const std::vector<int>& excluded) {
  const std::lock_guard lock(issue_mutex_);
  flush_locked();
  return comm_->shrink(excluded);
}

void CallQueue::wake() {
  const uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);
}

/// The thread for what comes with time: calls that were kept, lanes in the making, timeouts.
void CallQueue::watch() {
  const auto look_every = std::clamp(timeout_ / kLooksPerTimeout, kLookEveryMin, kLookEvery);
  std::array<pollfd, 2> waits{{{wake_fd_, POLLIN, 0}, {timer_fd_, POLLIN, 0}}};
  bool makes_lanes = false;
  for (;;) {
    const milliseconds time = makes_lanes ? kLookAtLanesEvery : look_every;
    (void)poll(waits.data(), waits.size(), static_cast<int>(time.count()));
    uint64_t ignored = 0;
    (void)!read(wake_fd_, &ignored, sizeof ignored);
    const bool is_time = read(timer_fd_, &ignored, sizeof ignored) > 0;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) {
        return;
      }
    }
    if (is_time) {
      flush_in_time();
    }
    makes_lanes = serve_lanes();
    end_overdue();
  }
}

/// A finisher's thread.
void CallQueue::finish_arrived() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_finishers_;
    has_arrived_.wait(lock, [this] { return stop_ || !arrived_.empty(); });
    --idle_finishers_;
    if (arrived_.empty()) {
      return;
    }
    WorkPtr work = std::move(arrived_.front());
    arrived_.pop_front();
    lock.unlock();
    work->finish_late();
    work.reset();
    lock.lock();
  }
}

/// True while lanes with messages are being made.
bool CallQueue::serve_lanes() {
  const std::lock_guard lock(lanes_mutex_);
  bool any = false;
  for (auto& [ends, lane] : lanes_) {
    if (!lane.waiting.empty()) {
      serve_lane(lane);
      any = any || !lane.waiting.empty();
    }
  }
  return any;
}

void CallQueue::serve_lane(Lane& lane) {
  std::exception_ptr error;
  try {
    lane.lane->progress();
  } catch (const std::exception&) {
    error = comm_->explain(std::current_exception());
  }
  if (error == nullptr && lane.lane->comm() == nullptr) {
    return;
  }
  for (const WorkPtr& work : std::exchange(lane.waiting, {})) {
    if (error != nullptr) {
      work->arrive(error);
    } else {
      put_on_stream(work, *lane.lane->comm());
    }
  }
}

/// Nobody may be waiting for a call, as when a future stands for it; its timeout ends it all the
/// same.
void CallQueue::end_overdue() {
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    const auto now = steady_clock::now();
    for (const WorkPtr& work : running_) {
      if (now - work->issued_at_ > timeout_) {
        reason = c10::str(
            "plexus: ", work->call_.name, " did not end within ", timeout_.count(),
            " ms, the timeout of the process group: a rank has not made this call, or is "
            "slower; PLEXUS_STALL_S logs which. The group cannot be used any more: destroy it "
            "and make another one, or torch_plexus.shrink()");
        break;
      }
    }
  }
  if (!reason.empty()) {
    revoke(reason);
  }
}

}  // namespace torch_plexus
