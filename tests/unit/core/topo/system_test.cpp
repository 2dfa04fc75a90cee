// SPDX-License-Identifier: Apache-2.0
// Graph, paths and decisions of small machines that are defined here.
#include "core/topo/system.hpp"

#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/topo/decisions.hpp"
#include "core/topo/local.hpp"
#include "core/topo/search.hpp"
#include "tests/unit/core/topo/broken_gpu.hpp"
#include "tests/unit/core/topo/machines.hpp"

namespace plexus::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kIntel =
    "arch=\"x86_64\" vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"85\"";

Result<System> build(const std::string& body) {
  PLEXUS_TRY(machine, parse_machine("<system version=\"1\">\n" + body + "</system>"));
  return build_system(machine);
}

std::string gpu(int rank, const std::string& inside = "", const std::string& sm = "80") {
  return fmt::format(
      "<pci busid=\"0000:0{0}:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\">"
      "<gpu dev=\"{0}\" sm=\"{2}\" rank=\"{0}\" gdr=\"1\">{1}</gpu></pci>\n",
      rank, inside, sm);
}

std::string nic(int device, const std::string& attributes = "") {
  return fmt::format(
      "<pci busid=\"0000:1{0}:00.0\" class=\"0x020000\" link_speed=\"16 GT/s\" link_width=\"16\">"
      "<nic><net dev=\"{0}\" speed=\"200000\" gdr=\"1\" {1}/></nic></pci>\n",
      device, attributes);
}

std::string cpu(int numa, const std::string& inside) {
  return fmt::format("<cpu numaid=\"{}\" {}>\n{}</cpu>\n", numa, kIntel, inside);
}

std::string bridge(const std::string& inside) {
  return "<pci busid=\"0000:f0:00.0\" class=\"0x060400\" link_speed=\"\" link_width=\"\">" +
         inside + "</pci>";
}

System make(const std::string& body, const TopoOptions& options = {}, bool inter = false) {
  Result<System> system = build(body);
  EXPECT_TRUE(system) << (system ? "" : system.error().message());
  system.value().inter = inter;
  compute_paths(system.value(), options);
  return std::move(system).value();
}

PathType gpu_path(const System& system, int from, int to) {
  return system.path(NodeType::kGpu, from, NodeType::kGpu, to).type;
}

std::string refusal(const std::string& body) {
  const Result<System> system = build(body);
  return system ? "taken" : system.error().message();
}

TEST(System, RefusesNumaNodesAndRanksGivenTwiceAndLinksOfOneDirection) {
  EXPECT_THAT(refusal(cpu(0, "") + cpu(0, "")), HasSubstr("NUMA node 0 is given twice"));
  EXPECT_THAT(refusal(cpu(0, "<host rank=\"0\"/><host rank=\"0\"/>")),
              HasSubstr("rank 0 is negative, too large or given twice"));
  EXPECT_THAT(refusal(cpu(0, gpu(0,
                                 "<nvlink target=\"0000:01:00.0\" count=\"1\" "
                                 "tclass=\"0x030200\"/>") +
                                 gpu(1))),
              HasSubstr("has a NVL link to DEV"));
  EXPECT_THAT(refusal(cpu(0, "<pci busid=\"0\"><gpu rank=\"0\" dev=\"0\"/></pci>")),
              HasSubstr("the attribute 'sm' is missing"));
}

/// As real dumps have them: each process of the job saw the virtual NIC below its own CPU.
TEST(System, PortDescribedBelowEveryCpuIsOnePort) {
  const std::string port = R"(<nic><net name="veth0" dev="0" speed="100000" gdr="0"/></nic>)";
  const System system = make(cpu(0, gpu(0) + port) + cpu(1, gpu(1) + port), {}, true);
  ASSERT_EQ(system.count(NodeType::kNet), 2);
  EXPECT_EQ(system.node(NodeType::kNet, 1).net.first, 0);
  EXPECT_EQ(local_net_of_gpu(system, {}, 1, 0), 0);
  for (const ChannelNets& nets : search_node(system, {}).ring.nets) {
    EXPECT_EQ(nets, (ChannelNets{.in = 0, .out = 0}));
  }
}

