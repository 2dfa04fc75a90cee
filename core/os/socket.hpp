// SPDX-License-Identifier: Apache-2.0
// TCP for the control plane: owned sockets, addresses as values, interface choice. Everything that
// waits is bounded by a deadline and by a stop flag.
#pragma once

#include <atomic>
#include <cstdint>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"

namespace plexus {

/// An IPv4 or IPv6 address with its port.
class SocketAddress {
 public:
  SocketAddress() = default;
  explicit SocketAddress(const sockaddr* address);
  /// "host:port" or "[v6]:port"; names are resolved.
  static Result<SocketAddress> parse(std::string_view text);

  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] uint16_t port() const;
  void set_port(uint16_t port);
  [[nodiscard]] const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t raw_size() const;
  [[nodiscard]] int family() const { return storage_.ss_family; }

  /// 28 bytes: family, port, address, scope; for messages.
  static constexpr size_t kPackedBytes = 28;
  void pack(uint8_t* bytes) const;
  static Result<SocketAddress> unpack(const uint8_t* bytes);

 private:
  sockaddr_storage storage_{};
};

/// When to give up waiting.
struct Patience {
  Deadline deadline = Deadline::never();
  const std::atomic<bool>* stop = nullptr;  // may be null

  /// Waits until `fd` is ready for `events` (poll). An Error when patience is at an end.
  [[nodiscard]] Result<void> wait(int fd, short events, std::string_view what) const;
};

/// Move-only owner of a non-blocking TCP socket. Threads: one at a time.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;

  /// Listens at `address`; port 0: any port, or the first free one of [low, high] when high > 0.
  static Result<Socket> listen(SocketAddress address, int port_low, int port_high);
  /// One try to connect. kRemoteError: the host is there and refuses, so nobody listens.
  static Result<Socket> connect(const SocketAddress& address, const Patience& patience);
  /// The next connection, nullopt when there is none now.
  Result<std::optional<Socket>> try_accept();

  Result<void> send_all(std::string_view bytes, const Patience& patience);
  Result<void> recv_all(void* bytes, size_t size_bytes, const Patience& patience);
  /// What is there now, 0 when nothing; an Error when the peer closed.
  Result<size_t> try_recv(void* bytes, size_t size_bytes);
  Result<size_t> try_send(std::string_view bytes);

  [[nodiscard]] Result<SocketAddress> local_address() const;
  [[nodiscard]] std::string peer_name() const;
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  void close() noexcept;

 private:
  int fd_ = -1;
};

/// The address of the interface to use: `names` in NCCL_SOCKET_IFNAME's syntax (prefixes; ^
/// excludes, = exact), `family` AF_INET, AF_INET6 or empty. Without names: no loopback and no
/// docker bridge unless there is nothing else. `setting`: where `names` are from, for messages.
Result<SocketAddress> find_interface(std::string names,
                                     const std::string& family,
                                     std::string_view setting = "NCCL_SOCKET_IFNAME");

}  // namespace plexus
