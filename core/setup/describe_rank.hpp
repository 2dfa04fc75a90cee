// SPDX-License-Identifier: Apache-2.0
// What a rank says of itself to the others: host, process, device, cores, settings that all
// compare.
#pragma once

#include "core/base/config.hpp"
#include "core/base/result.hpp"
#include "core/device/device_runtime.hpp"
#include "core/setup/comm_config.hpp"
#include "core/transport/peer_info.hpp"

namespace plexus {

/// A rank of this process, on `comm_config.device`.
Result<PeerInfo> describe_rank(const Config& config,
                               const CommConfig& comm_config,
                               DeviceRuntime* devices);
/// Notes in `info` on which device it computes (kHostDevice: the host).
Result<void> describe_device(int device, DeviceRuntime* devices, PeerInfo& info);

}  // namespace plexus
