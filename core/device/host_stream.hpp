// SPDX-License-Identifier: Apache-2.0
// A stream of a host rank (plexusStreamCreate): the order in which asynchronous work runs, and
// marks in that order (plexusEventRecord). These classes only count; the engine thread of
// core/engine/async_engine does the work.
//
//   stream.begin();                    // a call is queued
//   const auto mark = stream.mark();   // an event is recorded
//   stream.end(nullptr);               // the call has ended: the event is reached
//   mark->wait();
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "core/base/result.hpp"

namespace plexus {

/// The end of all work that was on a stream at some moment. It is reached once and stays reached.
/// Threads: any.
class StreamMark {
 public:
  [[nodiscard]] bool reached() const noexcept {
    return reached_.load(std::memory_order_acquire);  // pairs with the release in reach()
  }
  void wait() const noexcept { reached_.wait(false, std::memory_order_acquire); }
  /// Once reached: the first failure of the stream up to this mark; nullptr: none.
  [[nodiscard]] const Error* error() const noexcept { return error_.get(); }
  /// Marks the end as reached. Called once.
  void reach(std::shared_ptr<const Error> error) noexcept {
    error_ = std::move(error);
    reached_.store(true, std::memory_order_release);
    reached_.notify_all();
  }

 private:
  std::shared_ptr<const Error> error_;  // the stream's; written before reached_
  std::atomic<bool> reached_{false};
};

/// Threads: any.
class HostStream {
 public:
  /// Adds one piece of work to this stream.
  void begin() {
    const std::lock_guard lock(mutex_);
    ++begun_;
  }
  /// Finishes the stream's next piece of work; `error` nullptr: success. The first error is kept,
  /// and shared with the marks, so that this needs no memory.
  void end(const std::shared_ptr<const Error>& error) noexcept {
    const std::lock_guard lock(mutex_);
    ++ended_;
    if (error_ == nullptr) {
      error_ = error;
    }
    for (; !marks_.empty() && marks_.front().first <= ended_; marks_.pop_front()) {
      marks_.front().second->reach(error_);
    }
    changed_.notify_all();
  }
  /// The end of all work that is on the stream now. Work ends in stream order, so a count
  /// identifies the mark. An event and those that wait for it share the mark.
  std::shared_ptr<const StreamMark> mark() {
    auto mark = std::make_shared<StreamMark>();
    const std::lock_guard lock(mutex_);
    if (begun_ == ended_) {
      mark->reach(error_);
    } else {
      marks_.emplace_back(begun_, mark);
    }
    return mark;
  }
  [[nodiscard]] Result<bool> query() const {
    const std::lock_guard lock(mutex_);
    if (error_ != nullptr) {
      return error_->clone();
    }
    return begun_ == ended_;
  }
  [[nodiscard]] bool is_idle() const {
    const std::lock_guard lock(mutex_);
    return begun_ == ended_;
  }
  /// Blocks until no work is pending. Bounded, because an abort ends all plans.
  Result<void> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return begun_ == ended_; });
    if (error_ != nullptr) {
      return error_->clone();
    }
    return ok();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t begun_ = 0;  // guarded by mutex_, as all below
  uint64_t ended_ = 0;
  std::deque<std::pair<uint64_t, std::shared_ptr<StreamMark>>> marks_;  // not reached yet, in order
  std::shared_ptr<const Error> error_;
};

/// Holds the mark of the latest plexusEventRecord (plexusEventCreate).
/// Threads: any.
class HostEvent {
 public:
  void record(HostStream& stream) {
    auto mark = stream.mark();
    const std::lock_guard lock(mutex_);
    mark_.swap(mark);
  }
  /// nullptr: never recorded.
  [[nodiscard]] std::shared_ptr<const StreamMark> last() const {
    const std::lock_guard lock(mutex_);
    return mark_;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const StreamMark> mark_;  // shared with those that wait for it
};

}  // namespace plexus
