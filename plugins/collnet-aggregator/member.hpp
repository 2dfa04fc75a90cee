// SPDX-License-Identifier: Apache-2.0
// One member of a group: the connection to the aggregator, and the reductions in flight.
// Threads: one at a time.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "plugins/collnet-aggregator/address.hpp"
#include "plugins/collnet-aggregator/server.hpp"
#include "plugins/support/log.hpp"
#include "security/session.hpp"

namespace plexus::aggregator {

using plugin::Progress;

class Member {
 public:
  struct Options {
    plugin::Log log;
    Address server;
    security::Terms terms;
    GroupId group;
    uint32_t members;
    uint32_t member;
  };
  explicit Member(const Options& options) : options_(options) {}
  Member(const Member&) = delete;  // its requests point to it
  Member& operator=(const Member&) = delete;
  [[nodiscard]] const plugin::Log& log() const noexcept { return options_.log; }

  /// kDone: all members have joined. The server must be reached and proven within a time; how long
  /// the other members take is not limited.
  Result<Progress> connect();

  /// A reduction in flight.
  struct Request {
    Member* member = nullptr;
    WireFrame frame{};
    const std::byte* send = nullptr;
    std::byte* recv = nullptr;
    bool is_done = false;
    bool is_used = false;
  };
  /// nullptr: kRequestsMax reductions are in flight.
  Result<Request*> start(const plexus_collnet_reduction_t& reduction);
  Result<Progress> test(Request& request);

  /// Keeps the server that this member hosts until this member is destroyed.
  void host(std::unique_ptr<HostedServer> server) { hosted_ = std::move(server); }

 private:
  using Clock = std::chrono::steady_clock;
  enum class State { kIdle, kConnecting, kProving, kWaiting, kReady };
  Result<void> open_socket();
  Result<Progress> finish_connect();
  Result<Progress> prove();
  Result<void> say_hello();
  Result<Progress> await_ready();
  Result<void> move();
  Result<void> send_parts();
  Result<void> take_results();
  /// Continues to read `size_bytes` to `target`; kPending: not complete yet.
  Result<Progress> read_to(std::byte* target, size_t size_bytes);
  Result<void> take_header();
  /// An Error: the server's host does not answer any more.
  Result<void> look_for_silence();
  [[nodiscard]] plugin::Failure lost(const std::string& why);
  /// The text of the latest error of `session_`.
  [[nodiscard]] std::string failure_text() const;

  Options options_;
  // Destroyed after the connection, so that the server sees this member leave first.
  std::unique_ptr<HostedServer> hosted_;
  UniqueFd fd_;
  security::Session session_;
  State state_ = State::kIdle;
  security::Silence silence_;
  Clock::time_point next_look_{};
  Clock::time_point give_up_{};
  Clock::time_point again_at_{};
  std::optional<plugin::Failure> failure_;
  std::array<Request, kRequestsMax> requests_{};
  uint64_t started_ = 0;  // request number i is requests_[i % kRequestsMax]
  uint64_t sent_ = 0;
  uint64_t done_ = 0;
  size_t sent_bytes_ = 0;  // sent so far of request number `sent_` and its frame
  WireFrame header_{};
  size_t read_bytes_ = 0;  // read so far of the header, then of the payload
  bool has_header_ = false;
  std::string reason_;  // the aggregator's reason for an error
};

}  // namespace plexus::aggregator
