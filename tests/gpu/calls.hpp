// SPDX-License-Identifier: Apache-2.0
// Calls and inputs of the GPU tests, and what host ranks make of them.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/program/algorithms.hpp"
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

/// Random bits with every value of the type but NaN, and no infinity: a bit of the exponent is
/// never set. (Of two NaN, a host compiler may choose the other one.)
inline std::vector<std::byte> make_input(DataType type, size_t size_bytes, uint32_t seed) {
  uint64_t mask = ~uint64_t{0};
  if (is_floating(type)) {
    constexpr uint64_t kExponentBits[] = {0x04000400'04000400, 0x00800000'00800000,
                                          0x0010000000000000,  0x00800080'00800080,
                                          0x08080808'08080808, 0x0404040404040404};
    mask = ~kExponentBits[static_cast<int>(type) - static_cast<int>(DataType::kFloat16)];
  }
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(size_bytes);
  for (size_t i = 0; i < size_bytes; i += sizeof(uint64_t)) {
    const uint64_t bits = random() & mask;
    std::memcpy(bytes.data() + i, &bits, std::min(sizeof(bits), size_bytes - i));
  }
  return bytes;
}

/// What host ranks compute, with input number `rank` made from that seed.
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
