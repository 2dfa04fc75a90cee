// SPDX-License-Identifier: Apache-2.0
#include "tools/slurm/slurm.hpp"

#include <algorithm>
#include <vector>

#include "core/base/file_kind.hpp"
#include "tools/slurm/yaml.hpp"

namespace plexus {
namespace {

/// Decides by the first line that is more than a comment: topology.conf has KEY=VALUE or Include.
bool is_yaml(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    if (!line.empty() && line.front() != '#') {
      return line.find_first_of("-{[%") == 0 || line.find(':') < line.find('=');
    }
  }
  return false;
}

/// The one that is asked for; else Slurm's choice for a cluster: the first default, else the first.
Result<SlurmTopology> choose(std::vector<SlurmTopology> topologies, const SlurmRequest& request) {
  const std::string& name = request.topology;
  const auto chosen =
      std::find_if(topologies.begin(), topologies.end(), [&](const SlurmTopology& topology) {
        return name.empty() ? topology.is_default : topology.name == name;
      });
  if (chosen != topologies.end()) {
    return std::move(*chosen);
  }
  if (topologies.empty() || !name.empty()) {
    return fail(Code::kInvalidUsage, "{}: there is no topology '{}' in it", request.path, name);
  }
  return std::move(topologies.front());
}

}  // namespace

Result<SlurmFabric> fabric_file_of_slurm(std::string_view text,
                                         const SlurmRequest& request,
                                         const ReadFile& read) {
  if (auto checked = check_file_kind(text, FileKind::kSlurm); !checked) {
    return std::move(checked).error().with_context(request.path);
  }
  std::vector<SlurmTopology> topologies;
  if (is_yaml(text)) {
    PLEXUS_TRY(several, read_topology_yaml(text, request.path));
    topologies = std::move(several);
  } else {
    PLEXUS_TRY(one, read_topology_conf(text, request.path, read));
    topologies.push_back(std::move(one));
  }
  for (const SlurmTopology& topology : topologies) {
    PLEXUS_TRY(check(topology));
  }
  PLEXUS_TRY(topology, choose(std::move(topologies), request));
  if (topology.kind == SlurmTopology::Kind::kOther) {
    return fail(Code::kInvalidUsage, "{}: topology '{}' has no tree and no blocks", topology.where,
                topology.name);
  }
  return make_fabric_file(topology, request.depth);
}

}  // namespace plexus
