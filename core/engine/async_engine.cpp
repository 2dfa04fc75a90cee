// SPDX-License-Identifier: Apache-2.0
#include "core/engine/async_engine.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <new>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

bool has_part_of(const Submission& submission, const RankState& rank) {
  return std::any_of(submission.parts.begin(), submission.parts.end(),
                     [&](const Submission::Part& part) { return part.execution->rank == &rank; });
}

/// Its streams and ranks, each once.
std::vector<const void*> orders_of(const Submission& submission) {
  std::vector<const void*> orders(submission.streams.begin(), submission.streams.end());
  for (const Submission::Part& part : submission.parts) {
    orders.push_back(part.execution->rank);
  }
  std::sort(orders.begin(), orders.end(), std::less<>());
  orders.erase(std::unique(orders.begin(), orders.end()), orders.end());
  return orders;
}

/// Room for `size` elements, by doubling.
template <class Vector>
void make_room(Vector& vector, size_t size) {
  if (vector.capacity() < size) {
    vector.reserve(2 * size);
  }
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
    PLEXUS_DCHECK(pending_.empty() && running_.empty() && incoming_.empty(), pending_.size());
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
    release_from(rank);
  }
  for (const Submission::Part& part : ended) {
    part.finished();  // may destroy the execution
  }
}

void AsyncEngine::serve() {
  if (begin_) {
    begin_();
  }
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
      take(incoming_.front());
    }
  }
  start_ready();
  const bool moved = engine_.progress();
  if (!finish_done() && !moved) {
    engine_.wait();
  }
  return true;
}

/// Puts it behind the latest of its streams and ranks. If there is no memory nothing is changed.
void AsyncEngine::take(Submission& submission) {
  std::vector<Order> orders = orders_of(submission);
  const size_t count = pending_.size() + 1;
  make_room(ready_, count);
  make_room(running_, count);
  for (const Order order : orders) {
    if (const auto last = last_.find(order); last != last_.end()) {
      std::vector<Pending::Follower>& followers = last->second->followers;
      make_room(followers, followers.size() + orders.size());
    }
  }
  Pending& pending = pending_.emplace_back();
  try {
    last_.reserve(last_.size() + orders.size());
    for (const Order order : orders) {
      last_.try_emplace(order, &pending);
    }
  } catch (const std::bad_alloc&) {
    std::erase_if(last_, [&](const auto& last) { return last.second == &pending; });
    pending_.pop_back();
    throw;
  }
  pending.self = std::prev(pending_.end());
  for (const Order order : orders) {
    Pending*& last = last_.at(order);
    if (last != &pending) {
      last->followers.push_back({order, &pending});
      ++pending.ahead;
    }
    last = &pending;
  }
  pending.orders = std::move(orders);
  PLEXUS_DCHECK(pending.ahead <= pending.orders.size(), pending.ahead, pending.orders.size());
  pending.submission = std::move(submission);
  if (pending.ahead == 0) {
    ready_.push_back(&pending);
  }
}

/// One that it waited for has ended.
void AsyncEngine::follow(Pending& pending) {
  PLEXUS_ASSERT(pending.ahead > 0 && !pending.started, pending.ahead);
  if (--pending.ahead == 0) {
    PLEXUS_DCHECK(ready_.size() < ready_.capacity(), ready_.size());
    ready_.push_back(&pending);  // take() has made room
  }
}

/// What has no part of `rank` any more does not wait for what has, nor is it waited for.
void AsyncEngine::release_from(const RankState& rank) {
  // An execution that has started may be gone: the thread ends it without the lock.
  const auto is_out = [&](const Pending& pending) {
    return !pending.started && !has_part_of(pending.submission, rank);
  };
  for (Pending& pending : pending_) {
    std::erase_if(pending.followers, [&](const Pending::Follower& follower) {
      const bool ends = follower.order == &rank && (is_out(pending) || is_out(*follower.pending));
      if (ends) {
        follow(*follower.pending);
      }
      return ends;
    });
  }
}

/// From here on its parts are not withdrawn any more.
bool AsyncEngine::try_start(Pending& pending) {
  PLEXUS_DCHECK(pending.ahead == 0 && !pending.started, pending.ahead);
  const StreamMark* const after = pending.submission.after.get();
  if (after != nullptr && !after->reached()) {
    return false;
  }
  engine_.reserve(pending.submission.parts.size());
  pending.started = true;
  return true;
}

void AsyncEngine::start_ready() {
  for (size_t i = 0;;) {
    Pending* pending = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (i == ready_.size()) {
        return;
      }
      pending = ready_[i];
      if (!try_start(*pending)) {
        ++i;
        continue;
      }
      ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    PLEXUS_DCHECK(running_.size() < running_.capacity(), running_.size());
    running_.push_back(pending);
    for (const Submission::Part& part : pending->submission.parts) {
      engine_.add(*part.execution);
    }
  }
}

/// Ends the submissions whose parts have all finished. Returns whether there were any.
bool AsyncEngine::finish_done() {
  bool any = false;
  for (size_t i = 0; i < running_.size();) {
    Pending& pending = *running_[i];
    if (!is_finished(pending.submission)) {
      ++i;
      continue;
    }
    any = true;
    finish(pending);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return any;
}

void AsyncEngine::finish(Pending& pending) {
  PLEXUS_DCHECK(pending.started && pending.ahead == 0, pending.ahead);
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
    for (const Pending::Follower& follower : pending.followers) {
      follow(*follower.pending);
    }
    for (const Order order : pending.orders) {
      // One that came later and does not wait for this one any more may have ended before.
      const auto last = last_.find(order);
      if (last != last_.end() && last->second == &pending) {
        last_.erase(last);
      }
    }
    pending_.erase(pending.self);
    PLEXUS_DCHECK(!pending_.empty() || (last_.empty() && ready_.empty()), last_.size());
  }
  for (HostStream* const stream : streams) {
    stream->end(error);
  }
}

}  // namespace plexus
