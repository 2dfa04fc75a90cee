// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/slurm.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/datacenter/fabric_file.hpp"
#include "tools/slurm/hostlist.hpp"

namespace plexus::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Files = std::map<std::string, std::string>;

Result<SlurmFabric> convert(std::string_view text,
                            int depth = 0,
                            const Files& files = {},
                            const std::string& topology = "") {
  const auto read = [&](const std::string& path) -> Result<std::string> {
    const auto found = files.find(path);
    if (found == files.end()) {
      return fail(Code::kInvalidArgument, "cannot read the file '{}'", path);
    }
    return found->second;
  };
  return fabric_file_of_slurm(text, {.path = "etc/t", .depth = depth, .topology = topology}, read);
}

/// host -> datacenter, as the fabric file says it; "-": none.
std::string where(const Result<SlurmFabric>& converted, std::string_view host) {
  if (!converted) {
    return std::string(converted.error().message());
  }
  const FabricFile file = parse_fabric_file(converted.value().text).value();
  const std::string* const datacenter = file.datacenter_of(host);
  return datacenter == nullptr ? "-" : *datacenter;
}

std::string error_of(std::string_view text, const Files& files = {}) {
  const auto converted = convert(text, 0, files);
  return converted ? "no error: " + converted.value().text
                   : std::string(converted.error().message());
}

std::vector<std::string> expand(std::string_view list) {
  std::vector<std::string> names;
  const std::vector<HostEntry> entries = parse_hostlist(list).value();
  for (const HostEntry& entry : entries) {
    EXPECT_TRUE(entry.expand(names, 100));
  }
  return names;
}

TEST(Hostlist, NumbersAreAtLeastAsWideAsTheLowerBound) {
  EXPECT_THAT(expand("a[8-11]"), ElementsAre("a8", "a9", "a10", "a11"));
  EXPECT_THAT(expand("a[099-101,7]"), ElementsAre("a099", "a100", "a101", "a7"));
  EXPECT_THAT(expand("r[1-2]n[0-1]"), ElementsAre("r1n0", "r1n1", "r2n0", "r2n1"));
  EXPECT_THAT(expand("[1-2],b"), ElementsAre("1", "2", "b"));
}

TEST(Hostlist, CommasSpacesAndTabsSeparateOutsideBrackets) {
  EXPECT_THAT(expand(",a,, b[1,3]\tc ,"), ElementsAre("a", "b1", "b3", "c"));
  EXPECT_THAT(expand(""), ElementsAre());
}

TEST(Hostlist, RefusesWhatSlurmRefuses) {
  for (const char* list : {"a[]", "a[x]", "a[3-1]", "a[1,]", "a[-3]", "a[1--3]", "a[0x10]", "a[1]b",
                           "a[0-1]]", "a[0-65536]", "a[x]b[1]"}) {
    EXPECT_FALSE(parse_hostlist(list).has_value()) << list;
  }
  EXPECT_TRUE(parse_hostlist("a[0-65535]").has_value());
}

TEST(Hostlist, WhatIsNotClosedIsANameThatNoHostHas) {
  const HostEntry entry = parse_hostlist("a[0-3").value().front();
  EXPECT_EQ(entry.to_string(), "a]");
  EXPECT_FALSE(entry.may_name_hosts());
}

