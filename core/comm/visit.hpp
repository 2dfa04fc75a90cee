// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "core/base/result.hpp"
#include "core/comm/communicator.hpp"
#include "guest/assert.hpp"

namespace plexus {

/// A use of a communicator that is not one of its collectives, which InCall counts at less cost: it
/// ends after its last visit, whichever thread ends it. Threads: any.
class Visit {
 public:
  /// kInvalidArgument: `comm`, whose memory was a communicator's once, has ended. Reads nothing of
  /// that memory before `process` has found it live.
  static Result<Visit> begin(Process& process, Communicator* comm);
  /// Visits of all communicators of the process that `matches` accepts.
  static std::vector<Visit> begin_all(Process& process,
                                      const std::function<bool(const Communicator&)>& matches);
  ~Visit() {
    if (comm_ != nullptr) {
      // pairs with is_visited()
      const int visits = comm_->visits.fetch_sub(1, std::memory_order_release);
      PLEXUS_DCHECK(visits > 0, visits);
    }
  }
  Visit(Visit&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  Visit& operator=(Visit&&) = delete;

  [[nodiscard]] Communicator& operator*() const noexcept { return *comm_; }
  [[nodiscard]] Communicator* operator->() const noexcept { return comm_; }

 private:
  explicit Visit(Communicator* comm) noexcept : comm_(comm) {}

  Communicator* comm_;
};

}  // namespace plexus
