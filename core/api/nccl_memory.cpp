// SPDX-License-Identifier: Apache-2.0
// Memory, registration and windows.
#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"
#include "core/comm/one_sided.hpp"
#include "core/comm/process.hpp"
#include "core/os/caller.hpp"

namespace plexus {
namespace {

Result<void> check_end(const void* buffer, size_t size_bytes) {
  uintptr_t end = 0;
  if (__builtin_add_overflow(reinterpret_cast<uintptr_t>(buffer), size_bytes, &end)) {
    return fail(Code::kInvalidArgument, "size {} exceeds the address space", size_bytes);
  }
  return ok();
}

/// Where PLEXUS_CHECK is 1 and this is the start of memory on the host.
BufferCheck* buffer_check_of_host(const void* memory) {
  Process& process = Process::instance();
  UseCheck* const check = process.check();
  const MappedPlace place = check == nullptr ? MappedPlace{} : process.memory.find_place(memory, 1);
  return place.segment != 0 && place.offset == 0 ? &check->buffers : nullptr;
}

Result<void> free_checked(void* memory, BufferCheck& check) {
  const size_t size_bytes = Process::instance().memory.find_place(memory, 1).segment_bytes;
  PLEXUS_TRY(check.note_free({.function = "ncclMemFree", .caller = find_caller()},
                             {static_cast<std::byte*>(memory), size_bytes}, nullptr));
  const auto release = [](void* data, size_t) {
    static_cast<void>(Process::instance().free_memory(data));
  };
  return check.keep(memory, size_bytes, release) ? Result<void>(ok())
                                                 : Process::instance().free_memory(memory);
}

}  // namespace
}  // namespace plexus

using plexus::check_pointer;
using plexus::Code;
using plexus::fail;
using plexus::guard;
using plexus::is_parents;
using plexus::ok;
using plexus::Result;

PLEXUS_PUBLIC(ncclResult_t, ncclMemAlloc, (void** ptr, size_t size)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(ptr, "ptr"));
    *ptr = nullptr;
    PLEXUS_TRY(memory, plexus::Process::instance().allocate_memory(size));
    *ptr = memory;
    if (auto* const check = plexus::buffer_check_of_host(memory); check != nullptr) {
      check->note_new(memory, size);
    }
    return ok();
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclMemFree, (void* ptr)) {
  return guard([&]() -> Result<void> {
    if (ptr == nullptr) {
      return ok();
    }
    if (auto* const check = plexus::buffer_check_of_host(ptr); check != nullptr) {
      return plexus::free_checked(ptr, *check);
    }
    return plexus::Process::instance().free_memory(ptr);
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclCommRegister,
              (const ncclComm_t comm, void* buff, size_t size, void** handle)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(visit, plexus::enter_ready(comm));
    PLEXUS_TRY(check_pointer(handle, "handle"));
    *handle = nullptr;
    PLEXUS_TRY(check_pointer(buff, "buff"));
    PLEXUS_TRY(plexus::check_end(buff, size));
    *handle = visit->registrations().add_buffer(buff, size);
    return ok();
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void* handle)) {
  return guard([&]() -> Result<void> {
    if (is_parents(comm)) {
      return ok();
    }
    PLEXUS_TRY(visit, plexus::enter(comm));
    return handle == nullptr ? Result<void>(ok()) : visit->registrations().remove_buffer(handle);
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclCommWindowRegister,
              (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(check_pointer(win, "win"));
    *win = nullptr;
    PLEXUS_TRY(visit, plexus::enter_ready(comm));
    if (buff == nullptr || size == 0) {
      return fail(Code::kInvalidArgument, "a window needs a buffer: buff is {}, size is {}",
                  buff == nullptr ? "NULL" : "set", size);
    }
    if (reinterpret_cast<uintptr_t>(buff) % NCCL_WIN_REQUIRED_ALIGNMENT != 0) {
      return fail(Code::kInvalidArgument,
                  "a window must be aligned to {} bytes: allocate it with ncclMemAlloc",
                  NCCL_WIN_REQUIRED_ALIGNMENT);
    }
    PLEXUS_TRY(plexus::check_end(buff, size));
    plexus::one_sided::WindowNumber number = plexus::one_sided::kNoWindow;
    if (visit->one_sided() != nullptr) {
      PLEXUS_TRY(added, visit->one_sided()->add_window(buff, size));
      number = added;
    }
    *win = static_cast<ncclWindow_t>(visit->registrations().add_window(
        {buff, size, (winFlags & NCCL_WIN_COLL_SYMMETRIC) != 0, number}));
    return ok();
  });
}

PLEXUS_PUBLIC(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win)) {
  return guard([&]() -> Result<void> {
    if (is_parents(comm)) {
      return ok();
    }
    PLEXUS_TRY(visit, plexus::enter(comm));
    if (win == nullptr) {
      return ok();
    }
    PLEXUS_TRY(number, visit->registrations().window_number(win));
    if (visit->one_sided() != nullptr) {
      visit->one_sided()->remove_window(number);
    }
    return visit->registrations().remove_window(win);
  });
}

PLEXUS_PUBLIC(ncclResult_t,
              ncclWinGetUserPtr,
              (ncclComm_t comm, ncclWindow_t win, void** outUserPtr)) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(visit, plexus::enter(comm));
    PLEXUS_TRY(check_pointer(outUserPtr, "outUserPtr"));
    PLEXUS_TRY(check_pointer(win, "win"));
    PLEXUS_TRY(pointer, visit->registrations().window_buffer(win));
    *outUserPtr = pointer;
    return ok();
  });
}
