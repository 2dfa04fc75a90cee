// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-socket/nic.hpp"

#include "plugins/net-socket/transfer.hpp"
#include "plugins/support/interface.hpp"

namespace plexus::net_socket {

void read_properties(const Nic& nic, plexus_net_properties_t& properties) {
  plugin::read_interface(nic.name, properties);
  properties.fabric_id = PLEXUS_UNKNOWN_U64;
  properties.message_bytes_max = PLEXUS_NET_MESSAGE_BYTES_MAX;
  properties.pointer_support = PLEXUS_MEMORY_HOST;
  properties.latency_ns = PLEXUS_UNKNOWN_U32;
  properties.comms_max = UINT16_MAX;  // limited by the ports of an address
  properties.recvs_max = PLEXUS_NET_RECVS_MAX;
  properties.takes_pieces = 1;
  properties.requests_max = kRequests;
  properties.rail_id = -1;
  properties.plane_id = -1;
}

}  // namespace plexus::net_socket
