// SPDX-License-Identifier: Apache-2.0
// What a rank tells the other ranks about itself: host, process, device, cores, and the settings
// that all ranks compare.
#pragma once

#include "core/base/config.hpp"
#include "core/base/result.hpp"
#include "core/device/device_runtime.hpp"
#include "core/peers/peer_info.hpp"
#include "core/setup/comm_config.hpp"

namespace plexus {

/// Describes a rank of this process that computes on `comm_config.device`.
Result<PeerInfo> describe_rank(const Config& config,
                               const CommConfig& comm_config,
                               DeviceRuntime* devices);
/// Stores the device that the rank computes on (kHostDevice: the host) in `info`.
Result<void> describe_device(int device, DeviceRuntime* devices, PeerInfo& info);

}  // namespace plexus
