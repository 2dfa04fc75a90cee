// SPDX-License-Identifier: Apache-2.0
#include "core/stall/stall_probe.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "core/base/bytes.hpp"
#include "core/engine/engine.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus {
namespace {

struct ProbeHeader {
  uint32_t proves;
  uint32_t index;
};
static_assert(std::is_trivially_copyable_v<StallHop>);
static_assert(std::has_unique_object_representations_v<LeaveRecord::Messages>);
static_assert(std::has_unique_object_representations_v<CallRecord>);

constexpr const char* kRule =
    "every rank of a communicator must make the same calls in the same order";

std::string describe(const StallHop& hop, bool names_comm) {
  const std::string comm = names_comm ? fmt::format(" of comm {:#x}", hop.group) : std::string();
  if (hop.epoch == 0) {
    return fmt::format("rank {}{} has not made that call: its thread waits elsewhere", hop.rank,
                       comm);
  }
  return fmt::format("rank {}{} waits in {} for rank {}", hop.rank, comm,
                     hop.is_split != 0 ? std::string("ncclCommSplit") : describe_call(hop.call),
                     hop.peer);
}

/// Those with `peer`; records have them in the order of peers.
LeaveRecord::Messages find_messages(const LeaveRecord& record, uint64_t peer, bool of_vector) {
  const auto key = [](const LeaveRecord::Messages& each) {
    return std::pair(each.peer, each.of_vector != 0);
  };
  const auto at = std::lower_bound(
      record.messages.begin(), record.messages.end(), std::pair(peer, of_vector),
      [&](const LeaveRecord::Messages& each, const auto& wanted) { return key(each) < wanted; });
  return at != record.messages.end() && key(*at) == std::pair(peer, of_vector)
             ? *at
             : LeaveRecord::Messages{};
}

}  // namespace

std::string encode(const StallProbe& probe) {
  ByteWriter writer;
  writer.put(ProbeHeader{probe.proves ? 1U : 0U, probe.index});
  for (const StallHop& hop : probe.hops) {
    writer.put(hop);
  }
  return writer.take();
}

std::optional<StallProbe> decode_stall_probe(std::string_view bytes) {
  ByteReader reader(bytes);
  const auto header = reader.take<ProbeHeader>();
  if (header.proves > 1 || reader.rest().size() / sizeof(StallHop) > kStallHopsMax) {
    return std::nullopt;
  }
  StallProbe probe{.proves = header.proves == 1, .index = header.index, .hops = {}};
  while (!reader.broken() && !reader.rest().empty()) {
    probe.hops.push_back(reader.take<StallHop>());
  }
  if (reader.broken() || probe.index >= probe.hops.size()) {
    return std::nullopt;
  }
  return probe;
}

std::string encode(const LeaveRecord& record) {
  ByteWriter writer;
  writer.put(record.how);
  writer.put(record.collectives);
  writer.put(record.splits);
  writer.put(uint64_t{record.last.size()});
  for (const CallRecord& call : record.last) {
    writer.put(call);
  }
  for (const LeaveRecord::Messages& messages : record.messages) {
    writer.put(messages);
  }
  return writer.take();
}

std::optional<LeaveRecord> decode_leave_record(std::string_view bytes) {
  ByteReader reader(bytes);
  LeaveRecord record;
  record.how = reader.take<Departure>();
  record.collectives = reader.take<decltype(record.collectives)>();
  record.splits = reader.take<decltype(record.splits)>();
  const auto nlast = reader.take<uint64_t>();
  if (nlast > LeaveRecord::kLastMax || record.how > Departure::kStopped) {
    return std::nullopt;
  }
  for (uint64_t i = 0; i < nlast; ++i) {
    record.last.push_back(reader.take<CallRecord>());
  }
  while (!reader.broken() && !reader.rest().empty()) {
    record.messages.push_back(reader.take<LeaveRecord::Messages>());
  }
  return reader.broken() ? std::nullopt : std::optional(std::move(record));
}

