// SPDX-License-Identifier: Apache-2.0
// A stream of a host rank (plexusStreamCreate): an order in which asynchronous plans run. It only
// counts; the engine thread of core/engine/async_engine does the work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "core/base/result.hpp"

namespace plexus {

/// Threads: any.
class HostStream {
 public:
  /// One more plan on this stream.
  void begin() {
    const std::lock_guard lock(mutex_);
    ++pending_;
  }
  /// A plan on this stream is finished; `error` null when well. The first error stays.
  void end(const Error* error) {
    const std::lock_guard lock(mutex_);
    --pending_;
    if (error != nullptr && !error_.has_value()) {
      error_ = error->clone();
    }
    changed_.notify_all();
  }
  [[nodiscard]] Result<bool> query() const {
    const std::lock_guard lock(mutex_);
    if (error_.has_value()) {
      return error_->clone();
    }
    return pending_ == 0;
  }
  /// Blocks until nothing is pending. Bounded by the plans: an abort ends them.
  Result<void> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return pending_ == 0; });
    if (error_.has_value()) {
      return error_->clone();
    }
    return ok();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t pending_ = 0;
  std::optional<Error> error_;
};

}  // namespace plexus
