// SPDX-License-Identifier: Apache-2.0
// A DeviceRuntime without devices for unit tests: tests set what it reports about devices, and it
// records what is released. Everything else fails.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/device/device_runtime.hpp"

namespace plexus {

class FakeRuntime final : public DeviceRuntime {
 public:
  int devices = 2;
  int current_device = 0;
  bool is_driver_there = true;
  bool is_driver_new = true;
  const void* on_device = nullptr;  // the one pointer that is
  int npointers = 0;                // asked about
  bool runs_kernels = true;
  bool allocates = true;
  std::optional<Allocation> allocation;  // of whatever is asked about
  bool exports = false;
  std::vector<std::string> released;  // "function device", in order
  std::vector<void*> addresses;       // that the functions in `released` got

  Result<int> count() override {
    if (!is_driver_new) {
      return plexus::fail(Code::kUnhandledCudaError, "the driver is too old");
    }
    if (!is_driver_there || devices == 0) {
      return plexus::fail(Code::kInvalidUsage, "{}", is_driver_there ? "no GPU" : "no driver");
    }
    return devices;
  }
  Result<int> current() override { return current_device; }
  Result<int> blocks_max(int /*device*/) override {
    if (!runs_kernels) {
      return plexus::fail(Code::kUnhandledCudaError, "the kernel does not run on this device");
    }
    return 1;
  }

  Result<void*> allocate(int /*device*/, size_t /*size_bytes*/) override { return make(); }
  Result<void*> allocate_lasting(int /*device*/, size_t /*size_bytes*/) override { return make(); }
  Result<void*> allocate_piece(int /*device*/, size_t /*size_bytes*/) override { return make(); }
  Result<void*> allocate_pinned(int /*device*/, size_t /*size_bytes*/) override { return make(); }
  /// The device's address of registered memory differs from the host's, as it may.
  Result<void*> register_host(int /*device*/, void* memory, size_t /*size_bytes*/) override {
    return static_cast<std::byte*>(memory) + 1;
  }
  Result<void*> import_memory(int /*device*/, const MemoryHandle& /*handle*/) override {
    return make();
  }
  Result<void*> import_pieces(int /*device*/, const PieceDescriptors& /*theirs*/) override {
    return make();
  }
  Result<DeviceEvent> make_event(int /*device*/) override {
    PLEXUS_TRY(event, make());
    return reinterpret_cast<DeviceEvent>(event);
  }
  void release(int device, void* memory) noexcept override { note("release", device, memory); }
  void release_pinned(int device, void* memory) noexcept override {
    note("release_pinned", device, memory);
  }
  void unregister_host(int device, void* memory) noexcept override {
    note("unregister_host", device, memory);
  }
  void close_imported(int device, void* memory) noexcept override {
    note("close_imported", device, memory);
  }
  void destroy_event(int device, DeviceEvent event) noexcept override {
    note("destroy_event", device, event);
  }

  Result<DeviceFacts> describe(int /*device*/) override { return missing(); }
  Result<bool> can_reach(int /*device*/, int /*peer*/) override { return missing(); }
  Result<void> enable_reach(int /*device*/, int /*peer*/) override { return missing(); }
  void adopt_thread(int /*device*/) noexcept override {}
  bool has_driver() noexcept override { return is_driver_there; }
  bool is_on_device_alone(const void* pointer) noexcept override {
    ++npointers;
    return pointer == on_device;
  }
  bool is_open_to_peers(int /*device*/, const void* /*pointer*/) noexcept override { return true; }
  PointerFacts describe_pointer(const void* /*pointer*/) noexcept override { return {}; }
  Result<void> copy(int /*device*/, void* /*to*/, const void* /*from*/, size_t /*size*/) override {
    return missing();
  }
  Result<Allocation> find_allocation(int /*device*/,
                                     const void* /*pointer*/,
                                     size_t /*size_bytes*/) override {
    return allocation.has_value() ? Result<Allocation>(*allocation) : missing();
  }
  Result<std::unique_ptr<PieceDescriptors>> export_pieces(int /*device*/,
                                                          const Allocation& /*memory*/) override {
    return exports ? Result<std::unique_ptr<PieceDescriptors>>(std::make_unique<PieceDescriptors>())
                   : missing();
  }
  Result<MemoryHandle> export_memory(int /*device*/, void* /*memory*/) override {
    return exports ? Result<MemoryHandle>(MemoryHandle{}) : missing();
  }
  Result<Dmabuf> export_dmabuf(int /*device*/, void* /*memory*/, size_t /*size*/) override {
    return missing();
  }
  Result<void> record(int /*device*/, DeviceEvent /*event*/, DeviceStream /*stream*/) override {
    return missing();
  }
  Result<void> wait(int /*device*/, DeviceStream /*stream*/, DeviceEvent /*event*/) override {
    return missing();
  }
  Result<void> record_at_replay(int /*device*/,
                                DeviceEvent /*event*/,
                                DeviceStream /*stream*/) override {
    return missing();
  }
  Result<void> wait_at_replay(int /*device*/,
                              DeviceStream /*stream*/,
                              DeviceEvent /*event*/) override {
    return missing();
  }
  Result<void> find_fault(int /*device*/) override { return missing(); }
  Result<void> launch(int /*device*/,
                      DeviceStream /*stream*/,
                      const DeviceBlock* /*blocks*/,
                      uint32_t /*count*/,
                      uint32_t /*threads*/) override {
    return missing();
  }
  Result<Capture> capture(int /*device*/, DeviceStream /*stream*/) override { return missing(); }
  Result<void> call_host(int /*device*/,
                         DeviceStream /*stream*/,
                         void (* /*function*/)(void*),
                         void* /*argument*/) override {
    return missing();
  }
  Result<void> call_after_graph(int /*device*/,
                                DeviceStream /*stream*/,
                                void (* /*function*/)(void*),
                                void* /*argument*/) override {
    return missing();
  }

 private:
  static Error missing() {
    return plexus::fail(Code::kInternalError, "the fake has no such thing");
  }
  Result<void*> make() {
    if (!allocates) {
      return plexus::fail(Code::kUnhandledCudaError, "out of memory");
    }
    return static_cast<void*>(&memory_);
  }
  void note(const char* what, int device, void* memory) noexcept {
    released.push_back(std::string(what) + " " + std::to_string(device));
    addresses.push_back(memory);
  }

  std::byte memory_{};
};

}  // namespace plexus
