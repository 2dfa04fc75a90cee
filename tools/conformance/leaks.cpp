// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/leaks.hpp"

#include <malloc.h>

#include "tools/conformance/process_state.hpp"

namespace plexus::conformance {

uint64_t count_heap_bytes(Fixture& fixture) {
  fixture.monitor().forget_lines();
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

Result<void> leaves_no_memory(Fixture& fixture, const Repeated& repeated) {
  const uint64_t before = count_heap_bytes(fixture);
  PLEXUS_TRY(repeated.use(repeated.times));
  const uint64_t now = count_heap_bytes(fixture);
  // malloc counts what it keeps for the thread after a free
  constexpr uint64_t kCachedBytes = 4096;
  const uint64_t allowed =
      kCachedBytes + repeated.bytes_each * static_cast<uint64_t>(repeated.times);
  return expect(now <= before + allowed, "{} bytes of heap leaked by {} {}", now - before,
                repeated.times, repeated.what);
}

Result<void> contexts_leave_nothing(Fixture& fixture,
                                    const std::function<Result<void>(int times)>& use) {
  PLEXUS_TRY(use(20));
  const Holdings before;
  PLEXUS_TRY(
      leaves_no_memory(fixture, {.use = use, .times = 300, .what = "contexts", .bytes_each = 16}));
  return before.expect_nothing_more("300 contexts were created and finalized");
}

}  // namespace plexus::conformance
