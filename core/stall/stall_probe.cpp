// SPDX-License-Identifier: Apache-2.0
#include "core/stall/stall_probe.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

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

template <class T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Removes a T from the front of the bytes.
template <class T>
bool cut(std::string_view& bytes, T& value) {
  if (bytes.size() < sizeof(value)) {
    return false;
  }
  std::memcpy(&value, bytes.data(), sizeof(value));
  bytes.remove_prefix(sizeof(value));
  return true;
}

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

}  // namespace

std::string encode(const StallProbe& probe) {
  std::string bytes;
  append(bytes, ProbeHeader{probe.proves ? 1U : 0U, probe.index});
  for (const StallHop& hop : probe.hops) {
    append(bytes, hop);
  }
  return bytes;
}

std::optional<StallProbe> decode_stall_probe(std::string_view bytes) {
  ProbeHeader header{};
  const bool fits = cut(bytes, header) && !bytes.empty() && bytes.size() % sizeof(StallHop) == 0 &&
                    bytes.size() / sizeof(StallHop) <= kStallHopsMax && header.proves <= 1;
  if (!fits) {
    return std::nullopt;
  }
  StallProbe probe{.proves = header.proves == 1, .index = header.index, .hops = {}};
  StallHop hop;
  while (cut(bytes, hop)) {
    probe.hops.push_back(hop);
  }
  if (probe.index >= probe.hops.size()) {
    return std::nullopt;
  }
  return probe;
}

std::string encode(const LeaveRecord& record) {
  std::string bytes;
  append(bytes, record.collectives);
  append(bytes, record.splits);
  for (const LeaveRecord::Messages& messages : record.messages) {
    append(bytes, messages);
  }
  return bytes;
}

std::optional<LeaveRecord> decode_leave_record(std::string_view bytes) {
  LeaveRecord record;
  if (!cut(bytes, record.collectives) || !cut(bytes, record.splits) ||
      bytes.size() % sizeof(LeaveRecord::Messages) != 0) {
    return std::nullopt;
  }
  LeaveRecord::Messages messages;
  while (cut(bytes, messages)) {
    record.messages.push_back(messages);
  }
  return record;
}

uint64_t count_answers(const LeaveRecord& record, const CallRecord& call, int rank) {
  const auto collective = static_cast<Collective>(call.collective);
  if (!is_point_to_point(collective)) {
    return record.collectives;
  }
  for (const LeaveRecord::Messages& messages : record.messages) {
    if (messages.peer == static_cast<uint64_t>(rank) && messages.of_vector == call.of_vector) {
      return collective == Collective::kSend ? messages.recvs : messages.sends;
    }
  }
  return 0;
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

Error describe_left(int rank, const CallRecord& call, int left) {
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
              "the ranks' calls differ, and wait for each other for ever: {}; {}", text, remedy);
}

}  // namespace plexus
