// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/text.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/topo/machine_xml.hpp"
#include "core/topo/paths.hpp"
#include "tools/cli/topo/json.hpp"

namespace plexus {
namespace {

using ::testing::HasSubstr;

constexpr const char* kMachine = R"(<system version="1">
<cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
  <pci busid="0000:f0:00.0" class="0x060400" link_speed="16 GT/s" link_width="16">
    <pci busid="0000:01:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
      <gpu dev="0" sm="80" rank="0" gdr="1"><nvlink target="0000:02:00.0" count="4" tclass="0x030200"/></gpu>
    </pci>
    <pci busid="0000:02:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
      <gpu dev="1" sm="80" rank="1" gdr="1"><nvlink target="0000:01:00.0" count="4" tclass="0x030200"/></gpu>
    </pci>
    <pci busid="0000:03:00.0" class="0x020000" link_speed="16 GT/s" link_width="16">
      <nic><net name="mlx5_&quot;0&quot;" dev="0" speed="200000" gdr="1"/></nic>
    </pci>
  </pci>
</cpu></system>)";

XmlElement machine() { return parse_machine(kMachine).value(); }

System system_of_machine() {
  System system = build_system(machine()).value();
  compute_paths(system, {});
  return system;
}

TEST(TopoText, TreeShowsWhatHangsOnWhatWithBandwidth) {
  const std::string text = format_machine(system_of_machine());
  EXPECT_THAT(text, HasSubstr("CPU 0 x86_64 Intel\n└─ PCI 0000:f0:00.0  24 GB/s\n"));
  EXPECT_THAT(text, HasSubstr("├─ GPU 0 0000:01:00.0 sm 80  24 GB/s  rank 0  NVL 80 to "
                              "0000:02:00.0\n"));
  EXPECT_THAT(text, HasSubstr("└─ NET 0 mlx5_\"0\"  25 GB/s\n"));
  EXPECT_THAT(text, HasSubstr("rank 0          -     NVL 80"));
  EXPECT_THAT(text, HasSubstr("rank 1     PIX 24"));
}

TEST(TopoText, NumbersHaveNoTrailingZeros) {
  EXPECT_EQ(gb_text(48), "48");
  EXPECT_EQ(gb_text(370.8F), "370.8");
  EXPECT_EQ(gb_text(0.24F), "0.24");
  EXPECT_EQ(gb_text(100), "100");
}

TEST(TopoText, DotHasBoxesLinksAndEveryRingOnce) {
  const System system = system_of_machine();
  const NodeChannels found = search_node(system, {});
  const std::string dot = format_dot(system, &found);
  EXPECT_THAT(dot, HasSubstr("[label=\"NVL 80\" constraint=false]"));
  EXPECT_THAT(dot, HasSubstr("[label=\"rank 1\\nGPU 1 0000:02:00.0 sm 80\""));
  EXPECT_THAT(dot, HasSubstr("[label=\"NET 0 mlx5_\\\"0\\\", 25 GB/s\\nNIC 0000:03:00.0\""));
  EXPECT_EQ(dot.find("LOC"), std::string::npos) << "ranks are in the boxes of their devices";
  EXPECT_THAT(dot, HasSubstr("label=\"ring of channel 0, 1, 2, 3"));
  EXPECT_THAT(dot, HasSubstr("r0_0 -- r0_1 -- r0_2;"));
  EXPECT_EQ(dot.find("cluster_ring1"), std::string::npos) << "it is as that of channel 0";
  EXPECT_EQ(format_dot(system, nullptr).find("cluster"), std::string::npos);
}

TEST(TopoJson, HasEveryChannelOfEveryRank) {
  ClusterRequest request;
  request.machines = 3;
  request.datacenters.of_node = {0, 1, 1};
  const ClusterChannels cluster = plan_cluster(machine(), request).value();
  const auto json = nlohmann::json::parse(format_cluster_json(cluster, 1.5));
  EXPECT_EQ(json["channels"].size(), static_cast<size_t>(cluster.joined.channels()));
  EXPECT_EQ(json["channels"][0]["ring"].size(), 6U);
  EXPECT_EQ(json["channels"][0]["tree"]["up"].size(), 6U);
  EXPECT_EQ(json["channels"][0]["tree"]["down"].size(), 6U);
  EXPECT_EQ(json["graphs"]["ring"]["nchannels"], cluster.joined.search_channels);
  EXPECT_EQ(json["dc_crossings"]["ring"][0], 2);
  EXPECT_EQ(json["dc_crossings"]["tree"][0], 1);
  EXPECT_EQ(json["search_ms"], 1.5);
}

TEST(TopoText, LongRingsAreCut) {
  ClusterRequest request;
  request.machines = 40;
  EXPECT_THAT(format_cluster(plan_cluster(machine(), request).value()),
              HasSubstr("... (80 ranks)"));
}

}  // namespace
}  // namespace plexus
