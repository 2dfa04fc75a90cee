// SPDX-License-Identifier: Apache-2.0
// What falls out of its class. Pure: all ranks come to the same from the same samples.
//
// Links between the same two devices (or two hosts, for memory) count as one. Links of one network
// between the same datacenters are a class; memory of hosts is one. A device is as good as the best
// of its links, so that one bad device does not make the links of the others look bad; the class is
// as good as the median of its devices, of which it needs three. A link is `late` or `slow` when it
// is apart from that by a factor, by several median deviations, and, for latency, by some time; by
// more of each where the ranks had to wait for their cores. What all links of a device have (to two
// others or more, in that direction) is the device's; what all devices of a host have, the host's;
// the rest are links.
//
//   Verdict verdict = judge(join_samples(by_rank), ranks);
//   for (const Finding& found : verdict.findings) { /* found.sentence */ }
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/selftest/link_sample.hpp"

namespace plexus {

enum class LinkFault : uint8_t { kNone, kFailed, kCorrupt, kLate, kSlow };
[[nodiscard]] const char* name(LinkFault fault);

/// One direction.
struct TriedLink {
  int source = 0;
  int target = 0;
  uint32_t channel = 0;
  std::string network = {};  // "": memory
  std::string from = {};     // devices
  std::string to = {};
  double latency_us = 0;
  double gb_per_s = 0;
  double gb_per_s_most = 0;
  double waited = 0;  // for a core, by the end that waited longer, as a share of the time
  uint64_t messages = 0;
  uint64_t corrupt = 0;
  bool failed = false;
  std::string error = {};
  LinkFault fault = LinkFault::kNone;  // filled in by judge()
};
[[nodiscard]] std::vector<TriedLink> join_samples(std::span<const std::vector<LinkSample>> by_rank);
/// The better of two tries of the same links; what failed or was corrupt once stays so.
void keep_better(std::vector<TriedLink>& links, const std::vector<TriedLink>& again);

struct TriedRank {
  uint64_t host = 0;  // hash
  int datacenter = 0;
  std::string name = {};  // "rank 4 (node2:1234)"
};

struct Finding {
  const char* what = "";  // "link", "device", "host"
  LinkFault fault = LinkFault::kNone;
  std::vector<int> ranks = {};  // of a link: source and target
  std::string sentence = {};
};

/// What is usual in a class; zeros: it has too few devices to say.
struct LinkClass {
  double latency_us = 0;
  double gb_per_s = 0;
  size_t devices = 0;
};

struct Verdict {
  std::vector<TriedLink> links;
  std::map<std::string, LinkClass> classes;
  std::vector<Finding> findings;
  /// Something was late or slow, which a busy machine can be as well: try again.
  [[nodiscard]] bool wants_repeat() const;
};
[[nodiscard]] Verdict judge(std::vector<TriedLink> links, std::span<const TriedRank> ranks);

}  // namespace plexus
