// SPDX-License-Identifier: Apache-2.0
// What users registered with one communicator: buffers (ncclCommRegister) and windows
// (ncclCommWindowRegister). Windows are registered by all ranks, in the same order: where one is
// symmetric (NCCL_WIN_COLL_SYMMETRIC), a buffer in it tells that those of the other ranks are in
// theirs. Nobody checks that; ranks whose calls differ by it fail as for other such differences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/result.hpp"
#include "core/comm/one_sided_message.hpp"
#include "core/schedule/task.hpp"
#include "core/transport/memory/peer_mapped_memory.hpp"
#include "core/transport/network/registered_memory.hpp"

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

  struct Window {
    void* buffer;
    size_t size_bytes;
    bool is_symmetric;
    one_sided::WindowNumber number;  // kNoWindow: the communicator has no one-sided operations
  };
  /// Returns the handle.
  void* add_window(const Window& window);
  /// kInvalidArgument: `window` is not a window. So do the next two.
  Result<void> remove_window(void* window);
  Result<void*> window_buffer(void* window) const;
  Result<one_sided::WindowNumber> window_number(void* window) const;
  /// One symmetric window has all of [address, address + size).
  [[nodiscard]] bool has_symmetric(const void* address, size_t size_bytes) const noexcept;
  /// There is a symmetric window, whose memory peers can map.
  [[nodiscard]] bool has_symmetric_windows() const noexcept { return !symmetric_.empty(); }
  /// CallShape::in_windows of a call with these buffers. Only where each rank has both.
  [[nodiscard]] bool has_in_windows(const CallShape& shape,
                                    const void* send,
                                    const void* recv) const noexcept {
    return has_symmetric_windows() && !is_rooted(shape.collective) &&
           shape.blocks.get() == nullptr && !is_point_to_point(shape.collective) &&
           is_in_window(send) && is_in_window(recv);
  }

 private:
  [[nodiscard]] Result<const Window*> find_window(void* handle) const;
  [[nodiscard]] bool is_in_window(const void* address) const noexcept;
  void note_windows();
  void begin_mapping(const void* buffer, size_t size_bytes);
  void end_mapping(const void* buffer);

  PeerMappedMemory* peer_mapped_ = nullptr;
  RegisteredMemory* registered_ = nullptr;
  std::map<const void*, int> buffers_;                      // address -> times
  std::map<const void*, std::unique_ptr<Window>> windows_;  // by handle
  std::vector<std::pair<uintptr_t, size_t>> symmetric_;     // address and size of such windows
};

}  // namespace plexus
