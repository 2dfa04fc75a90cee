// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/json.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace plexus {
namespace {

using Json = nlohmann::ordered_json;

/// 20.6 instead of 20.600000381469727.
double rounded(float number) { return std::stod(fmt::format("{}", number)); }

Json json_of(const ChannelGraph& graph, int channels) {
  Json json;
  json["nchannels"] = channels;
  json["pattern"] = static_cast<int>(graph.pattern);
  json["bw_intra"] = rounded(graph.intra_gb_per_s);
  json["bw_inter"] = rounded(graph.inter_gb_per_s);
  json["type_intra"] = name(graph.intra_type);
  json["type_inter"] = name(graph.inter_type);
  json["cross_nic"] = graph.cross_nic;
  json["same_channels"] = graph.same_channels;
  return json;
}

Json json_of(const TreeLinks& tree) {
  Json down = Json::array();
  for (const auto& three : tree.down) {
    Json children = Json::array();
    for (const int child : three) {
      if (child >= 0) {
        children.push_back(child);
      }
    }
    down.push_back(std::move(children));
  }
  Json json;
  json["up"] = tree.up;
  json["down"] = std::move(down);
  return json;
}

}  // namespace

std::string format_cluster_json(const ClusterChannels& cluster, double search_ms) {
  const JoinedChannels& joined = cluster.joined;
  Json json;
  json["graphs"]["ring"] = json_of(joined.ring, joined.search_channels);
  json["graphs"]["tree"] = json_of(joined.tree, joined.search_channels);
  json["channels"] = Json::array();
  for (size_t channel = 0; channel < joined.rings.size(); ++channel) {
    Json one;
    one["ring"] = joined.rings[channel];
    one["tree"] = json_of(joined.trees[channel]);
    json["channels"].push_back(std::move(one));
  }
  json["dc_crossings"]["ring"] = joined.ring_crossings;
  json["dc_crossings"]["tree"] = joined.tree_crossings;
  json["search_ms"] = search_ms;
  return json.dump() + "\n";
}

std::string format_nccl_times_json(const NcclModel& model, const std::vector<size_t>& sizes) {
  Json json;
  json["rows"] = Json::array();
  for (size_t index = 0; index < kNcclCollectives; ++index) {
    const auto collective = static_cast<NcclCollective>(index);
    for (const size_t bytes : sizes) {
      const NcclAlternative& chosen = model.choose(collective, bytes);
      Json row;
      row["collective"] = name(collective);
      row["bytes"] = bytes;
      row["algorithm"] = name(chosen.algorithm);
      row["protocol"] = name(chosen.protocol);
      for (const NcclAlternative& alternative : model.alternatives(collective)) {
        row["time_us"]
           [fmt::format("{}/{}", name(alternative.algorithm), name(alternative.protocol))] =
               model.time_us(collective, alternative, bytes);
      }
      json["rows"].push_back(std::move(row));
    }
  }
  return json.dump() + "\n";
}

}  // namespace plexus
