// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/hub_server.hpp"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <set>
#include <sys/resource.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/bootstrap/handshake.hpp"
#include "core/bootstrap/hub.hpp"

namespace plexus {
namespace {

constexpr size_t kStrangersMax = 256;  // connections that have not passed the handshake
constexpr size_t kReadBytes = size_t{64} * 1024;
constexpr auto kStrangerGrace = std::chrono::seconds(1);
constexpr int kTickMs = 100;
constexpr int kMovingTickMs = 10;
constexpr auto kLastWordsTime = std::chrono::seconds(3);
constexpr auto kHoldTime = std::chrono::seconds(10);

/// One TCP connection: a stranger until its proof, a joiner until its kJoin, then a member. kDone:
/// it has left or was refused; what it still sends is read and ignored until it closes or the
/// deadline, because closing with unread bytes would reset the connection and lose the hub's last
/// messages. kHeld: it has left, but its process must not exit before the hub has moved, so the
/// connection stays open.
struct Connection {
  enum class State { kHello, kProof, kJoin, kMember, kDone, kHeld } state = State::kHello;
  Socket socket;
  Deadline deadline = Deadline::never();
  std::string received;  // handshake bytes so far
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
             options.host_process,
             [this](uint32_t member, const Message& message) { send(member, message); }),
        hand_over_(hub_,
                   options.hand_over,
                   [this](uint32_t member, const Message& message) { send(member, message); }),
        join_deadline_(Deadline::after(options.join_time)) {
    has_reserve();
  }

  Result<void> restore(std::string_view state) {
    PLEXUS_TRY(hub_.restore(state));
    const auto present = hub_.present();
    awaited_ = {present.begin(), present.end()};
    join_deadline_ = Deadline::after(options_.hand_over.come);
    return ok();
  }

  void serve() {
    while (!is_over()) {
      poll_once();
      expire_joining();
      progress_hand_over();
      for (Connection& connection : connections_) {
        flush(connection);
      }
      std::erase_if(connections_, [](const Connection& connection) { return connection.dead; });
    }
  }

 private:
  [[nodiscard]] bool is_over() const {
    const bool nobody_comes = gave_up_ && !hub_.anybody_came();
    const bool has_work = !hub_.empty() && !moved();
    const bool awaits_others = options_.stays && !hub_.all_joined() && !gave_up_;
    return nobody_comes ||
           (hub_.anybody_came() && !has_work && connections_.empty() && !awaits_others);
  }
  [[nodiscard]] bool moved() const { return hand_over_.stage() == HandOver::Stage::kMoved; }

  void expire_joining() {
    if (gave_up_ || !join_deadline_.expired() || (hub_.all_joined() && awaited_.empty())) {
      return;
    }
    gave_up_ = true;
    if (hub_.anybody_came() && !hub_.all_joined()) {
      hub_.give_up_joining();
    }
    for (const uint32_t member : std::exchange(awaited_, {})) {
      hub_.lose(member, "died or lost its connection while the control plane moved");
    }
    mail_.clear();
  }

  void progress_hand_over() {
    if (awaited_.empty() && hub_.needs_heir()) {
      hand_over_.begin(Clock::now(), false);
    }
    for (const uint32_t late : hand_over_.advance(Clock::now())) {
      for (Connection& connection : connections_) {
        if (connection.member == late && connection.state == Connection::State::kMember) {
          drop(connection, "did not answer when the control plane moved");
        }
      }
    }
    if (moved()) {
      retire();
    }
    release_held();
  }

  /// The new hub serves: members close when they have read kMove; connections that have not joined
  /// are dropped.
  void retire() {
    listener_.close();
    for (Connection& connection : connections_) {
      if (connection.state == Connection::State::kMember) {
        connection.state = Connection::State::kDone;
        connection.deadline = Deadline::after(kLastWordsTime);
      }
      connection.dead = connection.dead || connection.state < Connection::State::kMember;
    }
  }

  /// Closes the connections to ranks of this process that were held until the hub moved.
  void release_held() {
    const auto is_held = [](const Connection& connection) {
      return connection.state == Connection::State::kHeld;
    };
    const bool all_went =
        moved() && std::all_of(connections_.begin(), connections_.end(),
                               [&](const auto& one) { return is_held(one) || one.dead; });
    for (Connection& connection : connections_) {
      const bool goes = all_went || hub_.empty() || connection.deadline.expired();
      if (is_held(connection) && goes && !connection.dead) {
        connection.dead = true;
        shutdown(connection.socket.fd(), SHUT_RDWR);  // closing alone would not end it if a forked
                                                      // child has it open
      }
    }
  }

