// SPDX-License-Identifier: Apache-2.0
// Any bytes as a topology or graph file: refused with a reason, or read, written and read again
// with the same value; small ones are also built into a graph with paths and channels.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/topo/cluster.hpp"
#include "core/topo/graph_file.hpp"
#include "core/topo/machine_xml.hpp"

namespace {

constexpr int kRanksMax = 4;
constexpr int kNodesMax = 24;

void check_round_trip(const plexus::XmlElement& machine) {
  const plexus::Result<plexus::XmlElement> again =
      plexus::parse_machine(plexus::format_xml(machine));
  if (!again || !(again.value() == machine)) {
    std::abort();
  }
}

void check_plan(const plexus::XmlElement& machine) {
  const plexus::Result<plexus::System> system = plexus::build_system(machine);
  if (!system || system.value().count(plexus::NodeType::kGpu) > kRanksMax ||
      system.value().nodes.size() > kNodesMax) {
    return;
  }
  for (const int machines : {1, 3}) {
    plexus::ClusterRequest request;
    request.machines = machines;
    const plexus::Result<plexus::ClusterChannels> planned = plexus::plan_cluster(machine, request);
    if (planned && planned.value().joined.channels() < 1) {
      std::abort();
    }
  }
}

const plexus::System& some_system() {
  static const plexus::System system = [] {
    const plexus::Result<plexus::XmlElement> machine = plexus::parse_machine(
        "<system version='1'><cpu numaid='0'><host rank='0'/><host rank='1'/><nic><net dev='0'/>"
        "</nic></cpu></system>");
    return plexus::build_system(machine.value()).value();
  }();
  return system;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const plexus::Result<plexus::XmlElement> machine = plexus::parse_machine(text);
  if (machine) {
    check_round_trip(machine.value());
    check_plan(machine.value());
  }
  const auto given = plexus::parse_graphs(text, some_system(), {});
  if (given && given.value().ring && given.value().ring->channels() < 1) {
    std::abort();
  }
  return 0;
}
