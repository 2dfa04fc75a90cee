// SPDX-License-Identifier: Apache-2.0
// Uses a stand-in for NVML (fake_nvml.c), because most machines that run these tests have no GPU.
#include "core/topo/gpus.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/topo/detect.hpp"
#include "core/topo/machine_xml.hpp"
#include "core/topo/paths.hpp"
#include "core/topo/system.hpp"

namespace plexus::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

GpuList fake_gpus() {
  Result<GpuList> list = find_gpus(PLEXUS_FAKE_NVML);
  EXPECT_TRUE(list) << list.error().message();
  return std::move(list).value();
}

TEST(Gpus, WithoutTheLibraryThereAreNone) {
  const Result<GpuList> list = find_gpus("libplexus-no-such-nvml.so.1");
  ASSERT_TRUE(list) << list.error().message();
  EXPECT_TRUE(list.value().gpus.empty());
}

TEST(Gpus, ThoseThatMayBeUsedAreListedWithTheirLinks) {
  const GpuList list = fake_gpus();
  ASSERT_EQ(list.gpus.size(), 3U);
  EXPECT_EQ(list.gpus[0].bus_id, "0000:fe:10.0");
  EXPECT_EQ(list.gpus[0].sm, 90);
  EXPECT_THAT(list.gpus[0].links, ElementsAre(GpuLink{.target = "0000:fe:11.0", .count = 4},
                                              GpuLink{.target = "0000:dd:00.0", .count = 2}));
  EXPECT_EQ(list.gpus[2].device, 3);
  EXPECT_EQ(list.gpus[2].bus_id, "10000:fe:12.0") << "a long domain keeps its digits";
  EXPECT_EQ(list.gpus[2].sm, 91);
}

TEST(Gpus, PairWithoutPeerAccessIsListedOnce) {
  EXPECT_THAT(fake_gpus().without_p2p, ElementsAre(Pair(1, 3)));
}

TEST(Gpus, DriverThatDoesNotStartIsAnError) {
  setenv("FAKE_NVML_INIT", "9", 1);
  const Result<GpuList> list = find_gpus(PLEXUS_FAKE_NVML);
  unsetenv("FAKE_NVML_INIT");
  ASSERT_FALSE(list);
  EXPECT_THAT(std::string(list.error().message()), HasSubstr("NVML cannot start (9)"));
}

TEST(Gpus, LibraryWithoutTheFunctionsIsAnError) {
  const Result<GpuList> list = find_gpus("libc.so.6");
  ASSERT_FALSE(list);
  EXPECT_THAT(std::string(list.error().message()), HasSubstr("nvml"));
}

TEST(Gpus, EndOfALinkThatNothingShowsIsASwitch) {
  const auto root =
      std::filesystem::temp_directory_path() / ("plexus-gpus-" + std::to_string(getpid()));
  std::filesystem::create_directories(root / "module/nvidia_peermem");
  const GpuList list = fake_gpus();
  const XmlElement bare = describe_gpu(list.gpus[0], list, root.string());
  EXPECT_EQ(*bare.children[0].find("tclass"), "0x030200");
  EXPECT_EQ(*bare.children[1].find("tclass"), "0x068000");
  EXPECT_EQ(*bare.find("gdr"), "1");
  std::filesystem::create_directories(root / "bus/pci/devices/0000:dd:00.0");
  std::ofstream(root / "bus/pci/devices/0000:dd:00.0/class") << "0x068001\n";
  EXPECT_EQ(*describe_gpu(list.gpus[0], list, root.string()).children[1].find("tclass"),
            "0x068001");
  std::filesystem::remove_all(root);
}

TEST(Gpus, DetectedMachineHasThemWithTheirPaths) {
  DetectRequest request;
  request.gpus = fake_gpus();
  Result<XmlElement> machine = detect_machine(request);
  ASSERT_TRUE(machine) << machine.error().message();
  for (XmlElement& pci : machine.value().children.front().children) {
    for (XmlElement& child : pci.children) {
      if (child.tag == "gpu") {
        child.set("rank", *child.find("dev"));
      }
    }
  }
  const Result<XmlElement> again = parse_machine(format_xml(machine.value()));
  ASSERT_TRUE(again) << again.error().message();
  Result<System> built = build_system(again.value());
  ASSERT_TRUE(built) << built.error().message();
  System system = std::move(built).value();
  compute_paths(system, {});
  ASSERT_EQ(system.count(NodeType::kGpu), 3);
  EXPECT_EQ(system.count(NodeType::kNvs), 1);
  EXPECT_EQ(system.path(NodeType::kGpu, 0, NodeType::kGpu, 1).type, PathType::kNvl);
  EXPECT_EQ(system.path(NodeType::kGpu, 0, NodeType::kGpu, 2).type, PathType::kNvl);
}

}  // namespace
}  // namespace plexus::testing
