// SPDX-License-Identifier: Apache-2.0
// The devices for tests of CUDA ranks, as a program that uses CUDA sees them: memory, streams,
// graphs. The environment selects the software device (any machine) or CUDA (a machine with a GPU),
// so that one set of tests covers both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/device/device_runtime.hpp"

namespace plexus::testing_device {

/// The contents of a capture.
using Graph = std::shared_ptr<void>;

/// The kernels of a graph.
struct GraphShape {
  int kernels = 0;
  uint32_t blocks = 0;   // the last kernel's
  uint32_t threads = 0;  // per block of that kernel
};

/// Failures end the test (or the rank's process) with the reason. Threads: any.
class Machine {
 public:
  Machine() = default;
  virtual ~Machine() = default;
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// For tables and reasons to skip.
  [[nodiscard]] virtual std::string name() const = 0;
  [[nodiscard]] virtual bool is_software() const noexcept = 0;
  /// A launch returns when its kernel has ended (CUDA_LAUNCH_BLOCKING=1): a thread cannot start two
  /// that wait for each other.
  [[nodiscard]] virtual bool waits_in_launch() const noexcept = 0;
  [[nodiscard]] virtual int device_count() const noexcept = 0;
  /// Tests use devices 0, 1, ...; if there are fewer, several of them are the same.
  [[nodiscard]] int device(int wanted) const noexcept { return wanted % device_count(); }

  /// The calling thread's current device.
  virtual void set_current(int device) = 0;

  /// Zeroed memory of a device.
  virtual void* allocate(int device, size_t size_bytes) = 0;
  virtual void release(int device, void* memory) = 0;
  /// Copies between any two kinds of memory; complete on return, independent of all streams.
  virtual void copy(int device, void* to, const void* from, size_t size_bytes) = 0;
  [[nodiscard]] virtual PointerFacts describe(const void* pointer) = 0;
  /// The library's current resources; only the difference of two values has a meaning.
  [[nodiscard]] virtual size_t taken() = 0;

  /// Does not wait for the default stream.
  virtual DeviceStream make_stream(int device) = 0;
  virtual void destroy_stream(DeviceStream stream) = 0;
  /// Blocks until everything on the stream is done. nullptr: the current device's default stream.
  virtual void synchronize(DeviceStream stream) = 0;
  /// From device memory to device memory, in stream order.
  virtual void copy_in_order(DeviceStream stream,
                             void* to,
                             const void* from,
                             size_t size_bytes) = 0;
  /// Runs `job` on the host in stream order; it must not call this interface.
  virtual void enqueue(DeviceStream stream, std::function<void()> job) = 0;
  /// Launches a kernel that does nothing, of the same kind as the library's.
  virtual void launch_empty(DeviceStream stream, uint32_t blocks, uint32_t threads) = 0;

  virtual void begin_capture(DeviceStream stream) = 0;
  virtual Graph end_capture(DeviceStream stream) = 0;
  virtual void replay(const Graph& graph, DeviceStream stream) = 0;
  [[nodiscard]] virtual GraphShape shape_of(const Graph& graph) = 0;
};

/// The machine of this process, on which the library computes. PLEXUS_TEST_MACHINE: `software` (the
/// default; PLEXUS_TEST_DEVICES devices, 2) or `cuda`. Must be called before the first communicator
/// is made.
Machine& machine();

/// Why the machine that the environment names is not available; empty: it is.
std::string machine_missing();

/// CUDA's; nullptr, and a reason, where there is no GPU or the build is without CUDA.
std::unique_ptr<Machine> make_cuda_machine(std::string& reason);

}  // namespace plexus::testing_device
