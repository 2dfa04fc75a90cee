// SPDX-License-Identifier: Apache-2.0
// What the core needs of CUDA, as an interface: devices, memory, the order of streams, launches.
// `cuda_runtime.cpp` implements it over the CUDA runtime; tests implement it over host memory and
// threads (tests/support/software_device), so that everything above runs without a GPU.
//
// No function but adopt_thread() changes the caller's current device, and none makes a context on a
// device that is not named. All work in stream capture (memory is allocated beside the capture,
// never as part of it).
//
// Threads: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/result.hpp"

// CUDA's own names of these, so that no CUDA header is needed.
struct CUstream_st;
struct CUevent_st;

namespace plexus {

struct DeviceBlock;  // kernels/cuda/device_work.hpp

/// Memory that is exported has a multiple of this size, so that it shares its block with no other.
inline constexpr size_t kExportGranule = size_t{2} << 20;

using DeviceStream = CUstream_st*;  // nullptr: CUDA's legacy default stream
using DeviceEvent = CUevent_st*;

/// What a device is, for choosing transports and channels.
struct DeviceFacts {
  std::string name;                   // for messages
  std::string bus_id;                 // "0000:3b:00.0"
  std::array<uint8_t, 16> uuid = {};  // equal in all processes that see the device
  int compute_capability = 0;         // times 10
  uint32_t memory_gb_per_s = 0;       // reads and writes together; 0: not known
};

/// Where a user's pointer points.
struct PointerFacts {
  enum class Place : uint8_t { kPageable, kPinned, kDevice, kManaged } place = Place::kPageable;
  int device = -1;  // of kDevice
};

/// A stream's part in a graph that is being captured.
struct Capture {
  bool active = false;
  uint64_t id = 0;  // of the graph; 0 when not active
};

/// By which another process opens device memory.
struct MemoryHandle {
  std::array<std::byte, 64> bytes = {};
};

/// One allocation of device memory.
struct Allocation {
  std::byte* base = nullptr;
  size_t size_bytes = 0;
  uint64_t id = 0;  // of no other one in this process, those that are gone included
};

/// Device memory for other drivers.
struct Dmabuf {
  int fd = -1;                // the caller's to close
  uint64_t offset_bytes = 0;  // of the memory in it
};

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  DeviceRuntime() = default;
  DeviceRuntime(const DeviceRuntime&) = delete;
  DeviceRuntime& operator=(const DeviceRuntime&) = delete;

  // -- devices --
  /// An Error says why there is none (no driver, no GPU).
  virtual Result<int> count() = 0;
  /// The calling thread's.
  virtual Result<int> current() = 0;
  virtual Result<DeviceFacts> describe(int device) = 0;
  /// Blocks of our kernel that are resident at once. An Error: the kernel does not run on it.
  virtual Result<int> blocks_max(int device) = 0;
  /// Can kernels of `device` read and write memory of `peer`?
  virtual Result<bool> can_reach(int device, int peer) = 0;
  /// Makes it so.
  virtual Result<void> enable_reach(int device, int peer) = 0;
  /// The calling thread is one of ours: from now on it works on `device`.
  virtual void adopt_thread(int device) noexcept = 0;

  // -- memory (owners: device_memory.hpp) --
  /// On the device, zeroed.
  virtual Result<void*> allocate(int device, size_t size_bytes) = 0;
  /// The same for connections and other processes: released, it is kept for later ones and not
  /// given back to the driver, since a kernel of another communicator may run for as long as its
  /// caller likes, and a peer may have the memory mapped still.
  virtual Result<void*> allocate_lasting(int device, size_t size_bytes) = 0;
  virtual void release(int device, void* memory) noexcept = 0;
  /// Of the host, page-locked, zeroed, at one address for the host and all devices. `device`: one
  /// that uses it.
  virtual Result<void*> allocate_pinned(int device, size_t size_bytes) = 0;
  virtual void release_pinned(int device, void* memory) noexcept = 0;
  /// Makes host memory reachable for all devices; where they see it.
  virtual Result<void*> register_host(int device, void* memory, size_t size_bytes) = 0;
  virtual void unregister_host(int device, void* memory) noexcept = 0;
  [[nodiscard]] virtual PointerFacts describe_pointer(const void* pointer) noexcept = 0;
  /// Between any two places; complete on return, and in the order of no user's stream.
  virtual Result<void> copy(int device, void* to, const void* from, size_t size_bytes) = 0;
  /// The user's, or ours, of `device`.
  virtual Result<Allocation> find_allocation(int device, const void* pointer) = 0;
  /// For other processes: memory from allocate(), see kExportGranule; or an Allocation's base.
  virtual Result<MemoryHandle> export_memory(int device, void* memory) = 0;
  virtual Result<void*> import_memory(int device, const MemoryHandle& handle) = 0;
  virtual void close_imported(int device, void* memory) noexcept = 0;

  /// For the driver of a network card: memory from allocate(), of as many bytes. An Error: the
  /// device or its driver cannot.
  virtual Result<Dmabuf> export_dmabuf(int device, void* memory, size_t size_bytes) = 0;

  // -- order --
  virtual Result<DeviceEvent> make_event(int device) = 0;
  virtual void destroy_event(int device, DeviceEvent event) noexcept = 0;
  virtual Result<void> record(int device, DeviceEvent event, DeviceStream stream) = 0;
  /// What comes on `stream` from now on waits for `event`.
  virtual Result<void> wait(int device, DeviceStream stream, DeviceEvent event) = 0;
  /// Has it happened? An Error: the device failed before.
  virtual Result<bool> query(int device, DeviceEvent event) = 0;
  /// In the order of `stream`.
  virtual Result<void> copy_in_order(
      int device, DeviceStream stream, void* to, const void* from, size_t size_bytes) = 0;
  /// Starts one kernel of `count` blocks of `threads` each, a multiple of 32, that are all resident
  /// (kernels/cuda/launch.hpp).
  virtual Result<void> launch(int device,
                              DeviceStream stream,
                              const DeviceBlock* blocks,
                              uint32_t count,
                              uint32_t threads) = 0;
  virtual Result<Capture> capture(int device, DeviceStream stream) = 0;
  /// Calls `function(argument)` in stream order, at each replay of a captured graph again. It must
  /// call nothing of this interface.
  virtual Result<void> call_host(int device,
                                 DeviceStream stream,
                                 void (*function)(void*),
                                 void* argument) = 0;
};

}  // namespace plexus
