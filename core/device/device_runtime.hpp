// SPDX-License-Identifier: Apache-2.0
// The part of CUDA that the core needs, as an interface: devices, memory, stream order, launches.
// `cuda_runtime.cpp` implements it with the CUDA runtime; tests implement it with host memory and
// threads (tests/support/software_device), so that everything above it runs without a GPU.
// Only adopt_thread() changes the caller's current device, and no function creates a context on a
// device that it was not given. All functions work during stream capture (memory is allocated
// outside the capture).
//
// Threads: any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unistd.h>
#include <vector>

#include "core/base/result.hpp"

// CUDA's own names for these types, so that no CUDA header is needed.
struct CUstream_st;
struct CUevent_st;

namespace plexus {

struct DeviceBlock;  // kernels/cuda/device_work.hpp

/// Exported memory has a multiple of this size, so that it shares its block with no other
/// allocation.
inline constexpr size_t kExportGranule = size_t{2} << 20;
/// Whether release() keeps memory for later allocations, as that of allocate_lasting().
inline constexpr bool is_kept_for_reuse(size_t size_bytes) {
  return size_bytes <= kExportGranule / 2;
}

using DeviceStream = CUstream_st*;  // nullptr: CUDA's legacy default stream
using DeviceEvent = CUevent_st*;

/// Properties of a device for choosing transports and channels.
struct DeviceFacts {
  std::string name;                   // for error messages
  std::string bus_id;                 // "0000:3b:00.0"
  std::array<uint8_t, 16> uuid = {};  // equal in all processes that see the device
  int compute_capability = 0;         // times 10
  uint32_t memory_gb_per_s = 0;       // reads plus writes; 0: not known
};

/// What a thread may ask of the devices. Some calls of CUDA wait until no kernel runs
/// (docs/gpu-results.md), and a kernel of ours may wait for a call that is not made yet, or for the
/// thread that moves network slots.
enum class DriverCalls : uint8_t {
  kOrdered,  // beside kernels: work on streams and questions. Every thread begins with it
  kGrowing,  // takes memory and maps it, too: the first calls of a shape
  kAll,      // gives back, too: init, registration, destroy, threads that nobody waits for
  kNone,     // the thread that moves network slots
};

/// The kind of memory that a user's pointer points to.
struct PointerFacts {
  enum class Place : uint8_t { kPageable, kPinned, kDevice, kManaged } place = Place::kPageable;
  int device = -1;  // only for kDevice
};

/// The graph capture that a stream takes part in.
struct Capture {
  bool active = false;
  uint64_t id = 0;  // id of the graph; 0: not active
};

/// Handle by which another process opens device memory.
struct MemoryHandle {
  std::array<std::byte, 64> bytes = {};
};

/// Device memory that another process opens as a whole: one allocation of cudaMalloc; or pieces of
/// cuMemCreate that are mapped side by side, as ncclMemAlloc and PyTorch's expandable segments have
/// them.
struct Allocation {
  struct Piece {
    size_t size_bytes = 0;
    uint64_t id = 0;  // CUDA's handle: unique among pieces that are mapped or exported
    bool operator==(const Piece&) const = default;
  };
  std::byte* base = nullptr;
  size_t size_bytes = 0;
  uint64_t id = 0;  // of cudaMalloc's: unique in this process, also among freed allocations
  std::vector<Piece> pieces = {};  // empty: it is cudaMalloc's
  bool operator==(const Allocation&) const = default;
};
/// Those of one buffer. PyTorch's have 2 or 20 MiB; each takes a descriptor.
inline constexpr size_t kPiecesMax = 256;

/// Pieces by their descriptors, which it closes. Those that were exported keep their memory, also
/// if the user has freed it; the end of them may wait as cudaFree does.
class PieceDescriptors {
 public:
  struct Piece {
    size_t size_bytes;
    int fd;
  };
  PieceDescriptors() = default;
  virtual ~PieceDescriptors() {
    for (const Piece& piece : pieces) {
      ::close(piece.fd);
    }
  }
  PieceDescriptors(const PieceDescriptors&) = delete;
  PieceDescriptors& operator=(const PieceDescriptors&) = delete;

