// SPDX-License-Identifier: Apache-2.0
// The settings of a context (NCCL_IB_*, PLEXUS_IB_*), read once at `init` and validated: a bad
// value is a failure that names it. docs/net-ib.md explains them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "guest/port_range.hpp"
#include "plugins/net-ib/gid.hpp"
#include "plugins/net-ib/hca_filter.hpp"
#include "plugins/net-ib/verbs.hpp"
#include "plugins/support/socket_interface.hpp"
#include "security/terms.hpp"

namespace plexus::net_ib {

/// Ports that one device may fuse, and queue pairs for data of a connection on each of them.
inline constexpr uint32_t kRailsMax = 4;
inline constexpr uint32_t kQpsMax = 16;

/// NCCL_IB_ADAPTIVE_ROUTING and PLEXUS_IB_..: 0, 1, or as the link layer suggests.
enum class Choice : uint8_t { kOff, kOn, kAuto };

/// NCCL_NET_MERGE_LEVEL: how near ports are that become one device. A level has those before it.
enum class MergeLevel : uint8_t { kLoc, kPort, kPix, kPxb, kPhb, kSys };

/// NCCL's defaults, so that devices without an id are of one datacenter, and of two rails.
inline constexpr uint64_t kFabricRailsMax = uint64_t{1} << 62;
inline constexpr uint64_t kIbFabric = uint64_t{1} << 60;
inline constexpr uint64_t kRoceFabric = uint64_t{1} << 61;

/// Ids of fabrics, as in NCCL's cross-DC branch: id = datacenter * rails_max + rail.
struct FabricSettings {
  uint64_t rails_max = kFabricRailsMax;  // NCCL_IB_FABRICID_MAXRAIL
  uint64_t ib_default = kIbFabric;       // NCCL_IB_FABRICID_DEFAULT
  uint64_t roce_default = kRoceFabric;   // NCCL_ROCE_FABRICID_DEFAULT
};

struct Settings {
  PortRange ports;                   // PLEXUS_PORT_RANGE
  std::vector<std::string> limited;  // what to tell the user of settings beyond their limits
  bool is_disabled = false;          // NCCL_IB_DISABLE
  HcaFilter hcas;                    // NCCL_IB_HCA, PLEXUS_IB_HCA
  GidWish gid;                       // NCCL_IB_GID_INDEX and others
  std::vector<std::vector<std::string>> merged;  // NCCL_NET_FORCE_MERGE
  MergeLevel merge_level = MergeLevel::kPort;    // NCCL_NET_MERGE_LEVEL, NCCL_IB_MERGE_NICS
  bool keeps_rails_apart = false;                // NCCL_NET_MERGE_POLICY=RAIL
  bool orders_by_pci = true;                     // NCCL_IB_DEVICE_PCI_ORDER
  FabricSettings fabric;
  uint32_t qps = 1;                                  // NCCL_IB_QPS_PER_CONNECTION
  bool splits_on_qps = false;                        // NCCL_IB_SPLIT_DATA_ON_QPS
  uint64_t stripe_bytes_min = 0;                     // PLEXUS_IB_STRIPE_MIN
  uint8_t timeout = 0;                               // NCCL_IB_TIMEOUT: 4.096 us * 2^timeout
  uint8_t retries = 0;                               // NCCL_IB_RETRY_CNT
  uint32_t connect_retries = 0;                      // NCCL_IB_MQP_RETRY_CNT
  std::chrono::milliseconds connect_retry_pause{0};  // NCCL_IB_MQP_RETRY_SLEEP_MSEC
  bool retries_all = false;                          // NCCL_IB_MQP_RETRY_ALL
  uint16_t pkey_index = 0;                           // NCCL_IB_PKEY
  uint8_t service_level = 0;                         // NCCL_IB_SL
  uint8_t traffic_class = 0;                         // NCCL_IB_TC, or what the host asks for
  uint8_t control_traffic_class = 0;                 // NCCL_IB_FIFO_TC
  bool sends_inline = true;                          // NCCL_IB_USE_INLINE
  Choice adaptive_routing = Choice::kAuto;           // NCCL_IB_ADAPTIVE_ROUTING
  uint64_t adaptive_routing_bytes = 0;               // NCCL_IB_AR_THRESHOLD
  bool uses_ece = true;                              // NCCL_IB_ECE_ENABLE
  bool orders_relaxed = true;                        // NCCL_IB_PCI_RELAXED_ORDERING
  bool heeds_events = true;                          // NCCL_IB_RETURN_ASYNC_EVENTS
  Choice gpu_memory = Choice::kAuto;                 // PLEXUS_IB_GDR
  bool flushes = true;                               // NCCL_GDR_FLUSH_DISABLE
  std::string interfaces;                            // NCCL_SOCKET_IFNAME
  plugin::AddressFamily family = plugin::AddressFamily::kAny;  // NCCL_SOCKET_FAMILY
  std::chrono::seconds connect_timeout{0};                     // PLEXUS_IB_CONNECT_TIMEOUT_S
  security::Mode security = security::Mode::kAuth;             // PLEXUS_NET_SECURITY
};

using ReadVariable = std::function<const char*(const char* name)>;

/// `read` queries the host; tests replace it. `traffic_class`: the host's wish, -1: none.
[[nodiscard]] Result<Settings> read_settings(const ReadVariable& read, int32_t traffic_class);

}  // namespace plexus::net_ib
