// SPDX-License-Identifier: Apache-2.0
// Goldens: what release 2.30.7 of NCCL computes for the same machines (fixtures/results). Its
// results were recorded with all NICs on rail 0.
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/topo/join.hpp"
#include "core/topo/search.hpp"
#include "tests/unit/core/topo/machines.hpp"

namespace plexus::testing {
namespace {

using Json = nlohmann::json;

class Reference : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    json_ = Json::parse(read_fixture("results/" + GetParam() + ".json"));
    options_.reach.p2p = json_["case"]["p2pAllowed"] == 1;
    system_ = load_system(json_["case"]["topology"]);
    for (int net = 0; net < system_.count(NodeType::kNet); ++net) {
      system_.node(NodeType::kNet, net).net.rail = 0;
    }
    system_.inter = json_["case"]["nodes"] > 1;
    compute_paths(system_, options_);
  }

  Json matrix(NodeType from, NodeType to) {
    Json rows = Json::array();
    for (int i = 0; i < system_.count(from); ++i) {
      Json row = Json::array();
      for (int j = 0; j < system_.count(to); ++j) {
        const Path& path = system_.path(from, i, to, j);
        row.push_back({name(path.type), path.gb_per_s, path.length()});
      }
      rows.push_back(row);
    }
    return rows;
  }

  void expect_matrix(const char* key, NodeType from, NodeType to) {
    const Json found = matrix(from, to);
    const Json& wanted = json_["system"][key];
    ASSERT_EQ(found.size(), wanted.size()) << key;
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i].size(), wanted[i].size()) << key;
      for (size_t j = 0; j < found[i].size(); ++j) {
        EXPECT_EQ(found[i][j][0], wanted[i][j][0]) << key << " " << i << " " << j;
        EXPECT_FLOAT_EQ(found[i][j][1].get<float>(), wanted[i][j][1].get<float>())
            << key << " " << i << " " << j;
        EXPECT_EQ(found[i][j][2], wanted[i][j][2]) << key << " " << i << " " << j;
      }
    }
  }

  /// The result for several nodes is that for two, so each search runs once for the whole suite.
  const NodeChannels& search() {
    static std::map<std::string, NodeChannels> known;
    const std::string key = fmt::format("{} {} {}", json_["case"]["topology"].get<std::string>(),
                                        system_.inter, options_.reach.p2p);
    const auto found = known.find(key);
    return found != known.end() ? found->second
                                : known.emplace(key, search_node(system_, options_)).first->second;
  }

  Json json_;
  TopoOptions options_;
  System system_;
};

TEST_P(Reference, NodesAndBandwidthsAreTheSame) {
  for (const auto& [key, count] : json_["system"]["counts"].items()) {
    for (int type = 0; type < kNodeTypes; ++type) {
      if (key == name(static_cast<NodeType>(type))) {
        EXPECT_EQ(system_.count(static_cast<NodeType>(type)), count) << key;
      }
    }
  }
  EXPECT_FLOAT_EQ(system_.max_gb_per_s, json_["system"]["maxBw"].get<float>());
  EXPECT_FLOAT_EQ(system_.total_gb_per_s, json_["system"]["totalBw"].get<float>());
}

TEST_P(Reference, PathsAreTheSame) {
  expect_matrix("gpuToGpu", NodeType::kGpu, NodeType::kGpu);
  expect_matrix("gpuToNet", NodeType::kGpu, NodeType::kNet);
  expect_matrix("netToGpu", NodeType::kNet, NodeType::kGpu);
  expect_matrix("gpuToCpu", NodeType::kGpu, NodeType::kCpu);
  expect_matrix("gpuToNvs", NodeType::kGpu, NodeType::kNvs);
}

/// Releases before 2.30 had no nodes for devices, and so fewer hops.
enum class Hops : uint8_t { kSame, kFewer };

