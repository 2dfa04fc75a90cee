// SPDX-License-Identifier: Apache-2.0
// Streams and graphs of the software device.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/support/software_habits.hpp"

namespace plexus::testing_device {

/// The contents of a capture, replayed in the order of capture.
struct SoftwareGraph {
  SoftwareGraph() = default;
  ~SoftwareGraph() {
    for (const auto& after : afterwards) {
      after();
    }
  }
  SoftwareGraph(const SoftwareGraph&) = delete;
  SoftwareGraph& operator=(const SoftwareGraph&) = delete;

  uint64_t id = 0;
  /// Called when a replay is put on a stream; returns what runs there.
  using Job = std::function<std::function<void()>()>;
  std::vector<Job> jobs;
  std::vector<std::function<void()>> afterwards;  // see DeviceRuntime::call_after_graph
  struct Kernel {
    uint32_t blocks;
    uint32_t threads;  // that each would have
  };
  std::vector<Kernel> kernels;
};

/// A thread that runs jobs one after the other. Threads: any.
class SoftwareStream {
 public:
  /// `queue`: nullptr: one of its own.
  explicit SoftwareStream(HardwareQueue* queue = nullptr);
  ~SoftwareStream();
  SoftwareStream(const SoftwareStream&) = delete;
  SoftwareStream& operator=(const SoftwareStream&) = delete;

  /// Adds to the graph while one is being captured. `holds`: the job waits for others, and what is
  /// behind it in the hardware's queue waits with it.
  void add(std::function<void()> job, bool holds = false);
  /// The same for what has to know when it is launched or replayed.
  void add_to_graph(SoftwareGraph::Job job);
  void synchronize();

  std::shared_ptr<SoftwareGraph> graph;  // being captured; used by the capturing thread

 private:
  void serve();

  HardwareQueue* queue_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // guarded by mutex_
  bool busy_ = false;                       // guarded by mutex_
  bool stop_ = false;                       // guarded by mutex_
  std::thread thread_;
};

/// As a driver does (docs/gpu-results.md): one thread calls the host functions of all streams.
/// Returns when it has.
void call_in_drivers_thread(void (*function)(void*), void* argument);

}  // namespace plexus::testing_device
