// SPDX-License-Identifier: Apache-2.0
// One rank's membership in a family (the ranks that joined with one unique id): the messages that
// its process's agent delivered to it, shared by the rank's communicators.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.hpp"
#include "core/control/failure_cause.hpp"
#include "core/control/gathered.hpp"
#include "core/control/message.hpp"

namespace plexus {

class AgentHost;

/// Threads: any. Lock order: the host's lock before mutex_, so nothing is sent under mutex_.
class Family {
 public:
  struct Times {
    std::chrono::seconds gather{300};  // for all ranks to take part in a gather
    std::chrono::seconds late{0};      // then it is logged who is missing; 0: never
  };
  /// `host` has to be given this family (AgentHost::add).
  Family(std::shared_ptr<AgentHost> host, uint32_t rank, const Times& times);
  ~Family();
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  /// Gives a message to the agent.
  Result<void> send(Message message);
  /// Takes a message of the agent.
  void deliver(const Message& message);
  void deliver_gathered(uint64_t group, uint64_t number, Gathered gathered);
  /// The agent of this process does not work any more: all groups fail, also those to come.
  void break_down(const Error& error);

  [[nodiscard]] std::string host_name_of(uint32_t rank) const;
  [[nodiscard]] std::string process_name_of(uint32_t rank) const;
  [[nodiscard]] ProcessPlace place_of(uint32_t rank) const;
  [[nodiscard]] std::vector<uint32_t> gone_ranks(uint64_t group) const;
  void open_group(uint64_t group);
  /// Leaves the group. Peers that still probe this rank receive `record` (see on_probe).
  void leave_group(uint64_t group, std::string record);
  void stop_group(uint64_t group);
  /// The group must not be left before it returns.
  Result<Gathered> wait_gathered(uint64_t group, uint64_t number, const std::atomic<bool>* give_up);
  /// Nobody waits for it: it is not kept.
  void drop_gathered(uint64_t group, uint64_t number);
  /// Waits for those that were dropped and are still to come, as wait_gathered() does.
  void wait_dropped(uint64_t group, const std::atomic<bool>* give_up);
  std::optional<std::string> try_take(uint64_t group, uint32_t from, uint64_t tag);
  using FailureHandler = std::function<void(const Error&, FailureCause)>;
  void on_failure(uint64_t group, FailureHandler handler);
  /// Its answers, by rank, have the tag of the message. See Exchange::on_post.
  using PostHandler =
      std::function<std::vector<std::pair<uint32_t, std::string>>(uint32_t from, std::string blob)>;
  void on_post(uint64_t group, uint64_t tag, PostHandler handler);
  using ProbeHandler = std::function<void(uint32_t from, bool left, std::string payload)>;
  void on_probe(uint64_t group, ProbeHandler handler);

 private:
  struct Group {
    std::map<uint64_t, Gathered> gathered;
    std::set<uint64_t> dropped;  // of those to come
    std::map<std::pair<uint32_t, uint64_t>, std::deque<std::string>> messages;
    std::optional<Error> failure;
    FailureCause cause = FailureCause::kFailed;  // of `failure`
    FailureHandler handler;
    ProbeHandler probe_handler;
    std::map<uint64_t, PostHandler> post_handlers;  // by tag
    bool open = false;
    bool stopped = false;
    int waiting = 0;  // threads in wait_gathered(): the group is not left meanwhile
  };
  /// With mutex_ held, at both ends of its life.
  class Waiting {
   public:
    explicit Waiting(Group& group) : group_(group) { ++group_.waiting; }
    ~Waiting() { --group_.waiting; }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Group& group_;
  };
  void fail_group(Group& group, const Error& error, FailureCause cause);  // with mutex_ held
  static std::vector<Message> answer(const PostHandler& handler, const Message& message);
  /// `lock` is of mutex_, and held before and after.
  Error explain_timeout(uint64_t group, uint64_t number, std::unique_lock<std::mutex>& lock);
  void ask_who_is_late(uint64_t group, uint64_t number, std::chrono::seconds waited);

  const std::shared_ptr<AgentHost> host_;
  const uint32_t rank_;
  const Times times_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Group> groups_;  // guarded by mutex_, as all below
  size_t groups_open_ = 0;
  std::optional<Error> broken_;  // why there is no agent any more
};

}  // namespace plexus