  std::vector<Piece> pieces;
};

/// Device memory as a dma-buf for other drivers.
struct Dmabuf {
  int fd = -1;                // the caller closes it
  uint64_t offset_bytes = 0;  // offset of the memory in the dma-buf
};

class DeviceRuntime {
 public:
  virtual ~DeviceRuntime() = default;
  DeviceRuntime() = default;
  DeviceRuntime(const DeviceRuntime&) = delete;
  DeviceRuntime& operator=(const DeviceRuntime&) = delete;

  // -- devices --
  /// Number of devices. An Error: kInvalidUsage: there is no driver or no GPU; any other: there is,
  /// and it cannot be used.
  virtual Result<int> count() = 0;
  /// The calling thread's current device.
  virtual Result<int> current() = 0;
  virtual Result<DeviceFacts> describe(int device) = 0;
  /// Number of blocks of Plexus's kernel that are resident at once. An Error: the kernel does not
  /// run on `device`.
  virtual Result<int> blocks_max(int device) = 0;
  /// Whether kernels of `device` can access memory of `peer`.
  virtual Result<bool> can_reach(int device, int peer) = 0;
  /// Enables access of `device` to memory of `peer`.
  virtual Result<void> enable_reach(int device, int peer) = 0;
  /// For a thread of Plexus: makes `device` current from now on.
  virtual void adopt_thread(int device) noexcept = 0;
  /// Says what the calling thread may ask from now on; returns what it could before (Allowing does
  /// both). A driver does not look; the software device does.
  virtual DriverCalls allow(DriverCalls /*calls*/) noexcept { return DriverCalls::kOrdered; }
  /// An Error: a kernel or the driver has failed, and nothing goes on on this device.
  virtual Result<void> find_fault(int device) = 0;

  // -- memory (owners: device_memory.hpp) --
  /// Allocates device memory, zeroed.
  virtual Result<void*> allocate(int device, size_t size_bytes) = 0;
  /// Allocates device memory, zeroed, for connections and other processes. After release it is kept
  /// for later allocations instead of going back to the driver: cudaFree would wait for kernels of
  /// other communicators, which may run indefinitely, and a peer may still have the memory mapped.
  virtual Result<void*> allocate_lasting(int device, size_t size_bytes) = 0;
  /// Allocates device memory, zeroed, of a piece: kernels of all devices that reach `device` read
  /// it, and other processes once it is exported.
  virtual Result<void*> allocate_piece(int device, size_t size_bytes) = 0;
  virtual void release(int device, void* memory) noexcept = 0;
  /// Allocates page-locked host memory, zeroed, at the same address for the host and all devices.
  /// `device`: one that uses it.
  virtual Result<void*> allocate_pinned(int device, size_t size_bytes) = 0;
  virtual void release_pinned(int device, void* memory) noexcept = 0;
  /// Makes host memory accessible to all devices. Returns its address on the devices.
  virtual Result<void*> register_host(int device, void* memory, size_t size_bytes) = 0;
  virtual void unregister_host(int device, void* memory) noexcept = 0;
  [[nodiscard]] virtual PointerFacts describe_pointer(const void* pointer) noexcept = 0;
  /// For ranks on the host, in a process whose GPU others use: is a driver loaded?
  [[nodiscard]] virtual bool has_driver() noexcept = 0;
  /// Memory that the host cannot read. false without a driver. Creates no context.
  [[nodiscard]] virtual bool is_on_device_alone(const void* pointer) noexcept = 0;
  /// Whether kernels of other devices, where they reach this one, can read memory of `device`: not
  /// that of pools (cudaMallocAsync) and of a program's cuMemCreate, which has its own rights.
  [[nodiscard]] virtual bool is_open_to_peers(int device, const void* pointer) noexcept = 0;
  /// Copies between any two kinds of memory. Complete on return; not ordered with any user's
  /// stream.
  virtual Result<void> copy(int device, void* to, const void* from, size_t size_bytes) = 0;
  /// The memory, of the user or of Plexus, on `device` that contains `pointer`: an allocation, or
  /// the pieces of [pointer, pointer + size_bytes).
  virtual Result<Allocation> find_allocation(int device,
                                             const void* pointer,
                                             size_t size_bytes) = 0;
  /// Exports memory from allocate() (see kExportGranule), or the base of an Allocation without
  /// pieces, to other processes.
  virtual Result<MemoryHandle> export_memory(int device, void* memory) = 0;
  virtual Result<void*> import_memory(int device, const MemoryHandle& handle) = 0;
  /// An Error: also where the program made them for itself alone.
  virtual Result<std::unique_ptr<PieceDescriptors>> export_pieces(int device,
                                                                  const Allocation& memory) = 0;
  /// Maps pieces of another process side by side. May wait as cudaFree does.
  virtual Result<void*> import_pieces(int device, const PieceDescriptors& theirs) = 0;
  virtual void close_imported(int device, void* memory) noexcept = 0;

