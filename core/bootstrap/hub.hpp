// SPDX-License-Identifier: Apache-2.0
// The hub of the control plane. Every member (a rank of the family: the ranks that joined with one
// unique id) communicates only with the hub. The hub collects gathers, forwards control messages
// and probes, and tells the members when one of them fails or vanishes.
// When the last rank of its process has left, the hub moves to the process of another member, with
// When the last rank of the hub's process has left, the hub moves with its state (hub_state.cpp) to
// the process of another member.
// A pure state machine: no sockets, no clock, no threads. Input: a member's message, or its loss;
// A pure state machine: no sockets, no clock, no threads. Input: a member's message or its loss.
// Output: messages to members through `send`. No message of a member can break it for the others.
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

inline constexpr size_t kHubGroupsMax = 1U << 16;  // per family
inline constexpr size_t kHubGathersMax = 64;       // unfinished gathers per group

/// Threads: one at a time.
class Hub {
 public:
  using Send = std::function<void(uint32_t member, const Message& message)>;
  /// `host_process`: the process that this hub runs in; `world`: id of the group of all members.
  Hub(uint64_t world, uint64_t host_process, Send send)
      : world_(world), host_process_(host_process), send_(std::move(send)) {}

  /// A new member joins. An Error concerns only this member, unless the job as a whole cannot
  /// succeed; then all members are told.
  Result<void> join(const JoinInfo& info);
  /// Takes a message of a joined member. An Error: the member breaks the protocol; drop its
  /// connection.
  Result<void> take(uint32_t member, Message message);
  /// A member's connection is lost.
  void lose(uint32_t member, std::string_view how = "died or lost its connection");
  /// The time for joining is over: tells the members that joined which ranks are missing.
  void give_up_joining();

  [[nodiscard]] bool all_joined() const { return nranks_ > 0 && members_.size() == nranks_; }
  [[nodiscard]] bool empty() const { return present_ == 0; }
  /// Number of groups that the hub keeps state for.
  [[nodiscard]] size_t groups() const { return groups_.size(); }
  [[nodiscard]] bool anybody_came() const { return !members_.empty(); }

  // -- hand-over to another process (handover.hpp) --

  /// All ranks have joined, and none of those present lives in this hub's process, which may
  /// therefore exit.
  [[nodiscard]] bool needs_heir() const;
  [[nodiscard]] bool is_of_host(uint32_t member) const;
  [[nodiscard]] std::vector<uint32_t> present() const;
  [[nodiscard]] std::string name_of(uint32_t member) const;
  /// Tells the members that the hub does not move: from now on its loss is no failure.
  void say_goodbye();
  /// The whole state as messages (README.md). Requires that all ranks have joined.
  [[nodiscard]] std::string to_bytes() const;
  /// Restores the state of another hub of the same world. Requires that no member has joined this
  /// one.
  Result<void> restore(std::string_view bytes);
  /// A member of the restored state reconnects. It is told which rank shares the process of this
  /// hub.
  Result<void> rejoin(const JoinInfo& info);

 private:
  struct Member {
    JoinInfo info;
    bool present = true;
  };
  struct Group {
    std::vector<uint32_t> members;  // ranks of the family, in rank order of the group
    bool failed = false;
    std::string why;                                              // why it failed
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
