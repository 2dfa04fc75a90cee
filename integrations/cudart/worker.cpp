// SPDX-License-Identifier: Apache-2.0
#include "integrations/cudart/worker.hpp"

#include <utility>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"

namespace plexus::cudart {
namespace {

// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a fact of the thread
thread_local constinit bool is_worker = false;

}  // namespace

bool Worker::is_current() noexcept { return is_worker; }

void Worker::post(std::function<void()> job) {
  std::unique_lock lock(mutex_);
  jobs_.push_back(std::move(job));
  const bool lacks_thread = jobs_.size() > static_cast<size_t>(idle_) &&
                            threads_.size() < static_cast<size_t>(threads_max_);
  if (lacks_thread) {
    auto thread = start_thread(purpose_, [this] { serve(); });
    if (thread.has_value()) {
      threads_.push_back(std::move(thread).value());
    } else if (threads_.empty()) {
      warn(thread.error());
      auto own = std::move(jobs_.back());
      jobs_.pop_back();
      lock.unlock();
      own();
      return;
    }
  }
  arrived_.notify_one();
}

void Worker::serve() {
  is_worker = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    arrived_.wait(lock, [this] { return !jobs_.empty(); });
    --idle_;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace plexus::cudart
