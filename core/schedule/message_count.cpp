// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/message_count.hpp"

#include <algorithm>
#include <span>

#include "core/base/units.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

/// Messages of one step in one loop: the slices of a slot that its chunk needs; or one, of all the
/// chunks that travel together. `step` is the first of its message.
uint64_t slices_of(const Work& work, const Step& step, uint32_t loop) {
  uint64_t bytes = 0;
  for (const Step& part : std::span(&step, steps_of_message(&step))) {
    bytes += span_of(work, part, loop).count * work.element_bytes;
  }
  PLEXUS_DCHECK(work.slot_bytes > 0 && loop < work.geometry.loops, work.slot_bytes, loop);
  const uint64_t slices = div_ceil(bytes, uint64_t{work.slot_bytes});
  return work.exchanges_empty ? std::max<uint64_t>(slices, 1) : slices;
}

/// Messages of one step in all loops; all loops but the last are equal, unless blocks end earlier.
uint64_t slices_of(const Work& work, const Step& step) {
  const uint32_t loops = work.geometry.loops;
  if (loops == 0) {
    return 0;
  }
  if (!work.blocks.empty()) {
    uint64_t sum = 0;
    for (uint32_t loop = 0; loop < loops; ++loop) {
      sum += slices_of(work, step, loop);
    }
    return sum;
  }
  return slices_of(work, step, 0) * (loops - 1) + slices_of(work, step, loops - 1);
}

}  // namespace

bool moves_data(const Work& work, const Step& step) {
  // All loops but the last are full: if the first moves nothing, it is the only one.
  return work.geometry.loops > 0 && slices_of(work, step, 0) > 0;
}

uint64_t count_messages(const WorkQueue::Item& item, const ConnectionKey& key) {
  uint64_t messages = 0;
  for_uses(item, key,
           [&](const Step& step, uint64_t uses) { messages += uses * slices_of(item.work, step); });
  return messages;
}

std::vector<ExpectedMessages> count_expected(const Execution& execution) {
  std::vector<ExpectedMessages> expected;
  for (ConnectionEnd* const end : execution.ends) {
    if (end->has_pump() && !end->key().sends) {
      uint64_t messages = 0;
      for (const WorkQueue& queue : execution.queues) {
        for (const WorkQueue::Item& item : queue.items) {
          messages += count_messages(item, end->key());
        }
      }
      expected.push_back({end, messages});
    }
  }
  return expected;
}

}  // namespace plexus
