// SPDX-License-Identifier: Apache-2.0
// Topology files without GPUs, as cloud providers publish them: the devices that NCCL would find on
// such a machine are added as the user describes them.
#pragma once

#include <string>

#include "core/base/result.hpp"
#include "core/topo/xml_tree.hpp"

namespace plexus {

struct TemplateDevices {
  int sm = 0;              // of each GPU: compute capability times 10; 0: none are added
  int nvlinks = 0;         // of each GPU, to a switch
  int nic_gbit_per_s = 0;  // of each network card; 0: none are added
};

/// "90:18": the capability of GPUs, and their NVLinks, if any.
Result<void> parse_gpus(const std::string& text, TemplateDevices* devices);

/// Gives every <pci> of a GPU's class that has no <gpu> one with a rank, by the order of bus ids,
/// and every one of a network card's class that has no <nic> a port.
XmlElement add_devices(XmlElement machine, const TemplateDevices& devices);

/// "FILE" or "FILE:COUNT": a description, and how many such machines there are.
struct MachineFile {
  std::string file;
  int count = 1;
};
Result<MachineFile> parse_machine_file(const std::string& text);

}  // namespace plexus
