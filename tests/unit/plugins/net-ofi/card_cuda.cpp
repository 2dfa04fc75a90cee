// SPDX-License-Identifier: Apache-2.0
// The simulated CUDA driver: knows one range of GPU memory. See card.hpp.
#include "tests/unit/plugins/net-ofi/card.hpp"

using plexus::test::GpuRange;
using plexus::test::kGpu;

#define PLEXUS_TEST_EXPORT extern "C" __attribute__((visibility("default")))

PLEXUS_TEST_EXPORT GpuRange* plexus_test_gpu() {
  static GpuRange range;
  return &range;
}

PLEXUS_TEST_EXPORT int cuPointerGetAttribute(void* value,
                                             int attribute,
                                             unsigned long long pointer) {
  constexpr int kInvalidValue = 1;
  constexpr int kMemoryType = 2;
  constexpr int kDeviceOrdinal = 9;
  const GpuRange& range = *plexus_test_gpu();
  const auto begin = reinterpret_cast<uintptr_t>(range.begin.load());
  if (pointer < begin || pointer >= begin + range.size_bytes) {
    return kInvalidValue;
  }
  switch (attribute) {
    case kMemoryType:
      *static_cast<unsigned*>(value) = 2;  // CU_MEMORYTYPE_DEVICE
      return 0;
    case kDeviceOrdinal:
      *static_cast<int*>(value) = kGpu;
      return 0;
    default:
      return kInvalidValue;
  }
}
