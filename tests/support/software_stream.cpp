// SPDX-License-Identifier: Apache-2.0
#include "tests/support/software_stream.hpp"

#include <utility>

namespace plexus::testing_device {

SoftwareStream::SoftwareStream(HardwareQueue* queue)
    : queue_(queue), thread_([this] { serve(); }) {}

SoftwareStream::~SoftwareStream() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SoftwareStream::add(std::function<void()> job, bool holds) {
  const std::lock_guard lock(mutex_);
  if (graph != nullptr) {
    graph->jobs.emplace_back([job = std::move(job)] { return job; });
    return;
  }
  if (queue_ != nullptr) {
    job = [queue = queue_, ticket = queue_->take(), holds, job = std::move(job)] {
      queue->await(ticket);
      if (!holds) {
        queue->pass();
      }
      job();
      if (holds) {
        queue->pass();
      }
    };
  }
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void SoftwareStream::add_to_graph(SoftwareGraph::Job job) {
  const std::lock_guard lock(mutex_);
  graph->jobs.push_back(std::move(job));
}

void SoftwareStream::synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
}

void SoftwareStream::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) {
      return;
    }
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void call_in_drivers_thread(void (*function)(void*), void* argument) {
  static auto* const driver = new SoftwareStream;  // of streams that may outlive what is destroyed
  struct Done {
    std::mutex mutex;
    std::condition_variable changed;
    bool value = false;
  };
  const auto done = std::make_shared<Done>();
  driver->add([=] {
    CallRules::begin_host_function();
    function(argument);
    const std::lock_guard lock(done->mutex);
    done->value = true;
    done->changed.notify_all();
  });
  std::unique_lock lock(done->mutex);
  done->changed.wait(lock, [&] { return done->value; });
}

}  // namespace plexus::testing_device
