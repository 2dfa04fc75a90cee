// SPDX-License-Identifier: Apache-2.0
// What a virtual device is: the figures of a GPU of compute capability 9.0, since programs choose
// by these, with this machine's cores as its multiprocessors.
#pragma once

#include "integrations/cudart/include/driver_types.h"

namespace plexus::cudart {

inline constexpr int kMajor = 9;
inline constexpr int kMinor = 0;
inline constexpr int kWarp = 32;
inline constexpr int kThreadsPerBlock = 1024;
inline constexpr int kBlockDepth = 64;
inline constexpr int kGridWidth = 0x7fffffff;
inline constexpr int kGridHeight = 65535;
inline constexpr int kThreadsPerMultiprocessor = 2048;
inline constexpr int kBlocksPerMultiprocessor = 32;
inline constexpr int kSharedBytes = 48 * 1024;
inline constexpr int kSharedBytesMost = 227 * 1024;
inline constexpr int kConstantBytes = 64 * 1024;
inline constexpr int kRegisters = 65536;
inline constexpr int kPitchMost = 0x7fffffff;
inline constexpr int kAlignment = 512;
inline constexpr int kClockKilohertz = 1000000;
inline constexpr int kBusBits = 64;
inline constexpr int kCacheBytes = 32 * 1024 * 1024;

struct PciPlace {
  int domain;
  int bus;
};
PciPlace pci_place(int device);
/// The program called cudaDeviceEnablePeerAccess.
bool has_opened_peer(int device, int peer);
/// Made of this host and of the device's number, so that processes agree.
cudaUUID_t uuid_of(int device);

}  // namespace plexus::cudart
