// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/message_count.hpp"

#include <algorithm>

#include "core/base/units.hpp"

namespace plexus {
namespace {

/// Messages of one step in one loop: the slices of a slot that its chunk needs.
uint64_t slices_of(const Work& work, const Step& step, uint32_t loop) {
  const int chunk = step.source != Buffer::kNone ? step.source_chunk : step.target_chunk;
  const auto index = work.geometry.blocked ? 0 : static_cast<uint32_t>(chunk);
  const uint64_t bytes = span_of(work.geometry, 0, index, loop).count * work.element_bytes;
  const uint64_t slices = div_ceil(bytes, uint64_t{work.slot_bytes});
  return work.exchanges_empty ? std::max<uint64_t>(slices, 1) : slices;
}

/// Messages of one step in all loops; all loops but the last are equal.
uint64_t slices_of(const Work& work, const Step& step) {
  const uint32_t loops = work.geometry.loops;
  if (loops == 0) {
    return 0;
  }
  return slices_of(work, step, 0) * (loops - 1) + slices_of(work, step, loops - 1);
}

/// Number of times that `step` sends or receives through `end`.
uint64_t uses_of(const Work& work, const Step& step, const ConnectionEnd& end) {
  const auto first = static_cast<size_t>(step.peers_first);
  const auto middle = first + static_cast<size_t>(step.receives);
  const auto last = middle + static_cast<size_t>(step.sends);
  const auto count = [](const auto& list, size_t from, size_t to, const auto* wanted) {
    return static_cast<uint64_t>(std::count(list.begin() + static_cast<std::ptrdiff_t>(from),
                                            list.begin() + static_cast<std::ptrdiff_t>(to),
                                            wanted));
  };
  return end.key().sends ? count(work.sends, middle, last, &end.send)
                         : count(work.recvs, first, middle, &end.recv);
}

}  // namespace

bool moves_data(const Work& work, const Step& step) {
  // All loops but the last are full: if the first moves nothing, it is the only one.
  return work.geometry.loops > 0 && slices_of(work, step, 0) > 0;
}

uint64_t count_messages(const Work& work, const ConnectionEnd& end) {
  uint64_t messages = 0;
  for (const Lane& lane : work.program->lanes) {
    for (const Step& step : lane.steps) {
      if (const uint64_t uses = uses_of(work, step, end); uses > 0) {
        messages += uses * slices_of(work, step);
      }
    }
  }
  return messages;
}

std::vector<ExpectedMessages> count_expected(const Execution& execution) {
  std::vector<ExpectedMessages> expected;
  for (ConnectionEnd* const end : execution.ends) {
    if (end->has_pump() && !end->key().sends) {
      uint64_t messages = 0;
      for (const WorkQueue& queue : execution.queues) {
        for (const WorkQueue::Item& item : queue.items) {
          messages += count_messages(item.work, *end);
        }
      }
      expected.push_back({end, messages});
    }
  }
  return expected;
}

}  // namespace plexus
