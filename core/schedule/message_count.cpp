// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/message_count.hpp"

#include <algorithm>

#include "core/base/units.hpp"

namespace plexus {
namespace {

/// Messages of one step in one loop: its value in slices of a slot.
uint64_t slices_of(const Work& work, const Step& step, uint32_t loop) {
  const int chunk = step.source != Buffer::kNone ? step.source_chunk : step.target_chunk;
  const auto index = work.geometry.blocked ? 0 : static_cast<uint32_t>(chunk);
  const uint64_t bytes = span_of(work.geometry, 0, index, loop).count * work.element_bytes;
  const uint64_t slices = (bytes + work.slot_bytes - 1) / work.slot_bytes;
  return work.exchanges_empty ? std::max<uint64_t>(slices, 1) : slices;
}

/// Does `step` send to, or receive from, the other side of `end`?
bool uses(const Work& work, const Step& step, const ConnectionEnd& end) {
  const auto first = static_cast<size_t>(step.peers_first);
  const auto middle = first + static_cast<size_t>(step.receives);
  const auto last = middle + static_cast<size_t>(step.sends);
  const auto at = [](const auto& list, size_t place) {
    return list.begin() + static_cast<std::ptrdiff_t>(place);
  };
  return end.key().sends ? std::find(at(work.sends, middle), at(work.sends, last), &end.send) !=
                               at(work.sends, last)
                         : std::find(at(work.recvs, first), at(work.recvs, middle), &end.recv) !=
                               at(work.recvs, middle);
}

}  // namespace

bool moves_data(const Work& work, const Step& step) {
  // All loops but the last are full: when the first moves nothing there is no other.
  return work.geometry.loops > 0 && slices_of(work, step, 0) > 0;
}

uint64_t count_messages(const Work& work, const ConnectionEnd& end) {
  uint64_t messages = 0;
  for (const Lane& lane : work.program->lanes) {
    for (const Step& step : lane.steps) {
      if (uses(work, step, end)) {
        for (uint32_t loop = 0; loop < work.geometry.loops; ++loop) {
          messages += slices_of(work, step, loop);
        }
      }
    }
  }
  return messages;
}

}  // namespace plexus
