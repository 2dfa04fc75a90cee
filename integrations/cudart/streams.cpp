// SPDX-License-Identifier: Apache-2.0
#include "integrations/cudart/streams.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "integrations/cudart/call.hpp"
#include "integrations/cudart/runtime.hpp"

namespace plexus::cudart {
namespace {

/// The per-thread default streams of one thread, by device. They end with it.
struct ThreadStreams {
  std::map<int, std::shared_ptr<Stream>> by_device;
  ThreadStreams() = default;
  ThreadStreams(const ThreadStreams&) = delete;
  ThreadStreams& operator=(const ThreadStreams&) = delete;
  ~ThreadStreams() {
    for (const auto& [device, stream] : by_device) {
      static_cast<void>(Runtime::instance().streams.destroy(stream->handle));
    }
  }
};

std::shared_ptr<Stream>& thread_stream(int device) {
  thread_local ThreadStreams streams;
  return streams.by_device[device];
}

struct Job {
  std::function<void()> work;
  Worker* worker;
};

/// In the thread that moves the data of all streams.
void start_job(void* user, plexusWork_t* work) {
  std::shared_ptr<Job> job(static_cast<Job*>(user));
  Worker* const worker = job->worker;
  worker->post([job = std::move(job), work] {
    job->work();
    plexusWorkDone(work);
  });
}

void run_short(void* user) {
  const std::unique_ptr<Job> job(static_cast<Job*>(user));
  job->work();
}

bool is_default(cudaStream_t stream) {
  return stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

/// Failures of NCCL's calls are the communicator's; CUDA's streams go on.
bool is_done(cudaStream_t handle) { return plexusStreamIsIdle(handle) != 0; }

}  // namespace

cudaError_t error_of(int nccl_result) {
  switch (nccl_result) {
    case ncclSuccess:
    case ncclInProgress:
      return cudaSuccess;
    case ncclInvalidArgument:
      return cudaErrorInvalidResourceHandle;
    case ncclSystemError:
      return cudaErrorMemoryAllocation;
    default:
      return cudaErrorUnknown;
  }
}

cudaError_t issue_work(cudaStream_t handle, Worker* worker, const std::function<void()>& work) {
  auto job = std::make_unique<Job>(Job{work, worker});
  const int issued = worker == nullptr ? plexusRunInTurn(handle, run_short, job.get())
                                       : plexusLaunchWork(handle, start_job, job.get());
  if (issued == ncclSuccess) {
    static_cast<void>(job.release());  // who runs it frees it
  }
  return error_of(issued);
}

// ---- handles ----

cudaError_t Streams::make(const Stream& wish, std::shared_ptr<Stream>* made) {
  auto stream = std::make_shared<Stream>(wish);
  PLEXUS_CUDART_TRY(error_of(plexusStreamCreate(&stream->handle)));
  stream->id = ids_.fetch_add(1, std::memory_order_relaxed) + 1;
  *made = std::move(stream);
  return cudaSuccess;
}

cudaError_t Streams::create(unsigned flags, int priority, cudaStream_t* stream) {
  std::shared_ptr<Stream> made;
  PLEXUS_CUDART_TRY(
      make({.device = current_device(), .flags = flags, .priority = priority}, &made));
  const std::lock_guard lock(mutex_);
  reap();
  known_.emplace(made->handle, made);
  *stream = made->handle;
  return cudaSuccess;
}

/// Frees what has become idle of streams that were destroyed.
void Streams::reap() {
  std::erase_if(retired_, [](cudaStream_t handle) {
    const bool ends = is_done(handle);
    if (ends) {
      static_cast<void>(plexusStreamDestroy(handle));
    }
    return ends;
  });
}

cudaError_t Streams::destroy(cudaStream_t stream) {
  if (is_default(stream)) {
    return refuse(cudaErrorInvalidResourceHandle, "a default stream is not destroyed");
  }
  const std::lock_guard lock(mutex_);
  const auto at = known_.find(stream);
  if (at == known_.end()) {
    return refuse(cudaErrorInvalidResourceHandle, "{} is no stream, or was destroyed already",
                  fmt::ptr(stream));
  }
  if (at->second->capture != nullptr) {
    at->second->capture->is_invalid = true;
    return refuse(cudaErrorStreamCaptureUnsupported, "the stream is captured: end that first");
  }
  retired_.push_back(stream);
  known_.erase(at);
  reap();
  return cudaSuccess;
}

void Streams::destroy_all(int device) {
  const std::lock_guard lock(mutex_);
  for (auto at = known_.begin(); at != known_.end();) {
    if (at->second->device == device && !at->second->is_legacy) {
      retired_.push_back(at->first);
      at = known_.erase(at);
    } else {
      ++at;
    }
  }
  reap();
}

cudaError_t Streams::find_default(cudaStream_t stream, int device, std::shared_ptr<Stream>* found) {
  PLEXUS_CUDART_TRY(check_device(device));
  const bool is_legacy = stream != cudaStreamPerThread;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Stream>& known =
      is_legacy ? devices_.at(static_cast<size_t>(device)).legacy : thread_stream(device);
  if (known == nullptr || known_.count(known->handle) == 0) {  // cudaDeviceReset ends them
    PLEXUS_CUDART_TRY(make({.device = device, .is_legacy = is_legacy}, &known));
    known_.emplace(known->handle, known);
  }
  *found = known;
  return cudaSuccess;
}

cudaError_t Streams::find(cudaStream_t stream, std::shared_ptr<Stream>* found) {
  if (is_default(stream)) {
    return find_default(stream, current_device(), found);
  }
  const std::lock_guard lock(mutex_);
  const auto at = known_.find(stream);
  if (at == known_.end()) {
    return refuse(cudaErrorInvalidResourceHandle, "{} is no stream, or was destroyed",
                  fmt::ptr(stream));
  }
  *found = at->second;
  return cudaSuccess;
}

cudaError_t Streams::check(cudaStream_t stream) {
  std::shared_ptr<Stream> found;
  return find(stream, &found);
}

// ---- order ----

/// `waits` goes on when what is on `stream` now is done.
void Streams::make_wait(cudaStream_t waits, cudaStream_t stream) {
  if (between_ == nullptr && plexusEventCreate(&between_) != ncclSuccess) {
    return;
  }
  static_cast<void>(plexusEventRecord(between_, stream));
  static_cast<void>(plexusStreamWaitEvent(waits, between_));
}

cudaError_t Streams::begin_legacy_work(Stream& stream) {
  auto& with_new_work = devices_.at(static_cast<size_t>(stream.device)).with_new_work;
  for (const auto& other : with_new_work) {
    other->has_new_work = false;
    make_wait(stream.handle, other->handle);
  }
  with_new_work.clear();
  ++stream.work;
  return cudaSuccess;
}

cudaError_t Streams::begin_work(Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (stream.is_legacy) {
    if (captures_.load(std::memory_order_relaxed) > 0) {
      for (const auto& [handle, other] : known_) {
        if (other->capture != nullptr && other->device == stream.device &&
            (other->flags & cudaStreamNonBlocking) == 0) {
          other->capture->is_invalid = true;
          return refuse(cudaErrorStreamCaptureImplicit,
                        "work on the legacy default stream would wait for a stream that is "
                        "captured: capture a stream with cudaStreamNonBlocking, or use another");
        }
      }
    }
    return begin_legacy_work(stream);
  }
  if ((stream.flags & cudaStreamNonBlocking) != 0) {
    return cudaSuccess;
  }
  Device& device = devices_.at(static_cast<size_t>(stream.device));
  if (device.legacy != nullptr && device.legacy->work != stream.waits_for) {
    stream.waits_for = device.legacy->work;
    make_wait(stream.handle, device.legacy->handle);
  }
  if (!stream.has_new_work) {
    if (const auto at = known_.find(stream.handle); at != known_.end()) {
      stream.has_new_work = true;
      device.with_new_work.push_back(at->second);
    }
  }
  return cudaSuccess;
}

cudaError_t Streams::enqueue(cudaStream_t stream, cudaGraphNodeType type, Issue issue) {
  std::shared_ptr<Stream> found;
  PLEXUS_CUDART_TRY(find(stream, &found));
  if (captures_.load(std::memory_order_acquire) > 0) {
    const std::lock_guard lock(mutex_);
    if (found->capture != nullptr) {
      add_op(*found, {.type = type, .issue = std::move(issue)});
      return cudaSuccess;
    }
  }
  PLEXUS_CUDART_TRY(begin_work(*found));
  return issue(found->handle);
}

cudaError_t Streams::enqueue_work(cudaStream_t stream,
                                  Worker* worker,
                                  std::function<void()> work,
                                  cudaGraphNodeType type) {
  return enqueue(stream, type, [worker, work = std::move(work)](cudaStream_t handle) {
    return issue_work(handle, worker, work);
  });
}

// ---- waiting ----

/// Finds a stream that its user waits for; the legacy one stands for all that it comes after.
cudaError_t Streams::find_awaited(cudaStream_t stream, std::shared_ptr<Stream>* found) {
  PLEXUS_CUDART_TRY(find(stream, found));
  if (capture_of(**found) != nullptr) {
    return refuse(cudaErrorStreamCaptureUnsupported, "the stream is captured");
  }
  return (*found)->is_legacy ? begin_work(**found) : cudaSuccess;
}

cudaError_t Streams::synchronize(cudaStream_t stream) {
  std::shared_ptr<Stream> found;
  PLEXUS_CUDART_TRY(find_awaited(stream, &found));
  plexusStreamWaitIdle(found->handle);
  return cudaSuccess;
}

cudaError_t Streams::query(cudaStream_t stream) {
  std::shared_ptr<Stream> found;
  PLEXUS_CUDART_TRY(find_awaited(stream, &found));
  if (!is_done(found->handle)) {
    return cudaErrorNotReady;
  }
  if (Runtime::instance().checks) {
    plexusStreamWaitIdle(found->handle);  // the program knows that now
  }
  return cudaSuccess;
}

void Streams::wait_device(int device) {
  std::vector<cudaStream_t> busy;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [handle, stream] : known_) {
      if (stream->device == device && (Runtime::instance().checks || !is_done(handle))) {
        busy.push_back(handle);
      }
    }
    busy.insert(busy.end(), retired_.begin(), retired_.end());
  }
  for (cudaStream_t const handle : busy) {
    plexusStreamWaitIdle(handle);
  }
}

