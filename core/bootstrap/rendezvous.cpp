// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/rendezvous.hpp"

#include <charconv>
#include <numeric>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/bootstrap/family.hpp"
#include "core/bootstrap/handshake.hpp"
#include "core/bootstrap/hub_server.hpp"
#include "core/os/host.hpp"

namespace plexus {
namespace {

constexpr uint32_t kProtocolVersion = 1;
constexpr auto kGoodbyeTime = std::chrono::seconds(2);
constexpr auto kSendTime = std::chrono::minutes(1);
constexpr auto kRetryPause = std::chrono::milliseconds(50);
constexpr auto kRefusedTime = std::chrono::seconds(2);  // for a network that is not settled yet

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

/// Over TCP. The reader thread lives as long as the family.
class TcpFamily final : public Family {
 public:
  TcpFamily(Socket socket, std::chrono::seconds gather_time)
      : Family(gather_time), socket_(std::move(socket)) {}
  ~TcpFamily() override {
    shutdown(socket_.fd(), SHUT_RDWR);  // wakes the reader
    if (reader_.joinable()) {
      reader_.join();
    }
  }

  Result<void> start_reader() {
    PLEXUS_TRY(thread, start_thread("the control connection", [this] { read(); }));
    reader_ = std::move(thread);
    return ok();
  }

  Result<void> send(Message message) override {
    const std::string bytes = encode(message);
    const std::lock_guard lock(send_mutex_);
    auto sent = socket_.send_all(bytes, {.deadline = Deadline::after(kSendTime)});
    if (sent.has_error()) {
      return std::move(sent).error().with_context("the control connection is gone");
    }
    return ok();
  }

  /// Waits until the hub has closed, or for kGoodbyeTime: what it still has to tell others because
  /// of us must not be lost with this process.
  void close() override {
    if (send({.type = MessageType::kLeave}).has_error()) {
      return;
    }
    shutdown(socket_.fd(), SHUT_WR);
    std::unique_lock lock(closed_mutex_);
    closed_.wait_for(lock, kGoodbyeTime, [this] { return hub_closed_; });
  }

 private:
  void read() {
    MessageReader reader;
    std::vector<char> bytes(size_t{64} * 1024);
    for (;;) {
      pollfd entry{socket_.fd(), POLLIN, 0};
      if (poll(&entry, 1, -1) < 0) {
        continue;
      }
      auto received = socket_.try_recv(bytes.data(), bytes.size());
      if (received.has_error()) {
        break;
      }
      reader.append(bytes.data(), received.value());
      if (!deliver_all(reader)) {
        break;
      }
    }
    lose_hub(socket_.peer_name());
    const std::lock_guard lock(closed_mutex_);
    hub_closed_ = true;
    closed_.notify_all();
  }

  bool deliver_all(MessageReader& reader) {
    for (;;) {
      auto message = reader.next();
      if (message.has_error()) {
        return false;
      }
      if (!message.value().has_value()) {
        return true;
      }
      deliver(std::move(*message.value()));
    }
  }

  Socket socket_;
  std::mutex send_mutex_;
  std::thread reader_;
  std::mutex closed_mutex_;
  std::condition_variable closed_;
  bool hub_closed_ = false;  // guarded by closed_mutex_
};

Result<void> listen_and_serve(const UniqueId& id, Socket listener, const Config& config) {
  // A port that the user chose is free again as soon as a job that failed is gone.
  return start_hub_server(id, std::move(listener),
                          {.join_time = std::chrono::seconds(config.bootstrap_timeout_s),
                           .stays = config.comm_id.empty()});
}

/// The hub may not listen yet (`may_come`: NCCL_COMM_ID), or be busy: tries again until patience
/// ends. A hub that listened when the id was made and refuses now has gone.
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

}  // namespace

Result<UniqueId> start_root(const Config& config) {
  if (!config.comm_id.empty()) {
    return UniqueId::from_comm_id(config.comm_id);
  }
  PLEXUS_TRY(range, parse_port_range(config.port_range));
  const bool has_own = !config.bootstrap_ifname.empty();
  PLEXUS_TRY(
      interface_address,
      find_interface(has_own ? config.bootstrap_ifname : config.socket_ifname, config.socket_family,
                     has_own ? "NCCL_OOB_NET_IFNAME" : "NCCL_SOCKET_IFNAME"));
  PLEXUS_TRY(listener, Socket::listen(interface_address, range.low, range.high));
  PLEXUS_TRY(address, listener.local_address());
  PLEXUS_TRY(id, UniqueId::create(address));
  PLEXUS_TRY(listen_and_serve(id, std::move(listener), config));
  PLEXUS_INFO(kBootstrap, "bootstrap: listening at {}", address.to_string());
  return id;
}

Result<std::unique_ptr<Exchange>> join(const Config& config,
                                       std::span<const UniqueId> ids,
                                       int rank,
                                       int nranks,
                                       const std::atomic<bool>* stop) {
  UniqueId id = ids.front();
  if (!config.comm_id.empty()) {
    PLEXUS_TRY(named, UniqueId::from_comm_id(config.comm_id));
    id = named;
    if (rank == 0) {
      PLEXUS_TRY(listener, Socket::listen(id.address, 0, 0));
      PLEXUS_TRY(listen_and_serve(id, std::move(listener), config));
    }
  }
  const auto time = std::chrono::seconds(config.bootstrap_timeout_s);
  const Patience patience{.deadline = Deadline::after(time), .stop = stop};
  const std::string who = fmt::format("rank {} joining {}", rank, id.address.to_string());
  auto socket = connect_to_hub(id.address, !config.comm_id.empty(), patience);
  if (socket.has_error()) {
    return std::move(socket).error().with_context(who);
  }
  auto proved = prove_membership(socket.value(), id.secret, patience);
  if (proved.has_error()) {
    return std::move(proved).error().with_context(who);
  }
  // The hub's own deadline comes first and names who is missing.
  auto family =
      std::make_shared<TcpFamily>(std::move(socket).value(), time + std::chrono::seconds(5));
  PLEXUS_TRY(family->send({.type = MessageType::kJoin,
                           .payload = encode(JoinInfo{.rank = static_cast<uint32_t>(rank),
                                                      .nranks = static_cast<uint32_t>(nranks),
                                                      .version = kProtocolVersion,
                                                      .pid = static_cast<int32_t>(getpid()),
                                                      .process = process_id(),
                                                      .host = host_identity("").name})}));
  if (auto started = family->start_reader(); started.has_error()) {
    (void)family->send(
        {.type = MessageType::kFail, .group = id.job, .payload = encode(started.error())});
    return std::move(started).error().with_context(who);
  }
  std::vector<uint32_t> members(static_cast<size_t>(nranks));
  std::iota(members.begin(), members.end(), 0U);
  return std::make_unique<Exchange>(std::move(family), id.job, std::move(members), rank);
}

}  // namespace plexus
