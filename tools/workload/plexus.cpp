// SPDX-License-Identifier: Apache-2.0
// Workloads made by hand, and what plugins/profiler-trace records.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/base/text.hpp"
#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

constexpr uint64_t kBytesMax = kWorkloadBytesMax;
constexpr uint64_t kTimesMax = kWorkloadTimesMax;
constexpr size_t kCallsMax = 100'000;
constexpr size_t kEventsMax = 10'000'000;
constexpr uint64_t kRecordedRanksMax = kWorkloadRanksMax;
constexpr int64_t kDistanceMax = 1 << 20;
constexpr size_t kExchangesMax = 1024;

/// An unsigned number; `otherwise` where there is none, 0 where it is something else.
uint64_t exact_number(const WorkloadJson& object, const char* key, uint64_t otherwise) {
  const WorkloadJson* const at = find_member(object, key);
  return at == nullptr ? otherwise : at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

/// A group of sends and receives, made by hand.
Result<WorkloadCall> read_exchange(const WorkloadJson& group, uint64_t times, size_t place) {
  WorkloadCall call{.times = times};
  for (const WorkloadJson& each : group) {
    const auto distance = each.is_object() ? each.find("distance") : each.end();
    const auto wraps = each.is_object() ? each.find("wraps") : each.end();
    const uint64_t bytes = exact_number(each, "bytes", 0);
    const bool is_right = distance != each.end() && distance->is_number_integer() &&
                          (wraps == each.end() || wraps->is_boolean());
    const int64_t ranks = is_right ? distance->get<int64_t>() : 0;
    if (ranks == 0 || ranks < -kDistanceMax || ranks > kDistanceMax || bytes == 0 ||
        bytes > kBytesMax - call.bytes || call.exchanges.size() == kExchangesMax) {
      return fail(Code::kInvalidArgument,
                  "call {}: expects \"exchange\" with up to {} objects of a \"distance\", not 0 "
                  "and up to {} either way, \"bytes\", up to {} in all, and if it wraps "
                  "\"wraps\": true",
                  place, kExchangesMax, kDistanceMax, kBytesMax);
    }
    call.exchanges.push_back({.distance = static_cast<int>(ranks),
                              .wraps = wraps != each.end() && wraps->get<bool>(),
                              .bytes = bytes});
    call.bytes += bytes;
  }
  return call;
}

/// Computing, or a collective.
Result<WorkloadCall> read_call(const WorkloadJson& call, uint64_t times, size_t place) {
  const std::string named = text_of(call, "collective");
  const uint64_t bytes = exact_number(call, "bytes", 0);
  const double time_us = real_of(call, "compute_us", 0);
  if (time_us > 0 && named.empty() && bytes == 0) {
    return WorkloadCall{.times = times, .kind = WorkKind::kCompute, .time_us = time_us};
  }
  if (named.empty() || bytes == 0 || bytes > kBytesMax || times == 0 || times > kTimesMax) {
    return fail(Code::kInvalidArgument,
                "call {}: expects \"collective\" and \"bytes\" up to {}, \"compute_us\", or "
                "\"exchange\", a list; and \"times\" up to {}",
                place, kBytesMax, kTimesMax);
  }
  const std::optional<Collective> collective = find_collective(named);
  if (!collective.has_value()) {
    return fail(Code::kInvalidArgument, "call {}: '{}' is not a collective", place,
                printable(named));
  }
  return WorkloadCall{.collective = *collective, .bytes = bytes, .times = times};
}

/// Stream, group, name and what the call waits for.
Result<void> read_place(const WorkloadJson& object,
                        const std::map<std::string, uint32_t>& groups,
                        WorkloadBuilder& builder,
                        WorkloadCall& call) {
  constexpr uint64_t kStreamsMax = 1024;
  const size_t place = builder.work.calls.size();
  const std::string group = text_of(object, "group");
  const auto known = groups.find(group);
  const uint64_t stream = exact_number(object, "stream", 0);
  if ((!group.empty() && known == groups.end()) || stream >= kStreamsMax) {
    return fail(Code::kInvalidArgument,
                "call {}: expects a \"group\" that is in \"groups\" and a \"stream\" below {}",
                place, kStreamsMax);
  }
  call.group = group.empty() ? 0 : known->second;
  call.stream = static_cast<uint32_t>(stream);
  call.name = builder.name(text_of(object, "name"));
  const WorkloadJson* const after = find_member(object, "after");
  for (const WorkloadJson& each : after == nullptr ? WorkloadJson::array() : *after) {
    if (!each.is_number_unsigned() || each.get<uint64_t>() >= place) {
      return fail(Code::kInvalidArgument,
                  "call {}: expects \"after\" with numbers of calls before it", place);
    }
    call.after.push_back(each.get<uint32_t>());
  }
  return ok();
}

Result<Workload> read_calls(const WorkloadJson& json, const WorkloadJson& calls) {
  WorkloadBuilder builder("Plexus workload");
  if (calls.size() > kCallsMax) {
    return fail(Code::kInvalidArgument, "has {} calls, expects at most {}", calls.size(),
                kCallsMax);
  }
  builder.work.nranks =
      static_cast<int>(std::min<uint64_t>(exact_number(json, "ranks", 0), kRecordedRanksMax));
  std::map<std::string, uint32_t> groups;
  const WorkloadJson* const named = find_member(json, "groups");
  for (const WorkloadJson& each : named == nullptr ? WorkloadJson::array() : *named) {
    const std::string name = text_of(each, "name");
    const uint64_t nranks = exact_number(each, "ranks", 0);
    const uint64_t part = exact_number(each, "all_by", 0);
    if (name.empty() || (nranks == 0) == (part == 0) ||
        std::max(nranks, part) > kRecordedRanksMax) {
      return fail(Code::kInvalidArgument,
                  "\"groups\": expects objects with a \"name\" and either \"ranks\" or \"all_by\" "
                  "(all ranks by so many), up to {}",
                  kRecordedRanksMax);
    }
    groups[name] = builder.group(name, static_cast<int>(nranks), static_cast<int>(part));
  }
  for (const WorkloadJson& each : calls) {
    const size_t place = builder.work.calls.size();
    const uint64_t times = exact_number(each, "times", 1);
    const WorkloadJson* const group = find_member(each, "exchange");
    const bool is_group = group != nullptr && group->is_array() && !group->empty() &&
                          text_of(each, "collective").empty() && times > 0 && times <= kTimesMax;
    PLEXUS_TRY(call,
               is_group ? read_exchange(*group, times, place) : read_call(each, times, place));
    PLEXUS_TRY(read_place(each, groups, builder, call));
    PLEXUS_TRY(builder.add(std::move(call)));
  }
  return builder.finish();
}

struct NamedCollective {
  const char* name;  // as profilers are told, in lower case
  Collective collective;
  bool has_blocks;  // the count is of one of nranks blocks
};
constexpr std::array<NamedCollective, 8> kProfilerNames = {{
    {"allreduce", Collective::kAllReduce, false},
    {"broadcast", Collective::kBroadcast, false},
    {"reduce", Collective::kReduce, false},
    {"allgather", Collective::kAllGather, true},
    {"reducescatter", Collective::kReduceScatter, true},
    {"alltoall", Collective::kAllToAll, true},
    {"gather", Collective::kGather, true},
    {"scatter", Collective::kScatter, true},
}};

/// What a call's event says of the call.
struct RecordedCall {
  std::string name;    // in lower case
  uint64_t bytes = 0;  // of its count
  uint64_t nranks = 0;
};

/// An Error: a member is missing.
Result<RecordedCall> read_recorded(const WorkloadJson& about, const char* kind, size_t place) {
  const std::string type = text_of(about, "datatype");
  constexpr const char* kUint8InNccl = "Unknown";  // what NCCL 2.28 tells profilers of it
  const uint64_t element_bytes = type == kUint8InNccl ? 1 : element_bytes_of(type);
  const uint64_t count = exact_number(about, "count", 0);
  const uint64_t nranks = exact_number(about, "nranks", 0);
  if (element_bytes == 0 || count > kBytesMax || nranks == 0 || nranks > kRecordedRanksMax) {
    return fail(Code::kInvalidArgument,
                "event {}: expects \"{}\", \"datatype\", \"count\" and \"nranks\" as "
                "plugins/profiler-trace writes them",
                place, kind);
  }
  if (count > kBytesMax / element_bytes) {
    return fail(Code::kInvalidArgument, "event {}: its buffers have more than {} bytes", place,
                kBytesMax);
  }
  return RecordedCall{
      .name = lower(text_of(about, kind)), .bytes = count * element_bytes, .nranks = nranks};
}

Result<WorkloadCall> read_collective(const WorkloadJson& about, size_t place) {
  PLEXUS_TRY(recorded, read_recorded(about, "collective", place));
  const auto known = std::find_if(kProfilerNames.begin(), kProfilerNames.end(),
                                  [&](const auto& each) { return recorded.name == each.name; });
  if (known == kProfilerNames.end()) {
    return fail(Code::kInvalidArgument, "event {}: '{}' is not a collective", place, recorded.name);
  }
  const uint64_t blocks = known->has_blocks ? recorded.nranks : 1;
  if (recorded.bytes > kBytesMax / blocks) {
    return fail(Code::kInvalidArgument, "event {}: its buffers have more than {} bytes", place,
                kBytesMax);
  }
  return WorkloadCall{.collective = known->collective, .bytes = recorded.bytes * blocks};
}

/// The sends and receives of a group of one rank. All ranks are taken to do the same, each with the
/// peers as far from it: a receive from so far before is the other end of a send so far ahead.
class RecordedGroup {
 public:
  /// An Error: not as the profiler writes it.
  Result<void> add(const WorkloadJson& about, uint64_t rank, size_t place) {
    PLEXUS_TRY(recorded, read_recorded(about, "p2p", place));
    const uint64_t peer = exact_number(about, "peer", kRecordedRanksMax);
    const bool sends = recorded.name == "send";
    if ((!sends && recorded.name != "recv") || rank >= recorded.nranks || peer >= recorded.nranks) {
      return fail(Code::kInvalidArgument,
                  "event {}: expects \"p2p\" Send or Recv, and a \"peer\" below \"nranks\"", place);
    }
    const auto nranks = static_cast<int64_t>(recorded.nranks);
    int64_t distance = static_cast<int64_t>(peer) - static_cast<int64_t>(rank);
    distance = sends ? distance : -distance;
    if (distance > nranks / 2) {
      distance -= nranks;
    } else if (distance < -nranks / 2 || 2 * distance == -nranks) {
      distance += nranks;
    }
    if (recorded.bytes == 0 || distance == 0) {
      return ok();  // moves nothing between ranks
    }
    uint64_t& count = counts_[{static_cast<int>(distance), recorded.bytes}][sends ? 0 : 1];
    bytes_ += ++count > counts_[{static_cast<int>(distance), recorded.bytes}][sends ? 1 : 0]
                  ? recorded.bytes
                  : 0;
    if (bytes_ > kBytesMax || ++members_ > kExchangesMax) {
      return fail(Code::kInvalidArgument,
                  "event {}: its group has more than {} messages or more than {} bytes", place,
                  kExchangesMax, kBytesMax);
    }
    return ok();
  }

  /// nullopt: nothing moves.
  std::optional<WorkloadCall> take() {
    WorkloadCall call{.bytes = bytes_};
    for (const auto& [what, count] : counts_) {
      for (uint64_t i = 0; i < std::max(count[0], count[1]); ++i) {
        call.exchanges.push_back({.distance = what.first,
                                  .wraps = i < std::min(count[0], count[1]),
                                  .bytes = what.second});
      }
    }
    *this = {};
    return call.exchanges.empty() ? std::nullopt : std::optional(std::move(call));
  }

 private:
  std::map<std::pair<int, uint64_t>, std::array<uint64_t, 2>> counts_;  // sends and receives
  uint64_t bytes_ = 0;
  size_t members_ = 0;
};

/// The calls of the lowest rank, in the order in which they ended.
class RecordedRun {
 public:
  Result<void> add(const WorkloadJson& event, size_t place) {
    const auto about = event.is_object() ? event.find("args") : event.end();
    const uint64_t rank = exact_number(event, "pid", 0);
    if (about == event.end() || !about->is_object() || rank > lowest_rank_) {
      return ok();
    }
    const bool is_collective = about->contains("collective");
    if (!is_collective && !about->contains("p2p")) {
      return ok();
    }
    if (rank < lowest_rank_) {
      *this = {};
      lowest_rank_ = rank;
    }
    const uint64_t group = exact_number(*about, "group", 0);
    if (is_collective || group != group_) {
      end_group();
    }
    if (!is_collective) {
      group_ = group;
      return sends_.add(*about, rank, place);
    }
    PLEXUS_TRY(call, read_collective(*about, place));
    append(std::move(call));
    return ok();
  }

  std::vector<WorkloadCall> take() {
    end_group();
    return std::move(calls_);
  }

 private:
  void end_group() {
    if (auto call = sends_.take(); call.has_value()) {
      append(std::move(*call));
    }
  }
  void append(WorkloadCall call) {
    if (call.bytes == 0) {
      return;
    }
    if (!calls_.empty() && calls_.back().collective == call.collective &&
        calls_.back().exchanges == call.exchanges && calls_.back().bytes == call.bytes) {
      ++calls_.back().times;
    } else {
      calls_.push_back(std::move(call));
    }
  }

  uint64_t lowest_rank_ = UINT64_MAX;
  uint64_t group_ = 0;
  RecordedGroup sends_;
  std::vector<WorkloadCall> calls_;
};

Result<Workload> read_events(const WorkloadJson& events) {
  if (events.size() > kEventsMax) {
    return fail(Code::kInvalidArgument, "has {} events, expects at most {}", events.size(),
                kEventsMax);
  }
  RecordedRun run;
  for (size_t place = 0; place < events.size(); ++place) {
    PLEXUS_TRY(run.add(events[place], place));
  }
  std::vector<WorkloadCall> calls = run.take();
  if (calls.empty()) {
    return fail(Code::kInvalidArgument,
                "has no collective, send or receive of plugins/profiler-trace");
  }
  WorkloadBuilder builder("trace of PLEXUS_TRACE");
  builder.note_taken_for_all("the calls of its lowest rank are taken for all");
  builder.note("time between calls is left out");
  for (WorkloadCall& call : calls) {
    PLEXUS_TRY(builder.add(std::move(call)));
  }
  return builder.finish();
}

}  // namespace

Result<Workload> read_plexus(const WorkloadJson& json) {
  if (json.is_array()) {
    return read_events(json);
  }
  return read_calls(json, *find_member(json, "calls"));
}

}  // namespace plexus
