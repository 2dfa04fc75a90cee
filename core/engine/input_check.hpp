// SPDX-License-Identifier: Apache-2.0
// PLEXUS_CHECK_NAN=1: the first call in which a host rank gives a NaN or an infinity to a
// reduction. Each rank looks at its own input, until it has found one: results carry it to all
// others. Of several ranks the one with the lowest call number is the first (core/ras/ras_job).
//
//   if (execution.rank->input_check != nullptr) {
//     execution.rank->input_check->look(execution);  // as it begins
//   }
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace plexus {

struct Execution;
struct Work;

struct BadInput {
  uint64_t call = 0;      // its number among collectives
  std::string text = {};  // "a NaN to all_reduce(...), ..."; "": there is no such call
};

/// Threads: one at a time for look(), as the rank's calls; any for found().
class InputCheck {
 public:
  struct Member {
    uint64_t group;
    int rank;
    int nranks;
  };
  explicit InputCheck(const Member& member) : member_(member) {}
  /// Says what it finds, once.
  void look(const Execution& execution) noexcept;
  [[nodiscard]] BadInput found() const {
    return is_found_.load(std::memory_order_acquire) ? found_ : BadInput{};
  }

 private:
  void look_at(const Work& work);

  Member member_;
  BadInput found_;
  std::atomic<bool> is_found_{false};  // pairs with found()
};

}  // namespace plexus
