// SPDX-License-Identifier: Apache-2.0
// Runs the tests on the machine that PLEXUS_TEST_MACHINE names; without that machine they are
// reported as skipped. Started as a rank, it runs the rank's role instead.
#include <cstdio>
#include <cstdlib>

#include "tests/device/job.hpp"
#include "tests/device/role.hpp"

/// Used by net_gpu.cpp.
extern "C" __attribute__((visibility("default"))) int plexus_test_is_gpu_memory(
    const void* pointer) {
  using Place = plexus::PointerFacts::Place;
  return plexus::testing_device::machine().describe(pointer).place == Place::kDevice ? 1 : 0;
}

int main(int argc, char** argv) {
  using plexus::testing_device::machine;
  using plexus::testing_device::machine_missing;
  if (const std::string reason = machine_missing(); !reason.empty()) {
    std::printf("SKIPPED: %s; none of these tests has run on a GPU.\n", reason.c_str());
    constexpr int kSkipped = 77;
    return kSkipped;
  }
  if (const char* const role = std::getenv("PLEXUS_TEST_ROLE"); role != nullptr) {
    return plexus::testing_device::run_role(role);
  }
  setenv("PLEXUS_DEVICE", "cuda", 1);
  testing::InitGoogleTest(&argc, argv);
  std::printf("machine: %d of %s\n", machine().device_count(), machine().name().c_str());
  const int result = RUN_ALL_TESTS();
  if (!testing::GTEST_FLAG(list_tests) &&
      testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::printf("no test has such a name\n");
    return 1;
  }
  return result;
}
