// SPDX-License-Identifier: Apache-2.0
// PLEXUS_FABRIC_FILE: the datacenter and rail of each host (and device), and the links between
// datacenters. One entry per line; `#` begins a comment; the first host line that matches counts:
//
//   host node[01-16] dc berlin
//   host gpu* device mlx5_1 dc paris rail 1
//   link berlin paris gbit 100 ms 10 cost 3
//
// Without link lines all datacenters are connected by paths of unknown quality. With link lines
// only the listed links exist.
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
    std::optional<HostPattern> device;  // absent: all devices of the host
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

  /// The datacenter of a host by its first matching line; nullptr: the file does not name one.
  [[nodiscard]] const std::string* datacenter_of(std::string_view host) const;
  [[nodiscard]] std::optional<int> rail_of(std::string_view host, std::string_view device) const;
  /// What the host tells the other nodes, without fabric ids.
  [[nodiscard]] Location location_of(std::string_view host) const;
};

/// kInvalidUsage: line number and cause.
Result<FabricFile> parse_fabric_file(std::string_view text);

}  // namespace plexus
