// SPDX-License-Identifier: Apache-2.0
// The introducer of a further unique id (ncclCommInitRankScalable takes several): the processes
// that join there are its clients, and it passes on what they and the first id's introducer say to
// each other. So no introducer has more than its share of the connections.
//
// A pure state machine: no sockets, no clock, no threads. A client is a connection.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string_view>

#include "core/control/message.hpp"

namespace plexus {

/// Threads: one at a time.
class Relay {
 public:
  struct Output {
    std::function<void(uint32_t client, const Message& message)> send;
    std::function<void(const Message& message)> send_to_first;
  };
  /// `world`: id of the group of all ranks.
  Relay(uint64_t world, Output output) : world_(world), out_(std::move(output)) {}

  /// A message of a client. An Error: it breaks the protocol; drop its connection.
  Result<void> take(uint32_t client, const Message& message);
  /// The client's connection is lost.
  void lose(uint32_t client);
  void take_from_first(const Message& message);
  /// The connection to the first id's introducer is lost; `why`: half a sentence.
  void lose_first(std::string_view why);

  [[nodiscard]] bool have_all_joined() const noexcept { return is_complete_; }
  [[nodiscard]] bool has_failed() const noexcept { return failure_.has_value(); }
  /// The first id's introducer has nothing more to say to the clients that are left.
  [[nodiscard]] bool is_over() const noexcept {
    return clients_.empty() && (is_complete_ || has_failed());
  }

 private:
  Result<void> join(uint32_t client, const Message& message);
  void ask_for_table(uint32_t client);
  void fail_all(const Error& error);

  uint64_t world_;
  Output out_;
  std::map<uint32_t, uint64_t> clients_;  // those that may need an answer -> their process_id()
  bool is_complete_ = false;
  std::optional<Error> failure_;
  std::optional<Error> loss_;  // of the first id's introducer
};

}  // namespace plexus
