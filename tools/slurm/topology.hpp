// SPDX-License-Identifier: Apache-2.0
// What Slurm's topology files say, whatever their syntax: switches (topology/tree) or blocks
// (topology/block) and what is below them; checked as slurmctld checks them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "tools/slurm/hostlist.hpp"

namespace plexus {

struct SlurmTopology {
  enum class Kind : uint8_t { kTree, kBlock, kOther };
  /// A switch or a block.
  struct Group {
    std::string name;
    std::optional<std::string> nodes;  // a list of hosts
    std::optional<std::string> below;  // a list of switches
    std::string where;                 // file and line, for messages
  };
  std::string where;  // as of a group
  std::string name;   // empty: topology.conf, which has but one
  Kind kind = Kind::kTree;
  bool is_default = false;
  std::vector<Group> groups;
  std::vector<int64_t> block_sizes;
};

/// The bytes of a file, with all that it includes.
inline constexpr size_t kSlurmBytesMax = size_t{4} << 20;
/// How many names the lists of switches of one file may have, all together.
inline constexpr size_t kSlurmNamesMax = 65'536;

/// kInvalidUsage: what slurmctld ends with, with the place.
[[nodiscard]] Result<void> check(const SlurmTopology& topology);

struct SlurmFabric {
  std::string text;                   // of a fabric file
  std::vector<std::string> warnings;  // what names no host: Slurm starts with it all the same
};
/// The datacenters are blocks, or switches: those that have `depth` switches above them. `topology`
/// has been checked.
[[nodiscard]] Result<SlurmFabric> make_fabric_file(const SlurmTopology& topology, int depth);

}  // namespace plexus
