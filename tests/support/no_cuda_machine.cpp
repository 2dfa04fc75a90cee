// SPDX-License-Identifier: Apache-2.0
// For builds without CUDA.
#include "tests/support/machine.hpp"

namespace plexus::testing_device {

std::unique_ptr<Machine> make_cuda_machine(std::string& reason) {
  reason = "this build has no CUDA support";
  return nullptr;
}

}  // namespace plexus::testing_device
