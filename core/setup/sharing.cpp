// SPDX-License-Identifier: Apache-2.0
#include "core/setup/sharing.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "core/base/bytes.hpp"
#include "core/base/text.hpp"
#include "core/os/memory_server.hpp"
#include "core/peers/reach.hpp"

namespace plexus {
namespace {

constexpr size_t kShownBytes = 4096;

uint64_t user_namespace() {
  struct stat status {};
  return stat("/proc/self/ns/user", &status) == 0 ? status.st_ino : 0;
}

/// Whether the two ranks go through memory that both map; ranks of one process do so where
/// NCCL_P2P_DISABLE is set.
bool shares_memory(int rank, size_t peer, std::span<const PeerInfo> infos) {
  return static_cast<size_t>(rank) != peer &&
         reach_of(infos[static_cast<size_t>(rank)], infos[peer]) == PeerReach::kSharedMemory;
}

/// "": it can be mapped.
std::string try_to_map(const PeerInfo& info) {
  if (info.shown_fd < 0) {
    return "";  // which it tells itself
  }
  const auto memory = SharedMemory::open_peer({.pid = info.pid,
                                               .fd = info.shown_fd,
                                               .size_bytes = kShownBytes,
                                               .id = info.process_id,
                                               .owner = info.process_id});
  return memory.has_error() ? std::string(memory.error().message()) : "";
}

}  // namespace

std::string why_no_slots(size_t slots_bytes) {
  const auto slots = SharedMemory::create(slots_bytes);
  return slots.has_error() ? std::string(slots.error().message()) : "";
}

std::shared_ptr<const SharedMemory> show_memory(GroupCache<SharedMemory>& shown,
                                                uint64_t group,
                                                PeerInfo& info) {
  auto made =
      shown.find_or_make(group, [&] { return SharedMemory::create(kShownBytes, info.process_id); });
  if (made.has_error()) {
    return nullptr;
  }
  MemoryServer::instance().start();
  info.shown_fd = made.value()->fd();
  return std::move(made).value();
}

SharingReport try_to_share(int rank, std::span<const PeerInfo> infos, size_t slots_bytes) {
  SharingReport report{.user_namespace = user_namespace(),
                       .user = geteuid(),
                       .is_dumpable = static_cast<uint8_t>(prctl(PR_GET_DUMPABLE) == 1 ? 1 : 0)};
  std::vector<size_t> peers;
  for (size_t peer = 0; peer < infos.size(); ++peer) {
    if (shares_memory(rank, peer, infos)) {
      peers.push_back(peer);
    }
  }
  if (peers.empty()) {
    return report;
  }
  report.why = why_no_slots(slots_bytes);
  if (report.why.empty() && infos[static_cast<size_t>(rank)].shown_fd < 0) {
    report.why = "no shared memory could be made";
  }
  if (!report.why.empty()) {
    report.refused.push_back(static_cast<uint32_t>(rank));
    return report;
  }
  std::map<uint64_t, std::string> tried;  // processes
  for (const size_t peer : peers) {
    const auto [at, is_new] = tried.try_emplace(infos[peer].process_id);
    if (is_new) {
      at->second = try_to_map(infos[peer]);
    }
    if (!at->second.empty()) {
      report.refused.push_back(static_cast<uint32_t>(peer));
      report.why = report.why.empty() ? at->second : report.why;
    }
  }
  return report;
}

std::string encode(const SharingReport& report) {
  ByteWriter writer;
  writer.put(report.user_namespace);
  writer.put(report.user);
  writer.put(report.is_dumpable);
  writer.put(static_cast<uint32_t>(report.refused.size()));
  for (const uint32_t peer : report.refused) {
    writer.put(peer);
  }
  writer.put_bytes(std::string_view(report.why).substr(0, SharingReport::kWhyMax));
  return writer.take();
}

Result<SharingReport> decode_sharing_report(std::string_view bytes, size_t nranks) {
  ByteReader reader(bytes);
  SharingReport report;
  report.user_namespace = reader.take<uint64_t>();
  report.user = reader.take<uint32_t>();
  report.is_dumpable = reader.take<uint8_t>();
  for (auto left = reader.take<uint32_t>(); left > 0 && !reader.broken(); --left) {
    report.refused.push_back(reader.take<uint32_t>());
  }
  report.why = printable(reader.rest().substr(0, SharingReport::kWhyMax));
  if (reader.broken() || std::any_of(report.refused.begin(), report.refused.end(),
                                     [&](uint32_t peer) { return peer >= nranks; })) {
    return fail(Code::kRemoteError,
                "what another rank says of its host is malformed: use the same version of Plexus "
                "on all ranks");
  }
  return report;
}

std::vector<int> list_isolated(std::span<const SharingReport> reports) {
  std::map<int, std::set<int>> refusals;  // in either direction
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    for (const uint32_t peer : reports[rank].refused) {
      refusals[static_cast<int>(rank)].insert(static_cast<int>(peer));
      refusals[static_cast<int>(peer)].insert(static_cast<int>(rank));
    }
  }
  std::vector<int> isolated;
  const auto isolate = [&](int rank) {
    for (const int peer : std::exchange(refusals[rank], {})) {
      refusals[peer].erase(rank);
    }
    isolated.push_back(rank);
  };
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const auto self = static_cast<int>(rank);
    if (const auto at = refusals.find(self); at != refusals.end() && at->second.count(self) != 0) {
      isolate(self);
    }
  }
  for (;;) {
    const auto worst = std::max_element(
        refusals.begin(), refusals.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (worst == refusals.end() || worst->second.empty()) {
      std::sort(isolated.begin(), isolated.end());
      return isolated;
    }
    isolate(worst->first);
  }
}

std::string describe_isolation(std::span<const SharingReport> reports,
                               std::span<const PeerInfo> infos) {
  const auto first = std::find_if(reports.begin(), reports.end(), [](const SharingReport& report) {
    return !report.refused.empty();
  });
  if (first == reports.end()) {
    return "";
  }
  const auto rank = static_cast<size_t>(first - reports.begin());
  const size_t peer = first->refused.front();
  const std::string who = describe_rank(static_cast<int>(rank), infos[rank]);
  if (peer == rank) {
    return fmt::format("{}: {}", who, first->why);
  }
  const SharingReport& other = reports[peer];
  std::string cause = first->why;
  if (first->user_namespace != other.user_namespace) {
    cause = "they are in different user namespaces, as rootless containers are";
  } else if (other.is_dumpable == 0) {
    cause = "its process is not dumpable (file capabilities, set-user-ID, or PR_SET_DUMPABLE)";
  } else if (first->user != other.user) {
    cause = "they run as different users";
  }
  return fmt::format("{} cannot map memory of {}: {}", who,
                     describe_rank(static_cast<int>(peer), infos[peer]), cause);
}

}  // namespace plexus
