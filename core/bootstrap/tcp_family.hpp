// SPDX-License-Identifier: Apache-2.0
// A family over TCP: one connection to the hub and a thread that reads it. When the hub moves
// (handover.hpp), this end answers, keeps what is sent meanwhile, and continues with the new hub.
// The hub may move into this process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/base/config.hpp"
#include "core/bootstrap/family.hpp"
#include "core/bootstrap/unique_id.hpp"
#include "core/os/socket.hpp"

namespace plexus {

/// Listens for members at the interface and port that the settings give.
Result<Socket> listen_for_members(const Config& config);

class TcpFamily final : public Family {
 public:
  /// Connects to the hub of `id` and joins.
  static Result<std::shared_ptr<TcpFamily>> make(const Config& config,
                                                 const UniqueId& id,
                                                 const JoinInfo& info,
                                                 const Patience& patience);
  TcpFamily(const Config& config, const UniqueId& id, JoinInfo info, Socket socket);
  ~TcpFamily() override;

  Result<void> send(Message message) override;
  /// Waits, for a bounded time, until the hub has closed: the process must not exit while the hub
  /// still has to notify others of this departure or has to move.
  void close() override;

 private:
  Result<void> send_locked(const std::string& bytes);
  void read();
  bool receive();
  bool take_messages();
  bool take(Message message);
  void pause();
  void take_state(const Message& message);
  Result<HubAddress> serve_here(std::string_view state);
  bool move(const Message& message);
  bool resume(Socket* new_socket);
  void wait_longer(Clock::duration duration);
  [[nodiscard]] Patience send_patience() const;

  const Config config_;
  const UniqueId id_;
  const JoinInfo info_;

  std::mutex send_mutex_;
  Socket socket_;        // replaced by the reader; guarded by send_mutex_, as the members below
  bool pauses_ = false;  // while the hub moves: messages go to `kept_`
  bool leaves_ = false;
  std::string kept_;

  MessageReader reader_;   // reader thread only
  std::string hub_state_;  // reader thread only: pieces of the state of a hub that moves here
  std::atomic<bool> ends_{false};
  std::thread thread_;

  std::mutex closed_mutex_;
  std::condition_variable closed_;
  bool hub_closed_ = false;  // guarded by closed_mutex_, as the members below
  Clock::time_point goodbye_until_{};
};

}  // namespace plexus