TEST(System, BusIdMayBeDescribedTwice) {
  const System ports = make(cpu(0, gpu(0) + nic(0) + nic(0)) + cpu(1, gpu(1) + nic(0)));
  EXPECT_EQ(ports.count(NodeType::kNic), 2) << "one below each CPU";
  EXPECT_EQ(ports.count(NodeType::kNet), 3);
  EXPECT_FLOAT_EQ(ports.path(NodeType::kGpu, 0, NodeType::kNet, 1).gb_per_s, 24);
  EXPECT_EQ(make(cpu(0, bridge(gpu(0)) + bridge(gpu(1)))).count(NodeType::kPci), 2);
}

TEST(System, NvlinkToAGpuOfAnySubclassCounts) {
  const auto link = [](int to) {
    return fmt::format(R"(<nvlink target="0000:0{}:00.0" count="2" tclass="0x038000"/>)", to);
  };
  EXPECT_EQ(gpu_path(make(cpu(0, gpu(0, link(1)) + gpu(1, link(0)))), 0, 1), PathType::kNvl);
}

TEST(System, GpuWithoutRankAndNetWithoutDeviceAreLeftOut) {
  const System system =
      make(cpu(0, gpu(0) + "<pci busid=\"0000:09:00.0\"><gpu dev=\"1\" sm=\"80\" gdr=\"1\"/></pci>"
                           "<pci busid=\"0000:19:00.0\"><nic><net name=\"unused\"/></nic></pci>"));
  EXPECT_EQ(system.count(NodeType::kGpu), 1);
  EXPECT_EQ(system.count(NodeType::kDevice), 1);
  EXPECT_EQ(system.count(NodeType::kNet), 0);
}

TEST(System, TypesOfPathsByWhatLiesBetween) {
  const System system = make(cpu(0, bridge(gpu(0) + gpu(1)) + gpu(2)) + cpu(1, gpu(3)));
  EXPECT_EQ(gpu_path(system, 0, 0), PathType::kLoc);
  EXPECT_EQ(gpu_path(system, 0, 1), PathType::kPix);
  EXPECT_EQ(gpu_path(system, 0, 2), PathType::kPhb);
  EXPECT_EQ(gpu_path(system, 0, 3), PathType::kSys);
  EXPECT_FLOAT_EQ(system.path(NodeType::kGpu, 0, NodeType::kGpu, 3).gb_per_s, 10);
}

TEST(System, TwoRanksOnOneGpuAreLocal) {
  const System system = make(cpu(0,
                                 "<pci busid=\"1\"><gpu dev=\"0\" sm=\"80\" rank=\"0\" gdr=\"1\"/>"
                                 "<gpu dev=\"0\" sm=\"80\" rank=\"1\" gdr=\"1\"/></pci>"));
  EXPECT_EQ(system.count(NodeType::kDevice), 1);
  EXPECT_EQ(gpu_path(system, 0, 1), PathType::kLoc);
}

/// Two GPUs, each with two ranks that both describe its NVLinks and its link to the CPU.
TEST(System, RanksOnOneGpuShareItsLinks) {
  constexpr const char* kLinks =
      "<nvlink target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/>"
      "<c2c bw=\"50000\" count=\"10\"/>";
  const auto shared = [&](int device) {
    std::string text = gpu(2 * device, kLinks, "90");
    const std::string second =
        fmt::format("<gpu dev=\"{}\" sm=\"90\" rank=\"{}\" gdr=\"1\">{}</gpu></pci>", device,
                    2 * device + 1, kLinks);
    return text.replace(text.find("</pci>"), 6, second);
  };
  const std::string machine = cpu(0, shared(0) + shared(1));
  const System system = make(machine);
  EXPECT_FLOAT_EQ(system.path(NodeType::kGpu, 1, NodeType::kGpu, 2).gb_per_s, 18 * 20.6F);
  EXPECT_FLOAT_EQ(system.path(NodeType::kGpu, 1, NodeType::kCpu, 0).gb_per_s, 500);
  TopoOptions no_access;
  no_access.reach.p2p = false;
  const System apart = make(machine, no_access);
  EXPECT_EQ(gpu_path(apart, 0, 1), PathType::kLoc);
  EXPECT_EQ(gpu_path(apart, 0, 2), PathType::kC2c);
  EXPECT_EQ(search_node(system, {}).ring.channels(), 12) << "as NCCL";
}

