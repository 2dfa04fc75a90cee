// SPDX-License-Identifier: Apache-2.0
// The aggregator as a server: one thread that moves bytes between sockets and `Groups`. Run by
// `plexus aggregator`, or in a thread of the plugin on member 0's host (HostedServer).
//
// Pending peers (connections that have not proved that they know the key, or not said hello) are
// limited in number, time and bytes, and dropped without effect on the members. Without a
// descriptor for one more connection, it is told so and closed.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "plugins/collnet-aggregator/address.hpp"
#include "plugins/collnet-aggregator/groups.hpp"
#include "security/session.hpp"

namespace plexus::aggregator {

class Server {
 public:
  using Say = std::function<void(const std::string& line)>;
  /// `say`: receives a line for each connection that is refused or lost, of pending peers only for
  /// the first few.
  Server(UniqueFd listener, const security::Terms& terms, Say say);

  /// Serves until stop(), or until no memory is left. Threads: one.
  void run();
  /// Threads: any; also from a signal handler.
  void stop() noexcept;
  /// Whether there is unsent data. Threads: any.
  [[nodiscard]] bool has_output() const noexcept { return output_ > 0; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Link {
    UniqueFd fd;
    security::Session session;
    std::string peer;
    std::deque<std::shared_ptr<const Bytes>> output;
    size_t sent_bytes = 0;  // sent so far of the first message
    Clock::time_point since;
    Clock::time_point until = Clock::time_point::max();  // deadline for its hello
    bool is_proven = false;
    bool is_pending = true;  // until it has joined a group
    bool is_leaving = false;
    security::Silence silence;
  };

  void serve();
  void poll_once();
  [[nodiscard]] bool reads(const Link& link) const;
  void accept_all();
  void refuse_for_descriptors();
  [[nodiscard]] bool may_accept();
  void progress(int number);
  /// False: it is not proven yet, or gone.
  [[nodiscard]] bool prove(int number);
  void read_from(int number);
  void write_to(int number);
  void leave(int number, const std::string& why, bool tell);
  void drop(int number);
  void drop_late();
  void drop_silent();
  void report_pending_peer(const Link& link, const std::string& why);
  [[nodiscard]] Link* find(int number);

  UniqueFd listener_;
  security::Terms terms_;
  UniqueFd wake_;
  UniqueFd reserve_;  // a descriptor in reserve, for refuse_for_descriptors()
  Say say_;
  Groups groups_;
  std::map<int, Link> links_;
  int next_link_ = 0;
  Clock::time_point next_look_;  // for members whose hosts do not answer
  bool is_full_ = false;         // the listener is left alone for one turn
  uint32_t refusals_ = 0;
  Bytes buffer_;
  std::atomic<size_t> output_{0};  // number of messages queued in all links
  std::atomic<bool> stopped_{false};
};

/// A server in its own thread. When destroyed it first sends pending data, for at most a second.
class HostedServer {
 public:
  HostedServer(UniqueFd listener, const security::Terms& terms, Server::Say say);
  ~HostedServer();
  HostedServer(const HostedServer&) = delete;
  HostedServer& operator=(const HostedServer&) = delete;

 private:
  Server server_;
  std::thread thread_;
};

}  // namespace plexus::aggregator
