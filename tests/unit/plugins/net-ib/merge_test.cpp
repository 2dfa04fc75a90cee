// SPDX-License-Identifier: Apache-2.0
// Which ports become one device, over the PCI paths of a host with two sockets:
//   root port - card with two functions
//   root port - switch - two cards, and a second switch - one card
#include "plugins/net-ib/merge.hpp"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::net_ib {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr PciPlace kFunction0 = {"/sys/devices/pci0000:16/0000:16:02.0/0000:17:00.0", 0};
constexpr PciPlace kFunction1 = {"/sys/devices/pci0000:16/0000:16:02.0/0000:17:00.1", 0};
constexpr PciPlace kVirtual = {"/sys/devices/pci0000:16/0000:16:02.0/0000:17:01.2", 0};
constexpr PciPlace kSwitched0 = {
    "/sys/devices/pci0000:30/0000:30:01.0/0000:31:00.0/0000:32:00.0/0000:33:00.0", 0};
constexpr PciPlace kSwitched1 = {
    "/sys/devices/pci0000:30/0000:30:01.0/0000:31:00.0/0000:32:01.0/0000:34:00.0", 0};
constexpr PciPlace kDeeper = {
    "/sys/devices/pci0000:30/0000:30:01.0/0000:31:00.0/0000:32:02.0/0000:35:00.0/0000:36:00.0/"
    "0000:37:00.0",
    0};
constexpr PciPlace kOtherSocket = {"/sys/devices/pci0000:b0/0000:b0:02.0/0000:b1:00.0", 1};
constexpr PciPlace kNone = {"", -1};

TEST(MergeDistance, FunctionsOfOneDeviceAreItsPorts) {
  EXPECT_EQ(distance_between(kFunction0, kFunction1), MergeLevel::kPort);
  EXPECT_EQ(distance_between(kFunction0, kFunction0), MergeLevel::kPort);  // two ports of it
}

TEST(MergeDistance, IsByWhatIsBetween) {
  EXPECT_EQ(distance_between(kFunction0, kVirtual), MergeLevel::kPix);
  EXPECT_EQ(distance_between(kSwitched0, kSwitched1), MergeLevel::kPix);
  EXPECT_EQ(distance_between(kSwitched0, kDeeper), MergeLevel::kPxb);
  EXPECT_EQ(distance_between(kDeeper, kSwitched0), MergeLevel::kPxb);
  EXPECT_EQ(distance_between(kFunction0, kSwitched0), MergeLevel::kPhb);
  EXPECT_EQ(distance_between(kSwitched1, kOtherSocket), MergeLevel::kSys);
}

TEST(MergeDistance, SlotsOfARootComplexAreFunctionsOfNothing) {
  EXPECT_EQ(distance_between({"/sys/devices/pci0000:00/0000:00:05.0", 0},
                             {"/sys/devices/pci0000:00/0000:00:06.0", 0}),
            MergeLevel::kPhb);
}

TEST(MergeDistance, RootComplexesOfOneControllerShareNoSwitch) {
  EXPECT_EQ(distance_between({"/sys/devices/platform/40000000.pcie/pci0000:00/0000:00:05.0", 0},
                             {"/sys/devices/platform/40000000.pcie/pci0001:00/0001:00:06.0", 0}),
            MergeLevel::kPhb);
}

TEST(MergeDistance, NothingIsNearAPortWithoutPath) {
  EXPECT_EQ(distance_between(kNone, kNone), std::nullopt);
  EXPECT_EQ(distance_between(kNone, kFunction0), std::nullopt);
}

/// Ports a, b, .. of the host, as it lists them.
class Merge : public testing::Test {
 protected:
  static constexpr std::array kPlaces = {kOtherSocket, kSwitched0, kDeeper,   kFunction1,
                                         kSwitched1,   kNone,      kFunction0};
  Merge() {
    for (size_t i = 0; i < kPlaces.size(); ++i) {
      ports[i].name = std::string(1, static_cast<char>('a' + i));
      ports[i].pci_path = kPlaces[i].pci_path;
      ports[i].numa_node = kPlaces[i].numa_node;
      ports[i].attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
    }
  }
  [[nodiscard]] std::vector<std::string> merged() const {
    std::vector<const Port*> all;
    for (const Port& port : ports) {
      all.push_back(&port);
    }
    sort_by_pci(all);
    const auto devices = merge_ports(all, settings);
    if (devices.has_error()) {
      return {devices.error().text};
    }
    std::vector<std::string> names;
    for (const Device& device : devices.value()) {
      names.push_back(device.name);
    }
    return names;
  }
  std::array<Port, kPlaces.size()> ports;
  Settings settings;
};

TEST_F(Merge, DevicesAreInTheOrderOfTheirPciPaths) {
  settings.merge_level = MergeLevel::kLoc;
  EXPECT_THAT(merged(), ElementsAre("g", "d", "b", "e", "c", "a", "f"));
}

TEST_F(Merge, LevelSaysHowFarApartPortsOfADeviceMayBe) {
  EXPECT_THAT(merged(), ElementsAre("g+d", "b", "e", "c", "a", "f"));
  settings.merge_level = MergeLevel::kPix;
  EXPECT_THAT(merged(), ElementsAre("g+d", "b+e", "c", "a", "f"));
  settings.merge_level = MergeLevel::kPxb;
  EXPECT_THAT(merged(), ElementsAre("g+d", "b+e+c", "a", "f"));
  settings.merge_level = MergeLevel::kPhb;
  EXPECT_THAT(merged(), ElementsAre("g+d+b+e", "c", "a", "f"));  // four at most
  settings.merge_level = MergeLevel::kSys;
  EXPECT_THAT(merged(), ElementsAre("g+d+b+e", "c+a", "f"));
}

TEST_F(Merge, WhatDiffersStaysApart) {
  settings.merge_level = MergeLevel::kPix;
  ports[6].plane = 1;                                          // g
  ports[1].attributes.link_layer = IBV_LINK_LAYER_INFINIBAND;  // b
  EXPECT_THAT(merged(), ElementsAre("g", "d", "b", "e", "c", "a", "f"));
  ports[6].plane = -1;
  ports[6].fabric_id = 3;
  EXPECT_THAT(merged(), ElementsAre("g", "d", "b", "e", "c", "a", "f"));
}

TEST_F(Merge, RailsStayApartIfThatIsThePolicy) {
  ports[3].rail = 1;  // d
  EXPECT_THAT(merged(), ElementsAre("g+d", "b", "e", "c", "a", "f"));
  settings.keeps_rails_apart = true;
  EXPECT_THAT(merged(), ElementsAre("g", "d", "b", "e", "c", "a", "f"));
}

TEST_F(Merge, NamedGroupsComeFirstAndAreFarApartIfTheUserSaysSo) {
  settings.merged = {{"d", "a"}};
  EXPECT_THAT(merged(), ElementsAre("d+a", "g", "b", "e", "c", "f"));
  settings.merged = {{"d", "z"}};
  EXPECT_THAT(merged(), ElementsAre(HasSubstr("NCCL_NET_FORCE_MERGE names z")));
  settings.merged = {{"d", "a"}};
  ports[0].plane = 2;
  EXPECT_THAT(merged(), ElementsAre(HasSubstr("joins d and a")));
}

}  // namespace
}  // namespace plexus::net_ib
