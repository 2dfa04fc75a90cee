// SPDX-License-Identifier: Apache-2.0
// Where an agent lives: its lock, the ranks of its process, and for several processes the
// connections to the others.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/control/agent.hpp"
#include "core/control/link_set.hpp"
#include "core/control/peer_links.hpp"
#include "core/control/unique_id.hpp"

namespace plexus {

class Family;

/// Threads: any. Lock order: mutex_, then the lock of a Family.
class AgentHost {
 public:
  AgentHost(uint64_t world, uint64_t process, AgentHooks hooks);
  virtual ~AgentHost() = default;
  AgentHost(const AgentHost&) = delete;
  AgentHost& operator=(const AgentHost&) = delete;

  /// `family` receives what is for `rank` until remove().
  void add(uint32_t rank, Family& family);
  void remove(uint32_t rank, const Family& family);
  /// "": the table is not there yet.
  [[nodiscard]] std::string host_name_of(uint32_t rank);
  /// "host:pid"; "": there is no other process, or the table is not there yet.
  [[nodiscard]] std::string process_name_of(uint32_t rank);
  [[nodiscard]] ProcessPlace place_of(uint32_t rank);
  /// See Agent.
  [[nodiscard]] std::vector<uint32_t> gone_ranks(uint64_t group);
  /// A message of a rank of this process.
  Result<void> take(uint32_t rank, Message message);
  /// The same from inside of Family::deliver(), when the agent is done with what it is at.
  void take_later(uint32_t rank, Message message) { later_.emplace_back(rank, std::move(message)); }
  /// After kLeave: waits for a bounded time until the last messages of this process are sent, if
  /// the rank was its last one.
  virtual void wait_for_leave() {}

 protected:
  // What the agent asks for, with mutex_ held.
  virtual void send(uint32_t process, const Message& message);
  virtual void send_to_introducer(const Message& message);
  virtual void announce_leave(const Message& message);

  void deliver(uint32_t rank, const Message& message);
  void take_all_later();

  std::mutex mutex_;
  Agent agent_;                                     // guarded by mutex_
  std::map<uint32_t, Family*> families_;            // guarded by mutex_
  std::deque<std::pair<uint32_t, Message>> later_;  // guarded by mutex_
  // The last result of a gather, for the other ranks of this process; guarded by mutex_.
  std::pair<uint64_t, uint64_t> gathered_key_{};  // group, number
  Gathered gathered_;
};

/// All ranks are in this process: no sockets, no threads.
class LocalAgentHost final : public AgentHost {
 public:
  LocalAgentHost(uint64_t world, uint32_t nranks, AgentHooks hooks);
};

/// The agent on TCP: a listening socket and a thread, which ends when all ranks of this process
/// have left.
class AgentServer final : public AgentHost {
 public:
  /// `id`: of the job. `introducer`: a connection to it that has proved itself; taken only if the
  /// server starts. `links_max`: see PeerLinks.
  static Result<std::shared_ptr<AgentServer>> start(const UniqueId& id,
                                                    uint64_t process,
                                                    Socket listener,
                                                    ProvenSocket& introducer,
                                                    size_t links_max,
                                                    AgentHooks hooks);
  AgentServer(const UniqueId& id, uint64_t process, AgentHooks hooks)
      : AgentHost(id.job, process, std::move(hooks)), id_(id) {}

  /// The introducer is that of a further unique id. `sealed`: payload of kFirstId.
  void name_first_id(std::string sealed);
  /// A rank of this process joins. `info.process` is completed with the address of this agent.
  Result<void> join(JoinInfo info, Family& family);
  /// More ranks of this process can join.
  [[nodiscard]] bool is_joinable();
  void wait_for_leave() override;

 private:
  using Link = LinkSet::Link;
  void serve();
  void step();
  void take(Link link, Message message);
  void end(Link link, LinkSet::End end, const std::string& why);
  void send(uint32_t process, const Message& message) override;
  void send_to_introducer(const Message& message) override;
  void announce_leave(const Message& message) override;
  [[nodiscard]] bool has_left() const;
  void break_down(const Error& error);
  void fail_all(const Error& error);

  const UniqueId id_;
  std::string introducer_name_;
  SocketAddress address_;  // of this agent
  // guarded by mutex_
  std::unique_ptr<LinkSet> links_;
  std::unique_ptr<PeerLinks> peers_;
  Link introducer_ = 0;          // 0: not connected any more
  bool lacks_memory_ = false;    // and the ranks have not been told yet
  std::optional<Error> broken_;  // why this agent does not work any more; they have been told
  bool ends_ = false;
  bool has_ended_ = false;
  Deadline leave_deadline_ = Deadline::never();
  Deadline delivery_ = Deadline::never();
  std::condition_variable ended_;
};

}  // namespace plexus