std::string compare_calls(const std::map<int, LeaveRecord>& records) {
  const auto [least, most] = std::minmax_element(
      records.begin(), records.end(),
      [](const auto& a, const auto& b) { return a.second.collectives < b.second.collectives; });
  if (least != most && least->second.collectives < most->second.collectives) {
    const uint64_t number = least->second.collectives;
    const auto& last = most->second.last;
    const auto missing = std::find_if(
        last.begin(), last.end(), [&](const CallRecord& call) { return call.sequence == number; });
    return fmt::format(
        "the ranks' calls differ: rank {} has destroyed its communicator after {} collectives, "
        "rank {} after {}{}; {}",
        most->first, most->second.collectives, least->first, number,
        missing == last.end() ? "" : ", without " + describe_call(*missing), kRule);
  }
  for (const auto& [rank, record] : records) {
    for (const LeaveRecord::Messages& mine : record.messages) {
      const auto peer = records.find(static_cast<int>(mine.peer));
      if (peer == records.end()) {
        continue;
      }
      const auto theirs =
          find_messages(peer->second, static_cast<uint64_t>(rank), mine.of_vector != 0);
      if (mine.sends != theirs.recvs || mine.recvs != theirs.sends) {
        const bool is_sender = mine.sends != theirs.recvs;
        return fmt::format(
            "the ranks' calls differ: rank {} has destroyed its communicator after {} calls of {} "
            "{} rank {}, which has made {} of {} it; every send needs its receive",
            rank, is_sender ? mine.sends : mine.recvs, is_sender ? "ncclSend" : "ncclRecv",
            is_sender ? "to" : "from", mine.peer, is_sender ? theirs.recvs : theirs.sends,
            is_sender ? "ncclRecv from" : "ncclSend to");
      }
    }
  }
  return {};
}

uint64_t count_answers(const LeaveRecord& record, const CallRecord& call, int rank) {
  const auto collective = static_cast<Collective>(call.collective);
  if (!is_point_to_point(collective)) {
    return record.collectives;
  }
  const auto found = find_messages(record, static_cast<uint64_t>(rank), call.of_vector != 0);
  return collective == Collective::kSend ? found.recvs : found.sends;
}

bool depends_on(const CallRecord& call, int rank, int other) {
  switch (static_cast<Collective>(call.collective)) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
      return true;
    case Collective::kBroadcast:
    case Collective::kScatter:
      return other == call.root;
    case Collective::kReduce:
    case Collective::kGather:
      return rank == call.root;
    case Collective::kSend:
    case Collective::kRecv:
      break;
  }
  return false;
}

Error describe_different(int rank, const CallRecord& call, int other, const CallRecord& others) {
  return fail(Code::kInvalidUsage, "the ranks' calls differ: rank {} made {}, rank {} made {}; {}",
              rank, describe_call(call), other, describe_call(others), kRule);
}

Error describe_left(int rank, const CallRecord& call, int left, Departure how) {
  if (how == Departure::kProcessEnded) {
    return fail(Code::kRemoteError,
                "rank {} waits in {} for rank {}, whose process has ended without that call", rank,
                describe_call(call), left);
  }
  return fail(Code::kInvalidUsage,
              "the ranks' calls differ: rank {} waits in {} for rank {}, which has destroyed its "
              "communicator without that call; {}",
              rank, describe_call(call), left, kRule);
}

Error describe_circle(const std::vector<StallHop>& hops) {
  const bool several = std::any_of(hops.begin(), hops.end(), [&](const StallHop& hop) {
    return hop.group != hops.front().group;
  });
  std::string text;
  for (const StallHop& hop : hops) {
    text += (text.empty() ? "" : ", ") + describe(hop, several);
  }
  const bool messages = std::all_of(hops.begin(), hops.end(), [](const StallHop& hop) {
    return hop.epoch != 0 && hop.is_split == 0 && hop.call.collective < kCollectiveCount &&
           is_point_to_point(static_cast<Collective>(hop.call.collective));
  });
  const char* const remedy =
      messages  ? "put sends and receives that wait for each other into one group (ncclGroupStart)"
      : several ? "use communicators in the same order on all ranks, or in one group"
                : kRule;
  return fail(Code::kInvalidUsage,
              "the ranks' calls differ and wait for each other forever: {}; {}", text, remedy);
}

}  // namespace plexus
