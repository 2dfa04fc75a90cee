// SPDX-License-Identifier: Apache-2.0
// The introducer: whoever made the unique id. Every process registers its ranks with it; when all
// are there it gives the table of processes to the one that is the root of the control tree, which
// passes it on. Then it is needed no more.
//
// A pure state machine: no sockets, no clock, no threads. A client is a connection.
//
//   Introducer introducer(world, [](uint32_t client, const Message& message) {
//     // send `message` over the connection number `client`
//   });
//   PLEXUS_TRY(introducer.take(0, arrived));  // from connection 0
//   return ok();
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/control/message.hpp"

namespace plexus {

/// Threads: one at a time.
class Introducer {
 public:
  using Send = std::function<void(uint32_t client, const Message& message)>;
  /// `world`: id of the group of all ranks.
  Introducer(uint64_t world, Send send) : world_(world), send_(std::move(send)) {}

  /// A message of a client. An Error: it breaks the protocol; drop its connection.
  Result<void> take(uint32_t client, const Message& message);
  /// The client's connection is lost. Clients that do not have the table yet are told: nobody else
  /// may know them, if that one was to pass it on.
  void lose(uint32_t client);
  /// The time for joining is over: tells the ranks that joined which ones are missing. `refusals`:
  /// callers that this process had no descriptor for.
  void give_up(uint64_t refusals = 0);

  [[nodiscard]] bool anybody_came() const noexcept { return nranks_ > 0; }
  [[nodiscard]] bool have_all_joined() const noexcept { return is_complete_; }
  [[nodiscard]] bool has_failed() const noexcept { return failure_.has_value(); }
  /// Nobody who may still need an answer is connected.
  [[nodiscard]] bool is_alone() const noexcept { return clients_.empty(); }

 private:
  /// Who has not got the table yet: a process, or those of a Relay.
  struct Client {
    bool is_relay = false;
    std::map<uint64_t, ProcessEntry> processes;  // by process_id()
  };
  Result<void> join(uint32_t client, const JoinInfo& info, bool is_relayed);
  [[nodiscard]] std::string find_fault(const JoinInfo& info) const;
  void take_failure(const Message& message);
  void lose_process(uint32_t client, uint64_t process);
  void complete();
  void fail_all(const Error& error);
  [[nodiscard]] std::string missing_ranks(size_t& count) const;

  uint64_t world_;
  Send send_;
  uint32_t nranks_ = 0;
  uint32_t version_ = 0;
  std::map<uint32_t, Client> clients_;
  std::map<uint32_t, std::string> names_;  // rank -> its name, of those that joined
  bool is_complete_ = false;
  std::string table_;  // when it is complete
  std::optional<Error> failure_;
  std::string named_missing_;  // the missing ranks that a rank has named for the job
};

}  // namespace plexus
