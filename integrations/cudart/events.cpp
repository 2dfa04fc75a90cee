// SPDX-License-Identifier: Apache-2.0
// Events: each is one of plexusEventCreate, with the time at which the stream got there.
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "integrations/cudart/call.hpp"
#include "integrations/cudart/include/cuda_runtime_api.h"
#include "integrations/cudart/runtime.hpp"

namespace plexus::cudart {
namespace {

using Clock = std::chrono::steady_clock;

/// The time of one record; 0: not reached yet.
using Stamp = std::atomic<Clock::rep>;

struct Event {
  plexusEvent_t done = nullptr;
  int device = 0;
  unsigned flags = 0;
  // Guarded by the mutex of Events:
  std::shared_ptr<Stamp> stamp{};      // of the latest record; nullptr: never recorded
  std::shared_ptr<Capture> capture{};  // that the latest record is in; nullptr: none
  int mark = 0;                        // in it

  ~Event() {
    if (done != nullptr) {
      static_cast<void>(plexusEventDestroy(done));
    }
  }
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
};

/// Threads: any.
class Events {
 public:
  static Events& instance() { return Immortal<Events>::instance(); }

  cudaError_t create(unsigned flags, cudaEvent_t* event);
  cudaError_t destroy(cudaEvent_t event);
  cudaError_t find(cudaEvent_t event, std::shared_ptr<Event>* found);
  cudaError_t record(cudaEvent_t event, cudaStream_t stream, bool is_external);
  cudaError_t wait(cudaStream_t stream, cudaEvent_t event);
  cudaError_t elapsed(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

 private:
  friend class Immortal<Events>;
  Events() = default;
  cudaError_t take_time(cudaEvent_t event, Clock::rep* time);
  /// The event and, if it is in a capture, that.
  cudaError_t find_outside_capture(cudaEvent_t event, std::shared_ptr<Event>* found);
  friend cudaError_t query(cudaEvent_t event, bool waits);

  std::mutex mutex_;
  std::unordered_map<cudaEvent_t, std::shared_ptr<Event>> known_;  // guarded by mutex_
};

cudaError_t Events::create(unsigned flags, cudaEvent_t* event) {
  PLEXUS_CUDART_TRY(check_pointer(event, "the address of the event"));
  constexpr unsigned kFlags =
      cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
  const bool is_timed_interprocess =
      (flags & cudaEventInterprocess) != 0 && (flags & cudaEventDisableTiming) == 0;
  if ((flags & ~kFlags) != 0 || is_timed_interprocess) {
    return refuse(cudaErrorInvalidValue, "the flags are {:#x}", flags);
  }
  PLEXUS_CUDART_TRY(check_device(current_device()));
  auto made = std::make_shared<Event>();
  PLEXUS_CUDART_TRY(error_of(plexusEventCreate(&made->done)));
  made->device = current_device();
  made->flags = flags;
  const std::lock_guard lock(mutex_);
  *event = reinterpret_cast<cudaEvent_t>(made.get());
  known_.emplace(*event, std::move(made));
  return cudaSuccess;
}

cudaError_t Events::destroy(cudaEvent_t event) {
  std::shared_ptr<Event> found;
  PLEXUS_CUDART_TRY(find(event, &found));
  const std::lock_guard lock(mutex_);
  known_.erase(event);
  return cudaSuccess;
}

cudaError_t Events::find(cudaEvent_t event, std::shared_ptr<Event>* found) {
  const std::lock_guard lock(mutex_);
  const auto at = known_.find(event);
  if (at == known_.end()) {
    return refuse(cudaErrorInvalidResourceHandle, "{} is no event, or was destroyed",
                  fmt::ptr(event));
  }
  *found = at->second;
  return cudaSuccess;
}

cudaError_t Events::record(cudaEvent_t event, cudaStream_t stream, bool is_external) {
  std::shared_ptr<Event> found;
  std::shared_ptr<Stream> on;
  PLEXUS_CUDART_TRY(find(event, &found));
  Streams& streams = Runtime::instance().streams;
  PLEXUS_CUDART_TRY(streams.find(stream, &on));
  if (on->device != found->device) {
    return refuse(cudaErrorInvalidResourceHandle,
                  "the event is of device {} and the stream of device {}: record events on streams "
                  "of the device that was current when they were created",
                  found->device, on->device);
  }
  auto capture = streams.capture_of(*on);
  if (capture != nullptr && !is_external) {
    const int mark = streams.mark_capture(*on);
    if (mark == kNoMark) {
      return refuse(cudaErrorStreamCaptureInvalidated, "another thread has ended the capture");
    }
    const std::lock_guard lock(mutex_);
    found->capture = std::move(capture);
    found->mark = mark;
    return cudaSuccess;
  }
  return streams.enqueue(stream, cudaGraphNodeTypeEventRecord, [found, this](cudaStream_t handle) {
    auto stamp = std::make_shared<Stamp>(0);
    if ((found->flags & cudaEventDisableTiming) == 0) {
      PLEXUS_CUDART_TRY(issue_work(handle, nullptr, [stamp] {
        stamp->store(Clock::now().time_since_epoch().count(), std::memory_order_release);
      }));
    }
    const std::lock_guard lock(mutex_);
    found->stamp = std::move(stamp);
    found->capture = nullptr;
    return error_of(plexusEventRecord(found->done, handle));
  });
}

cudaError_t Events::wait(cudaStream_t stream, cudaEvent_t event) {
  std::shared_ptr<Event> found;
  std::shared_ptr<Stream> on;
  PLEXUS_CUDART_TRY(find(event, &found));
  Streams& streams = Runtime::instance().streams;
  PLEXUS_CUDART_TRY(streams.find(stream, &on));
  std::shared_ptr<Capture> capture;
  int mark = 0;
  {
    const std::lock_guard lock(mutex_);
    capture = found->capture;
    mark = found->mark;
  }
  if (capture != nullptr) {
    return streams.join_capture(*on, capture, mark);
  }
  if (streams.capture_of(*on) != nullptr) {
    return refuse(cudaErrorStreamCaptureIsolation,
                  "the stream is captured, and the event was recorded outside the capture");
  }
  return streams.enqueue(stream, cudaGraphNodeTypeWaitEvent, [found](cudaStream_t handle) {
    return error_of(plexusStreamWaitEvent(handle, found->done));
  });
}

cudaError_t Events::find_outside_capture(cudaEvent_t event, std::shared_ptr<Event>* found) {
  PLEXUS_CUDART_TRY(find(event, found));
  const std::lock_guard lock(mutex_);
  if ((*found)->capture != nullptr) {
    return refuse(cudaErrorCapturedEvent, "the event was recorded on a stream that is captured");
  }
  return cudaSuccess;
}

cudaError_t Events::take_time(cudaEvent_t event, Clock::rep* time) {
  std::shared_ptr<Event> found;
  PLEXUS_CUDART_TRY(find_outside_capture(event, &found));
  const std::lock_guard lock(mutex_);
  if (found->stamp == nullptr || (found->flags & cudaEventDisableTiming) != 0) {
    return refuse(cudaErrorInvalidResourceHandle, "the event {}",
                  found->stamp == nullptr ? "was never recorded" : "has cudaEventDisableTiming");
  }
  *time = found->stamp->load(std::memory_order_acquire);
  return *time != 0 ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t Events::elapsed(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  PLEXUS_CUDART_TRY(check_pointer(milliseconds, "the address of the result"));
  Clock::rep from = 0;
  Clock::rep until = 0;
  PLEXUS_CUDART_TRY(take_time(start, &from));
  PLEXUS_CUDART_TRY(take_time(end, &until));
  *milliseconds = std::chrono::duration<float, std::milli>(Clock::duration(until - from)).count();
  return cudaSuccess;
}

cudaError_t query(cudaEvent_t event, bool waits) {
  std::shared_ptr<Event> found;
  PLEXUS_CUDART_TRY(Events::instance().find_outside_capture(event, &found));
  const ncclResult_t result =
      waits ? plexusEventSynchronize(found->done) : plexusEventQuery(found->done);
  return result == ncclInProgress ? cudaErrorNotReady : cudaSuccess;
}

}  // namespace
}  // namespace plexus::cudart

using namespace plexus::cudart;  // NOLINT(google-build-using-namespace): as all of this file

PLEXUS_CUDART cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&] { return Events::instance().create(flags, event); });
}
PLEXUS_CUDART cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return call("cudaEventCreate", [&] { return Events::instance().create(0, event); });
}
PLEXUS_CUDART cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call("cudaEventDestroy", [&] { return Events::instance().destroy(event); });
}
PLEXUS_CUDART cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", [&] { return Events::instance().record(event, stream, false); });
}
PLEXUS_CUDART cudaError_t cudaEventRecordWithFlags(cudaEvent_t event,
                                                   cudaStream_t stream,
                                                   unsigned flags) {
  return call("cudaEventRecordWithFlags", [&] {
    return Events::instance().record(event, stream, (flags & cudaEventRecordExternal) != 0);
  });
}
PLEXUS_CUDART cudaError_t cudaStreamWaitEvent(cudaStream_t stream,
                                              cudaEvent_t event,
                                              unsigned /*flags*/) {
  return call("cudaStreamWaitEvent", [&] { return Events::instance().wait(stream, event); });
}
PLEXUS_CUDART cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", [&] { return query(event, false); });
}
PLEXUS_CUDART cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", [&] { return query(event, true); });
}
PLEXUS_CUDART cudaError_t cudaEventElapsedTime(float* milliseconds,
                                               cudaEvent_t start,
                                               cudaEvent_t end) {
  return call("cudaEventElapsedTime",
              [&] { return Events::instance().elapsed(milliseconds, start, end); });
}
