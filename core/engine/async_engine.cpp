// SPDX-License-Identifier: Apache-2.0
#include "core/engine/async_engine.hpp"

#include <algorithm>
#include <functional>
#include <new>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"

namespace plexus {
namespace {

bool share_order(const Submission& a, const Submission& b) {
  const auto has_rank_of = [&](const Submission::Part& part) {
    return std::any_of(b.parts.begin(), b.parts.end(), [&](const Submission::Part& other) {
      return other.execution->rank == part.execution->rank;
    });
  };
  return std::any_of(a.parts.begin(), a.parts.end(), has_rank_of) ||
         std::any_of(a.streams.begin(), a.streams.end(), [&](HostStream* stream) {
           return std::find(b.streams.begin(), b.streams.end(), stream) != b.streams.end();
         });
}

bool is_finished(const Submission& submission) {
  return std::all_of(submission.parts.begin(), submission.parts.end(),
                     [](const Submission::Part& part) { return part.execution->finished; });
}

/// The error of a finished submission; nullptr: success.
const Error* failure_of(const Submission& submission) {
  if (submission.withdrawn != nullptr) {
    return submission.withdrawn.get();
  }
  if (submission.after != nullptr) {
    return submission.after->error();
  }
  for (const Submission::Part& part : submission.parts) {
    if (part.execution->error.has_value()) {
      return &*part.execution->error;
    }
  }
  return nullptr;
}

}  // namespace

AsyncEngine::~AsyncEngine() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  arrived_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

Result<void> AsyncEngine::start() {
  const std::lock_guard lock(mutex_);
  return start_locked();
}

Result<void> AsyncEngine::start_locked() {
  if (!thread_.joinable()) {
    PLEXUS_TRY(thread, start_thread("asynchronous streams", [this] { serve(); }));
    thread_ = std::move(thread);
  }
  return ok();
}

void AsyncEngine::submit(Submission submission) {
  for (HostStream* const stream : submission.streams) {
    stream->begin();
  }
  const std::lock_guard lock(mutex_);
  incoming_.push_back(std::move(submission));
  // start() was called before, so this only restarts a thread that was lost since.
  if (auto started = start_locked(); started.has_error()) {
    PLEXUS_WARN("{}; work on streams waits for the next call", started.error().message());
  }
  arrived_.notify_all();
}

void AsyncEngine::withdraw_from(Submission& submission,
                                const RankState& rank,
                                std::vector<Submission::Part>& ended) {
  const auto is_of_rank = [&](const Submission::Part& part) {
    // A kernel is launched already, and ends by itself.
    return part.execution->rank == &rank && part.execution->remote == nullptr;
  };
  auto& parts = submission.parts;
  const auto first = std::stable_partition(parts.begin(), parts.end(), std::not_fn(is_of_rank));
  for (auto part = first; part != parts.end(); ++part) {
    part->execution->error = rank.stop_reason();
    part->execution->finished = true;
    submission.withdrawn = std::make_shared<const Error>(rank.stop_reason());
    ended.push_back(std::move(*part));
  }
  parts.erase(first, parts.end());
}

void AsyncEngine::withdraw(const RankState& rank) {
  std::vector<Submission::Part> ended;
  {
    const std::lock_guard lock(mutex_);
    for (Pending& pending : pending_) {
      if (!pending.started) {
        withdraw_from(pending.submission, rank, ended);
      }
    }
    for (Submission& submission : incoming_) {
      withdraw_from(submission, rank, ended);
    }
  }
  for (const Submission::Part& part : ended) {
    part.finished();  // may destroy the execution
  }
}

void AsyncEngine::serve() {
  for (bool goes_on = true; goes_on;) {
    try {
      goes_on = serve_round();
    } catch (const std::bad_alloc&) {  // each step can be taken again, when there may be memory
      engine_.wait();
    }
  }
}

/// False: the engine stops.
bool AsyncEngine::serve_round() {
  {
    std::unique_lock lock(mutex_);
    if (pending_.empty()) {
      arrived_.wait(lock, [this] { return stop_ || !incoming_.empty(); });
      if (incoming_.empty()) {
        return false;
      }
    }
    for (; !incoming_.empty(); incoming_.pop_front()) {
      pending_.emplace_back();  // first, so that no submission is lost if that throws
      pending_.back().submission = std::move(incoming_.front());
    }
  }
  start_ready();
  const bool moved = engine_.progress();
  if (!finish_done() && !moved) {
    engine_.wait();
  }
  return true;
}

/// From here on its parts are not withdrawn any more.
bool AsyncEngine::try_start(size_t index) {
  const std::lock_guard lock(mutex_);
  Pending& pending = pending_[index];
  if (!may_start(index)) {
    return false;
  }
  engine_.reserve(pending.submission.parts.size());
  pending.started = true;
  return true;
}

bool AsyncEngine::may_start(size_t index) const {
  const StreamMark* const after = pending_[index].submission.after.get();
  if (after != nullptr && !after->reached()) {
    return false;
  }
  for (size_t earlier = 0; earlier < index; ++earlier) {
    if (share_order(pending_[earlier].submission, pending_[index].submission)) {
      return false;
    }
  }
  return true;
}

void AsyncEngine::start_ready() {
  for (size_t i = 0; i < pending_.size(); ++i) {
    if (!pending_[i].started && try_start(i)) {
      for (const Submission::Part& part : pending_[i].submission.parts) {
        engine_.add(*part.execution);
      }
    }
  }
}

/// Ends the submissions whose parts have all finished. Returns whether there were any.
bool AsyncEngine::finish_done() {
  bool any = false;
  for (size_t i = 0; i < pending_.size();) {
    Pending& pending = pending_[i];
    if (!pending.started || !is_finished(pending.submission)) {
      ++i;
      continue;
    }
    any = true;
    std::shared_ptr<const Error> error;
    if (const Error* const failure = failure_of(pending.submission); failure != nullptr) {
      error = std::make_shared<const Error>(failure->clone());
    }
    for (const Submission::Part& part : pending.submission.parts) {
      part.finished();  // may destroy the execution
    }
    if (pending.submission.function) {
      pending.submission.function();
    }
    const auto streams = std::move(pending.submission.streams);
    {
      const std::lock_guard lock(mutex_);
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    for (HostStream* const stream : streams) {
      stream->end(error);
    }
  }
  return any;
}

}  // namespace plexus