// ---- libplexus ----

cudaStream_t Streams::find_behind(cudaStream_t stream, int device) {
  std::shared_ptr<Stream> found;
  if (is_default(stream)) {
    return find_default(stream, device, &found) == cudaSuccess ? found->handle : nullptr;
  }
  const std::lock_guard lock(mutex_);
  return known_.count(stream) != 0 ? stream : nullptr;
}

void Streams::before_work(cudaStream_t handle) {
  std::shared_ptr<Stream> found;
  {
    const std::lock_guard lock(mutex_);
    const auto at = known_.find(handle);
    if (at == known_.end()) {
      return;
    }
    found = at->second;
  }
  static_cast<void>(begin_work(*found));
}

bool Streams::is_captured(cudaStream_t handle) {
  if (captures_.load(std::memory_order_acquire) == 0) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  const auto at = known_.find(handle);
  return at != known_.end() && at->second->capture != nullptr;
}

void Streams::capture(cudaStream_t handle, plexusCaptured_t* calls) {
  const std::shared_ptr<plexusCaptured_t> owner(
      calls, [](plexusCaptured_t* each) { each->release(each); });
  const std::lock_guard lock(mutex_);
  const auto at = known_.find(handle);
  if (at != known_.end() && at->second->capture != nullptr) {
    add_op(*at->second, {.type = cudaGraphNodeTypeKernel, .issue = [owner](cudaStream_t lane) {
                           return error_of(owner->issue(owner.get(), lane));
                         }});
  }
}

