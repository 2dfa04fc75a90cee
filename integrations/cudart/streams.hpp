// SPDX-License-Identifier: Apache-2.0
// Streams with CUDA's order. Behind each is a stream of plexusStreamCreate, which keeps the order
// of its own work, that of NCCL calls among it; this class adds what CUDA orders between streams:
// work on a device's legacy default stream comes after all that its blocking streams have, and
// theirs after it. What would be work on a stream that is captured goes to the graph instead.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <plexus.h>
#include <unordered_map>
#include <vector>

#include "core/device/virtual_devices.h"
#include "integrations/cudart/graph_log.hpp"
#include "integrations/cudart/include/driver_types.h"

namespace plexus::cudart {

class Worker;

struct Stream {
  cudaStream_t handle = nullptr;  // of plexusStreamCreate, and what the user has
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  uint64_t id = 0;
  bool is_legacy = false;
  // Guarded by the mutex of Streams:
  bool has_new_work = false;           // that the legacy stream does not wait for yet
  uint64_t work = 0;                   // of a legacy stream: how often it was used
  uint64_t waits_for = 0;              // of the others: how much of that they wait for
  std::shared_ptr<Capture> capture{};  // nullptr: it is not captured
  int lane = 0;                        // of the capture
};

/// Threads: any.
class Streams {
 public:
  explicit Streams(size_t devices) : devices_(devices) {}

  cudaError_t create(unsigned flags, int priority, cudaStream_t* stream);
  /// Work that is on it is done still.
  cudaError_t destroy(cudaStream_t stream);
  void destroy_all(int device);
  /// cudaErrorInvalidResourceHandle unless it is a stream.
  cudaError_t check(cudaStream_t stream);
  cudaError_t find(cudaStream_t stream, std::shared_ptr<Stream>* found);

  /// Calls `issue` to put work on the stream, now or when the graph that captures it is launched.
  cudaError_t enqueue(cudaStream_t stream, cudaGraphNodeType type, Issue issue);
  /// The same with work for a thread of `worker`; nullptr: short work, done at once in its turn.
  cudaError_t enqueue_work(cudaStream_t stream,
                           Worker* worker,
                           std::function<void()> work,
                           cudaGraphNodeType type = cudaGraphNodeTypeEmpty);
  /// What CUDA orders before the next work on it comes before that.
  cudaError_t begin_work(Stream& stream);
  cudaError_t synchronize(cudaStream_t stream);
  cudaError_t query(cudaStream_t stream);
  void wait_device(int device);

  // -- captures --
  cudaError_t begin_capture(cudaStream_t stream, cudaStreamCaptureMode mode);
  cudaError_t end_capture(cudaStream_t stream, std::shared_ptr<const GraphLog>* log);
  /// The capture that the stream is in; nullptr: none.
  std::shared_ptr<Capture> capture_of(const Stream& stream);
  /// `stream` waits for a place in `capture`, and is in it from now on.
  cudaError_t join_capture(Stream& stream, const std::shared_ptr<Capture>& capture, int mark);
  /// A place in the capture that `stream` is in: the end of what it has there. kNoMark: another
  /// thread has ended the capture.
  int mark_capture(Stream& stream);

  // -- for libplexus (core/device/virtual_devices.h) --
  cudaStream_t find_behind(cudaStream_t stream, int device);
  void before_work(cudaStream_t handle);
  bool is_captured(cudaStream_t handle);
  void capture(cudaStream_t handle, plexusCaptured_t* calls);

  [[nodiscard]] uint64_t created() const noexcept { return ids_.load(std::memory_order_relaxed); }

 private:
  struct Device {
    std::shared_ptr<Stream> legacy;
    std::vector<std::shared_ptr<Stream>> with_new_work;  // blocking streams, each once
  };
  cudaError_t make(const Stream& wish, std::shared_ptr<Stream>* made);
  cudaError_t find_default(cudaStream_t stream, int device, std::shared_ptr<Stream>* found);
  cudaError_t find_awaited(cudaStream_t stream, std::shared_ptr<Stream>* found);
  cudaError_t begin_legacy_work(Stream& stream);
  void make_wait(cudaStream_t waits, cudaStream_t stream);
  void reap();
  void add_op(Stream& stream, GraphOp op);

  std::mutex mutex_;
  std::unordered_map<cudaStream_t, std::shared_ptr<Stream>> known_;  // guarded by mutex_, as below
  std::vector<Device> devices_;
  std::vector<cudaStream_t> retired_;  // destroyed by the user while work was on them
  plexusEvent_t between_ = nullptr;    // for waits between streams
  std::atomic<int> captures_{0};       // under way
  std::atomic<uint64_t> ids_{0};
};

/// Puts work on a stream behind all checks; see Streams::enqueue_work.
cudaError_t issue_work(cudaStream_t handle, Worker* worker, const std::function<void()>& work);
/// ncclInProgress counts as success: it is for who asks.
cudaError_t error_of(int nccl_result);

/// Also of a stream that is not captured. `id` may be nullptr.
cudaError_t describe_capture(cudaStream_t stream,
                             cudaStreamCaptureStatus* status,
                             unsigned long long* id);

}  // namespace plexus::cudart
