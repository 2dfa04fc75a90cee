// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/contexts.hpp"

#include "tools/conformance/process_state.hpp"

namespace plexus::conformance {

Result<void> leaves_nothing(Stand& stand, const std::function<Result<void>(int times)>& use) {
  constexpr int kTimes = 300;
  PLEXUS_TRY(use(20));
  const Descriptors descriptors = list_descriptors();
  const uint32_t threads = count_threads();
  const uint64_t before = count_heap_bytes();
  PLEXUS_TRY(use(kTimes));
  const uint64_t now = count_heap_bytes();
  const std::string left = describe_new(descriptors, list_descriptors());
  PLEXUS_TRY(expect(left.empty(), "open after {} contexts: {}", kTimes, left));
  PLEXUS_TRY(expect(settle_threads(threads, std::chrono::milliseconds(300)) == threads,
                    "it left a thread of {} contexts", kTimes));
  uint64_t lines = 0;
  for (const LogLine& line : stand.monitor().lines()) {
    lines += sizeof(LogLine) + line.text.capacity() + 64;
  }
  constexpr uint64_t kAllowedBytes = uint64_t{16} * kTimes;
  return expect(now <= before + 2 * lines + kAllowedBytes,
                "{} bytes of heap more after {} contexts", now - before, kTimes);
}

}  // namespace plexus::conformance
