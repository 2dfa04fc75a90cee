// SPDX-License-Identifier: Apache-2.0
// Calls and inputs of the GPU tests, and the results of host ranks.
#pragma once

#include <cstring>
#include <vector>

#include "kernels/program/algorithms.hpp"
#include "tests/support/random_input.hpp"
#include "tests/unit/kernels/cuda/world.hpp"

namespace plexus::test {

inline Call make_call(const char* algorithm, int nranks, uint64_t count, Protocol protocol) {
  const Algorithm& row = *find_algorithm(algorithm);
  std::vector<int> ring(static_cast<size_t>(nranks));
  for (int rank = 0; rank < nranks; ++rank) {
    ring[static_cast<size_t>(rank)] = rank;
  }
  Call call;
  for (int rank = 0; rank < nranks; ++rank) {
    call.programs.push_back(row.record({.rank = rank, .ring = ring}));
  }
  call.collective = row.collective;
  call.protocol = protocol;
  call.count = count;
  call.op = ReduceOp::plain(ReduceKind::kSum);
  call.slot_bytes = uses_lines(protocol) ? payload_bytes_max(protocol) : 64 * 1024;
  call.chunk_bytes = 2 * call.slot_bytes;
  return call;
}

/// The results of host ranks, with input number `rank` made from that seed.
inline std::vector<std::vector<std::byte>> run_on_host(const Call& call) {
  World host(call, {.on_device = std::vector<bool>(call.programs.size())});
  std::vector<std::vector<std::byte>> outputs;
  for (size_t rank = 0; rank < host.size(); ++rank) {
    const std::vector<std::byte> input =
        make_input(call.type, host.input_bytes(), static_cast<uint32_t>(rank));
    std::memcpy(host.input(rank), input.data(), input.size());
  }
  if (host.run()) {
    for (size_t rank = 0; rank < host.size(); ++rank) {
      outputs.push_back(host.output(rank));
    }
  }
  return outputs;
}

}  // namespace plexus::test
