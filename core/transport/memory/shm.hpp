// SPDX-License-Identifier: Apache-2.0
// The shm transport: two processes of one host. The receiver makes the slots (a memfd) and posts
// where they are; the sender maps them. Buffers from ncclMemAlloc are read in place by the
// receiver.
#pragma once

#include <memory>

#include "core/transport/transport_table.hpp"

namespace plexus {

std::unique_ptr<SendEnd> make_shm_send(EndRequest& request);
std::unique_ptr<RecvEnd> make_shm_recv(EndRequest& request);
std::unique_ptr<DeviceEnd> make_shm_on_device(EndRequest& request);

}  // namespace plexus