TEST(System, RefusesPartsOfAGpu) {
  EXPECT_THAT(refusal(cpu(0,
                          "<pci busid=\"1\">\n<gpu dev=\"0\" sm=\"107\" mlopart=\"1\" rank=\"1\" "
                          "gdr=\"1\"/></pci>")),
              HasSubstr("line 4: <gpu>: mlopart=\"1\": GPUs that are split"));
}

TEST(System, HostRanksReachEachOtherThroughTheirCpus) {
  const System system = make(cpu(0, "<host rank=\"0\"/><host rank=\"1\" bw=\"25000\"/>") +
                                 cpu(1, "<host rank=\"2\"/>" + nic(0)),
                             {}, true);
  EXPECT_EQ(gpu_path(system, 0, 1), PathType::kPhb);
  EXPECT_EQ(gpu_path(system, 0, 2), PathType::kSys);
  EXPECT_EQ(system.path(NodeType::kGpu, 2, NodeType::kNet, 0).type, PathType::kPhb);
  const NodeChannels found = search_node(system, {});
  EXPECT_GE(found.ring.channels(), 1);
  EXPECT_EQ(found.ring.ranks.front().size(), 3U);
}

TEST(Decisions, PeerAccessStopsAtTheHostBridgeUnlessAsked) {
  const std::string machine = cpu(0, bridge(gpu(0) + gpu(1)) + gpu(2));
  const System system = make(machine);
  EXPECT_TRUE(p2p_allowed(system, {}, 0, 1));
  EXPECT_FALSE(p2p_allowed(system, {}, 0, 2));
  TopoOptions far;
  far.p2p_level = PathType::kSys;
  EXPECT_TRUE(p2p_allowed(system, far, 0, 2));
  TopoOptions disabled;
  disabled.p2p_level = PathType::kLoc;
  EXPECT_FALSE(p2p_allowed(system, disabled, 0, 1));
  TopoOptions broken;
  broken.reach.without_p2p = {{0, 1}};
  EXPECT_FALSE(p2p_allowed(system, broken, 1, 0));
  EXPECT_EQ(gpu_path(make(machine, broken), 0, 1), PathType::kPhb);
}

TEST(Decisions, TwoGpusOnAmdReachEachOtherAtAnyDistance) {
  const std::string amd = "arch=\"x86_64\" vendor=\"AuthenticAMD\"";
  const System system =
      make(fmt::format("<cpu numaid=\"0\" {0}>{1}</cpu><cpu numaid=\"1\" {0}>{2}"
                       "</cpu>",
                       amd, gpu(0), gpu(1)));
  EXPECT_TRUE(p2p_allowed(system, {}, 0, 1));
}

TEST(Decisions, WithoutPeerAccessAndSharedMemoryTheNetworkRemains) {
  TopoOptions options;
  options.reach.without_p2p = {{0, 1}};
  options.shm_disable = true;
  const System system = make(cpu(0, bridge(gpu(0) + gpu(1))), options);
  EXPECT_EQ(gpu_path(system, 0, 1), PathType::kNet);
  EXPECT_EQ(split_by_reach(system, options, false).size(), 2U);
}

std::vector<std::vector<int>> ranks_of(const std::vector<System>& parts) {
  std::vector<std::vector<int>> ranks;
  for (const System& part : parts) {
    ranks.emplace_back();
    for (int ordinal = 0; ordinal < part.count(NodeType::kGpu); ++ordinal) {
      ranks.back().push_back(part.node(NodeType::kGpu, ordinal).rank.rank);
    }
  }
  return ranks;
}

std::vector<System> split(const std::string& machine) {
  const Result<System> system = build_system(parse_machine(machine).value());
  EXPECT_TRUE(system) << system.error().message();
  return split_by_reach(system.value(), {}, true);
}

TEST(Split, GpuThatLostItsNvlinksIsLeftOutThoughALaterOneReachesIt) {
  const std::vector<System> parts = split(machine_with_broken_gpu(2));
  EXPECT_THAT(ranks_of(parts), ElementsAre(ElementsAre(0, 1, 3), ElementsAre(2)));
  EXPECT_GE(search_node(parts.front(), {}).ring.channels(), 2);
  EXPECT_EQ(search_node(parts.front(), {}).ring.intra_type, PathType::kNvl);
  EXPECT_THAT(nvlink_warnings(parts), ElementsAre(HasSubstr("GPU 2 (0000:12:00.0, rank 2)")));
}

