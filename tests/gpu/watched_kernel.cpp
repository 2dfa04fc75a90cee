// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/watched_kernel.hpp"

#include "kernels/cuda/in_turn.hpp"

namespace plexus::test {

void run_watched(const ExploredThread& thread, BlockState& state, const DeviceBlock& task) {
  run_block(thread, state, task);
}

}  // namespace plexus::test
