// SPDX-License-Identifier: Apache-2.0
#include "core/setup/agreement.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace plexus {
namespace {

struct AgreedSetting {
  const char* name;
  std::string (*value)(const PeerInfo& info);
};

// NCCL_BUFFSIZE, NCCL_MIN_CTAS and NCCL_MAX_CTAS are missing, because ranks may differ in them.
constexpr AgreedSetting kSettings[] = {
    {"NCCL_PROTO", [](const PeerInfo& info) { return std::string(info.protocols); }},
    {"NCCL_ALGO", [](const PeerInfo& info) { return std::string(info.algorithms); }},
    {"PLEXUS_DETERMINISTIC",
     [](const PeerInfo& info) { return std::to_string(info.deterministic); }},
};

/// "rank 3 (node7)" or "ranks 0, 2 (node7) and 5 more": the ranks with `value`, and the first one's
/// host.
std::string list_who_has(std::span<const PeerInfo> infos,
                         const AgreedSetting& setting,
                         const std::string& value) {
  constexpr size_t kNamed = 8;
  std::string ranks;
  const char* host = "";
  size_t count = 0;
  for (size_t rank = 0; rank < infos.size(); ++rank) {
    if (setting.value(infos[rank]) == value && ++count <= kNamed) {
      host = count == 1 ? infos[rank].host : host;
      ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  return fmt::format("rank{} {} ({}){}", count == 1 ? "" : "s", ranks, host,
                     count <= kNamed ? "" : fmt::format(" and {} more", count - kNamed));
}

}  // namespace

Result<void> check_agreement(std::span<const PeerInfo> infos) {
  const PeerInfo& first = infos.front();
  for (size_t rank = 1; rank < infos.size(); ++rank) {
    if (infos[rank].version != first.version) {
      return fail(Code::kInvalidUsage,
                  "rank 0 ({}) runs Plexus {}, rank {} ({}) runs Plexus {}: use the same version "
                  "on all ranks",
                  first.host, first.version, rank, infos[rank].host, infos[rank].version);
    }
  }
  for (const AgreedSetting& setting : kSettings) {
    const std::string one = setting.value(first);
    const auto differs = std::find_if(infos.begin(), infos.end(), [&](const PeerInfo& info) {
      return setting.value(info) != one;
    });
    if (differs != infos.end()) {
      const std::string other = setting.value(*differs);
      return fail(Code::kInvalidUsage,
                  "{} is '{}' on {} and '{}' on {}: set the same value on all ranks (or in "
                  "nccl.conf on all hosts)",
                  setting.name, one, list_who_has(infos, setting, one), other,
                  list_who_has(infos, setting, other));
    }
  }
  return ok();
}

}  // namespace plexus