// ---- captures ----

void Streams::add_op(Stream& stream, GraphOp op) {
  op.lane = stream.lane;
  stream.capture->log.ops.push_back(std::move(op));
}

cudaError_t Streams::begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  std::shared_ptr<Stream> found;
  PLEXUS_CUDART_TRY(find(stream, &found));
  if (found->is_legacy) {
    return refuse(cudaErrorStreamCaptureUnsupported, "the legacy default stream is not captured");
  }
  const std::lock_guard lock(mutex_);
  if (found->capture != nullptr) {
    return refuse(cudaErrorIllegalState, "the stream is captured already");
  }
  found->capture = std::make_shared<Capture>();
  found->capture->id = ids_.fetch_add(1, std::memory_order_relaxed) + 1;
  found->capture->mode = mode;
  found->capture->origin = found;
  found->lane = 0;
  captures_.fetch_add(1, std::memory_order_release);
  return cudaSuccess;
}

cudaError_t Streams::end_capture(cudaStream_t stream, std::shared_ptr<const GraphLog>* log) {
  std::shared_ptr<Stream> found;
  PLEXUS_CUDART_TRY(find(stream, &found));
  const std::lock_guard lock(mutex_);
  const std::shared_ptr<Capture> capture = found->capture;
  if (capture == nullptr) {
    return refuse(cudaErrorIllegalState, "the stream is not captured");
  }
  if (capture->origin != found) {
    return refuse(cudaErrorStreamCaptureUnmatched,
                  "the capture began on another stream, which ends it");
  }
  for (const auto& joined : capture->joined) {
    joined->capture = nullptr;
  }
  found->capture = nullptr;
  captures_.fetch_sub(1, std::memory_order_release);
  if (capture->is_invalid) {
    return refuse(cudaErrorStreamCaptureInvalidated,
                  "an earlier call has made the capture invalid");
  }
  if (!is_joined(capture->log)) {
    return refuse(cudaErrorStreamCaptureUnjoined,
                  "work on another stream of the capture is not joined: make the first stream wait "
                  "for an event of it");
  }
  *log = std::make_shared<const GraphLog>(std::move(capture->log));
  return cudaSuccess;
}

