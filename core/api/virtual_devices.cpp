// SPDX-License-Identifier: Apache-2.0
// core/device/virtual_devices.h: what this library does for one that stands for CUDA's runtime.
#include "core/device/virtual_devices.h"

#include <memory>
#include <span>
#include <vector>

#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"
#include "core/comm/process.hpp"
#include "core/device/virtual_devices.hpp"
#include "core/os/caller.hpp"
#include "core/os/host.hpp"

struct plexusWork {
  std::shared_ptr<plexus::StreamMark> done;
};

using plexus::guard;
using plexus::Process;
using plexus::Result;

PLEXUS_EXTENSION void plexusUseVirtualDevices(const plexusVirtualDevices* devices) {
  plexus::virtual_devices_slot().store(devices, std::memory_order_release);
}

PLEXUS_EXTENSION int plexusLaunchWork(CUstream_st* stream, plexusStartWork_t start, void* user) {
  return guard([&]() -> Result<void> {
    plexus::HostStream* const found = Process::instance().find_stream(stream);
    if (found == nullptr) {
      return plexus::unknown_stream(stream);
    }
    Process::instance().launch_work(found, [start, user](const auto& done) {
      start(user, std::make_unique<plexusWork>(plexusWork{done}).release());
    });
    return plexus::ok();
  });
}

PLEXUS_EXTENSION void plexusWorkDone(plexusWork_t* work) {
  const std::unique_ptr<plexusWork> owner(work);
  owner->done->reach(nullptr);
}

PLEXUS_EXTENSION int plexusStreamIsIdle(CUstream_st* stream) {
  const plexus::HostStream* const found = Process::instance().find_stream(stream);
  return found == nullptr || found->is_idle() ? 1 : 0;
}

PLEXUS_EXTENSION void plexusStreamWaitIdle(CUstream_st* stream) {
  plexus::HostStream* const found = Process::instance().find_stream(stream);
  if (found == nullptr) {
    return;
  }
  plexus::UseCheck* const check = Process::instance().check();
  if (check == nullptr) {
    static_cast<void>(found->wait());  // failures are the communicators'
    return;
  }
  const auto mark = check->buffers.mark(stream);
  static_cast<void>(found->wait());
  check->buffers.end(mark);
}

PLEXUS_EXTENSION int plexusRunInTurn(CUstream_st* stream, void (*function)(void*), void* user) {
  return guard([&]() -> Result<void> {
    plexus::HostStream* const found = Process::instance().find_stream(stream);
    if (found == nullptr) {
      return plexus::unknown_stream(stream);
    }
    Process::instance().launch_host_function(found, [function, user] { function(user); });
    return plexus::ok();
  });
}

PLEXUS_EXTENSION int plexusAllocateMemory(void** memory, uint64_t size_bytes) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(made, Process::instance().allocate_memory(size_bytes));
    *memory = made;
    return plexus::ok();
  });
}

PLEXUS_EXTENSION int plexusFreeMemory(void* memory) {
  return guard([&] { return Process::instance().free_memory(memory); });
}

// ---- PLEXUS_CHECK=1 ----

PLEXUS_EXTENSION int plexusChecks(void) { return Process::instance().check() != nullptr ? 1 : 0; }

PLEXUS_EXTENSION void plexusNoteWork(const char* function,
                                     CUstream_st* stream,
                                     const plexusUse* uses,
                                     int count) {
  static_cast<void>(guard([&]() -> Result<void> {
    std::vector<plexus::BufferUse> all;
    for (const plexusUse& use : std::span(uses, static_cast<size_t>(count))) {
      all.push_back({.region = {static_cast<const std::byte*>(use.data), use.size_bytes},
                     .writes = use.writes != 0});
    }
    Process::instance().check()->buffers.note_work(
        {.function = function, .caller = plexus::find_caller()}, all, stream);
    return plexus::ok();
  }));
}

PLEXUS_EXTENSION void plexusNoteNew(void* data, uint64_t size_bytes) {
  static_cast<void>(guard([&]() -> Result<void> {
    Process::instance().check()->buffers.note_new(data, size_bytes);
    return plexus::ok();
  }));
}

PLEXUS_EXTENSION int plexusNoteFree(const char* function,
                                    CUstream_st* stream,
                                    const void* data,
                                    uint64_t size_bytes) {
  return guard([&] {
    return Process::instance().check()->buffers.note_free(
        {.function = function, .caller = plexus::find_caller()},
        {static_cast<const std::byte*>(data), size_bytes}, stream);
  });
}

PLEXUS_EXTENSION int plexusKeepFreed(void* data,
                                     uint64_t size_bytes,
                                     void (*release)(void*, size_t)) {
  return Process::instance().check()->buffers.keep(data, size_bytes, release) ? 1 : 0;
}

PLEXUS_EXTENSION void plexusFindMemory(const void* address, plexusMemoryPlace* place) {
  const auto found = Process::instance().memory.find_place(address, 1);
  *place = {.segment = found.segment,
            .segment_bytes = found.segment_bytes,
            .offset = found.offset,
            .owner = plexus::process_id(),
            .pid = found.pid,
            .fd = found.fd};
}

PLEXUS_EXTENSION int plexusMapMemory(const plexusMemoryPlace* place, void** memory) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(mapped, Process::instance().memory.map({.segment = place->segment,
                                                       .segment_bytes = place->segment_bytes,
                                                       .offset = place->offset,
                                                       .pid = place->pid,
                                                       .fd = place->fd},
                                                      place->owner));
    *memory = mapped;
    return plexus::ok();
  });
}

PLEXUS_EXTENSION int plexusUnmapMemory(void* memory) {
  return guard([&] { return Process::instance().memory.unmap(memory); });
}
