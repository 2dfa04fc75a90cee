// SPDX-License-Identifier: Apache-2.0
#include "core/topo/machine_xml.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/topo/machines.hpp"

namespace plexus::testing {
namespace {

using ::testing::HasSubstr;

std::string refusal(std::string_view text) {
  const Result<XmlElement> machine = parse_machine(text);
  return machine ? "taken" : machine.error().message();
}

TEST(MachineXml, EveryMachineAndTemplateRoundTrips) {
  std::vector<std::string> names = machines();
  for (const char* name :
       {"azure-ndv4-topo", "azure-ndv5-topo", "aws-p4d-24xl-topo", "aws-g5.48xl-topo"}) {
    names.emplace_back(name);
  }
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const Result<XmlElement> machine = read_machine_file(fixture(name + ".xml"));
    ASSERT_TRUE(machine) << machine.error().message();
    const Result<XmlElement> again = parse_machine(format_xml(machine.value()));
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_EQ(machine.value(), again.value());
  }
}

TEST(MachineXml, RefusesVersion2OfTheForeignDialect) {
  EXPECT_THAT(refusal(read_fixture("rccl-8xmi300x-topo.xml")),
              HasSubstr("this is RCCL's XML of a topology; NCCL_TOPO_FILE and"));
}

TEST(MachineXml, SaysLineAndReason) {
  EXPECT_THAT(refusal(""), HasSubstr("no element"));
  EXPECT_THAT(refusal("<graphs version=\"1\"/>"),
              HasSubstr("this is NCCL's XML of channels (<graphs>), for NCCL_GRAPH_FILE"));
  EXPECT_THAT(refusal("<system version=\"1\">\n<cpu numaid=\"0\">\n</system>"),
              HasSubstr("line 3"));
  EXPECT_THAT(refusal("<system version=\"1\">\n\n<cpu/></system>"),
              HasSubstr("line 3: <cpu>: the attribute 'numaid' is missing"));
  EXPECT_THAT(refusal("<system version=\"1\">\n<cpu numaid=\"two\"/></system>"),
              HasSubstr("line 2: <cpu>: numaid=\"two\" is not a whole number"));
  EXPECT_THAT(refusal("<system version=\"1\">\n<gpu dev=\"0\"/></system>"),
              HasSubstr("line 2: <gpu> is inside <system>; it belongs inside <pci>"));
  EXPECT_THAT(refusal("<system version=\"1\">words</system>"), HasSubstr("text inside <system>"));
  EXPECT_THAT(refusal("<system version=\"1\" version=\"1\"/>"), HasSubstr("'version' twice"));
  EXPECT_THAT(refusal("<system version=\"1\"/><system version=\"1\"/>"),
              HasSubstr("a second top-level element"));
  EXPECT_THAT(refusal("<system version=\"1\"><cpu numaid=\"0\" host_hash=\"-1\"/></system>"),
              HasSubstr("not a hexadecimal number"));
}

TEST(MachineXml, LeavesOutElementsThatItDoesNotKnow) {
  const Result<XmlElement> machine =
      parse_machine("<system version='1'><cpu numaid='-1'><magic/></cpu></system>");
  ASSERT_TRUE(machine) << machine.error().message();
  EXPECT_EQ(format_xml(machine.value()),
            "<system version=\"1\">\n  <cpu numaid=\"-1\"/>\n</system>\n");
}

TEST(MachineXml, IsNotDeeperThan64Elements) {
  std::string text = "<system version=\"1\"><cpu numaid=\"0\">";
  for (int i = 0; i < 100; ++i) {
    text += "<pci busid=\"" + std::to_string(i) + "\">";
  }
  for (int i = 0; i < 100; ++i) {
    text += "</pci>";
  }
  EXPECT_THAT(refusal(text + "</cpu></system>"), HasSubstr("elements deep"));
}

TEST(MachineXml, NamesTheFileThatCannotBeRead) {
  const Result<XmlElement> machine = read_machine_file("/nonexistent/topology.xml");
  ASSERT_FALSE(machine);
  EXPECT_THAT(machine.error().message(), HasSubstr("/nonexistent/topology.xml"));
}

}  // namespace
}  // namespace plexus::testing
