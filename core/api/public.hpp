// SPDX-License-Identifier: Apache-2.0
// The public headers as our own sources see them, and the conversions between public and inner
// handles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <nccl.h>
#include <plexus.h>

#include "core/comm/communicator.hpp"

namespace plexus {

inline Communicator* inner(ncclComm_t comm) noexcept {
  return reinterpret_cast<Communicator*>(comm);
}
inline Communicator** inner(ncclComm_t* comm) noexcept {
  return reinterpret_cast<Communicator**>(comm);
}

/// How much of a caller's struct of `size_bytes` is copied into `Struct`: no field is cut in two,
/// as those of NCCL's structs have 4 or 8 bytes and a pointer is never a half one.
template <class Struct>
constexpr size_t copied_bytes(size_t size_bytes) noexcept {
  constexpr size_t kFieldBytesMax = 8;
  return std::min(size_bytes, sizeof(Struct)) / kFieldBytesMax * kFieldBytesMax;
}

}  // namespace plexus
