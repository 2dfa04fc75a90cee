// SPDX-License-Identifier: Apache-2.0
// Any bytes as a workload, in all formats. What is accepted keeps the bounds that the simulator
// relies on, and can be predicted or is refused with a sentence, alone and as the traces of two
// ranks.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/workload/predict.hpp"

namespace plexus {
namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void check_call(const Workload& work, const WorkloadCall& call) {
  require(call.bytes <= kWorkloadBytesMax && call.times > 0 && call.times <= kWorkloadTimesMax);
  require(call.time_us >= 0 && call.time_us <= kWorkloadTimeUsMax);
  require(call.group < work.groups.size() && call.name < work.names.size());
  require(call.rank < 0 || (call.rank < work.nranks && call.peer >= 0 && call.peer < work.nranks));
  uint64_t bytes = call.exchanges.empty() ? call.bytes : 0;
  for (const WorkloadExchange& each : call.exchanges) {
    require(each.distance != 0 && each.bytes > 0 && each.bytes <= kWorkloadBytesMax);
    bytes += each.bytes;
  }
  require(bytes == call.bytes);
  for (const uint32_t other : call.after) {
    require(other < work.calls.size());
  }
}

void check_prediction(const Workload& work) {
  for (const WorkloadCall& call : work.calls) {
    check_call(work, call);
  }
  const int nranks = work.nranks > 1 ? work.nranks : 2;
  for (size_t group = 0; group < work.groups.size(); ++group) {
    const int members = members_of(work.groups[group], nranks);
    require(members >= 1 && members <= nranks && place_groups(work, nranks, "dp,tp")[group] >= 1);
  }
  const auto made = predict(
      work, {.nranks = nranks,
             .call_us = [](const WorkloadCall& call) -> Result<double> {
               return static_cast<double>(call.bytes) * 1e-3 + call.time_us;
             },
             .is_near = [](const WorkloadCall& call) { return call.group > 0; },
             .link = [](int, int) { return WorkLink{.latency_us = 1, .us_per_byte = 1e-3}; }});
  require(made.has_error() ? !made.error().message().empty() : made.value().time_us >= 0);
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plexus;
  const auto read = parse_workload({reinterpret_cast<const char*>(data), size});
  if (read.has_error()) {
    require(!read.error().message().empty());
    return 0;
  }
  const Workload& work = read.value();
  require(!work.calls.empty() && !work.groups.empty() && !describe(work).empty());
  check_prediction(work);
  const auto joined = join_ranks({work, work});
  if (joined.has_error()) {
    require(!joined.error().message().empty());
  } else {
    check_prediction(joined.value());
  }
  return 0;
}