void expect_graph(const ChannelGraph& found, const Json& wanted, Hops hops) {
  SCOPED_TRACE(wanted["name"].get<std::string>());
  EXPECT_EQ(static_cast<int>(found.pattern), wanted["pattern"]);
  EXPECT_EQ(found.cross_nic, wanted["crossNic"]);
  EXPECT_EQ(found.channels(), wanted["nChannels"]);
  EXPECT_FLOAT_EQ(found.intra_gb_per_s, wanted["bwIntra"].get<float>());
  EXPECT_FLOAT_EQ(found.inter_gb_per_s, wanted["bwInter"].get<float>());
  EXPECT_EQ(name(found.intra_type), wanted["typeIntra"]);
  EXPECT_EQ(name(found.inter_type), wanted["typeInter"]);
  EXPECT_EQ(found.same_channels, wanted["sameChannels"] == 1);
  if (hops == Hops::kSame) {
    EXPECT_EQ(found.hops, wanted["nHops"]);
  }
  for (size_t i = 0; i < found.ranks.size() && i < wanted["intra"].size(); ++i) {
    std::vector<int> ranks = wanted["intra"][i];
    if (found.pattern == Pattern::kNvls) {
      ranks.resize(1);
    }
    EXPECT_EQ(Json(found.ranks[i]), Json(ranks)) << "channel " << i;
    EXPECT_EQ(Json({found.nets[i].in, found.nets[i].out}), wanted["inter"][i]) << "channel " << i;
  }
}

TEST_P(Reference, ChannelsAreTheSame) {
  const NodeChannels& found = search();
  expect_graph(found.ring, json_["graphs"][0], Hops::kSame);
  expect_graph(found.tree, json_["graphs"][1], Hops::kSame);
  if (json_["graphs"].size() > 2) {
    expect_graph(found.nvls, json_["graphs"][2], Hops::kSame);
  } else {
    EXPECT_EQ(found.nvls.channels(), 0);
  }
}

void expect_trees(const JoinedChannels& joined, const Json& wanted) {
  ASSERT_EQ(joined.trees.size(), wanted.size());
  for (size_t channel = 0; channel < joined.trees.size(); ++channel) {
    const TreeLinks& tree = joined.trees[channel];
    EXPECT_EQ(Json(tree.up), wanted[channel]["up"]) << "channel " << channel;
    std::vector<int> down;
    for (const auto& three : tree.down) {
      down.insert(down.end(), three.begin(), three.end());
    }
    EXPECT_EQ(Json(down), wanted[channel]["down"]) << "channel " << channel;
  }
}

TEST_P(Reference, JoinedRingsAndTreesAreTheSame) {
  const NodeChannels& found = search();
  std::vector<ClusterNode> nodes;
  for (int node = 0; node < json_["case"]["nodes"]; ++node) {
    nodes.push_back({.found = &found,
                     .rank_offset = node * system_.count(NodeType::kGpu),
                     .sm_min = system_.sm_min()});
  }
  const Result<JoinedChannels> joined = join_nodes(nodes, {});
  ASSERT_TRUE(joined) << joined.error().message();
  ASSERT_EQ(joined.value().channels(), json_["nChannels"]);
  EXPECT_EQ(Json(joined.value().rings), json_["rings"]);
  expect_trees(joined.value(), json_["trees"]);
}

/// Release 2.26.2 knows no rails: its rings stay on the adapter by which they entered.
TEST(ReferenceOf226, ChannelsAreTheSameWithUnknownRails) {
  const Json json = Json::parse(read_fixture("results/2.26.2_azure-ndv4-completed_n4_dc2_s1.json"));
  const NodeChannels found = search_node(load("azure-ndv4-completed", true), {});
  expect_graph(found.ring, json["graphs"][0], Hops::kFewer);
  expect_graph(found.tree, json["graphs"][1], Hops::kFewer);
}

