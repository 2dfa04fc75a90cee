// SPDX-License-Identifier: Apache-2.0
// The hub of the control plane: every member (rank of the family: the ranks that joined by one
// unique id) talks to it and to nobody else. It collects gathers, passes letters on, compares the
// reports of ranks that wait, and tells the others when a member fails or vanishes.
//
// A pure state machine: no sockets, no clock, no threads. Input: a member's message, or its loss;
// output: messages to members through `send`. Nothing a member sends can break it for the others.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/bootstrap/message.hpp"

namespace plexus {

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
  void lose(uint32_t member);
  /// The time for joining is over: those who came are told who is missing.
  void give_up_joining();

  [[nodiscard]] bool all_joined() const { return nranks_ > 0 && members_.size() == nranks_; }
  [[nodiscard]] bool empty() const { return present_ == 0; }
  [[nodiscard]] bool anybody_came() const { return !members_.empty(); }

 private:
  struct Member {
    JoinInfo info;
    bool present = true;
  };
  struct Report {
    uint32_t member;
    std::string record;
    std::string text;
  };
  struct Group {
    std::vector<uint32_t> members;  // ranks of the family, in rank order of the group
    bool failed = false;
    std::string why;                                              // it failed
    std::map<uint64_t, std::map<uint32_t, std::string>> gathers;  // number -> member -> blob
    std::optional<std::pair<uint64_t, Report>> waiting;           // the report to compare with
  };

  Result<void> take_group(uint32_t member, const Message& message);
  Result<void> take_gather(uint32_t member, Message message);
  Result<void> take_post(uint32_t member, Message message);
  Result<void> take_report(uint32_t member, const Message& message);
  void take_failure(uint32_t member, const Message& message);
  void leave(uint32_t member);
  void tell_host();
  void fail_group(uint64_t id, Group& group, uint32_t spared, const Error& error);
  void fail_groups_of(uint32_t member, const Error& error);
  Group* find_group(uint64_t id, uint32_t member);
  [[nodiscard]] std::string name_of(uint32_t member) const;

  uint64_t world_;
  uint64_t host_process_;
  Send send_;
  size_t nranks_ = 0;
  size_t present_ = 0;
  std::map<uint32_t, Member> members_;
  std::map<uint64_t, Group> groups_;
};

}  // namespace plexus
