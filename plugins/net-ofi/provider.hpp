// SPDX-License-Identifier: Apache-2.0
// The choice of libfabric's provider and its NICs. libfabric is asked for what the plugin needs
// (ordered tagged messages between any two endpoints); among the offers, the settings come first,
// then the provider's abilities. The choice is a pure function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plugins/net-ofi/fabric.hpp"
#include "plugins/net-ofi/settings.hpp"

namespace plexus::net_ofi {

/// Upper bound of the operations in flight per endpoint (one connection) and direction.
inline constexpr size_t kOperationsMax = 512;

/// The parts of an fi_getinfo entry that matter for the choice.
struct Offer {
  std::string provider;      // "tcp;ofi_rxm"
  std::string domain;        // "eth0", "mlx5_0"
  bool is_hardware = false;  // libfabric knows the NIC
  bool is_over_ip = false;   // addresses are those of interfaces
  bool is_ipv6 = false;
  bool is_link_local = false;
  uint32_t tag_bits = 64;
  size_t index = 0;  // index of the entry
};

/// The Offer for `info`, which remains the caller's.
[[nodiscard]] Offer read_offer(const fi_info& info, size_t index);

/// The best provider's domains, one entry each, sorted by name. If the settings leave none, the
/// Error lists what there is.
[[nodiscard]] Result<std::vector<Offer>> choose_offers(const std::vector<Offer>& offers,
                                                       const Settings& settings);

/// One NIC of the chosen provider.
struct Nic {
  Offer offer;
  InfoPtr info;
};

/// Queries libfabric. May take a second, because all providers are probed.
[[nodiscard]] Result<std::vector<Nic>> find_nics(const Settings& settings);

/// The same NICs with GPU memory: with FI_HMEM, and with FI_RMA for the reads of a flush. An Error:
/// the provider does not have both on all of them.
[[nodiscard]] Result<std::vector<Nic>> find_for_device_memory(const std::vector<Nic>& nics,
                                                              const Settings& settings);

}  // namespace plexus::net_ofi
