// SPDX-License-Identifier: Apache-2.0
// Owners of a DeviceRuntime's allocations. The runtime outlives them.
#pragma once

#include <memory>

#include "core/device/device_runtime.hpp"

namespace plexus {

/// Deleter: releases memory through the runtime function that belongs to its kind.
struct ReleaseMemory {
  DeviceRuntime* runtime = nullptr;
  void (DeviceRuntime::*how)(int device, void* memory) noexcept = nullptr;
  int device = -1;
  void* memory = nullptr;  // the pointer that the runtime returned
  void operator()(std::byte* /*seen_at*/) const noexcept { (runtime->*how)(device, memory); }
};
/// Memory at the address by which kernels of its device access it.
using DeviceMemory = std::unique_ptr<std::byte, ReleaseMemory>;

struct ReleaseEvent {
  DeviceRuntime* runtime = nullptr;
  int device = -1;
  void operator()(DeviceEvent event) const noexcept { runtime->destroy_event(device, event); }
};
using OwnedEvent = std::unique_ptr<CUevent_st, ReleaseEvent>;

/// Device memory, zeroed.
inline Result<DeviceMemory> allocate_device(DeviceRuntime& runtime, int device, size_t size_bytes) {
  PLEXUS_TRY(memory, runtime.allocate(device, size_bytes));
  return DeviceMemory(static_cast<std::byte*>(memory),
                      {&runtime, &DeviceRuntime::release, device, memory});
}

/// Device memory, zeroed, that is kept for reuse after release (DeviceRuntime::allocate_lasting).
inline Result<DeviceMemory> allocate_lasting(DeviceRuntime& runtime,
                                             int device,
                                             size_t size_bytes) {
  PLEXUS_TRY(memory, runtime.allocate_lasting(device, size_bytes));
  return DeviceMemory(static_cast<std::byte*>(memory),
                      {&runtime, &DeviceRuntime::release, device, memory});
}

/// Device memory, zeroed, of a piece (DeviceRuntime::allocate_piece).
inline Result<DeviceMemory> allocate_piece(DeviceRuntime& runtime, int device, size_t size_bytes) {
  PLEXUS_TRY(memory, runtime.allocate_piece(device, size_bytes));
  return DeviceMemory(static_cast<std::byte*>(memory),
                      {&runtime, &DeviceRuntime::release, device, memory});
}

/// Page-locked host memory, zeroed.
inline Result<DeviceMemory> allocate_pinned(DeviceRuntime& runtime, int device, size_t size_bytes) {
  PLEXUS_TRY(memory, runtime.allocate_pinned(device, size_bytes));
  return DeviceMemory(static_cast<std::byte*>(memory),
                      {&runtime, &DeviceRuntime::release_pinned, device, memory});
}

/// Registers host memory with the device. The memory must outlive the registration.
inline Result<DeviceMemory> register_host(DeviceRuntime& runtime,
                                          int device,
                                          void* memory,
                                          size_t size_bytes) {
  PLEXUS_TRY(seen_at, runtime.register_host(device, memory, size_bytes));
  return DeviceMemory(static_cast<std::byte*>(seen_at),
                      {&runtime, &DeviceRuntime::unregister_host, device, memory});
}

/// Maps device memory of another process.
inline Result<DeviceMemory> import_memory(DeviceRuntime& runtime,
                                          int device,
                                          const MemoryHandle& handle) {
  PLEXUS_TRY(memory, runtime.import_memory(device, handle));
  return DeviceMemory(static_cast<std::byte*>(memory),
                      {&runtime, &DeviceRuntime::close_imported, device, memory});
}

/// Maps pieces of another process.
inline Result<DeviceMemory> import_pieces(DeviceRuntime& runtime,
                                          int device,
                                          const PieceDescriptors& theirs) {
  PLEXUS_TRY(memory, runtime.import_pieces(device, theirs));
  return DeviceMemory(static_cast<std::byte*>(memory),
                      {&runtime, &DeviceRuntime::close_imported, device, memory});
}

inline Result<OwnedEvent> make_event(DeviceRuntime& runtime, int device) {
  PLEXUS_TRY(event, runtime.make_event(device));
  return OwnedEvent(event, {&runtime, device});
}

}  // namespace plexus