/// That release found a tree with a fifth of the speed.
TEST(ReferenceOf226, RingIsTheSameAndTreeFasterOnVirtualNics) {
  const Json json = Json::parse(read_fixture("results/2.26.2_pcie-4xa6000_n5_dc2_s1.json"));
  const NodeChannels found = search_node(load("pcie-4xa6000", true), {});
  expect_graph(found.ring, json["graphs"][0], Hops::kFewer);
  EXPECT_EQ(found.tree.channels(), json["graphs"][1]["nChannels"]);
  EXPECT_FLOAT_EQ(json["graphs"][1]["bwIntra"].get<float>(), 0.24F);
  EXPECT_FLOAT_EQ(found.tree.intra_gb_per_s, 1.2F);
}

/// That release's branch for several datacenters: same rings, same trees, same crossings.
TEST(ReferenceOf226, RingsAndTreesCrossBetweenDatacentersAtTheSameNodes) {
  for (const char* const file :
       {"2.26.2_azure-ndv4-completed_n3_dc3_s1", "2.26.2_azure-ndv4-completed_n4_dc2_s0",
        "2.26.2_azure-ndv4-completed_n4_dc2_s1", "2.26.2_azure-ndv4-completed_n8_dc2_s1",
        "2.26.2_pcie-4xa6000_n5_dc2_s1", "2.26.2_pcie-4xa6000_n16_dc3_s1"}) {
    SCOPED_TRACE(file);
    const Json json = Json::parse(read_fixture(std::string("results/") + file + ".json"));
    const std::string machine = json["case"]["topology"];
    const System system = load(machine, true);
    NodeChannels found = search_node(system, {});
    if (machine == "pcie-4xa6000") {
      found.tree.ranks = json["graphs"][1]["intra"];  // the slower trees of that release
    }
    std::vector<ClusterNode> nodes;
    for (int node = 0; node < json["case"]["nodes"]; ++node) {
      nodes.push_back({.found = &found,
                       .rank_offset = node * system.count(NodeType::kGpu),
                       .sm_min = system.sm_min()});
    }
    JoinOptions options;
    options.datacenters.of_node = json["nodeDc"].get<std::vector<int>>();
    options.datacenters.scatter = json["case"]["scatterXdc"] == 1;
    const Result<JoinedChannels> joined = join_nodes(nodes, options);
    ASSERT_TRUE(joined) << joined.error().message();
    EXPECT_EQ(Json(joined.value().rings), json["rings"]);
    EXPECT_EQ(Json(joined.value().ring_crossings), json["ringInterDcEdges"]);
    EXPECT_EQ(Json(joined.value().tree_crossings), json["treeInterDcEdges"]);
    expect_trees(joined.value(), json["trees"]);
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string text = info.param;
  for (char& character : text) {
    character = std::isalnum(static_cast<unsigned char>(character)) != 0 ? character : '_';
  }
  return text;
}

INSTANTIATE_TEST_SUITE_P(Machines,
                         Reference,
                         ::testing::Values("azure-ndv4-completed_n1",
                                           "azure-ndv4-completed_n2",
                                           "azure-ndv4-completed_n4",
                                           "azure-ndv4-completed_n8",
                                           "dgx1v-reconstructed_n1",
                                           "dgx1v-reconstructed_n2",
                                           "dgx1v-reconstructed_n4",
                                           "hgx-h800_n1",
                                           "hgx-h800_n2",
                                           "hgx-h800_n4",
                                           "pcie-4xa6000_n1",
                                           "pcie-4xa6000_n1_nop2p",
                                           "pcie-4xa6000_n2",
                                           "pcie-4xa6000_n2_nop2p",
                                           "pcie-4xa6000_n4",
                                           "pcie-4xa6000_n4_nop2p",
                                           "pcie-8x3090_n1",
                                           "pcie-8x3090_n1_nop2p",
                                           "pcie-8x3090_n2",
                                           "pcie-8x3090_n2_nop2p",
                                           "pcie-8x3090_n4",
                                           "pcie-8x3090_n4_nop2p"),
                         test_name);

}  // namespace
}  // namespace plexus::testing
