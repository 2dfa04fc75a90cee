// SPDX-License-Identifier: Apache-2.0
// A fence between two sides of which one runs often and the other seldom, as in Dekker's algorithm:
// each side stores, passes its fence and loads; then at least one sees what the other stored. The
// frequent side only keeps the compiler from reordering; a real fence there would wait until all
// its earlier stores have reached the other core (250 ns on some machines), and keep messages from
// following each other. The seldom side makes all threads of the process pass a real one
// (membarrier(2)). Where the kernel does not, both sides use real fences.
#pragma once

#include <atomic>

namespace plexus {

namespace asymmetric {
extern const bool is_possible;  // false until this library is initialised
}  // namespace asymmetric

inline void light_fence() noexcept {
  if (asymmetric::is_possible) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
}
/// Takes microseconds.
void heavy_fence() noexcept;

}  // namespace plexus
