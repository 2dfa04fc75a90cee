// SPDX-License-Identifier: Apache-2.0
#include "core/setup/machine.hpp"

#include <algorithm>
#include <limits>

#include "core/topo/machine_xml.hpp"
#include "core/topo/part.hpp"

namespace plexus {
namespace {

NetPort port_of(const NetProperties& properties) {
  constexpr uint32_t kSpeedDefault = 10'000;
  const auto number = [](uint32_t value) {
    return static_cast<int>(std::min(value, uint32_t{std::numeric_limits<int>::max()}));
  };
  NetPort port;
  port.name = properties.name;
  port.pci_path = properties.pci_path;
  port.speed_mbit_per_s = number(properties.speed_mbit_per_s.value_or(kSpeedDefault));
  port.port = number(properties.port);
  port.guid = properties.guid.value_or(0);
  port.gdr = (properties.pointer_support & (PLEXUS_MEMORY_CUDA | PLEXUS_MEMORY_DMABUF)) != 0;
  port.connections_max = number(properties.comms_max);
  if (properties.latency) {
    port.latency_us = std::chrono::duration<float, std::micro>(*properties.latency).count();
  }
  port.rail = properties.rail_id ? number(*properties.rail_id) : -1;
  port.plane = properties.plane_id ? number(*properties.plane_id) : -1;
  return port;
}

}  // namespace

std::string describe_topo_file(const Config& config) {
  return config.topo_file.empty() ? "" : describe_setting("NCCL_TOPO_FILE", config.topo_file);
}

Result<XmlElement> describe_host(const std::vector<HostRank>& ranks, const HostSource& source) {
  DetectRequest request;
  request.ranks = ranks;
  for (uint32_t device = 0; source.net != nullptr && device < source.net->device_count();
       ++device) {
    request.nets.push_back(port_of(source.net->properties(device)));
  }
  if (source.config->topo_file.empty()) {
    const bool any_gpu = std::any_of(ranks.begin(), ranks.end(),
                                     [](const HostRank& rank) { return !rank.bus_id.empty(); });
    if (any_gpu) {
      PLEXUS_TRY(gpus, find_gpus());
      request.gpus = std::move(gpus);
    }
    return source.cache->describe(request);
  }
  PLEXUS_TRY(file, read_machine_file(source.config->topo_file, describe_topo_file(*source.config)));
  return fill_template(std::move(file), request.ranks, request.nets);
}

}  // namespace plexus
