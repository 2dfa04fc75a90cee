// SPDX-License-Identifier: Apache-2.0
#include "core/setup/agreement.hpp"

#include <algorithm>
#include <string>

#include <fmt/format.h>

namespace plexus {
namespace {

struct AgreedSetting {
  const char* name;
  uint64_t (*value)(const PeerInfo& info);
  std::string Config::*text;  // what `value` is the hash of; nullptr: it is the value itself
  const char* advice = "set the same value on all ranks (or in nccl.conf on all hosts)";
};

// NCCL_BUFFSIZE, NCCL_MIN_CTAS, NCCL_MAX_CTAS and NCCL_NCHANNELS_PER_NET_PEER are missing, because
// ranks may differ in them.
constexpr AgreedSetting kSettings[] = {
    {"NCCL_PROTO", [](const PeerInfo& info) { return info.protocols; }, &Config::proto},
    {"NCCL_ALGO", [](const PeerInfo& info) { return info.algorithms; }, &Config::algo},
    {"the hash of the files in PLEXUS_PROGRAM_PATH",
     [](const PeerInfo& info) { return info.programs; }, nullptr, "give all ranks the same files"},
    {"PLEXUS_DETERMINISTIC", [](const PeerInfo& info) { return uint64_t{info.deterministic}; },
     nullptr},
    {"PLEXUS_ATTACH_BYTES",
     [](const PeerInfo& info) { return static_cast<uint64_t>(info.attach_bytes); }, nullptr},
    {"PLEXUS_NET_CHECKSUM", [](const PeerInfo& info) { return uint64_t{info.net_checksum}; },
     nullptr},
    {"PLEXUS_SELFTEST", [](const PeerInfo& info) { return uint64_t{info.selftest}; }, nullptr},
};

/// "rank 3 (node7)" or "ranks 0, 2 (node7) and 5 more": the ranks with `value`, and the first one's
/// host.
std::string list_who_has(std::span<const PeerInfo> infos,
                         const AgreedSetting& setting,
                         uint64_t value) {
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

Result<void> check_agreement(std::span<const PeerInfo> infos,
                             const Config& config,
                             const std::function<Result<Gathered>(const std::string&)>& gather) {
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
    const uint64_t one = setting.value(first);
    const auto differs = std::find_if(infos.begin(), infos.end(), [&](const PeerInfo& info) {
      return setting.value(info) != one;
    });
    if (differs == infos.end()) {
      continue;
    }
    const uint64_t other = setting.value(*differs);
    std::string shown = std::to_string(one);
    std::string other_shown = std::to_string(other);
    if (setting.text != nullptr) {
      PLEXUS_TRY(texts, gather(config.*setting.text));
      shown = texts[0];
      other_shown = texts[static_cast<size_t>(differs - infos.begin())];
    }
    return fail(Code::kInvalidUsage, "{} is '{}' on {} and '{}' on {}: {}", setting.name, shown,
                list_who_has(infos, setting, one), other_shown, list_who_has(infos, setting, other),
                setting.advice);
  }
  return ok();
}

}  // namespace plexus
