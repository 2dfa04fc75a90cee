// SPDX-License-Identifier: Apache-2.0
// Short messages of LL, whose units fit in shared memory: each thread loads or stores the unit of
// one peer. Otherwise a thread would wait for one peer's words after the other's. There is no more
// code than it takes, since most of a short call is waiting for instructions that no cache has.
#pragma once

#include "kernels/cuda/block_state.hpp"

namespace plexus {

/// Loads the operands in their order, unit by unit, to BlockState::staged. False: this thread was
/// stopped.
template <class Block>
PLEXUS_DEVICE bool load_staged(const Block& block, BlockState& state, const Slice& slice) {
  const Step& step = state.step;
  const uint32_t shift = staged_shift(slice.size_bytes);
  const auto receives = static_cast<uint32_t>(step.receives);
  const bool has_own = slice.source != nullptr;
  const uint32_t own = has_own ? own_position(step) : receives;
  const uint32_t count = step.accumulates ? 2 : receives + static_cast<uint32_t>(has_own);
  bool stopped = false;
  for (uint32_t i = block.thread(); i < count << shift; i += block.threads()) {
    const uint32_t number = i >> shift;
    const uint32_t unit = i - (number << shift);
    if (unit >= units_of(slice.size_bytes)) {
      continue;
    }
    Operand from{number == own ? slice.source : slice.target, Carrier::kMemory, 0};
    if (number != own && !step.accumulates) {
      const DeviceRecv& end = state.recvs[number < own ? number : number - 1];
      from = {end.lines + lines_offset(Protocol::kLL, end.step), Carrier::kLL,
              flag_of_step(end.step)};
    }
    state.staged[i] = load_unit(*state.work.control, from, unit * kUnitBytes,
                                bytes_of_unit(slice.size_bytes, unit), stopped);
  }
  return !stopped;
}

/// Replaces the first operand by the value, and stores that in this rank's memory.
template <class Block>
PLEXUS_DEVICE void combine_staged(const Block& block, BlockState& state, const Slice& slice) {
  const uint32_t stride = 1U << staged_shift(slice.size_bytes);
  const Pass& pass = state.pass;
  for (uint32_t unit = block.thread(); unit < units_of(slice.size_bytes); unit += block.threads()) {
    uint64_t& value = state.staged[unit];
    if (!copies(pass)) {
      value = find_pass<Combine>(pass, state.work.type, state.work.op.kind)(&value, stride, pass);
    }
    if (pass.targets[0].bytes != nullptr) {
      store_bytes(pass.targets[0].bytes + unit * kUnitBytes, value,
                  bytes_of_unit(slice.size_bytes, unit));
    }
  }
}

template <class Block>
PLEXUS_DEVICE void store_staged(const Block& block, const BlockState& state, const Slice& slice) {
  const uint32_t shift = staged_shift(slice.size_bytes);
  const auto sends = static_cast<uint32_t>(state.step.sends);
  for (uint32_t i = block.thread(); i < sends << shift; i += block.threads()) {
    const uint32_t number = i >> shift;
    const uint32_t unit = i - (number << shift);
    const DeviceSend& end = state.sends[number];
    const Target to{end.lines + lines_offset(Protocol::kLL, end.step), Carrier::kLL,
                    flag_of_step(end.step)};
    if (unit < units_of(slice.size_bytes)) {
      store_unit(to, unit * kUnitBytes, state.staged[unit], bytes_of_unit(slice.size_bytes, unit));
    }
  }
}

}  // namespace plexus