std::shared_ptr<Capture> Streams::capture_of(const Stream& stream) {
  if (captures_.load(std::memory_order_acquire) == 0) {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  return stream.capture;
}

int Streams::mark_capture(Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (stream.capture == nullptr) {
    return kNoMark;
  }
  const int mark = stream.capture->log.marks++;
  add_op(stream, {.kind = GraphOp::Kind::kMark, .mark = mark});
  return mark;
}

cudaError_t Streams::join_capture(Stream& stream,
                                  const std::shared_ptr<Capture>& capture,
                                  int mark) {
  const std::lock_guard lock(mutex_);
  if (capture->origin->capture != capture) {
    return refuse(cudaErrorCapturedEvent, "the event was recorded in a capture that has ended");
  }
  if (stream.capture == nullptr) {
    const auto at = known_.find(stream.handle);
    if (stream.is_legacy || at == known_.end()) {
      return refuse(cudaErrorStreamCaptureImplicit,
                    "the legacy default stream cannot take part in a capture");
    }
    stream.capture = capture;
    stream.lane = capture->log.lanes++;
    capture->joined.push_back(at->second);
  } else if (stream.capture != capture) {
    capture->is_invalid = true;
    return refuse(cudaErrorStreamCaptureMerge, "the event is of another capture than the stream");
  }
  add_op(stream, {.kind = GraphOp::Kind::kWait, .mark = mark});
  return cudaSuccess;
}

bool is_joined(const GraphLog& log) {
  const auto lanes = static_cast<size_t>(log.lanes);
  using Clock = std::vector<size_t>;  // how many pieces of each lane's work come before
  std::vector<Clock> clocks(lanes, Clock(lanes, 0));
  std::vector<Clock> marks(static_cast<size_t>(log.marks), Clock(lanes, 0));
  for (const GraphOp& op : log.ops) {
    const auto lane = static_cast<size_t>(op.lane);
    Clock& mine = clocks[lane];
    switch (op.kind) {
      case GraphOp::Kind::kWork:
        ++mine[lane];
        break;
      case GraphOp::Kind::kMark:
        marks[static_cast<size_t>(op.mark)] = mine;
        break;
      case GraphOp::Kind::kWait: {
        const Clock& other = marks[static_cast<size_t>(op.mark)];
        std::transform(mine.begin(), mine.end(), other.begin(), mine.begin(),
                       [](size_t a, size_t b) { return std::max(a, b); });
        break;
      }
    }
  }
  for (size_t lane = 1; lane < lanes; ++lane) {
    if (clocks[0][lane] < clocks[lane][lane]) {
      return false;
    }
  }
  return true;
}

}  // namespace plexus::cudart
