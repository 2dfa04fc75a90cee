// SPDX-License-Identifier: Apache-2.0
// The messages from one rank of a group to another. c10d lets them overtake collectives and
// messages of other pairs and directions (isend to the right, recv from the left), but a
// communicator's calls run in their order. So each lane has a communicator of its own two ranks. It
// is made in the background, since the other rank may come to it at any later time.
#pragma once

#include <deque>
#include <memory>

#include "communicator.hpp"

namespace torch_plexus {

/// Threads: one at a time.
class MessageLane {
 public:
  MessageLane(c10d::Store& store, int source, int target, bool sends);
  ~MessageLane();
  MessageLane(const MessageLane&) = delete;
  MessageLane& operator=(const MessageLane&) = delete;

  /// nullptr: it is still being made.
  [[nodiscard]] Communicator* comm() const noexcept { return comm_.get(); }
  /// Goes on making the communicator; never blocks for long. Throws when that failed.
  void progress();

 private:
  void begin();

  c10d::Store& store_;
  int source_;
  int target_;
  bool sends_;
  std::string key_;
  ncclUniqueId id_{};
  ncclComm_t making_ = nullptr;
  std::unique_ptr<Communicator> comm_;
};

}  // namespace torch_plexus