  /// Exports memory from allocate(), with its size, to a NIC's driver. An Error: the device or its
  /// driver does not support that.
  virtual Result<Dmabuf> export_dmabuf(int device, void* memory, size_t size_bytes) = 0;

  // -- stream order --
  virtual Result<DeviceEvent> make_event(int device) = 0;
  virtual void destroy_event(int device, DeviceEvent event) noexcept = 0;
  virtual Result<void> record(int device, DeviceEvent event, DeviceStream stream) = 0;
  /// Work that is queued on `stream` from now on waits for `event`.
  virtual Result<void> wait(int device, DeviceStream stream, DeviceEvent event) = 0;
  /// The same for a stream that is being captured and an event of no capture: each replay waits for
  /// what the event has recorded last, and records it anew.
  virtual Result<void> record_at_replay(int device, DeviceEvent event, DeviceStream stream) = 0;
  virtual Result<void> wait_at_replay(int device, DeviceStream stream, DeviceEvent event) = 0;
  /// Starts one kernel of `count` blocks with `threads` threads each (a multiple of 32). All blocks
  /// must be resident at once (kernels/cuda/launch.hpp).
  virtual Result<void> launch(int device,
                              DeviceStream stream,
                              const DeviceBlock* blocks,
                              uint32_t count,
                              uint32_t threads) = 0;
  /// Whether launch() returns when the kernel has ended (CUDA_LAUNCH_BLOCKING=1), so that no thread
  /// can start two that wait for each other.
  [[nodiscard]] virtual bool waits_in_launch() const noexcept { return false; }
  virtual Result<Capture> capture(int device, DeviceStream stream) = 0;
  /// Calls `function(argument)` in the order of `stream`; with a captured graph, once per replay.
  /// `function` must not call this interface.
  virtual Result<void> call_host(int device,
                                 DeviceStream stream,
                                 void (*function)(void*),
                                 void* argument) = 0;
  /// Calls `function(argument)` when the graph that `stream` is captured into is gone and none of
  /// its replays runs any more. `function` must not call this interface.
  virtual Result<void> call_after_graph(int device,
                                        DeviceStream stream,
                                        void (*function)(void*),
                                        void* argument) = 0;
};

/// What the calling thread may ask until the end of the scope.
class Allowing {
 public:
  /// `runtime`: nullptr: there are no devices.
  Allowing(DeviceRuntime* runtime, DriverCalls calls) noexcept
      : runtime_(runtime),
        before_(runtime == nullptr ? DriverCalls::kOrdered : runtime->allow(calls)) {}
  ~Allowing() {
    if (runtime_ != nullptr) {
      runtime_->allow(before_);
    }
  }
  Allowing(const Allowing&) = delete;
  Allowing& operator=(const Allowing&) = delete;

 private:
  DeviceRuntime* runtime_;
  DriverCalls before_;
};

}  // namespace plexus