TEST(Hostlist, ExpansionIsBounded) {
  std::vector<std::string> names;
  EXPECT_FALSE(parse_hostlist("a[0-99]b[0-99]").value().front().expand(names, 9'999));
  EXPECT_TRUE(parse_hostlist("a[0-99]b[0-99]").value().front().expand(names, 10'000));
}

TEST(Slurm, TopSwitchesAreDatacenters) {
  const auto text = convert(R"(# two islands
SwitchName=s0 Nodes=n[00-03]
SwitchName=s1 Nodes=n[04-07]
switchname=s2 nodes=m[1-12],extra
SwitchName=east Switches=s[0-1]
SwitchName=west Switches=s2 LinkSpeed=5
)");
  EXPECT_EQ(where(text, "n05"), "east");
  EXPECT_EQ(where(text, "m12"), "west");
  EXPECT_EQ(where(text, "extra"), "west");
  EXPECT_EQ(where(text, "m13"), "-");
}

TEST(Slurm, SwitchesBelowARootAreDatacentersAtDepthOne) {
  constexpr std::string_view kTree = R"(SwitchName=root Switches=east,west
SwitchName=east Switches=s[0-1]
SwitchName=s0 Nodes=n[00-03]
SwitchName=s1 Nodes=n[04-07]
SwitchName=west Nodes=m[1-4]
)";
  EXPECT_EQ(where(convert(kTree, 0), "m4"), "root");
  EXPECT_EQ(where(convert(kTree, 1), "n05"), "east");
  EXPECT_EQ(where(convert(kTree, 1), "m4"), "west");
  EXPECT_EQ(where(convert(kTree, 2), "n05"), "s1");
  EXPECT_EQ(where(convert(kTree, 16), "m4"), "west");
}

TEST(Slurm, TakesSlurmsSyntax) {
  EXPECT_EQ(where(convert("SwitchName = s0 Nodes\t= a1"), "a1"), "s0");
  EXPECT_EQ(where(convert("SwitchName=\"s0\" Nodes=\"a1 b1\" LinkSpeed=1k"), "b1"), "s0");
  EXPECT_EQ(where(convert("SwitchName=s0 \\\n  Nodes=a1,\\ # more\nb1"), "b1"), "s0");
  EXPECT_EQ(where(convert("SwitchName=s\\#1 Nodes+=a1 # Nodes=b"), "a1"), "s_1");
  EXPECT_EQ(where(convert("SwitchName=s0 Nodes=b1 Nodes=a1"), "a1"), "s0");
  EXPECT_EQ(where(convert("SwitchName=s0 Nodes=a1\r\nSwitchName=s1 Nodes=b1\r\n"), "b1"), "s1");
  const auto open = convert("SwitchName=s0 Nodes=\"a1,a2");
  EXPECT_EQ(where(open, "a1"), "-");
  EXPECT_EQ(where(open, "a2"), "s0");
  EXPECT_THAT(open.value().warnings,
              ElementsAre("etc/t: line 1: '\"a1' names no host, and is left out"));
}

TEST(Slurm, IncludesFilesBesideTheOneThatNamesThem) {
  const Files files = {{"etc/d/one", "SwitchName=s0 Nodes=a1\ninclude two"},
                       {"etc/d/two", "SwitchName=s1 Nodes=b1"},
                       {"/abs", "\nSwitchName=s1 Nodes=c1"},
                       {"etc/self", "Include self"}};
  EXPECT_EQ(where(convert("Include d/one", 0, files), "b1"), "s1");
  EXPECT_THAT(error_of("Include d/one\nInclude /abs", files),
              HasSubstr("/abs: line 2: switch 's1' is given twice"));
  EXPECT_THAT(error_of("\nInclude gone", files),
              HasSubstr("etc/t: line 2: cannot read the file 'etc/gone'"));
  EXPECT_THAT(error_of("Include self", files), HasSubstr("16 deep in each other"));
  EXPECT_THAT(error_of("Include a b"), HasSubstr("not the name of one file"));
  EXPECT_THAT(error_of("Include %c.conf"), HasSubstr("not the name of one file"));
  EXPECT_THAT(error_of(" Include d/one", files), HasSubstr("is not KEY=VALUE"));
}

TEST(Slurm, ErrorsNameTheLineAndWhatIsWrong) {
  constexpr const char* kContinued = "SwitchName=s0 \\\n Nodes=a1\n\nSwitchName=s1 Nodes=b[\\\n]";
  EXPECT_THAT(error_of(kContinued), HasSubstr("etc/t: line 4: '' in 'b[]' is not a range"));
  EXPECT_THAT(error_of("SwitchName=a Switches=b\nSwitchName=b Switches=a"),
              HasSubstr("line 1: switch 'a' is in a circle"));
  EXPECT_THAT(error_of("SwitchName=a Nodes=x\nSwitchName=a Nodes=y"),
              HasSubstr("line 2: switch 'a' is given twice"));
  EXPECT_THAT(error_of("SwitchName=a Nodes=x\nSwitchName=r Switches=a,b"),
              HasSubstr("line 2: switch 'r' has the child 'b', which no SwitchName defines"));
  EXPECT_THAT(error_of("SwitchName=r Switches=r"), HasSubstr("'r', which is itself"));
  EXPECT_THAT(error_of("Nodes=x SwitchName=a"), HasSubstr("begins with SwitchName"));
  EXPECT_THAT(error_of("SwitchName=a Nodes=x Speed=1"), HasSubstr("'Speed=1' has no meaning"));
  EXPECT_THAT(error_of("SwitchName=a Nodes=x LinkSpeed=-1"), HasSubstr("LinkSpeed='-1'"));
  EXPECT_THAT(error_of("SwitchName=a Nodes=x Switches=y"), HasSubstr("and not both"));
  EXPECT_THAT(error_of("SwitchName=a"), HasSubstr("'a' must have Nodes or Switches"));
  EXPECT_THAT(error_of("SwitchName=a Switches=\"\""), HasSubstr("of 'a' is empty"));
  EXPECT_THAT(error_of("SwitchName=a Nodes=x\nSwitchName=r Switches=a[0-65535],b"),
              HasSubstr("more than 65536"));
  EXPECT_THAT(error_of("SwitchName=a Nodes=x\nBlockName=b Nodes=y"),
              HasSubstr("'blockname' among switches"));
  EXPECT_THAT(error_of("# nothing"), HasSubstr("etc/t: there is no switch or block"));
  EXPECT_THAT(error_of("SwitchName=a/1 Nodes=x\nSwitchName=a+1 Nodes=y"),
              HasSubstr("'a/1' and 'a+1' would both become the datacenter 'a_1'"));
}

/// Slurm passes 21 times over the file; each time the parents of what it knows become known.
TEST(Slurm, RefusesADeepTreeThatIsWrittenFromItsRoot) {
  const auto chain = [](int nparents) {
    std::string text;
    for (int at = 0; at < nparents; ++at) {
      text += fmt::format("SwitchName=s{} Switches=s{}\n", at, at + 1);
    }
    return text + fmt::format("SwitchName=s{} Nodes=x\n", nparents);
  };
  EXPECT_EQ(where(convert(chain(21)), "x"), "s0");
  EXPECT_THAT(error_of(chain(22)), HasSubstr("line 1: switch 's0' is in a circle"));
}

TEST(Slurm, ReadsBlocks) {
  const auto text =
      convert("BlockName=b1 Nodes=g[01-18]\nBlockName=b2 Nodes=g[19-36]\nBlockSizes=18,36");
  EXPECT_EQ(where(text, "g18"), "b1");
  EXPECT_EQ(where(text, "g19"), "b2");
  EXPECT_EQ(where(convert("BlockName=b1 Nodes=a1\nBlockName=b2"), "a1"), "b1");
  for (const char* sizes : {"0", "-1", "x", "18,30", "18,54", "2,131072"}) {
    EXPECT_THAT(error_of(fmt::format("BlockName=b Nodes=a\nBlockSizes={}", sizes)),
                HasSubstr("block sizes"));
  }
  EXPECT_THAT(error_of("BlockName=b Nodes=a\nBlockSizes=1 x"), HasSubstr("'x' has no meaning"));
  EXPECT_THAT(error_of("BlockSizes=18"), HasSubstr("there is no block"));
  EXPECT_THAT(error_of("BlockName=b"), HasSubstr("no block has nodes"));
  EXPECT_THAT(error_of("BlockName=b LinkSpeed=1"), HasSubstr("'LinkSpeed=1' has no meaning"));
}

constexpr std::string_view kYaml = R"(---
# two
- topology: racks
  tree:
    switches:
      - {switch: root, children: "s[1-2]"}
      - switch: s1
        nodes: n[01-02]
      - switch: s2
        nodes: n[03-12]
- topology: nvl
  cluster_default: true
  block:
    block_sizes: [18, 36]
    blocks:
      - block: b1
        nodes: n[01-06]
      - block: b2
        nodes: n[07-12]
      - block: b3
- topology: none
  cluster_default: true
  flat: true
)";

TEST(SlurmYaml, TakesTheDefaultOfTheClusterOrTheNamedOne) {
  EXPECT_EQ(where(convert(kYaml), "n07"), "b2");
  EXPECT_EQ(where(convert(kYaml, 0, {}, "racks"), "n07"), "root");
  EXPECT_EQ(where(convert(kYaml, 1, {}, "racks"), "n07"), "s2");
  EXPECT_EQ(where(convert(kYaml, 0, {}, "none"), "n07"),
            "etc/t: line 21: topology 'none' has no tree and no blocks");
  EXPECT_EQ(where(convert(kYaml, 0, {}, "ring"), "n07"),
            "etc/t: there is no topology 'ring' in it");
}

TEST(SlurmYaml, TakesOneTopologyThatIsInNoList) {
  EXPECT_EQ(where(convert("topology: t\ntree: {switches: {switch: s1, nodes: a1}}"), "a1"), "s1");
  EXPECT_EQ(where(convert("{\"topology\": \"t\", \"tree\": {\"switches\": [{\"switch\": \"s1\", "
                          "\"nodes\": \"a1\", \"children\": \"x\", \"color\": \"red\"}]}}"),
                  "a1"),
            "s1");
}

TEST(SlurmYaml, ErrorsNameTheLineAndWhatIsWrong) {
  const auto tree = [](std::string_view switches) {
    return fmt::format("- topology: t\n  tree:\n    switches:\n{}", switches);
  };
  EXPECT_THAT(error_of(tree("    - switch: r\n      children: s0")),
              HasSubstr("etc/t: line 4: switch 'r' has the child 's0'"));
  EXPECT_THAT(error_of(tree("    - nodes: a")), HasSubstr("line 4: 'switch: NAME' is missing"));
  EXPECT_THAT(error_of(tree("    - switch: [a]")), HasSubstr("line 4: 'switch' must be one text"));
  EXPECT_THAT(error_of(tree("    - a")), HasSubstr("line 4: 'switch: ...' is expected"));
  EXPECT_THAT(error_of(tree("    - switch: &x a\n      nodes: *x")),
              HasSubstr("line 5: Slurm takes no aliases"));
  EXPECT_THAT(error_of(tree("    - switch: a\n     nodes: b")), HasSubstr("etc/t: line 5: "));
  EXPECT_THAT(error_of("- topology: t\n  tree: {x: 1}"),
              HasSubstr("'switches', a list, is missing"));
  EXPECT_THAT(
      error_of("- topology: t\n  tree: {switches: [{switch: a, nodes: b}]}\n  block: {blocks: []}"),
      HasSubstr("line 1: a topology has a tree or blocks"));
  EXPECT_THAT(
      error_of("- topology: t\n  block: {block_sizes: [x], blocks: [{block: a, nodes: b}]}"),
      HasSubstr("line 2: 'x' is not a number"));
  EXPECT_THAT(
      error_of("- topology: t\n  block: {block_sizes: [4, 12], blocks: [{block: a, nodes: b}]}"),
      HasSubstr("line 1: block sizes 4,12"));
  EXPECT_THAT(error_of("---\n"), HasSubstr("etc/t: "));
  EXPECT_THAT(error_of(std::string(200, '[')), HasSubstr("too many levels"));
}

}  // namespace
}  // namespace plexus::testing
