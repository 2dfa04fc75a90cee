// SPDX-License-Identifier: Apache-2.0
// TCP for the control plane: owned sockets, addresses as values, choice of the interface. Every
// wait is bounded by a deadline and by a stop flag.
//
//   PLEXUS_TRY(address, SocketAddress::parse("127.0.0.1:5000"));
//   PLEXUS_TRY(socket, Socket::connect(address, patience));
//   PLEXUS_TRY(socket.send_all("hello", patience));
//   return ok();
#pragma once

#include <atomic>
#include <cstdint>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/clock.hpp"
#include "core/base/result.hpp"
#include "core/os/own_fds.hpp"

namespace plexus {

/// An IPv4 or IPv6 address with its port.
class SocketAddress {
 public:
  SocketAddress() = default;
  explicit SocketAddress(const sockaddr* address);
  /// "host:port" or "[v6]:port"; resolves host names.
  static Result<SocketAddress> parse(std::string_view text);

  /// Whether the host in "host:port" is an address and no name.
  static bool is_numeric(std::string_view text);

  [[nodiscard]] std::string to_string() const;
  /// Without the port.
  [[nodiscard]] std::string to_host() const;
  [[nodiscard]] uint16_t port() const;
  void set_port(uint16_t port);
  [[nodiscard]] const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  [[nodiscard]] socklen_t raw_size() const;
  [[nodiscard]] int family() const { return storage_.ss_family; }
  /// The number of a link-local IPv6 address's interface, on this host. Not packed.
  [[nodiscard]] uint32_t scope() const;
  /// An address that came from another host: if it is link-local and has no scope, with that of
  /// `own`, an address of the interface over which this host communicates.
  [[nodiscard]] SocketAddress as_seen_from(const SocketAddress& own) const;
  /// Does it lead to this host and no further?
  [[nodiscard]] bool is_loopback() const;

  /// Size of pack(): family, port and address, as sent in messages; the rest is zero.
  static constexpr size_t kPackedBytes = 28;
  void pack(uint8_t* bytes) const;
  static Result<SocketAddress> unpack(const uint8_t* bytes);

 private:
  sockaddr_storage storage_{};
};

/// Bounds of a wait: a deadline and a stop flag.
struct Patience {
  Deadline deadline = Deadline::never();
  const std::atomic<bool>* stop = nullptr;  // may be null

  /// Waits until `fd` is ready for `events` (poll). An Error at the deadline or when stopped.
  [[nodiscard]] Result<void> wait(int fd, short events, std::string_view what) const;
};

/// Move-only owner of a non-blocking TCP socket. Threads: one at a time. In a child made by fork
/// the sockets of the parent are closed (own_fds.hpp), and their owners do nothing.
class Socket {
 public:
  Socket() = default;

  /// Listens at `address`; port 0: any free port, or, when high > 0, the first free one of
  /// [low, high]. `is_shared`: other processes of the same user may listen there, too, and the
  /// system chooses one of them for each connection.
  static Result<Socket> listen(SocketAddress address,
                               int port_low,
                               int port_high,
                               bool is_shared = false);
  /// Makes one attempt to connect. kRemoteError: the host refuses, so nothing listens there.
  /// kTimeout: nothing comes back.
  static Result<Socket> connect(const SocketAddress& address, const Patience& patience);
  /// Begins to connect; the socket becomes writable when that has ended (finish_connect). Errors as
  /// of connect().
  static Result<Socket> start_connect(const SocketAddress& address);
  Result<void> finish_connect(const SocketAddress& address);
  /// An unconnected socket that holds a descriptor in reserve. Not open when no descriptor is left.
  static Socket reserve();
  /// The next incoming connection; nullopt: none is waiting.
  Result<std::optional<Socket>> try_accept();

  Result<void> send_all(std::string_view bytes, const Patience& patience);
  Result<void> recv_all(void* bytes, size_t size_bytes, const Patience& patience);
  /// Receives the bytes that are available; 0: none are. An Error when the peer closed.
  Result<size_t> try_recv(void* bytes, size_t size_bytes);
  Result<size_t> try_send(std::string_view bytes);

  [[nodiscard]] Result<SocketAddress> local_address() const;
  [[nodiscard]] std::string peer_name() const;
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] bool is_open() const noexcept { return fd() >= 0; }
  void close() noexcept { fd_.close(); }

 private:
  explicit Socket(int fd) : fd_(fd) {}
  static Socket open(int family);
  OwnFd fd_;
};

/// The address of the interface to use. `names` in NCCL_SOCKET_IFNAME's syntax (prefixes; ^
/// excludes, = is exact); `family`: AF_INET, AF_INET6 or empty. Without names, loopback and the
/// bridges of docker and libvirt are used only when there is nothing else. Waits for 2 s where the
/// interfaces that are named are up, but without carrier. `setting`: the variable that `names` came
/// from, for messages.
Result<SocketAddress> find_interface(const std::string& names,
                                     const std::string& family,
                                     std::string_view setting = "NCCL_SOCKET_IFNAME");

}  // namespace plexus
