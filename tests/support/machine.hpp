// SPDX-License-Identifier: Apache-2.0
// The devices that tests of CUDA ranks run on, as a program that uses CUDA sees them: memory,
// streams, graphs. The software device (any machine) or CUDA itself (a machine with a GPU), chosen
// by the environment, so that one set of tests proves both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/device/device_runtime.hpp"

namespace plexus::testing_device {

/// What a capture collected.
using Graph = std::shared_ptr<void>;

/// The kernels of a graph.
struct GraphShape {
  int kernels = 0;
  uint32_t blocks = 0;   // of the last one
  uint32_t threads = 0;  // of each of its blocks
};

/// What fails here ends the test (or the rank's process) with the reason. Threads: any.
class Machine {
 public:
  Machine() = default;
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// For tables and reasons to skip.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual bool is_software() const noexcept = 0;
  [[nodiscard]] virtual int device_count() const noexcept = 0;
  /// Tests name devices 0, 1, ...; where there are fewer, several are one.
  [[nodiscard]] int device(int wanted) const noexcept { return wanted % device_count(); }

  /// Of the calling thread.
  virtual void set_current(int device) = 0;

  /// Zeroed memory of a device.
  virtual void* allocate(int device, size_t size_bytes) = 0;
  virtual void release(int device, void* memory) = 0;
  /// Between any two places; complete on return, beside all streams.
  virtual void copy(int device, void* to, const void* from, size_t size_bytes) = 0;
  [[nodiscard]] virtual PointerFacts describe(const void* pointer) = 0;
  /// What the library holds: two looks are comparable, one says nothing.
  [[nodiscard]] virtual size_t taken() = 0;

  /// Does not wait for the default stream.
  virtual DeviceStream make_stream(int device) = 0;
  virtual void destroy_stream(DeviceStream stream) = 0;
  /// Blocks until all that was put on it is done. nullptr: the current device's default stream.
  virtual void synchronize(DeviceStream stream) = 0;
  /// From device memory to device memory, in stream order.
  virtual void copy_in_order(DeviceStream stream,
                             void* to,
                             const void* from,
                             size_t size_bytes) = 0;
  /// Runs `job` on the host in stream order; it must call nothing of this interface.
  virtual void enqueue(DeviceStream stream, std::function<void()> job) = 0;
  /// A kernel that does nothing, of the same kind as the library's.
  virtual void launch_empty(DeviceStream stream, uint32_t blocks, uint32_t threads) = 0;

  virtual void begin_capture(DeviceStream stream) = 0;
  virtual Graph end_capture(DeviceStream stream) = 0;
  virtual void replay(const Graph& graph, DeviceStream stream) = 0;
  [[nodiscard]] virtual GraphShape shape_of(const Graph& graph) = 0;
};

/// The machine of this process; the library computes on it. PLEXUS_TEST_MACHINE: `software` (the
/// default; PLEXUS_TEST_DEVICES of them, 2) or `cuda`. Before the first communicator.
Machine& machine();

/// Why the machine that the environment names cannot be had here; empty: it can.
std::string machine_missing();

/// CUDA's; nullptr, and a reason, where there is no GPU or the build is without CUDA.
std::unique_ptr<Machine> make_cuda_machine(std::string& reason);

}  // namespace plexus::testing_device
