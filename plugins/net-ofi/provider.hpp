// SPDX-License-Identifier: Apache-2.0
// Which of libfabric's providers is used, and its network cards. What libfabric offers is asked
// with what we need (tagged messages between any two endpoints, in order); of the rest a provider
// is chosen by what it can do, the user's word coming first. The choice is a pure function.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plugins/net-ofi/fabric.hpp"
#include "plugins/net-ofi/settings.hpp"

namespace plexus::net_ofi {

/// An endpoint, which is one connection's, has fewer under way in each direction.
inline constexpr size_t kOperationsMax = 512;

/// What one entry of fi_getinfo says that matters for the choice.
struct Offer {
  std::string provider;      // "tcp;ofi_rxm"
  std::string domain;        // "eth0", "mlx5_0"
  bool is_hardware = false;  // libfabric knows the card
  bool is_over_ip = false;   // addresses are those of interfaces
  bool is_ipv6 = false;
  bool is_link_local = false;
  uint32_t tag_bits = 64;
  size_t index = 0;  // of the entry
};

/// An Offer of `info`, which stays the caller's.
[[nodiscard]] Offer read_offer(const fi_info& info, size_t index);

/// The best provider's domains, one entry each, sorted by name; with a failure that lists what
/// there is when the settings leave none.
[[nodiscard]] Result<std::vector<Offer>> choose_offers(const std::vector<Offer>& offers,
                                                       const Settings& settings);

/// One card of the chosen provider.
struct Nic {
  Offer offer;
  InfoPtr info;
};

/// Asks libfabric. May take a second: it looks at all its providers.
[[nodiscard]] Result<std::vector<Nic>> find_nics(const Settings& settings);

/// The same cards, for GPU memory too: with FI_HMEM, and with FI_RMA for the reads of a flush. A
/// failure: the provider has not both on all of them.
[[nodiscard]] Result<std::vector<Nic>> find_for_device_memory(const std::vector<Nic>& nics,
                                                              const Settings& settings);

}  // namespace plexus::net_ofi
