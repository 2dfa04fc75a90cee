// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/workload.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

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
    if (named.empty() || bytes == 0 || bytes > kBytesMax || times == 0 || times > kTimesMax) {
      return fail(Code::kInvalidArgument,
                  "call {}: expects \"collective\", \"bytes\" up to {} and \"times\" up to {}",
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

/// A collective, of which all members are there; nullopt: another event.
Result<std::optional<WorkloadCall>> read_event(const WorkloadJson& event, size_t place) {
  const auto about = event.is_object() ? event.find("args") : event.end();
  if (about == event.end() || !about->is_object() || !about->contains("collective")) {
    return std::optional<WorkloadCall>();
  }
  const std::string named = lower(text_of(*about, "collective"));
  const auto known = std::find_if(kProfilerNames.begin(), kProfilerNames.end(),
                                  [&](const auto& each) { return named == each.name; });
  const uint64_t element_bytes = element_bytes_of(text_of(*about, "datatype"));
  const uint64_t count = number_of(*about, "count", 0);
  const uint64_t nranks = number_of(*about, "nranks", 0);
  if (known == kProfilerNames.end() || element_bytes == 0 || count > kBytesMax || nranks == 0 ||
      nranks > kRecordedRanksMax) {
    return fail(Code::kInvalidArgument,
                "event {}: expects \"collective\", \"datatype\", \"count\" and \"nranks\" as "
                "docs/examples/chrome_profiler.c writes them",
                place);
  }
  const uint64_t blocks = known->has_blocks ? nranks : 1;
  if (count > kBytesMax / element_bytes / blocks) {
    return fail(Code::kInvalidArgument, "event {}: its buffers have more than {} bytes", place,
                kBytesMax);
  }
  return std::optional(
      WorkloadCall{.collective = known->collective, .bytes = count * element_bytes * blocks});
}

Result<std::vector<WorkloadCall>> read_events(const WorkloadJson& events) {
  if (events.size() > kEventsMax) {
    return fail(Code::kInvalidArgument, "has {} events, expects at most {}", events.size(),
                kEventsMax);
  }
  uint64_t lowest_rank = UINT64_MAX;
  std::vector<WorkloadCall> calls;
  for (size_t place = 0; place < events.size(); ++place) {
    PLEXUS_TRY(call, read_event(events[place], place));
    const uint64_t rank = number_of(events[place], "pid", 0);
    if (!call.has_value() || call->bytes == 0 || rank > lowest_rank) {
      continue;
    }
    if (rank < lowest_rank) {
      calls.clear();
      lowest_rank = rank;
    }
    if (!calls.empty() && calls.back().collective == call->collective &&
        calls.back().bytes == call->bytes) {
      ++calls.back().times;
    } else {
      calls.push_back(*call);
    }
  }
  return calls;
}

}  // namespace

Result<std::vector<WorkloadCall>> parse_workload(std::string_view text) {
  const WorkloadJson json = WorkloadJson::parse(text, nullptr, false);
  if (json.is_array()) {
    PLEXUS_TRY(calls, read_events(json));
    return calls.empty() ? Result<std::vector<WorkloadCall>>(
                               fail(Code::kInvalidArgument,
                                    "has no collective of docs/examples/chrome_profiler.c"))
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