TEST(Split, GpuThatLostItsNvlinksStaysWhereItReachesOneBeforeIt) {
  const std::vector<System> parts = split(machine_with_broken_gpu(3));
  EXPECT_THAT(ranks_of(parts), ElementsAre(ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(nvlink_warnings(parts), ElementsAre(HasSubstr("GPU 3 (0000:13:00.0, rank 3)")));
}

TEST(Split, MachinesWhoseGpusAreAlikeGiveNoWarning) {
  for (const std::string& machine : machines()) {
    EXPECT_THAT(nvlink_warnings(split_by_reach(load_system(machine), {}, true)), IsEmpty())
        << machine;
  }
}

TEST(Decisions, GdrFollowsDistanceCapabilityAndOverride) {
  const System system = make(cpu(0, bridge(gpu(0) + nic(0)) + gpu(1)), {}, true);
  EXPECT_EQ(gdr_use(system, {}, 0, 0, false), GdrUse::kOn);
  EXPECT_EQ(gdr_use(system, {}, 1, 0, false), GdrUse::kOff);
  TopoOptions far;
  far.net_gdr_level = PathType::kPhb;
  EXPECT_EQ(gdr_use(system, far, 1, 0, false), GdrUse::kOn);
  TopoOptions none;
  none.reach.gdr = false;
  EXPECT_EQ(gdr_use(system, none, 0, 0, false), GdrUse::kOff);
  EXPECT_EQ(make(cpu(0, bridge(gpu(0) + nic(0))), none, true)
                .path(NodeType::kNet, 0, NodeType::kGpu, 0)
                .type,
            PathType::kPhb);
}

TEST(Decisions, GpusFromAmpereOnAreReadByNicsUnlessThatIsSwitchedOff) {
  for (const char* const sm : {"80", "90"}) {
    const System pair = make(cpu(0, bridge(gpu(0, "", sm) + gpu(1, "", sm) + nic(0))), {}, true);
    EXPECT_EQ(gdr_use(pair, {}, 0, 0, true), GdrUse::kOn) << sm;
    TopoOptions write_only;
    write_only.net_gdr_read = false;
    EXPECT_EQ(gdr_use(pair, write_only, 0, 0, true), GdrUse::kOff) << sm;
    EXPECT_EQ(gdr_use(pair, write_only, 0, 0, false), GdrUse::kOn) << sm;
  }
}

TEST(Decisions, ReceiversReadOverNvlinkBetweenGpusOfCapability80) {
  constexpr const char* kNvlink =
      "<nvlink target=\"fffffff:ff:ff.0\" count=\"12\" tclass=\"0x068000\"/>";
  const auto pair = [&](const char* links, const char* first, const char* second) {
    return make(cpu(0, gpu(0, links, first) + gpu(1, links, second)));
  };
  EXPECT_TRUE(p2p_reads(pair(kNvlink, "80", "80"), 0, 1));
  EXPECT_FALSE(p2p_reads(pair(kNvlink, "80", "90"), 0, 1));
  EXPECT_FALSE(p2p_reads(pair(kNvlink, "90", "80"), 0, 1));
  EXPECT_FALSE(p2p_reads(pair("", "80", "80"), 0, 1)) << "over PCI";
}

TEST(Decisions, OldGpusAreReadByNicsOnlyWithNvlinkOrAlone) {
  const System pair = make(cpu(0, bridge(gpu(0, "", "70") + gpu(1, "", "70") + nic(0))), {}, true);
  EXPECT_EQ(gdr_use(pair, {}, 0, 0, true), GdrUse::kOff);
  EXPECT_EQ(gdr_use(pair, {}, 0, 0, false), GdrUse::kOn);
  TopoOptions read;
  read.net_gdr_read = true;
  EXPECT_EQ(gdr_use(pair, read, 0, 0, true), GdrUse::kOn);
  const System alone = make(cpu(0, bridge(gpu(0, "", "70") + nic(0))), {}, true);
  EXPECT_EQ(gdr_use(alone, {}, 0, 0, true), GdrUse::kOn);
}

std::string nvlink(int to) {
  return fmt::format("<nvlink target=\"0000:0{}:00.0\" count=\"2\" tclass=\"0x030200\"/>", to);
}

TEST(Paths, GpuSendsThroughItsNeighbourBesideTheNic) {
  const std::string machine = cpu(0, bridge(gpu(0, nvlink(1)) + nic(0)) + gpu(1, nvlink(0)));
  EXPECT_EQ(make(machine, {}, true).path(NodeType::kGpu, 1, NodeType::kNet, 0).type,
            PathType::kPxn);
  EXPECT_EQ(make(machine, {}, true).path(NodeType::kNet, 0, NodeType::kGpu, 1).type,
            PathType::kPhb);
  TopoOptions options;
  options.pxn_disable = true;
  EXPECT_EQ(make(machine, options, true).path(NodeType::kGpu, 1, NodeType::kNet, 0).type,
            PathType::kPhb);
}

TEST(Paths, NvlinkThroughOneGpuButNotTwo) {
  const std::string machine = cpu(0, gpu(0, nvlink(1)) + gpu(1, nvlink(0) + nvlink(2)) +
                                         gpu(2, nvlink(1) + nvlink(3)) + gpu(3, nvlink(2)));
  const System system = make(machine);
  EXPECT_EQ(gpu_path(system, 0, 1), PathType::kNvl);
  EXPECT_EQ(gpu_path(system, 0, 2), PathType::kNvb);
  EXPECT_EQ(gpu_path(system, 0, 3), PathType::kPhb);
  TopoOptions options;
  options.nvb_disable = true;
  EXPECT_EQ(gpu_path(make(machine, options), 0, 2), PathType::kPhb);
}

std::string c2c() { return R"(<c2c bw="90000" count="2"/>)"; }

TEST(Paths, ChipToChipLinkBringsTheNicOfTheCpuNear) {
  const System system = make(cpu(0, gpu(0, c2c(), "90") + nic(0)), {}, true);
  EXPECT_EQ(system.path(NodeType::kGpu, 0, NodeType::kCpu, 0).type, PathType::kC2c);
  EXPECT_FLOAT_EQ(system.path(NodeType::kGpu, 0, NodeType::kCpu, 0).gb_per_s, 180);
  EXPECT_EQ(system.path(NodeType::kGpu, 0, NodeType::kNet, 0).type, PathType::kP2c);
}

/// The detour over the CPU is C2C and then PCIe, as the direct path is.
TEST(Paths, ChipToChipLinkKeepsTheNicNearWithoutGdr) {
  TopoOptions options;
  options.reach.gdr = false;
  const System system = make(cpu(0, gpu(0, c2c() + nvlink(1), "90") + nic(0)) +
                                 cpu(1, gpu(1, c2c() + nvlink(0), "90") + nic(1)),
                             options, true);
  EXPECT_EQ(system.path(NodeType::kGpu, 0, NodeType::kNet, 0).type, PathType::kP2c);
  EXPECT_EQ(system.path(NodeType::kNet, 0, NodeType::kGpu, 0).type, PathType::kP2c);
  const NodeChannels found = search_node(system, options);
  EXPECT_EQ(found.ring.inter_type, PathType::kP2c);
  EXPECT_EQ(found.tree.inter_type, PathType::kP2c);
}

/// From NVIDIA/nccl issue 1358: two GPUs on two sockets of Skylake class.
TEST(Search, TwoGpusOnTwoSocketsGetOneChannelOf10) {
  const NodeChannels found = search_node(make(cpu(0, gpu(0)) + cpu(1, gpu(1))), {});
  EXPECT_EQ(found.ring.channels(), 1);
  EXPECT_FLOAT_EQ(found.ring.intra_gb_per_s, 10);
  EXPECT_EQ(found.ring.intra_type, PathType::kSys);
  EXPECT_EQ(found.ring.inter_type, PathType::kPix);
}

/// From a log of a release with at most 16 channels: all channels, at the highest speed.
TEST(Search, OneGpuAloneGetsAllChannelsAtTheHighestSpeed) {
  const ChannelGraph ring = search_node(make(cpu(0, gpu(0))), {}).ring;
  EXPECT_EQ(ring.channels(), 32);
  EXPECT_FLOAT_EQ(ring.intra_gb_per_s, 40);
  EXPECT_TRUE(ring.same_channels);
  EXPECT_EQ(ring.intra_type, PathType::kLoc);
}

/// From a public log: one GPU in each node, a NIC of 2.5 Gb/s.
TEST(Search, OneGpuPerNodeWithASlowNic) {
  const std::string slow = "<nic><net dev=\"0\" speed=\"2500\" gdr=\"0\"/></nic>";
  const NodeChannels found = search_node(make(cpu(0, gpu(0) + slow), {}, true), {});
  EXPECT_FLOAT_EQ(found.ring.intra_gb_per_s, 0.24F);
  EXPECT_FLOAT_EQ(found.ring.inter_gb_per_s, 0.24F);
  EXPECT_EQ(found.ring.inter_type, PathType::kPhb);
  EXPECT_EQ(found.tree.pattern, Pattern::kTree);
  EXPECT_FLOAT_EQ(found.tree.intra_gb_per_s, 1.2F);
  EXPECT_FLOAT_EQ(found.tree.inter_gb_per_s, 0.24F);
}

/// Bandwidth of half a lane, which is below the lowest speed that is tried.
TEST(Search, FallsBackToOneChannelInOrderOfDevices) {
  const auto thin = [](int rank) {
    return fmt::format(
        "<pci busid=\"{0}\" link_speed=\"2.5 GT/s\" link_width=\"1\"><gpu dev=\"{0}\" sm=\"80\" "
        "rank=\"{0}\" gdr=\"1\"/></pci>",
        rank);
  };
  const NodeChannels found = search_node(make(cpu(0, thin(0) + thin(1) + thin(2))), {});
  EXPECT_EQ(found.ring.ranks, (std::vector<std::vector<int>>{{0, 1, 2}}));
  EXPECT_FLOAT_EQ(found.ring.intra_gb_per_s, 0.1F);
  EXPECT_EQ(found.ring.intra_type, PathType::kSys);
  EXPECT_EQ(found.tree.ranks, found.ring.ranks);
}

/// The wider NIC is at GPU 0 but far from it, the other one near GPU 1. As the first NIC with a
/// free GPU decides, both GPUs become heads at the far type, not GPU 1 alone at the near one.
TEST(Search, NvlsHeadIsTheGpuOfTheFirstNicThatHasAFreeOne) {
  const auto plug = [](int bus, const char* speed, const std::string& inside) {
    return fmt::format(R"(<pci busid="0000:{}:00.0" link_speed="{}" link_width="16">{}</pci>)", bus,
                       speed, inside);
  };
  const auto on_switch = [](int rank) {
    return fmt::format(
        R"(<gpu dev="{0}" sm="90" rank="{0}" gdr="1"><nvlink target="ffff:ff:ff.0" count="18" )"
        R"(tclass="0x068000"/></gpu>)",
        rank);
  };
  const auto port = [](int device, int mbit_per_s) {
    return fmt::format(R"(<nic><net dev="{}" speed="{}" gdr="1"/></nic>)", device, mbit_per_s);
  };
  const System system = make(
      cpu(0, plug(1, "32 GT/s", on_switch(0)) + plug(2, "32 GT/s", port(0, 200'000)) +
                 bridge(plug(3, "16 GT/s", on_switch(1)) + plug(4, "16 GT/s", port(1, 200'000)))),
      {}, true);
  const ChannelGraph nvls = search_node(system, {}).nvls;
  EXPECT_THAT(nvls.ranks, ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_EQ(nvls.inter_type, PathType::kPhb);
}

/// GPU 0 sends 3 GB/s to the NIC and 7 to GPU 1: with Intel's overhead 3.6 and 8.4 of its 12.
/// Two GPUs and two NICs, too narrow for any speed that is tried. The NICs are those of channel 0
/// of the first and of the last rank, in one node too.
TEST(Search, FallBackNamesTheNicsOfTheFirstAndTheLastRank) {
  const auto thin = [](int rank) {
    return fmt::format(
        R"(<pci busid="{0}" link_speed="2.5 GT/s" link_width="1"><gpu dev="{0}" sm="80" rank="{0}" )"
        R"(gdr="1"/></pci><nic><net dev="{0}" speed="100"/></nic>)",
        rank);
  };
  for (const bool inter : {false, true}) {
    const ChannelGraph ring = search_node(make(cpu(0, thin(0) + thin(1)), {}, inter), {}).ring;
    EXPECT_FLOAT_EQ(ring.intra_gb_per_s, 0.1F) << inter;
    EXPECT_THAT(ring.nets, ElementsAre(ChannelNets{.in = 0, .out = 1})) << inter;
  }
}

TEST(Split, DevicesOfOtherPartsCountInTheTotalBandwidth) {
  const std::vector<System> parts = split(machine_with_broken_gpu(2));
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[1].count(NodeType::kDevice), 4);
  EXPECT_FLOAT_EQ(parts[1].total_gb_per_s, 240) << "of the NVLinks that its own GPU has not";
}

TEST(Search, OverheadOfIntelIsExactlyAFifth) {
  const auto gen3_gpu = [](int rank) {
    return fmt::format(R"(<pci busid="0000:0{0}:00.0" link_speed="8 GT/s" link_width="16">)"
                       R"(<gpu dev="{0}" sm="80" rank="{0}" gdr="1"/></pci>)",
                       rank);
  };
  const System system =
      make(cpu(0, gen3_gpu(0) + gen3_gpu(1) + R"(<nic><net dev="0" speed="48000" gdr="0"/></nic>)"),
           {}, true);
  const ChannelGraph tree = search_node(system, {}).tree;
  EXPECT_EQ(tree.pattern, Pattern::kBalancedTree);
  EXPECT_EQ(tree.channels(), 1);
  EXPECT_FLOAT_EQ(tree.inter_gb_per_s, 6);
  EXPECT_FLOAT_EQ(tree.intra_gb_per_s, 7);
}

/// GPU 2 has one NVLink, slower than its NIC and that of GPU 0: the two would use the network. But
/// GPU 1, whose NIC is slow, holds all three together, so that there are no two islands of NVLink,
/// between which a ring would need two channels.
TEST(Search, NvlinkFromOneGpuToTheNextIsOneIsland) {
  const auto socket = [](int rank, int nvlinks, int nic_lanes) {
    return fmt::format(
        R"(<pci busid="0000:{0}0:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" )"
        R"(link_width="16"><pci busid="0000:{0}1:00.0" class="0x030200" )"
        R"(link_speed="32.0 GT/s PCIe" link_width="16"><gpu dev="{0}" sm="90" rank="{0}" gdr="1">)"
        R"(<nvlink target="fffffff:ff:ff.0" count="{1}" tclass="0x068000"/></gpu></pci>)"
        R"(<pci busid="0000:{0}2:00.0" class="0x020000" link_speed="32.0 GT/s PCIe" )"
        R"(link_width="{2}"><nic><net dev="{0}" speed="800000" guid="{0}" gdr="1"/></nic></pci>)"
        R"(</pci>)",
        rank, nvlinks, nic_lanes);
  };
  const System system =
      make(cpu(0, socket(0, 18, 16) + socket(1, 18, 1)) + cpu(1, socket(2, 1, 16)));
  ASSERT_EQ(gpu_path(system, 0, 2), PathType::kNet);
  ASSERT_EQ(gpu_path(system, 1, 2), PathType::kNvl);
  for (const ChannelGraph& graph : {search_node(system, {}).ring, search_node(system, {}).tree}) {
    EXPECT_EQ(graph.channels(), 1);
    EXPECT_FLOAT_EQ(graph.intra_gb_per_s, 20);
  }
}

TEST(Search, RailsWinOverAdaptersWithoutCrossNic) {
  TopoOptions options;
  options.cross_nic = 0;
  options.pxn_disable = true;
  const auto nets = [&](const std::string& rail_of_0, const std::string& rail_of_1) {
    const std::string machine =
        cpu(0, bridge(gpu(0) + nic(0, rail_of_0))) +
        cpu(1, "<pci busid=\"0000:f1:00.0\">" + gpu(1) + nic(1, rail_of_1) + "</pci>");
    return search_node(make(machine, options, true), options).ring.nets[0];
  };
  const ChannelNets same = nets("rail=\"0\"", "rail=\"0\"");
  EXPECT_NE(same.in, same.out);
  const ChannelNets other = nets("rail=\"0\"", "rail=\"1\"");
  EXPECT_EQ(other.in, other.out);
  const ChannelNets unknown = nets("", "");
  EXPECT_EQ(unknown.in, unknown.out);
}

}  // namespace
}  // namespace plexus::testing
