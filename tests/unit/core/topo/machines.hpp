// SPDX-License-Identifier: Apache-2.0
// The machines of fixtures/ for tests.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/topo/machine_xml.hpp"
#include "core/topo/options.hpp"
#include "core/topo/paths.hpp"
#include "core/topo/system.hpp"

namespace plexus::testing {

inline std::string fixture(const std::string& name) {
  return std::string(PLEXUS_TOPO_FIXTURES) + "/" + name;
}

inline std::string read_fixture(const std::string& name) {
  std::ifstream file(fixture(name), std::ios::binary);
  EXPECT_TRUE(file) << name;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Complete descriptions: with GPUs, links and NICs.
inline const std::vector<std::string>& machines() {
  static const std::vector<std::string> names = {
      "aws-g5-completed",     "aws-p4d-completed",    "azure-ncv4",
      "azure-ndv4-completed", "azure-ndv5-completed", "b200-vm-8gpu",
      "dgx1v-reconstructed",  "epyc-2x4090",          "hgx-h800",
      "nvbridge-2xa100",      "pcie-16xl20",          "pcie-4xa6000",
      "pcie-8x3090"};
  return names;
}

inline System load_system(const std::string& machine) {
  Result<XmlElement> xml = read_machine_file(fixture(machine + ".xml"));
  EXPECT_TRUE(xml) << (xml ? "" : xml.error().message());
  Result<System> system = build_system(xml.value());
  EXPECT_TRUE(system) << (system ? "" : system.error().message());
  return std::move(system).value();
}

/// With paths.
inline System load(const std::string& machine, bool inter, const TopoOptions& options = {}) {
  System system = load_system(machine);
  system.inter = inter;
  compute_paths(system, options);
  return system;
}

}  // namespace plexus::testing
