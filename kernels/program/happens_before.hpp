// SPDX-License-Identifier: Apache-2.0
// `HappensBefore`: vector clocks of the lanes in the verifier's execution. They say what happens
// before what in every interleaving: along a lane, along `after`, and from filling a slot to taking
// it. That a slot became free is no such order, since it depends on the number of slots.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace plexus {

/// A step of a lane, counted from 1; 0: none. Lanes are numbered over all ranks, as in LaneNetwork.
struct StepEvent {
  uint32_t lane = 0;
  uint32_t number = 0;
};

class HappensBefore {
 public:
  /// [lanes] the latest known step of each lane. Shared with the messages that carry it, and copied
  /// when its lane learns more. null: nothing is known.
  using Clock = std::shared_ptr<const std::vector<uint32_t>>;

  explicit HappensBefore(size_t lanes) : clocks_(lanes) {}

  [[nodiscard]] Clock clock(uint32_t lane) const { return clocks_[lane]; }

  /// `lane` now knows `event` and everything in `known`.
  void learn(uint32_t lane, StepEvent event, const Clock& known) {
    auto& mine = clocks_[lane];
    if (mine == nullptr) {
      mine = std::make_shared<std::vector<uint32_t>>(clocks_.size());
    } else if (mine.use_count() > 1) {
      mine = std::make_shared<std::vector<uint32_t>>(*mine);
    }
    if (known != nullptr) {
      std::transform(known->begin(), known->end(), mine->begin(), mine->begin(),
                     [](uint32_t a, uint32_t b) { return a < b ? b : a; });
    }
    (*mine)[event.lane] = std::max((*mine)[event.lane], event.number);
  }

  /// Whether `event` happens before the step that `lane` executes.
  [[nodiscard]] bool is_before(StepEvent event, uint32_t lane) const {
    return event.lane == lane || is_known(event, clocks_[lane].get());
  }
  /// Whether it happens before what the step `sender` sends, as what that step takes does. `clock`:
  /// of its lane then.
  [[nodiscard]] static bool is_before(StepEvent event, StepEvent sender, const Clock& clock) {
    return (event.lane == sender.lane && event.number <= sender.number) ||
           is_known(event, clock.get());
  }

 private:
  [[nodiscard]] static bool is_known(StepEvent event, const std::vector<uint32_t>* clock) {
    return event.number == 0 || (clock != nullptr && (*clock)[event.lane] >= event.number);
  }

  std::vector<std::shared_ptr<std::vector<uint32_t>>> clocks_;
};

}  // namespace plexus
