// SPDX-License-Identifier: Apache-2.0
// What users registered with one communicator: buffers (ncclCommRegister) and windows
// (ncclCommWindowRegister, collective in NCCL; here a window is a record of buffer and size).
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "core/base/result.hpp"
#include "core/transport/peer_mapped_memory.hpp"
#include "core/transport/registered_memory.hpp"

namespace plexus {

/// Threads: one at a time, as the communicator's calls.
class Registrations {
 public:
  Registrations() = default;
  /// `peer_mapped`: takes what is registered, so that kernels of ranks in other processes read and
  /// write it in place; nullptr: none can. `registered`: takes it for networks; nullptr: likewise.
  Registrations(PeerMappedMemory* peer_mapped, RegisteredMemory* registered)
      : peer_mapped_(peer_mapped), registered_(registered) {}

  /// Returns the handle. The same buffer may be registered several times.
  void* add_buffer(void* buffer, size_t size_bytes);
  /// kInvalidUsage: `handle` is no registration.
  Result<void> remove_buffer(void* handle);

  /// Returns the handle.
  void* add_window(void* buffer, size_t size_bytes);
  /// kInvalidArgument: `window` is not a window. So does window_buffer().
  Result<void> remove_window(void* window);
  Result<void*> window_buffer(void* window) const;

 private:
  struct Window {
    void* buffer;
    size_t size_bytes;
  };
  void begin_mapping(const void* buffer, size_t size_bytes);
  void end_mapping(const void* buffer);

  PeerMappedMemory* peer_mapped_ = nullptr;
  RegisteredMemory* registered_ = nullptr;
  std::map<const void*, int> buffers_;                      // address -> times
  std::map<const void*, std::unique_ptr<Window>> windows_;  // by handle
};

}  // namespace plexus
