// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/template.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/topo/cluster.hpp"
#include "core/topo/machine_xml.hpp"
#include "tools/cli/topo/text.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

constexpr const char* kTemplate = R"(<system version="1">
<cpu numaid="0" affinity="ff" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
  <pci busid="ffff:ff:01.0" class="0x060400" link_speed="16 GT/s" link_width="16">
    <pci busid="0003:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
    <pci busid="0103:00:00.0" class="0x020700" link_speed="16 GT/s" link_width="16"/>
    <pci busid="0001:00:00.0" class="0x030200" link_speed="16 GT/s" link_width="16"/>
  </pci>
</cpu>
</system>)";

TEST(Template, GetsGpusByTheOrderOfBusIdsAndPortsOnItsNetworkCards) {
  TemplateDevices devices{.sm = 0, .nvlinks = 0, .nic_gbit_per_s = 200};
  ASSERT_TRUE(parse_gpus("80:12", &devices));
  const std::string text = format_xml(add_devices(parse_machine(kTemplate).value(), devices));
  EXPECT_LT(text.find("rank=\"1\""), text.find("rank=\"0\""));
  EXPECT_THAT(text,
              HasSubstr("<nvlink target=\"fffffff:ffff:ff\" count=\"12\" tclass=\"0x068000\"/>"));
  EXPECT_THAT(text, HasSubstr("<net name=\"nic0\" dev=\"0\" speed=\"200000\" gdr=\"1\"/>"));
  EXPECT_EQ(format_xml(add_devices(parse_xml(text).value(), devices)), text) << "has them already";
}

TEST(Template, RefusesWhatIsNoGpu) {
  TemplateDevices devices;
  for (const char* text : {"", "a100", "80:", "80:x", "9", "80:0"}) {
    EXPECT_FALSE(parse_gpus(text, &devices)) << text;
  }
}

TEST(Template, AFileMayBeFollowedByANumberOfMachines) {
  const auto parse = [](const char* text) { return parse_machine_file(text).value(); };
  EXPECT_EQ(parse("a.xml").count, 1);
  EXPECT_EQ(parse("a.xml:16").count, 16);
  EXPECT_EQ(parse("a.xml:16").file, "a.xml");
  EXPECT_EQ(parse("dir:x/a.xml").file, "dir:x/a.xml");
  EXPECT_FALSE(parse_machine_file("a.xml:0"));
}

TEST(Template, MachinesOfSeveralKindsAreOneCluster) {
  const auto machine = [](const char* gpus) {
    TemplateDevices devices{.sm = 0, .nvlinks = 0, .nic_gbit_per_s = 200};
    EXPECT_TRUE(parse_gpus(gpus, &devices));
    return add_devices(parse_machine(kTemplate).value(), devices);
  };
  const std::vector<ClusterMachines> kinds = {{.machine = machine("80:12"), .count = 2},
                                              {.machine = machine("90:18"), .count = 1}};
  const ClusterChannels cluster = plan_cluster(kinds, ClusterRequest()).value();
  EXPECT_EQ(cluster.joined.ranks, 6);
  EXPECT_EQ(cluster.kinds, (std::vector<size_t>{0, 1}));
  for (const std::vector<int>& ring : cluster.joined.rings) {
    EXPECT_THAT(ring, testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5));
  }
  EXPECT_THAT(format_cluster(cluster), HasSubstr("Machine 1\nring: "));
}

TEST(Template, AMachineWithoutRanksIsNamed) {
  const std::vector<ClusterMachines> kinds = {
      {.machine = parse_machine(kTemplate).value(), .count = 1, .from = "t.xml"}};
  EXPECT_THAT(plan_cluster(kinds, ClusterRequest()).error().message(),
              HasSubstr("t.xml: the description has no ranks"));
}

}  // namespace
}  // namespace plexus
