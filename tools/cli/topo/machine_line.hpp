// SPDX-License-Identifier: Apache-2.0
// A machine in one line, for predictions of machines that nobody has at hand: GPUs of a node, and
// NICs of a node with the kind of network and the Gbit/s of each.
//
//   PLEXUS_TRY(line, parse_machine_line("8xH100 8xib400"));
//   plan_cluster(describe_machine(line), {.machines = 2});
#pragma once

#include <string>

#include "core/base/result.hpp"
#include "core/topo/xml_tree.hpp"
#include "tools/cli/topo/fitted_times.hpp"

namespace plexus {

struct MachineLine {
  std::string gpu;
  int gpus = 1;
  int sm = 0;
  int nvlinks = 0;   // of each GPU; 0: it has none
  int per_pair = 0;  // NVLinks from each GPU to each other; 0: all of them go to a switch
  int nics = 0;
  int nic_gbit = 0;
  Network network = Network::kInfiniBand;
  bool amd = false;  // CPUs

  /// As the plugin states it to NCCL, whose choices depend on it: aws-ofi-nccl (public, at
  /// 01666ece) has 75 us for EFA up to p5, 35 from p5en on, whose NICs have 200 Gbit/s and more.
  [[nodiscard]] std::string latency_us() const;
};

/// Blanks between: "8xH100", "4xIB200" (kinds: names of `Network`), "mesh6" (six NVLinks between
/// any two GPUs instead of a switch), "amd" (CPUs, else Intel). The first is required.
Result<MachineLine> parse_machine_line(const std::string& text);

/// The node as a topology file would have it: a PCIe switch for each GPU, NICs spread over them.
/// More NICs than GPUs become one per GPU with their rates added up, as plugins and NCCL join them.
XmlElement describe_machine(const MachineLine& line);

}  // namespace plexus