  void poll_once() {
    const auto knocks = static_cast<short>(has_reserve() && has_room() ? POLLIN : 0);
    std::vector<pollfd> entries{{listener_.fd(), knocks, 0}};
    for (const Connection& connection : connections_) {
      const auto events = static_cast<short>(connection.out.empty() ? POLLIN : POLLIN | POLLOUT);
      const bool is_held = connection.state == Connection::State::kHeld && connection.out.empty();
      entries.push_back({is_held ? -1 : connection.socket.fd(), events, 0});
    }
    const bool moves = hand_over_.stage() != HandOver::Stage::kIdle &&
                       hand_over_.stage() != HandOver::Stage::kStays;
    if (poll(entries.data(), entries.size(), moves ? kMovingTickMs : kTickMs) < 0) {
      return;
    }
    size_t index = 1;
    for (Connection& connection : connections_) {
      const short ready = entries[index++].revents;
      const bool is_held = connection.state == Connection::State::kHeld;
      if ((ready & (POLLIN | POLLHUP | POLLERR)) != 0 && !is_held) {
        read(connection);
      }
      if (connection.deadline.expired() && !is_held) {
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

  /// No descriptor is left for a new connection: accepts it with the reserve descriptor and refuses
  /// it.
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

  /// While the reserve descriptor is in use, new connections wait in the listener's queue.
  bool has_reserve() {
    if (!reserve_.is_open()) {
      reserve_ = Socket::reserve();
    }
    return reserve_.is_open();
  }

  /// Whether one more stranger may be accepted. At the limit, the oldest stranger is dropped if it
  /// has had a second; otherwise new connections wait in the listener's queue. So neither a port
  /// scan nor many silent connections keep members out.
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
    if (connection.state == Connection::State::kMember && !moved()) {
      hub_.lose(connection.member);
      hand_over_.miss(connection.member, Clock::now());
    }
  }

  void read(Connection& connection) {
    std::vector<char> bytes(kReadBytes);
    while (!connection.dead && connection.state != Connection::State::kHeld) {
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
    if (hand_over_.takes(connection.member, message.type)) {
      auto taken = hand_over_.take(connection.member, message, Clock::now());
      if (taken.has_error()) {
        drop(connection, taken.error().message());
      }
      return;
    }
    const bool leaves = message.type == MessageType::kLeave;
    auto taken = hub_.take(connection.member, std::move(message));
    if (taken.has_error()) {
      drop(connection, taken.error().message());
    } else if (leaves) {
      see_off(connection);
    }
  }

  void see_off(Connection& connection) {
    finish(connection);
    hand_over_.miss(connection.member, Clock::now());
    if (hub_.needs_heir() && hub_.is_of_host(connection.member) &&
        hand_over_.stage() == HandOver::Stage::kIdle) {
      connection.state = Connection::State::kHeld;
      connection.deadline = Deadline::after(kHoldTime);
      connection.out += encode(Message{.type = MessageType::kPause});  // the member waits until the
                                                                       // hub has moved
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
    const bool returns = awaited_.count(info.value().rank) != 0;
    auto joined = returns ? hub_.rejoin(info.value()) : hub_.join(info.value());
    if (joined.has_error()) {
      finish(connection);
      connection.out += encode(
          Message{.type = MessageType::kFail, .group = id_.job, .payload = encode(joined.error())});
      return;
    }
    connection.deadline = Deadline::never();
    awaited_.erase(connection.member);
    if (const auto mail = mail_.extract(connection.member); !mail.empty()) {
      connection.out += mail.mapped();
    }
    if (!returns && hub_.needs_heir()) {
      // Begin before the first gather can end, so that the hub has moved when a rank's init
      // returns.
      hand_over_.begin(Clock::now(), true);
    }
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
    if (awaited_.count(member) != 0) {
      mail_[member] += encode(message);
    }
  }

  void flush(Connection& connection) {
    if (connection.out.empty() || connection.dead) {
      return;
    }
    auto sent = connection.socket.try_send(connection.out);
    if (sent.has_value()) {
      connection.out.erase(0, sent.value());
    }  // the next read reports a failed send
  }

  UniqueId id_;
  Socket listener_;
  HubServerOptions options_;
  Socket reserve_;  // a descriptor in reserve, for refuse()
  std::list<Connection> connections_;
  Hub hub_;
  HandOver hand_over_;
  Deadline join_deadline_;  // after a move to here: until then its members must connect
  bool gave_up_ = false;
  std::set<uint32_t> awaited_;            // after a move to here: members that have not
                                          // connected yet
  std::map<uint32_t, std::string> mail_;  // messages for those members
};

/// The thread is detached: it ends when all members have left, or with the process; nothing joins
/// it.
Result<void> serve_in_thread(std::unique_ptr<HubServer> server) {
  PLEXUS_TRY(thread, start_thread("the hub of the control plane",
                                  [server = std::move(server)] { server->serve(); }));
  thread.detach();
  return ok();
}

}  // namespace

Result<void> start_hub_server(const UniqueId& id,
                              Socket listener,
                              const HubServerOptions& options) {
  return serve_in_thread(std::make_unique<HubServer>(id, std::move(listener), options));
}

Result<void> start_heir_server(const UniqueId& id,
                               Socket listener,
                               std::string_view state,
                               const HubServerOptions& options) {
  auto server = std::make_unique<HubServer>(id, std::move(listener), options);
  PLEXUS_TRY(server->restore(state));
  return serve_in_thread(std::move(server));
}

}  // namespace plexus
