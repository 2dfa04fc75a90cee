// SPDX-License-Identifier: Apache-2.0
#include "core/topo/graph_file.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/topo/machines.hpp"

namespace plexus::testing {
namespace {

using ::testing::HasSubstr;

void expect_same(const ChannelGraph& left, const ChannelGraph& right) {
  EXPECT_EQ(left.pattern, right.pattern);
  EXPECT_EQ(left.cross_nic, right.cross_nic);
  EXPECT_EQ(left.intra_gb_per_s, right.intra_gb_per_s);
  EXPECT_EQ(left.inter_gb_per_s, right.inter_gb_per_s);
  EXPECT_EQ(left.intra_type, right.intra_type);
  EXPECT_EQ(left.inter_type, right.inter_type);
  EXPECT_EQ(left.same_channels, right.same_channels);
  EXPECT_EQ(left.ranks, right.ranks);
  EXPECT_EQ(left.nets, right.nets);
}

TEST(GraphFile, WhatIsWrittenIsReadBack) {
  for (const std::string& machine : machines()) {
    SCOPED_TRACE(machine);
    const System system = load(machine, machine != "azure-ncv4" && machine != "aws-g5-completed");
    const NodeChannels found = search_node(system, {});
    const Result<GivenChannels> given = parse_graphs(format_graphs(found, system), system, {});
    ASSERT_TRUE(given) << given.error().message();
    expect_same(*given.value().ring, found.ring);
    expect_same(*given.value().tree, found.tree);
    EXPECT_EQ(given.value().nvls.has_value(), found.nvls.channels() > 0);
    expect_same(search_node(system, {}, given.value()).ring, found.ring);
  }
}

TEST(GraphFile, GraphWithoutChannelsIsSearchedFor) {
  const System system = load("pcie-4xa6000", false);
  const Result<GivenChannels> given =
      parse_graphs(read_fixture("pcie-4xa6000-graph.xml"), system, {});
  ASSERT_TRUE(given) << given.error().message();
  EXPECT_TRUE(given.value().ring);
  EXPECT_FALSE(given.value().nvls);
}

TEST(GraphFile, RingsAcrossNicsAreRefusedWithCrossNic0) {
  const System system = load("dgx1v-reconstructed", true);
  NodeChannels found = search_node(system, {});
  found.ring.cross_nic = 1;
  TopoOptions options;
  options.cross_nic = 0;
  EXPECT_FALSE(parse_graphs(format_graphs(found, system), system, options).value().ring);
  EXPECT_TRUE(parse_graphs(format_graphs(found, system), system, {}).value().ring);
}

std::string refusal(const std::string& body, const std::string& attributes = "nchannels=\"1\"") {
  const System system = load("epyc-2x4090", false);
  const Result<GivenChannels> given = parse_graphs(
      "<graphs version=\"1\">\n<graph id=\"0\" pattern=\"4\" crossnic=\"0\" speedintra=\"1\" "
      "speedinter=\"1\" typeintra=\"SYS\" typeinter=\"PIX\" samechannels=\"1\" " +
          attributes + ">\n" + body + "</graph></graphs>",
      system, {});
  return given ? "taken" : given.error().message();
}

TEST(GraphFile, SaysLineAndReason) {
  EXPECT_EQ(refusal("<channel><gpu dev=\"0\"/><gpu dev=\"1\"/></channel>"), "taken");
  EXPECT_THAT(refusal("<channel><gpu dev=\"0\"/></channel>"), HasSubstr("line 3: <channel> has 1"));
  EXPECT_THAT(refusal("<channel><gpu dev=\"0\"/><gpu dev=\"0\"/></channel>"),
              HasSubstr("rank 0 is in the channel twice"));
  EXPECT_THAT(refusal("<channel><gpu dev=\"0\"/><gpu dev=\"0x10\"/></channel>"),
              HasSubstr("no rank here has dev 0x10 (here: rank 0 on dev 0x0, rank 1 on dev 0x1)"));
  EXPECT_THAT(refusal("<channel><net dev=\"9\"/></channel>"),
              HasSubstr("no NIC here has dev 0x9 (here: "));
  EXPECT_THAT(refusal("<channel><gpu dev=\"0\"/><gpu dev=\"1\"/></channel>", "nchannels=\"2\""),
              HasSubstr("has nchannels 2, but lists 1"));
  EXPECT_THAT(refusal(""), HasSubstr("has nchannels 1, but lists 0"));
  EXPECT_THAT(
      parse_graphs("<system version=\"1\"/>", load("epyc-2x4090", false), {}).error().message(),
      HasSubstr("; NCCL_GRAPH_FILE and --graph read NCCL's XML of channels"));
}

}  // namespace
}  // namespace plexus::testing
