// SPDX-License-Identifier: Apache-2.0
// What the observer of a receiving pump hears: the arrival of each message, and that it was taken
// out of its slot.
#pragma once

#include <cstdint>

#include "core/transport/connection.hpp"
#include "core/transport/network/pump_fifo.hpp"
#include "guest/assert.hpp"

namespace plexus {

class RecvReport {
 public:
  /// Null: nobody listens. `delivered`: the steps whose slots were filled so far. Messages that
  /// were taken before now are not reported; those that still lie in their slots came early for the
  /// call that begins.
  void observe(StepObserver* observer, const PumpFifo& fifo, uint64_t delivered) {
    observer_ = observer;
    if (observer == nullptr || !fifo.has_memory()) {
      return;
    }
    reported_ = fifo.fifo().taken.load(std::memory_order_relaxed);
    for (uint64_t step = reported_; step < delivered; ++step) {
      observer->on_step(StepChange::kArrived, fifo.header(step).size_bytes);
    }
  }
  void tell_arrived(uint64_t size_bytes) {
    if (observer_ != nullptr) {
      observer_->on_step(StepChange::kArrived, size_bytes);
    }
  }
  /// Reports the messages that were taken since it was called last.
  void tell_taken(const PumpFifo& fifo) {
    if (observer_ == nullptr) {
      return;
    }
    const uint64_t taken = fifo.fifo().taken.load(std::memory_order_relaxed);
    PLEXUS_DCHECK(reported_ <= taken, reported_, taken);
    for (; reported_ < taken; ++reported_) {
      observer_->on_step(StepChange::kDone, 0);
    }
  }

 private:
  StepObserver* observer_ = nullptr;
  uint64_t reported_ = 0;  // steps of which the observer knows that they were taken
};

}  // namespace plexus
