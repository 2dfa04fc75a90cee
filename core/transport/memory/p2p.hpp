// SPDX-License-Identifier: Apache-2.0
// The p2p transport: two CUDA ranks in two processes whose devices access each other. The receiver
// makes Fifo and slots on its device and posts their handle (CUDA IPC); the sender maps them.
#pragma once

#include <memory>

#include "core/transport/transport_table.hpp"

namespace plexus {

std::unique_ptr<DeviceEnd> make_p2p_on_device(EndRequest& request);

}  // namespace plexus
