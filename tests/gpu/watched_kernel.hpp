// SPDX-License-Identifier: Apache-2.0
// The shipped kernel as MemoryExplorer sees it: the one source of its program that is compiled with
// the hooks.
#pragma once

#include "kernels/cuda/block_state.hpp"
#include "tests/support/memory_explorer.hpp"

namespace plexus::test {

void run_watched(const ExploredThread& thread, BlockState& state, const DeviceBlock& task);

}  // namespace plexus::test
