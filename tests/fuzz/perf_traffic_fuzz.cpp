// SPDX-License-Identifier: Apache-2.0
// The matrix of alltoallv (NCCL_TESTS_ALLTOALLV_MATRIX_FILE). What is accepted is what the
// benchmark relies on: a square of multiples of 16 whose sums do not overflow.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tools/cli/perf/traffic.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using plexus::perf::Traffic;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const double scale : {0.0, 1.0, 1e9}) {
    const auto traffic = Traffic::parse(text, scale);
    if (!traffic) {
      if (traffic.error().message().empty()) {
        std::abort();
      }
      continue;
    }
    const int nranks = traffic.value().matrix_ranks();
    if (nranks < 1 || static_cast<size_t>(nranks) > size) {
      std::abort();
    }
    const size_t largest = traffic.value().largest_bytes(nranks, 0);
    size_t sent = 0;
    for (int target = 0; target < nranks; ++target) {
      const size_t bytes = traffic.value().bytes(nranks - 1, target, nranks, 0);
      sent += bytes;
      if (bytes % 16 != 0 || bytes > sent) {
        std::abort();
      }
    }
    if (sent > largest) {
      std::abort();
    }
  }
  return 0;
}
