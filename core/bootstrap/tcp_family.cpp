// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/tcp_family.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <vector>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/bootstrap/handshake.hpp"
#include "core/bootstrap/hub_server.hpp"

namespace plexus {
namespace {

constexpr auto kGoodbyeTime = std::chrono::seconds(2);
constexpr auto kMoveTime = std::chrono::seconds(12);    // longer than a hub holds a member's
                                                        // connection while it moves
constexpr auto kConnectTime = std::chrono::seconds(5);  // to a hub that already listens
constexpr auto kSendTime = std::chrono::minutes(1);
constexpr auto kRetryPause = std::chrono::milliseconds(50);
constexpr auto kRefusedTime = std::chrono::seconds(2);  // tolerates a network that is still coming
                                                        // up
constexpr size_t kKeptBytesMax = 256UL << 20;
static_assert(HubAddress::kPackedBytes == SocketAddress::kPackedBytes);

struct PortRange {
  int low = 0;
  int high = 0;
};

/// PLEXUS_PORT_RANGE, "low-high".
Result<PortRange> parse_port_range(const std::string& text) {
  PortRange range;
  if (text.empty()) {
    return range;
  }
  const char* const end = text.data() + text.size();
  const auto low = std::from_chars(text.data(), end, range.low);
  const bool dash = low.ec == std::errc() && low.ptr != end && *low.ptr == '-';
  const auto high = dash ? std::from_chars(low.ptr + 1, end, range.high) : low;
  if (!dash || high.ec != std::errc() || high.ptr != end || range.low < 1 ||
      range.high < range.low || range.high > 65535) {
    return fail(Code::kInvalidArgument,
                "PLEXUS_PORT_RANGE={} is not understood: it takes low-high in 1..65535", text);
  }
  return range;
}

/// Connects, and retries until patience ends while the hub is busy or, with `may_come`
/// (NCCL_COMM_ID), does not listen yet. A hub that listened when the id was made and now refuses is
/// gone.
Result<Socket> connect_to_hub(const SocketAddress& address,
                              bool may_come,
                              const Patience& patience) {
  std::optional<Deadline> refused;
  for (;;) {
    auto socket = Socket::connect(address, patience);
    const bool is_refused = socket.has_error() && socket.error().code() == Code::kRemoteError;
    if (socket.has_value() || (!is_refused && socket.error().code() != Code::kSystemError)) {
      return socket;
    }
    refused =
        is_refused ? refused.value_or(Deadline::after(kRefusedTime)) : std::optional<Deadline>();
    if (!may_come && refused.has_value() && refused->expired()) {
      return fail(
          Code::kRemoteError,
          "nobody listens there any more: the process that called ncclGetUniqueId has ended, "
          "or gave up since no rank came within PLEXUS_BOOTSTRAP_TIMEOUT; it must live until "
          "all ranks have joined, and a new job needs a new unique id");
    }
    if (patience.deadline.expired()) {
      return std::move(socket).error().with_context("nobody listens for this job");
    }
    if (patience.stop != nullptr && patience.stop->load(std::memory_order_acquire)) {
      return fail(Code::kInvalidUsage, "aborted");
    }
    std::this_thread::sleep_for(kRetryPause);
  }
}

Result<void> prove_membership(Socket& socket, const Secret& secret, const Patience& patience) {
  PLEXUS_TRY(hello, make_hello());
  PLEXUS_TRY(socket.send_all({reinterpret_cast<const char*>(&hello), sizeof(hello)}, patience));
  Answer answer{};
  PLEXUS_TRY(socket.recv_all(&answer, sizeof(answer), patience));
  if (const auto limit = read_refusal(answer); limit.has_value()) {
    return fail(Code::kSystemError,
                "the process that made the unique id has no file descriptor left for this rank: "
                "raise its limit (ulimit -n is {} there)",
                *limit);
  }
  PLEXUS_TRY(proof, check_answer(secret, hello, answer));
  return socket.send_all({reinterpret_cast<const char*>(proof.data()), proof.size()}, patience);
}

/// Address of a hub; `may_come`: it may not listen yet.
struct HubPlace {
  SocketAddress address;
  bool may_come;
};

/// Connects to the hub, proves membership and joins.
Result<Socket> enter_hub(const HubPlace& hub,
                         const UniqueId& id,
                         const JoinInfo& info,
                         const Patience& patience) {
  const std::string who = fmt::format("rank {} joining {}", info.rank, hub.address.to_string());
  auto socket = connect_to_hub(hub.address, hub.may_come, patience);
  if (socket.has_error()) {
    return std::move(socket).error().with_context(who);
  }
  auto proved = prove_membership(socket.value(), id.secret, patience);
  if (proved.has_error()) {
    return std::move(proved).error().with_context(who);
  }
  PLEXUS_TRY(socket.value().send_all(
      encode(Message{.type = MessageType::kJoin, .payload = encode(info)}), patience));
  return socket;
}

}  // namespace

Result<Socket> listen_for_members(const Config& config) {
  PLEXUS_TRY(range, parse_port_range(config.port_range));
  const bool has_own = !config.bootstrap_ifname.empty();
  PLEXUS_TRY(
      interface_address,
      find_interface(has_own ? config.bootstrap_ifname : config.socket_ifname, config.socket_family,
                     has_own ? "NCCL_OOB_NET_IFNAME" : "NCCL_SOCKET_IFNAME"));
  return Socket::listen(interface_address, range.low, range.high);
}

Result<std::shared_ptr<TcpFamily>> TcpFamily::make(const Config& config,
                                                   const UniqueId& id,
                                                   const JoinInfo& info,
                                                   const Patience& patience) {
  PLEXUS_TRY(socket, enter_hub({.address = id.address, .may_come = !config.comm_id.empty()}, id,
                               info, patience));
  auto family = std::make_shared<TcpFamily>(config, id, info, std::move(socket));
  auto thread = start_thread("the control connection", [self = family.get()] { self->read(); });
  if (thread.has_error()) {
    (void)family->send(
        {.type = MessageType::kFail, .group = id.job, .payload = encode(thread.error())});
    return std::move(thread).error().with_context(
        fmt::format("rank {} joining {}", info.rank, id.address.to_string()));
  }
  family->thread_ = std::move(thread).value();
  return family;
}

// Later than the hub's own deadline, whose error names the missing ranks.
TcpFamily::TcpFamily(const Config& config, const UniqueId& id, JoinInfo info, Socket socket)
    : Family(std::chrono::seconds(config.bootstrap_timeout_s + 5)),
      config_(config),
      id_(id),
      info_(std::move(info)),
      socket_(std::move(socket)) {}

TcpFamily::~TcpFamily() {
  ends_.store(true, std::memory_order_release);
  {
    const std::lock_guard lock(send_mutex_);
    shutdown(socket_.fd(), SHUT_RDWR);  // wakes the reader
  }
  if (thread_.joinable()) {
    thread_.join();
  }
}

// ---- sending ----

Patience TcpFamily::send_patience() const {
  return {.deadline = Deadline::after(kSendTime), .stop = &ends_};
}

Result<void> TcpFamily::send(Message message) {
  const std::lock_guard lock(send_mutex_);
  return send_locked(encode(message));
}

/// Requires send_mutex_.
Result<void> TcpFamily::send_locked(const std::string& bytes) {
  if (pauses_) {
    if (kept_.size() + bytes.size() > kKeptBytesMax) {
      return fail(Code::kRemoteError, "too much was sent while the control plane moved");
    }
    kept_ += bytes;
    return ok();
  }
  auto sent = socket_.send_all(bytes, send_patience());
  if (sent.has_error()) {
    return std::move(sent).error().with_context("the control connection is gone");
  }
  return ok();
}

void TcpFamily::close() {
  wait_longer(kGoodbyeTime);
  {
    const std::lock_guard lock(send_mutex_);
    leaves_ = true;
    if (send_locked(encode(Message{.type = MessageType::kLeave})).has_error()) {
      return;
    }
    if (!pauses_) {
      shutdown(socket_.fd(), SHUT_WR);
    }
  }
  std::unique_lock lock(closed_mutex_);
  while (!hub_closed_ && Clock::now() < goodbye_until_) {
    closed_.wait_until(lock, goodbye_until_);
  }
}

void TcpFamily::wait_longer(Clock::duration duration) {
  const std::lock_guard lock(closed_mutex_);
  goodbye_until_ = std::max(goodbye_until_, Clock::now() + duration);
}

// ---- the reader ----

void TcpFamily::read() {
  while (receive() && take_messages()) {
  }
  lose_hub(socket_.peer_name());
  {
    const std::lock_guard lock(send_mutex_);
    pauses_ = false;  // what is sent from now on fails
  }
  const std::lock_guard lock(closed_mutex_);
  hub_closed_ = true;
  closed_.notify_all();
}

bool TcpFamily::receive() {
  constexpr size_t kReadBytes = 64UL * 1024;
  std::vector<char> bytes(kReadBytes);
  pollfd entry{socket_.fd(), POLLIN, 0};
  if (poll(&entry, 1, -1) < 0) {
    return true;
  }
  auto received = socket_.try_recv(bytes.data(), bytes.size());
  if (received.has_error()) {
    return false;
  }
  reader_.append(bytes.data(), received.value());
  return true;
}

bool TcpFamily::take_messages() {
  for (;;) {
    auto message = reader_.next();
    if (message.has_error()) {
      return false;
    }
    if (!message.value().has_value()) {
      return true;
    }
    if (!take(std::move(*message.value()))) {
      return false;
    }
  }
}

/// Returns false when the connection to the hub has ended.
bool TcpFamily::take(Message message) {
  switch (message.type) {
    case MessageType::kPause:
      pause();
      return true;
    case MessageType::kHost:
      take_state(message);
      return true;
    case MessageType::kMove:
      return message.payload.empty() ? resume(nullptr) : move(message);
    default:
      deliver(std::move(message));
      return true;
  }
}

// ---- the hub moves ----

void TcpFamily::pause() {
  wait_longer(kMoveTime);
  const std::lock_guard lock(send_mutex_);
  if (leaves_ || pauses_) {
    return;  // this member has left; kLeave was its last message
  }
  // A failed send also shows as a failed receive.
  (void)socket_.send_all(encode(Message{.type = MessageType::kPause}), send_patience());
  pauses_ = true;
}

void TcpFamily::take_state(const Message& message) {
  if (hub_state_.size() + message.payload.size() <= kStateBytesMax) {
    hub_state_ += message.payload;
  }
  if (message.tag != 0) {
    return;
  }
  auto address = serve_here(std::exchange(hub_state_, {}));
  Message answer{.type = MessageType::kHost};
  if (address.has_value()) {
    answer.payload = encode(address.value());
  } else {
    PLEXUS_INFO(kBootstrap, "bootstrap: does not take the hub over: {}", address.error().message());
  }
  const std::lock_guard lock(send_mutex_);
  (void)socket_.send_all(encode(answer), send_patience());
}

Result<HubAddress> TcpFamily::serve_here(std::string_view state) {
  {
    const std::lock_guard lock(send_mutex_);
    if (leaves_) {
      return fail(Code::kInvalidUsage, "this rank leaves");
    }
  }
  PLEXUS_TRY(listener, listen_for_members(config_));
  PLEXUS_TRY(address, listener.local_address());
  PLEXUS_TRY(start_heir_server(id_, std::move(listener), state, {.host_process = info_.process}));
  PLEXUS_INFO(kBootstrap, "bootstrap: the hub moves here, to {}", address.to_string());
  HubAddress result;
  address.pack(result.address.data());
  return result;
}

bool TcpFamily::move(const Message& message) {
  auto to = decode_hub_address(message.payload);
  auto address = to.has_value() ? SocketAddress::unpack(to.value().address.data())
                                : Result<SocketAddress>(std::move(to).error());
  if (address.has_error()) {
    return false;
  }
  deliver({.type = MessageType::kJoin, .peer = message.peer, .payload = to.value().name});
  const Patience patience{.deadline = Deadline::after(kConnectTime), .stop = &ends_};
  auto entered = enter_hub({.address = address.value(), .may_come = false}, id_, info_, patience);
  if (entered.has_error()) {
    PLEXUS_INFO(kBootstrap, "bootstrap: {}", entered.error().message());
    return false;
  }
  reader_ = {};
  return resume(&entered.value());
}

/// Sends what was kept, to the new hub or to the old one, and sends directly from then on.
bool TcpFamily::resume(Socket* new_socket) {
  const std::lock_guard lock(send_mutex_);
  if (new_socket != nullptr) {
    shutdown(socket_.fd(), SHUT_RDWR);  // close() alone does not end it if a forked child has it
                                        // open
    std::swap(socket_, *new_socket);
  }
  pauses_ = false;
  const bool sent = socket_.send_all(std::exchange(kept_, {}), send_patience()).has_value();
  if (leaves_) {
    shutdown(socket_.fd(), SHUT_WR);
  }
  return sent && !ends_.load(std::memory_order_acquire);
}

}  // namespace plexus
