// SPDX-License-Identifier: Apache-2.0
// Whether CUDA ranks of one host can open each other's device memory (CUDA IPC), found by trying:
// containers and some machines refuse it. Those that cannot share pinned memory instead.
#pragma once

#include <atomic>

#include "core/setup/comm_setup.hpp"

namespace plexus {

/// Sets PeerInfo::ipc_disable for all ranks of a host where one was refused. Needs setup's infos
/// and exchange; all ranks call it.
Result<void> try_ipc(DeviceRuntime* devices, CommSetup& setup, const std::atomic<bool>* give_up);

}  // namespace plexus
