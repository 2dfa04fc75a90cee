// SPDX-License-Identifier: Apache-2.0
// CUDA devices without CUDA for tests: a DeviceRuntime whose device memory is host memory, whose
// streams are threads, and whose kernels are the device executor of kernels/cuda compiled for the
// host. It is stricter than a GPU: a launch that accesses memory unreachable from the device, or of
// a freed allocation, fails; so does registering memory twice, or mixing events of graphs with
// others, and a call that a driver may hold up, made where that could be for ever (CallRules).
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "core/device/device_runtime.hpp"
#include "core/os/shared_memory.hpp"
#include "tests/support/software_pieces.hpp"
#include "tests/support/software_stream.hpp"

namespace plexus {
struct DeviceSend;
struct DeviceWork;
}  // namespace plexus

namespace plexus::testing_device {

/// Threads: any.
class SoftwareDevice final : public DeviceRuntime {
 public:
  struct Options {
    int devices = 2;
    int blocks_max = 256;
    bool reach_peers = true;
    bool exports_dmabufs = true;
    SoftwareHabits habits = {};
  };
  explicit SoftwareDevice(const Options& options);
  ~SoftwareDevice() override;

  // -- what a user of CUDA would call --
  /// The calling thread's current device.
  static void set_current(int device) noexcept;
  DeviceStream make_stream();
  void destroy_stream(DeviceStream stream);
  /// Blocks until everything on the stream is done.
  void synchronize(DeviceStream stream);
  void begin_capture(DeviceStream stream);
  std::shared_ptr<SoftwareGraph> end_capture(DeviceStream stream);
  void replay(const std::shared_ptr<SoftwareGraph>& graph, DeviceStream stream);
  /// Adds a job of the user to the stream.
  void enqueue(DeviceStream stream, std::function<void()> job);
  /// A program's kernel is loaded when it is launched first.
  void load_kernel_of_user();

  /// Memory of a pool, which other devices cannot read.
  void* allocate_private(int device, size_t size_bytes);
  /// Memory of cuMemCreate, mapped side by side for `device` alone, as PyTorch's expandable
  /// segments are. `are_exportable`: see SoftwarePiece.
  void* allocate_in_pieces(int device, const std::vector<size_t>& sizes, bool are_exportable);

  // -- for tests --
  [[nodiscard]] const SoftwareHabits& habits() const noexcept { return options_.habits; }
  /// Whether the event has occurred.
  [[nodiscard]] static bool has_happened(DeviceEvent event);
  /// Calls so far that took memory, made events or waited for a copy.
  [[nodiscard]] size_t growth() const noexcept { return rules_.growth(); }
  /// The next kernel on `device` fails, and with it all that follows there. -1: none any more.
  void break_kernels(int device) noexcept {
    breaks_ = device;
    faulty_ = device < 0 ? -1 : faulty_.load();
  }
  /// Allocations, registrations, imports and events that nobody gave back.
  [[nodiscard]] size_t live() const;
  /// Number of buffers that launches have mapped for other processes so far, counted by peer.
  [[nodiscard]] int loans() const noexcept { return loans_.load(); }
  /// Memory of all devices that is taken.
  [[nodiscard]] size_t device_bytes() const;
  /// Number of currently mapped memories of other processes.
  [[nodiscard]] size_t imports() const;
  /// Blocks of the largest launch so far.
  [[nodiscard]] uint32_t blocks_most() const noexcept { return blocks_most_.load(); }
  /// Applies to communicators made from now on, and to all launches. 0: no kernel runs.
  void set_blocks_max(int blocks) noexcept {
    blocks_max_ = blocks;
    blocks_most_ = 0;
  }

