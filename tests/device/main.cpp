// SPDX-License-Identifier: Apache-2.0
// Puts the software device below the library, then runs the tests.
#include <cstdlib>

#include "core/comm/process.hpp"
#include "tests/device/job.hpp"

namespace plexus::testing_device {

SoftwareDevice& devices() {
  static auto* const made = new SoftwareDevice({});  // as long as the process: threads look at it
  return *made;
}

}  // namespace plexus::testing_device

int main(int argc, char** argv) {
  setenv("PLEXUS_DEVICE", "cuda", 1);
  plexus::Process::instance().use_devices(&plexus::testing_device::devices());
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
