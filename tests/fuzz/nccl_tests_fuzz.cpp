// SPDX-License-Identifier: Apache-2.0
// Any bytes as a log of nccl-tests. If accepted, it merges with itself under another name.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/cli/tune/nccl_tests.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace plexus::tune;
  const auto log = parse_nccl_tests(std::string_view(reinterpret_cast<const char*>(data), size));
  if (log.has_value()) {
    std::vector<NcclTestsCall> calls;
    const bool merges = merge_log(calls, "ring/LL", log.value()).has_value() &&
                        merge_log(calls, "tree/LL", log.value()).has_value();
    if (!merges || log.value().bytes.size() != log.value().time_us.size() ||
        format_nccl_times(calls, "fuzz").empty()) {
      std::abort();
    }
  }
  return 0;
}
