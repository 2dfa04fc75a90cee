// SPDX-License-Identifier: Apache-2.0
#include "core/engine/input_check.hpp"

#include <new>
#include <span>

#include <fmt/format.h>

#include "core/base/log.hpp"
#include "core/engine/engine.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus {

/// Each channel has the whole input, so that the first one's items are those of all collectives;
/// but of blocks with counts of their own it has its part.
void InputCheck::look(const Execution& execution) noexcept {
  if (is_found_.load(std::memory_order_relaxed) ||
      execution.rank->stop.load(std::memory_order_relaxed)) {
    return;
  }
  try {
    bool is_first = true;
    for (const WorkQueue& queue : execution.queues) {
      for (const WorkQueue::Item& item : queue.items) {
        if ((is_first || !item.work.blocks.empty()) && !is_found_.load(std::memory_order_relaxed)) {
          look_at(item.work);
        }
      }
      is_first = false;
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): no memory for a line
  }
}

void InputCheck::look_at(const Work& work) {
  if (!is_reduction(static_cast<Collective>(work.call.collective)) ||
      work.input.address == nullptr) {
    return;
  }
  const size_t element_bytes = element_size(work.type);
  const BlockPart whole{.input = 0, .output = 0, .count = work.input.size_bytes / element_bytes};
  size_t elements = 0;
  NotFinite bad{};
  for (const BlockPart& part :
       work.blocks.empty() ? std::span(&whole, 1) : std::span<const BlockPart>(work.blocks)) {
    if (bad.count == 0) {
      bad = find_not_finite(work.input.address + part.input * element_bytes, part.count, work.type);
      bad.first += part.input;
    }
    elements += part.count;
  }
  if (bad.count == 0) {
    return;
  }
  found_ = {.call = work.call.sequence,
            .text = fmt::format("{} to {}: element {}; {} of its {} elements are NaN or infinite",
                                bad.is_nan ? "a NaN" : "an infinity", describe_call(work.call),
                                bad.first, bad.count, elements)};
  is_found_.store(true, std::memory_order_release);  // pairs with found()
  PLEXUS_NOTIFY(
      "comm {:#x}: rank {} of {} gives {}. Look at what this rank computed before; where other "
      "ranks say so, too, the lowest call number came first (PLEXUS_CHECK_NAN)",
      member_.group, member_.rank, member_.nranks, found_.text);
}

}  // namespace plexus
