// SPDX-License-Identifier: Apache-2.0
#include "core/engine/input_check.hpp"

#include <new>

#include <fmt/format.h>

#include "core/base/log.hpp"
#include "core/engine/engine.hpp"
#include "kernels/layout/collective.hpp"

namespace plexus {

/// Each channel has the whole input: the first one's items are those of all collectives.
void InputCheck::look(const Execution& execution) noexcept {
  if (is_found_.load(std::memory_order_relaxed) || execution.queues.empty() ||
      execution.rank->stop.load(std::memory_order_relaxed)) {
    return;
  }
  try {
    for (const WorkQueue::Item& item : execution.queues.front().items) {
      if (!is_found_.load(std::memory_order_relaxed)) {
        look_at(item.work);
      }
    }
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): no memory for a line
  }
}

void InputCheck::look_at(const Work& work) {
  if (!is_reduction(static_cast<Collective>(work.call.collective)) ||
      work.input.address == nullptr) {
    return;
  }
  const size_t elements = work.input.size_bytes / element_size(work.type);
  const NotFinite bad = find_not_finite(work.input.address, elements, work.type);
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
