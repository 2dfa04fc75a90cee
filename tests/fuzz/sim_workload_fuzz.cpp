// SPDX-License-Identifier: Apache-2.0
// Any bytes as a workload. What is accepted has calls of a bounded size.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/cli/sim/workload.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr uint64_t kBytesMax = uint64_t{1} << 40;
  const auto calls = plexus::parse_workload({reinterpret_cast<const char*>(data), size});
  if (calls.has_value()) {
    for (const plexus::WorkloadCall& call : calls.value()) {
      if (call.bytes == 0 || call.bytes > kBytesMax || call.times == 0) {
        std::abort();
      }
      uint64_t bytes = call.exchanges.empty() ? call.bytes : 0;
      for (const plexus::WorkloadExchange& each : call.exchanges) {
        if (each.distance == 0 || each.bytes == 0 || each.bytes > kBytesMax) {
          std::abort();
        }
        bytes += each.bytes;
      }
      if (bytes != call.bytes) {
        std::abort();
      }
    }
  }
  return 0;
}
