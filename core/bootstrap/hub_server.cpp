// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/hub_server.hpp"

#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <list>
#include <memory>
#include <optional>
#include <poll.h>
#include <sys/resource.h>
#include <vector>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/bootstrap/handshake.hpp"
#include "core/bootstrap/hub.hpp"
#include "core/os/host.hpp"

namespace plexus {
namespace {

constexpr size_t kStrangersMax = 256;  // connections that have not proved themselves
constexpr size_t kReadBytes = size_t{64} * 1024;
constexpr auto kStrangerGrace = std::chrono::seconds(1);
constexpr int kTickMs = 100;

/// One TCP connection: a stranger until its proof, a joiner until its kJoin, then a member. Done
/// when it has left or was refused: what still comes is read and ignored, so that our last words
/// reach it (closing with unread bytes would reset the connection), until it closes or the
/// deadline.
struct Connection {
  enum class State { kHello, kProof, kJoin, kMember, kDone } state = State::kHello;
  Socket socket;
  Deadline deadline = Deadline::never();
  std::string received;  // of the handshake
  Hello hello{};
  Answer answer{};
  MessageReader reader;
  std::string out;
  uint32_t member = 0;
  bool dead = false;
};

class HubServer {
 public:
  HubServer(const UniqueId& id, Socket listener, const HubServerOptions& options)
      : id_(id),
        listener_(std::move(listener)),
        options_(options),
        hub_(id.job,
             process_id(),
             [this](uint32_t member, const Message& message) { send(member, message); }),
        join_deadline_(Deadline::after(options.join_time)) {
    has_reserve();
  }

  void serve() {
    while (!is_over()) {
      poll_once();
      if (!hub_.all_joined() && !gave_up_ && join_deadline_.expired()) {
        gave_up_ = true;
        if (hub_.anybody_came()) {
          hub_.give_up_joining();
        }
      }
      for (Connection& connection : connections_) {
        flush(connection);
      }
      std::erase_if(connections_, [](const Connection& connection) { return connection.dead; });
    }
  }

 private:
  [[nodiscard]] bool is_over() const {
    const bool nobody_comes = gave_up_ && !hub_.anybody_came();
    const bool awaits_others = options_.stays && !hub_.all_joined() && !gave_up_;
    return nobody_comes ||
           (hub_.anybody_came() && hub_.empty() && connections_.empty() && !awaits_others);
  }

  void poll_once() {
    const auto knocks = static_cast<short>(has_reserve() && has_room() ? POLLIN : 0);
    std::vector<pollfd> entries{{listener_.fd(), knocks, 0}};
    for (const Connection& connection : connections_) {
      const auto events = static_cast<short>(connection.out.empty() ? POLLIN : POLLIN | POLLOUT);
      entries.push_back({connection.socket.fd(), events, 0});
    }
    if (poll(entries.data(), entries.size(), kTickMs) < 0) {
      return;
    }
    size_t index = 1;
    for (Connection& connection : connections_) {
      const short ready = entries[index++].revents;
      if ((ready & (POLLIN | POLLHUP | POLLERR)) != 0) {
        read(connection);
      }
      if (connection.deadline.expired()) {
        drop(connection, "did not prove itself or go in time");
      }
    }
    if ((entries.front().revents & POLLIN) != 0) {
      accept();
    }
  }

  void accept() {
    while (has_room()) {
      auto accepted = listener_.try_accept();
      if (accepted.has_error()) {
        refuse();
        return;
      }
      if (!accepted.value().has_value()) {
        return;
      }
      Connection& connection = connections_.emplace_back();
      connection.socket = std::move(*accepted.value());
      connection.deadline = Deadline::after(options_.handshake_time);
    }
  }

  /// No descriptor is left for a newcomer: it gets the one that was kept for this, and is told.
  void refuse() {
    reserve_.close();
    auto accepted = listener_.try_accept();
    if (accepted.has_error() || !accepted.value().has_value()) {
      return;
    }
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    PLEXUS_WARN(
        "bootstrap: {} cannot join: this process made the unique id and has no file "
        "descriptor left (ulimit -n is {}); raise the limit",
        accepted.value()->peer_name(), limit.rlim_cur);
    Connection& connection = connections_.emplace_back();
    connection.socket = std::move(*accepted.value());
    const Answer refusal = make_refusal(static_cast<uint32_t>(limit.rlim_cur));
    connection.out.append(reinterpret_cast<const char*>(&refusal), sizeof(refusal));
    finish(connection);
  }

