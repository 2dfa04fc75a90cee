// SPDX-License-Identifier: Apache-2.0
#include "core/topo/types.hpp"

#include <array>
#include <cstddef>

namespace plexus {
namespace {

constexpr std::array kNodeNames = {"GPU", "PCI", "NVS", "CPU", "NIC", "NET", "DEV"};
constexpr std::array kPathNames = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                   "P2C", "PXN", "PHB", "SYS", "NET", "DIS"};
static_assert(kNodeNames.size() == kNodeTypes);
static_assert(kPathNames.size() == static_cast<size_t>(PathType::kDis) + 1);

}  // namespace

const char* name(NodeType type) { return kNodeNames.at(static_cast<size_t>(type)); }

const char* name(PathType type) { return kPathNames.at(static_cast<size_t>(type)); }

const char* name(LinkType type) {
  switch (type) {
    case LinkType::kPci:
      return "PCI";
    case LinkType::kLoc:
    case LinkType::kNvl:
    case LinkType::kC2c:
    case LinkType::kSys:
    case LinkType::kNet:
      break;
  }
  return kPathNames.at(static_cast<size_t>(type));
}

std::optional<PathType> find_path_type(std::string_view name) {
  for (size_t i = 0; i < kPathNames.size(); ++i) {
    if (name == kPathNames.at(i)) {
      return static_cast<PathType>(i);
    }
  }
  return std::nullopt;
}

}  // namespace plexus
