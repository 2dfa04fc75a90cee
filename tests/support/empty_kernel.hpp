// SPDX-License-Identifier: Apache-2.0
// A cooperative kernel that does nothing: the minimum latency of a launch.
#pragma once

#include <cstdint>

struct CUstream_st;

namespace plexus::test {

/// A number of cudaError_t.
int launch_empty(uint32_t blocks, uint32_t threads, CUstream_st* stream);

}  // namespace plexus::test
