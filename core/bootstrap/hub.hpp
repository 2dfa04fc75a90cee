// SPDX-License-Identifier: Apache-2.0
// The hub of the control plane: every member (rank of the family: the ranks that joined by one
// unique id) talks to it and to nobody else. It collects gathers, passes control messages and
// probes on, and tells the others when a member fails or vanishes.
//
// When the last rank of its process has left, the hub moves to the process of another member, with
// its whole state (hub_state.cpp).
//
// A pure state machine: no sockets, no clock, no threads. Input: a member's message, or its loss;
// output: messages to members through `send`. Nothing a member sends can break it for the others.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/bootstrap/message.hpp"

namespace plexus {

inline constexpr size_t kHubGroupsMax = 1U << 16;  // of one family
inline constexpr size_t kHubGathersMax = 64;       // unfinished, of one group

/// Threads: one at a time.
class Hub {
 public:
  using Send = std::function<void(uint32_t member, const Message& message)>;
  /// `host_process`: the process this hub runs in; `world`: id of the group of all members.
  Hub(uint64_t world, uint64_t host_process, Send send)
      : world_(world), host_process_(host_process), send_(std::move(send)) {}

  /// A newcomer. An Error is for it alone, unless the job cannot be right any more: then all are
  /// told.
  Result<void> join(const JoinInfo& info);
  /// A joined member's message. An Error: it breaks the rules; drop its connection.
  Result<void> take(uint32_t member, Message message);
  /// A member's connection is gone.
  void lose(uint32_t member, std::string_view how = "died or lost its connection");
  /// The time for joining is over: those who came are told who is missing.
  void give_up_joining();

  [[nodiscard]] bool all_joined() const { return nranks_ > 0 && members_.size() == nranks_; }
  [[nodiscard]] bool empty() const { return present_ == 0; }
  /// Groups of which something is kept.
  [[nodiscard]] size_t groups() const { return groups_.size(); }
  [[nodiscard]] bool anybody_came() const { return !members_.empty(); }

  // -- its going to another process (handover.hpp) --

  /// All have joined, and of those present none lives in this hub's process, which may end.
  [[nodiscard]] bool needs_heir() const;
  [[nodiscard]] bool is_of_host(uint32_t member) const;
  [[nodiscard]] std::vector<uint32_t> present() const;
  [[nodiscard]] std::string name_of(uint32_t member) const;
  /// Nobody takes over: from now on the loss of the hub is no failure.
  void say_goodbye();
  /// The whole state, as messages (README.md). Only when all have joined.
  [[nodiscard]] std::string to_bytes() const;
  /// Takes the state of another hub of the same world; for a hub that nobody has joined.
  Result<void> restore(std::string_view bytes);
  /// A member of the restored state comes back, and is told who shares the process of this hub.
  Result<void> rejoin(const JoinInfo& info);

 private:
  struct Member {
    JoinInfo info;
    bool present = true;
  };
  struct Group {
    std::vector<uint32_t> members;  // ranks of the family, in rank order of the group
    bool failed = false;
    std::string why;                                              // it failed
    std::map<uint64_t, std::map<uint32_t, std::string>> gathers;  // number -> member -> blob
    std::map<uint32_t, std::string> left;                         // member -> its leave record
  };

  Result<void> take_group(uint32_t member, const Message& message);
  Result<void> take_gather(uint32_t member, Message message);
  Result<void> take_post(uint32_t member, Message message);
  Result<void> take_probe(uint32_t member, Message message);
  Result<void> take_leave_group(uint32_t member, Message message);
  void take_failure(uint32_t member, const Message& message);
  void leave(uint32_t member);
  void check_gathers(uint64_t id, Group& group);
  void erase_groups_of(uint32_t member);
  [[nodiscard]] bool is_over(const Group& group) const;
  [[nodiscard]] std::optional<uint32_t> host_member() const;
  void tell_host(uint32_t to, uint32_t host);
  void fail_group(uint64_t id, Group& group, uint32_t spared, const Error& error);
  void fail_groups_of(uint32_t member, const Error& error);
  Group* find_group(uint64_t id, uint32_t member);
  Result<void> restore_message(const Message& message);
  Result<void> restore_member(const Message& message);
  Result<void> restore_group(const Message& message);
  Result<void> restore_gather(const Message& message);
  Result<void> restore_leave_record(const Message& message);

  uint64_t world_;
  uint64_t host_process_;
  Send send_;
  size_t nranks_ = 0;
  size_t present_ = 0;
  std::map<uint32_t, Member> members_;
  std::map<uint64_t, Group> groups_;
};

}  // namespace plexus
