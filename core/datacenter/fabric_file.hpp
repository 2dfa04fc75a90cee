// SPDX-License-Identifier: Apache-2.0
// PLEXUS_FABRIC_FILE: which host (and device) is in which datacenter and rail, and what joins the
// datacenters. One line each, `#` begins a comment, the first host line that fits counts:
//
//   host node[01-16] dc berlin
//   host gpu* device mlx5_1 dc paris rail 1
//   link berlin paris gbit 100 ms 10 cost 3
//
// A file without links says that all datacenters are joined by paths that it does not know; with
// links, those that it does not list are not there.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/datacenter/host_pattern.hpp"
#include "core/datacenter/location.hpp"

namespace plexus {

struct FabricFile {
  struct Host {
    HostPattern host;
    std::optional<HostPattern> device;  // absent: the host, and all of its devices
    std::string datacenter;
    std::optional<int> rail;
    int line;
  };
  struct Link {
    std::string first;
    std::string second;
    DatacenterPath path;
  };
  std::vector<Host> hosts;
  std::vector<Link> links;

  /// The datacenter of a host, that of its first fitting line; nullptr: the file does not say.
  [[nodiscard]] const std::string* datacenter_of(std::string_view host) const;
  [[nodiscard]] std::optional<int> rail_of(std::string_view host, std::string_view device) const;
  /// What the host tells the others; no fabric ids.
  [[nodiscard]] Location location_of(std::string_view host) const;
};

/// kInvalidUsage: line number and what is wrong there.
Result<FabricFile> parse_fabric_file(std::string_view text);

}  // namespace plexus
