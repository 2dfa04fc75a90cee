// SPDX-License-Identifier: Apache-2.0
#include "core/base/file_kind.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::HasSubstr;

std::string refusal(std::string_view text, FileKind wanted) {
  const auto checked = check_file_kind(text, wanted);
  return checked ? "" : std::string(checked.error().message());
}

TEST(FileKind, IsKnownByHowAFileBegins) {
  const std::pair<const char*, FileKind> files[] = {
      {"<?xml version=\"1.0\"?>\n<!-- by hand -->\n<system version=\"1\"><cpu/></system>",
       FileKind::kTopology},
      {"<system/>", FileKind::kTopology},
      {"<system version=\"2\">", FileKind::kRcclTopology},
      {"<system version=\"1\"><cpu><xgmi target=\"1\"/></cpu></system>", FileKind::kRcclTopology},
      {"<graphs version=\"1\">", FileKind::kGraphs},
      {"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
       "<topology version=\"2.0\">",
       FileKind::kHwloc},
      {"<algo name=\"x\">", FileKind::kProgram},
      {"{\"format\": \"plexus-program\"}", FileKind::kProgram},
      {"{\"name\": \"x\", \"gpus\": [{\"id\": 0, \"threadblocks\": []}]}", FileKind::kMscclppPlan},
      {"# racks\nSwitchName = s0 Nodes=a", FileKind::kSlurm},
      {"BlockSizes=18", FileKind::kSlurm},
      {"---\n# two\n- topology: t\n  tree:", FileKind::kSlurm},
      {"topology: t", FileKind::kSlurm},
      {"\n host a dc b", FileKind::kFabricFile},
      {"dc a torus size=4", FileKind::kFabricModel},
      {"between a b cables=1", FileKind::kFabricModel},
      {"# mine\nNCCL_DEBUG=WARN", FileKind::kSettings},
      {"", FileKind::kUnknown},
      {"<", FileKind::kUnknown},
      {"<!--", FileKind::kUnknown},
      {"<html>", FileKind::kUnknown},
      {"{}", FileKind::kUnknown},
      {"hosts a", FileKind::kUnknown},
      {"#", FileKind::kUnknown},
      {"A=1", FileKind::kUnknown}};
  for (const auto& [text, kind] : files) {
    EXPECT_EQ(find_file_kind(text), kind) << text;
  }
}

TEST(FileKind, AReaderSaysWhatItGotAndWhatItReads) {
  EXPECT_EQ(refusal("<topology version=\"2.0\">", FileKind::kTopology),
            "this is hwloc's XML of a machine (lstopo); NCCL_TOPO_FILE and `plexus topo` read "
            "NCCL's XML of a topology (<system>)");
  EXPECT_EQ(refusal("- topology: t", FileKind::kFabricFile),
            "this is Slurm's topology.conf or topology.yaml, for `plexus topo slurm`; "
            "PLEXUS_FABRIC_FILE reads a fabric file ('host' and 'link' lines)");
  EXPECT_THAT(refusal("<system version=\"2\">", FileKind::kTopology), HasSubstr("this is RCCL's"));
  EXPECT_EQ(refusal("<system>", FileKind::kTopology), "");
  EXPECT_EQ(refusal("<html>", FileKind::kTopology), "");
}

}  // namespace
}  // namespace plexus
