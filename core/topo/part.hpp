// SPDX-License-Identifier: Apache-2.0
// A part: the ranks of a communicator that need no network between them, usually those of one host
// that share memory. The lowest of these, the leader, searches for the channels on the machine's
// description and sends the result to all other ranks in a short message. Every rank then joins the
// parts (join.hpp), and no description is sent. Where the network is the better way between some of
// the leader's ranks, they are several parts (paths.hpp).
//
// Host ranks of one NUMA node are equivalent, and so are the ranks of one GPU: a chain that enters
// the NUMA node passes all of them before it leaves. The search therefore sees one representative
// of each, and a part of a thousand ranks costs as much as one of a few.
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

/// The ranks that the search sees, each with the ranks that follow it directly in every chain.
struct Representatives {
  std::vector<int> ranks;  // the lowest rank of each NUMA node and GPU, ascending
  // by representative, ascending; without the representative
  std::vector<std::vector<int>> followers;
};
Representatives choose_representatives(std::span<const HostRank> ranks);

struct PartRequest {
  std::vector<HostRank> ranks;  // those that share memory with the leader, ascending
  bool inter = false;           // the communicator also has other ranks
  TopoOptions options;
  // text of a graph file over all ranks of a part; empty: everything is searched
  std::string graphs;
  std::string graphs_from = {};   // for messages: where the two come from
  std::string machine_from = {};  // empty: this machine
};

struct PartChannels {
  std::vector<HostRank> ranks;  // ascending
  // the channels contain all ranks (from a graph file), not only the representatives
  bool whole = false;
  NodeChannels found;
};

/// What a leader finds.
struct HostChannels {
  std::vector<PartChannels> parts;    // at least one
  std::vector<std::string> warnings;  // for the log of the leader
};

/// `machine`: description of the leader's host with all its ranks.
Result<HostChannels> search_host(const XmlElement& machine, const PartRequest& request);

/// Encodes as a message; decoding checks it against the leader's ranks, which every rank knows.
std::string encode(std::span<const PartChannels> parts, std::span<const HostRank> ranks);
Result<std::vector<PartChannels>> decode_parts(std::string_view bytes,
                                               std::span<const HostRank> ranks);

/// The channels with all ranks in place of their representatives.
NodeChannels expand(const PartChannels& part);

/// Turns a topology file into a description of this host: replaces its ranks and NICs by the given
/// ones. A NIC takes the place of the file's first NIC of the same name; otherwise it is placed
/// below the PCI device of its path, or else on the first CPU.
Result<XmlElement> fill_template(XmlElement machine,
                                 std::span<const HostRank> ranks,
                                 std::span<const NetPort> nets);

}  // namespace plexus
