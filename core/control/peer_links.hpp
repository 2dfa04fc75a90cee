// SPDX-License-Identifier: Apache-2.0
// An agent's connections to the other processes of its family: made when they are first needed, and
// bounded. When there are too many, the one that was not used for longest is closed, by agreement
// of both sides, so that no message is lost or overtaken:
//
//   one side says kRest, and from then on keeps messages for that process; the other one reads all
//   that came before, answers kRest and keeps messages too; the first reads all that came before
//   that, and closes. Either may then connect anew.
//
// A process without a descriptor for a connection breaks down. It tells the others over the
// descriptor that the LinkSet has in reserve, one after the other in the same way.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/control/link_set.hpp"
#include "core/control/message.hpp"
#include "core/control/process_table.hpp"

namespace plexus {

class PeerLinks {
 public:
  using Link = LinkSet::Link;
  struct Handler {
    /// An Error: `process` breaks the protocol.
    std::function<Result<void>(uint32_t process, Message message)> take;
    /// The connection to it ended, and not in order.
    std::function<void(uint32_t process, LinkSet::End end, const std::string& why)> lose;
    /// Its connection is not counted and never closed: when it ends, that process has died.
    std::function<bool(uint32_t process)> keeps;
    /// This process has no descriptor for a connection. What is to be sent still is.
    std::function<void(const Error& error)> break_down;
  };
  /// `links_max`: connections that stay open, not counting those that `keeps`; while as many again
  /// are being closed, messages wait.
  PeerLinks(LinkSet& links, uint64_t job, size_t links_max, Handler handler)
      : links_(links), job_(job), links_max_(links_max), handler_(std::move(handler)) {}

  /// `table` must outlive this object.
  void set_table(const ProcessTable& table, uint32_t self) noexcept {
    table_ = &table;
    self_ = self;
  }
  /// Takes what came before the table, the first time it is called with one.
  void bind_all();
  /// In order for each process. Does not call the handler: progress() does, if there can be no
  /// connection. Requires the table.
  void send(uint32_t process, const Message& message);
  /// What came over a connection of `links`.
  void take(Link link, Message message);
  /// The same of one that finishes: after the leave message of this process only leave notes count,
  /// of processes that leave at the same time.
  void take_late(Link link, Message message);
  void end(Link link, LinkSet::End end, const std::string& why);
  /// To be called after LinkSet::progress().
  void progress();
  /// The last message on every connection. All are forgotten.
  void announce_leave(const Message& message);
  /// Messages wait to be sent.
  [[nodiscard]] bool is_holding() const noexcept { return !held_.empty(); }

 private:
  struct Connection {
    enum class Rest { kNo, kAsked, kAnswered };
    std::optional<uint64_t> id = {};       // process_id() of the other side, when it said so
    std::optional<uint32_t> process = {};  // its number, when the table is there
    Rest rest = Rest::kNo;
    uint64_t last_use = 0;
    std::vector<Message> early = {};  // came before the table
  };
  void bind(Link link);
  void take_known(Link link, Message message);
  void take_rest(Link link);
  void forget(Link link);
  void hold(uint32_t process, const Message& message);
  void send_held();
  void finish_all();
  void transmit(uint32_t process, const Message& message);
  Result<Link> open(uint32_t process);
  Result<Link> connect(const SocketAddress& address);
  [[nodiscard]] std::optional<Link> find_open(uint32_t process) const;
  [[nodiscard]] bool must_wait(uint32_t process) const;
  [[nodiscard]] bool is_counted(const Connection& connection) const;
  void make_room();
  void ask_to_rest(Link link);

  LinkSet& links_;
  uint64_t job_;
  size_t links_max_;
  Handler handler_;
  const ProcessTable* table_ = nullptr;
  uint32_t self_ = 0;
  bool is_bound_ = false;
  std::map<Link, Connection> connections_;
  std::map<uint32_t, Link> link_to_;               // over which messages to a process go
  std::map<uint32_t, std::vector<Message>> held_;  // by process
  std::deque<uint32_t> turns_;                     // the processes in held_, longest first
  std::vector<std::pair<uint32_t, std::string>> unreachable_;
  std::optional<Link> by_reserve_;  // for one process at a time
  std::optional<Error> broken_;     // to be told
  bool is_broken_ = false;
  std::optional<Message> leave_message_;
  std::map<Link, uint32_t> finishing_;  // link -> process, after the leave message
  uint64_t uses_ = 0;
};

}  // namespace plexus
