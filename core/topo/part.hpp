// SPDX-License-Identifier: Apache-2.0
// A part: the ranks of a communicator that reach each other without the network, mostly those of
// one host. One rank of it, the leader, searches for the part's channels on the machine's
// description and tells all others the result as a short message, so that every rank can join the
// parts (join.hpp) and no description travels.
//
// Ranks on the host of one NUMA node are alike, and so are those on one GPU: a chain that enters
// the NUMA node goes through all of them before it leaves. So the search sees one rank of each, its
// representative, and a part of a thousand ranks costs what one of a few does.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/topo/detect.hpp"
#include "core/topo/options.hpp"
#include "core/topo/search.hpp"
#include "core/topo/xml_tree.hpp"

namespace plexus {

/// Ranks that the search sees, each with the ranks that follow it wherever it stands.
struct Representatives {
  std::vector<int> ranks;                   // the lowest of each NUMA node and GPU, rising
  std::vector<std::vector<int>> followers;  // by representative, rising; without itself
};
Representatives choose_representatives(std::span<const HostRank> ranks);

struct PartRequest {
  std::vector<HostRank> ranks;  // rising
  bool inter = false;           // the communicator has other parts
  TopoOptions options;
  std::string graphs;  // text of a graph file, over all ranks of the part; empty: all is searched
};

/// What the leader tells.
struct PartChannels {
  bool whole = false;  // the channels have all ranks (from a graph file), not the representatives
  NodeChannels found;
};

/// `machine`: the part's host with all its ranks.
Result<PartChannels> search_part(const XmlElement& machine, const PartRequest& request);

/// As a message, and back: checked against the part's ranks, which every rank knows.
std::string encode(const PartChannels& part, std::span<const HostRank> ranks);
Result<PartChannels> decode_part(std::string_view bytes, std::span<const HostRank> ranks);

/// The channels with all ranks.
NodeChannels expand(const PartChannels& part, std::span<const HostRank> ranks);

/// A topology file as the description of this host: its ranks and NICs are replaced by the given
/// ones. A NIC takes the place of the file's of the same name, else it stands below the PCI device
/// of its path, else on the first CPU.
Result<XmlElement> fill_template(XmlElement machine,
                                 std::span<const HostRank> ranks,
                                 std::span<const NetPort> nets);

}  // namespace plexus