  /// While the kept descriptor is used, newcomers wait in the listener's queue.
  bool has_reserve() {
    if (!reserve_.is_open()) {
      reserve_ = Socket(open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
    return reserve_.is_open();
  }

  /// Room for one more stranger. When there is none, the oldest has to go if it had its second, and
  /// the others wait in the listener's queue: neither a scan nor a crowd of silent ones keeps
  /// members out.
  bool has_room() {
    const auto is_stranger = [](const Connection& connection) {
      return !connection.dead && connection.state < Connection::State::kJoin;
    };
    const auto strangers = std::count_if(connections_.begin(), connections_.end(), is_stranger);
    if (static_cast<size_t>(strangers) < kStrangersMax) {
      return true;
    }
    const auto oldest = std::find_if(connections_.begin(), connections_.end(), is_stranger);
    if (oldest->deadline.time() - options_.handshake_time + kStrangerGrace > Clock::now()) {
      return false;
    }
    drop(*oldest, "had to make room for others");
    return true;
  }

  void drop(Connection& connection, std::string_view why) {
    if (connection.dead) {
      return;
    }
    connection.dead = true;
    PLEXUS_INFO(kBootstrap, "bootstrap: dropped the connection of {}, which {}",
                connection.socket.peer_name(), why);
    if (connection.state == Connection::State::kMember) {
      hub_.lose(connection.member);
    }
  }

  void read(Connection& connection) {
    std::vector<char> bytes(kReadBytes);
    while (!connection.dead) {
      auto received = connection.socket.try_recv(bytes.data(), bytes.size());
      if (received.has_error()) {
        drop(connection, "closed it");
        return;
      }
      if (received.value() == 0) {
        return;
      }
      take_bytes(connection, bytes.data(), received.value());
    }
  }

  void take_bytes(Connection& connection, const char* bytes, size_t size_bytes) {
    if (connection.state == Connection::State::kDone) {
      return;
    }
    if (connection.state >= Connection::State::kJoin) {
      connection.reader.append(bytes, size_bytes);
      take_messages(connection);
      return;
    }
    connection.received.append(bytes, size_bytes);
    if (connection.state == Connection::State::kHello) {
      take_hello(connection);
    }
    if (connection.state == Connection::State::kProof && !connection.dead) {
      take_proof(connection);
    }
  }

  void take_hello(Connection& connection) {
    if (connection.received.size() < sizeof(Hello)) {
      return;
    }
    std::memcpy(&connection.hello, connection.received.data(), sizeof(Hello));
    connection.received.erase(0, sizeof(Hello));
    auto answer = make_answer(id_.secret, connection.hello);
    if (answer.has_error()) {
      drop(connection, "does not speak our protocol");
      return;
    }
    connection.answer = answer.value();
    connection.out.append(reinterpret_cast<const char*>(&connection.answer), sizeof(Answer));
    connection.state = Connection::State::kProof;
  }

  void take_proof(Connection& connection) {
    Proof proof{};
    if (connection.received.size() < sizeof(proof)) {
      return;
    }
    std::memcpy(proof.data(), connection.received.data(), sizeof(proof));
    if (!is_proof_good(id_.secret, connection.hello, connection.answer, proof)) {
      drop(connection, "does not know the secret of the unique id");
      return;
    }
    connection.state = Connection::State::kJoin;
    const std::string rest = connection.received.substr(sizeof(proof));
    connection.received.clear();
    connection.reader.append(rest.data(), rest.size());
    take_messages(connection);
  }

  void take_messages(Connection& connection) {
    while (!connection.dead && connection.state != Connection::State::kDone) {
      auto message = connection.reader.next();
      if (message.has_error()) {
        drop(connection, "sent what is no message");
        return;
      }
      if (!message.value().has_value()) {
        return;
      }
      take_message(connection, std::move(*message.value()));
    }
  }

  void take_message(Connection& connection, Message message) {
    if (connection.state == Connection::State::kJoin) {
      join(connection, message);
      return;
    }
    const bool leaves = message.type == MessageType::kLeave;
    auto taken = hub_.take(connection.member, std::move(message));
    if (taken.has_error()) {
      drop(connection, taken.error().message());
    } else if (leaves) {
      finish(connection);
    }
  }

  void join(Connection& connection, const Message& message) {
    auto info = decode_join(message.payload);
    if (message.type != MessageType::kJoin || info.has_error()) {
      drop(connection, "did not join");
      return;
    }
    if (!hub_.anybody_came()) {
      join_deadline_ = Deadline::after(options_.join_time);
    }
    connection.member = info.value().rank;
    connection.state = Connection::State::kMember;
    auto joined = hub_.join(info.value());
    if (joined.has_error()) {
      finish(connection);
      connection.out += encode(
          Message{.type = MessageType::kFail, .group = id_.job, .payload = encode(joined.error())});
      return;
    }
    connection.deadline = Deadline::never();
  }

  void finish(Connection& connection) {
    connection.state = Connection::State::kDone;
    connection.deadline = Deadline::after(options_.handshake_time);
  }

  void send(uint32_t member, const Message& message) {
    for (Connection& connection : connections_) {
      if (connection.state == Connection::State::kMember && connection.member == member &&
          !connection.dead) {
        connection.out += encode(message);
        flush(connection);
        return;
      }
    }
  }

  void flush(Connection& connection) {
    if (connection.out.empty() || connection.dead) {
      return;
    }
    auto sent = connection.socket.try_send(connection.out);
    if (sent.has_value()) {
      connection.out.erase(0, sent.value());
    }  // a failed send is seen by the next read
  }

  UniqueId id_;
  Socket listener_;
  HubServerOptions options_;
  Socket reserve_;  // a descriptor, for the day when there are no others
  std::list<Connection> connections_;
  Hub hub_;
  Deadline join_deadline_;
  bool gave_up_ = false;
};

}  // namespace

Result<void> start_hub_server(const UniqueId& id,
                              Socket listener,
                              const HubServerOptions& options) {
  auto server = std::make_unique<HubServer>(id, std::move(listener), options);
  // Detached: it ends when the job has left it, or with the process; nobody waits for it.
  PLEXUS_TRY(thread, start_thread("the hub of the control plane",
                                  [server = std::move(server)] { server->serve(); }));
  thread.detach();
  return ok();
}

}  // namespace plexus
