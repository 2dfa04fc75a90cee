// SPDX-License-Identifier: Apache-2.0
// As main.cpp; but started as a rank, it does what a rank does.
#include <cstdlib>

#include "core/comm/process.hpp"
#include "tests/device/job.hpp"
#include "tests/device/role.hpp"

namespace plexus::testing_device {

SoftwareDevice& devices() {
  static auto* const made = new SoftwareDevice({});  // as long as the process: threads look at it
  return *made;
}

}  // namespace plexus::testing_device

/// For net_gpu.cpp.
extern "C" __attribute__((visibility("default"))) int plexus_test_is_gpu_memory(
    const void* pointer) {
  using Place = plexus::PointerFacts::Place;
  return plexus::testing_device::devices().describe_pointer(pointer).place == Place::kDevice ? 1
                                                                                             : 0;
}

int main(int argc, char** argv) {
  plexus::Process::instance().use_devices(&plexus::testing_device::devices());
  if (const char* const role = std::getenv("PLEXUS_TEST_ROLE"); role != nullptr) {
    return plexus::testing_device::run_role(role);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
