// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/workload.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/text.hpp"
#include "tools/cli/flags.hpp"

namespace plexus {
namespace {

using WorkloadJson = nlohmann::json;

constexpr uint64_t kBytesMax = uint64_t{1} << 40;
constexpr uint64_t kTimesMax = 1'000'000'000;
constexpr size_t kCallsMax = 100'000;
constexpr size_t kEventsMax = 10'000'000;
constexpr uint64_t kRecordedRanksMax = 1 << 20;
constexpr int64_t kDistanceMax = 1 << 20;
constexpr size_t kExchangesMax = 1024;

/// An unsigned number; `otherwise` where there is none, 0 where it is something else.
uint64_t number_of(const WorkloadJson& object, const char* key, uint64_t otherwise) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  return at == object.end() ? otherwise : at->is_number_unsigned() ? at->get<uint64_t>() : 0;
}

/// A text; empty where there is none.
std::string text_of(const WorkloadJson& object, const char* key) {
  const auto at = object.is_object() ? object.find(key) : object.end();
  return at == object.end() || !at->is_string() ? "" : at->get<std::string>();
}

/// A group of sends and receives, made by hand.
Result<WorkloadCall> read_exchange(const WorkloadJson& group, uint64_t times, size_t place) {
  WorkloadCall call{.times = times};
  for (const WorkloadJson& each : group) {
    const auto distance = each.is_object() ? each.find("distance") : each.end();
    const auto wraps = each.is_object() ? each.find("wraps") : each.end();
    const uint64_t bytes = number_of(each, "bytes", 0);
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

Result<std::vector<WorkloadCall>> read_calls(const WorkloadJson& calls) {
  if (calls.size() > kCallsMax) {
    return fail(Code::kInvalidArgument, "has {} calls, expects at most {}", calls.size(),
                kCallsMax);
  }
  std::vector<WorkloadCall> read;
  for (const WorkloadJson& call : calls) {
    const std::string named = text_of(call, "collective");
    const uint64_t bytes = number_of(call, "bytes", 0);
    const uint64_t times = number_of(call, "times", 1);
    const auto group = call.is_object() ? call.find("exchange") : call.end();
    if (group != call.end() && group->is_array() && !group->empty() && named.empty() && times > 0 &&
        times <= kTimesMax) {
      PLEXUS_TRY(exchange, read_exchange(*group, times, read.size()));
      read.push_back(std::move(exchange));
      continue;
    }
    if (named.empty() || bytes == 0 || bytes > kBytesMax || times == 0 || times > kTimesMax) {
      return fail(
          Code::kInvalidArgument,
          "call {}: expects \"collective\" and \"bytes\" up to {}, or \"exchange\", a list; "
          "and \"times\" up to {}",
          read.size(), kBytesMax, kTimesMax);
    }
    PLEXUS_TRY(collective, parse_collective(named));
    read.push_back({.collective = collective, .bytes = bytes, .times = times});
  }
  return read;
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

/// In bytes; 0: an unknown type.
uint64_t element_bytes_of(const std::string& type) {
  const auto ends_with = [&](const char* end) { return type.ends_with(end); };
  return ends_with("nt8") || ends_with("e4m3") || ends_with("e5m2") ? 1
         : ends_with("loat16")                                      ? 2
         : ends_with("nt32") || ends_with("loat32")                 ? 4
         : ends_with("nt64") || ends_with("loat64")                 ? 8
                                                                    : 0;
}

/// What a call's event says of the call.
struct RecordedCall {
  std::string name;    // in lower case
  uint64_t bytes = 0;  // of its count
  uint64_t nranks = 0;
};

/// An Error: a member is missing.
Result<RecordedCall> read_recorded(const WorkloadJson& about, const char* kind, size_t place) {
  const uint64_t element_bytes = element_bytes_of(text_of(about, "datatype"));
  const uint64_t count = number_of(about, "count", 0);
  const uint64_t nranks = number_of(about, "nranks", 0);
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
    const uint64_t peer = number_of(about, "peer", kRecordedRanksMax);
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
    const uint64_t rank = number_of(event, "pid", 0);
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
    const uint64_t group = number_of(*about, "group", 0);
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

Result<std::vector<WorkloadCall>> read_events(const WorkloadJson& events) {
  if (events.size() > kEventsMax) {
    return fail(Code::kInvalidArgument, "has {} events, expects at most {}", events.size(),
                kEventsMax);
  }
  RecordedRun run;
  for (size_t place = 0; place < events.size(); ++place) {
    PLEXUS_TRY(run.add(events[place], place));
  }
  return run.take();
}

}  // namespace

Result<std::vector<WorkloadCall>> parse_workload(std::string_view text) {
  const WorkloadJson json = WorkloadJson::parse(text, nullptr, false);
  if (json.is_array()) {
    PLEXUS_TRY(calls, read_events(json));
    return calls.empty() ? Result<std::vector<WorkloadCall>>(
                               fail(Code::kInvalidArgument,
                                    "has no collective, send or receive of plugins/profiler-trace"))
                         : std::move(calls);
  }
  const auto calls = json.is_object() ? json.find("calls") : json.end();
  if (calls == json.end() || !calls->is_array()) {
    return fail(Code::kInvalidArgument,
                "is neither {{\"calls\": [...]}} nor a whole trace, a list of events");
  }
  return read_calls(*calls);
}

}  // namespace plexus
