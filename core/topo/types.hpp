// SPDX-License-Identifier: Apache-2.0
// Types of nodes, links and paths in a machine's graph, with the names and numbers of NCCL's files
// and logs. A path's type is the worst of its links'; a lower number is better.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace plexus {

/// kGpu is a rank, on a GPU or on the host; the device that it computes on is a separate node.
enum class NodeType : uint8_t { kGpu, kPci, kNvs, kCpu, kNic, kNet, kDevice };
inline constexpr int kNodeTypes = 7;

enum class LinkType : uint8_t { kLoc = 0, kNvl = 1, kC2c = 3, kPci = 4, kSys = 9, kNet = 10 };

enum class PathType : uint8_t {
  kLoc = 0,
  kNvl = 1,
  kNvb = 2,  // NVLink through one other GPU
  kC2c = 3,
  kPix = 4,  // at most one PCIe bridge
  kPxb = 5,  // several PCIe bridges, but not the host bridge
  kP2c = 6,  // GPU to its CPU by C2C, then PCIe
  kPxn = 7,  // NVLink to the GPU beside the NIC
  kPhb = 8,  // through the CPU
  kSys = 9,  // across NUMA nodes
  kNet = 10,
  kDis = 11,
};

enum class CpuArch : uint8_t { kX86, kArm, kPower, kOther };
enum class CpuVendor : uint8_t { kIntel, kAmd, kZhaoxin, kOther };

const char* name(NodeType type);
const char* name(LinkType type);
const char* name(PathType type);
std::optional<PathType> find_path_type(std::string_view name);

constexpr PathType worse(PathType left, PathType right) { return left < right ? right : left; }
constexpr PathType next_worse(PathType type) {
  return static_cast<PathType>(static_cast<uint8_t>(type) + 1);
}

}  // namespace plexus