  Result<int> count() override { return options_.devices; }
  Result<int> current() override;
  Result<DeviceFacts> describe(int device) override;
  Result<int> blocks_max(int device) override;
  Result<bool> can_reach(int device, int peer) override;
  Result<void> enable_reach(int device, int peer) override;
  void adopt_thread(int device) noexcept override { set_current(device); }
  DriverCalls allow(DriverCalls calls) noexcept override { return CallRules::allow(calls); }
  Result<void> find_fault(int device) override;
  Result<void*> allocate(int device, size_t size_bytes) override;
  Result<void*> allocate_lasting(int device, size_t size_bytes) override;
  Result<void*> allocate_piece(int device, size_t size_bytes) override;
  void release(int device, void* memory) noexcept override;
  Result<void*> allocate_pinned(int device, size_t size_bytes) override;
  void release_pinned(int device, void* memory) noexcept override;
  Result<void*> register_host(int device, void* memory, size_t size_bytes) override;
  void unregister_host(int device, void* memory) noexcept override;
  [[nodiscard]] PointerFacts describe_pointer(const void* pointer) noexcept override;
  [[nodiscard]] bool is_open_to_peers(int device, const void* pointer) noexcept override;
  [[nodiscard]] bool has_driver() noexcept override { return true; }
  [[nodiscard]] bool is_on_device_alone(const void* pointer) noexcept override {
    return describe_pointer(pointer).place == PointerFacts::Place::kDevice;
  }
  Result<void> copy(int device, void* to, const void* from, size_t size_bytes) override;
  Result<Allocation> find_allocation(int device, const void* pointer, size_t size_bytes) override;
  Result<MemoryHandle> export_memory(int device, void* memory) override;
  Result<void*> import_memory(int device, const MemoryHandle& handle) override;
  Result<std::unique_ptr<PieceDescriptors>> export_pieces(int device,
                                                          const Allocation& memory) override;
  Result<void*> import_pieces(int device, const PieceDescriptors& theirs) override;
  void close_imported(int device, void* memory) noexcept override;
  Result<Dmabuf> export_dmabuf(int device, void* memory, size_t size_bytes) override;
  Result<DeviceEvent> make_event(int device) override;
  void destroy_event(int device, DeviceEvent event) noexcept override;
  Result<void> record(int device, DeviceEvent event, DeviceStream stream) override;
  Result<void> wait(int device, DeviceStream stream, DeviceEvent event) override;
  Result<void> record_at_replay(int device, DeviceEvent event, DeviceStream stream) override;
  Result<void> wait_at_replay(int device, DeviceStream stream, DeviceEvent event) override;
  Result<void> launch(int device,
                      DeviceStream stream,
                      const DeviceBlock* blocks,
                      uint32_t count,
                      uint32_t threads) override;
  [[nodiscard]] bool waits_in_launch() const noexcept override {
    return options_.habits.launch_blocking;
  }
  Result<Capture> capture(int device, DeviceStream stream) override;
  Result<void> call_host(int device,
                         DeviceStream stream,
                         void (*function)(void*),
                         void* argument) override;
  Result<void> call_after_graph(int device,
                                DeviceStream stream,
                                void (*function)(void*),
                                void* argument) override;

 private:
  // kLasting: of a device, and kept for reuse when it is released; kPiece: of cuMemCreate
  enum class Kind { kDevice, kLasting, kPiece, kPinned, kRegistered, kImported };
  static bool is_of_device(Kind kind) {
    return kind == Kind::kDevice || kind == Kind::kLasting || kind == Kind::kPiece;
  }
  struct Block {
    Kind kind;
    int device;  // -1: of the host
    size_t size_bytes;
    SharedMemory shared;                             // device memory only
    bool is_private = false;                         // kernels of other devices cannot read it
    std::shared_ptr<SoftwarePiece> piece = nullptr;  // of kPiece
    SoftwareMapping mapping = nullptr;               // of kPiece, and of imported ones
  };
  using Blocks = std::map<const std::byte*, Block>;
  struct NewPieces {
    bool are_exportable;
    bool are_private;
  };
  struct Event;

  void await_driver();
  void call_ordered(const char* call);
  void call_growing(const char* call);
  void call_waiting(const char* call);
  void clear();
  SoftwareStream& own_stream();
  HardwareQueue* next_queue();
  Result<void*> allocate_kind(Kind kind, int device, size_t size_bytes);
  Result<void*> map_new_pieces(int device, std::span<const size_t> sizes, const NewPieces& kind);
  /// Those from `at` to that which ends at or after `end`.
  [[nodiscard]] Result<Allocation> find_pieces(Blocks::const_iterator at,
                                               const std::byte* end) const;
  [[nodiscard]] bool has_kind(Kind kind, const void* memory) const;
  void add_block(void* memory, Block block);
  void remove_block(Kind kind, void* memory) noexcept;
  [[nodiscard]] bool reaches(int device, const void* memory, size_t size_bytes) const;
  void check_work(int device, const DeviceWork& work) const;
  void check_borrowing(int device, const DeviceWork& work, const DeviceSend& send) const;
  void check_launch(int device, const DeviceBlock* blocks, uint32_t count) const;
  void count_loans(const DeviceBlock* blocks, uint32_t count);
  void run_blocks(int device, const DeviceBlock* blocks, uint32_t count);
  void run_or_fail(int device, const DeviceBlock* blocks, uint32_t count);
  SoftwareStream& stream_of(int device, DeviceStream stream);

  Options options_;
  CallRules rules_;
  std::mutex driver_;                      // see SoftwareHabits::driver_lock
  std::map<int, std::mutex> cooperative_;  // by device, see SoftwareHabits::cooperative_alone
  std::atomic<int> breaks_{-1};
  std::atomic<int> faulty_{-1};
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<HardwareQueue>> queues_;     // guarded by mutex_
  size_t streams_made_ = 0;                                // guarded by mutex_
  std::unique_ptr<SoftwareStream> own_;                    // the library's; guarded by mutex_
  Blocks blocks_;                                          // guarded by mutex_
  std::set<std::pair<int, int>> enabled_;                  // guarded by mutex_
  std::map<int, std::unique_ptr<SoftwareStream>> legacy_;  // by device; guarded by mutex_
  std::map<DeviceStream, std::unique_ptr<SoftwareStream>> made_;  // guarded by mutex_
  size_t events_ = 0;                                             // guarded by mutex_
  uint64_t captures_ = 0;                                         // guarded by mutex_
  std::atomic<int> loans_{0};
  std::atomic<int> blocks_max_;
  std::atomic<uint32_t> blocks_most_{0};
};

/// The devices behind machine(); if that is CUDA, the test ends with the reason.
SoftwareDevice& software_devices();

}  // namespace plexus::testing_device
