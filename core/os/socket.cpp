// SPDX-License-Identifier: Apache-2.0
#include "core/os/socket.hpp"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "core/base/clock.hpp"
#include "core/os/descriptors.hpp"
#include "core/os/own_fds.hpp"
#include "guest/interface_choice.hpp"
#include "guest/port_range.hpp"

namespace plexus {
namespace {

constexpr int kPollMs = 50;  // interval at which the stop flag is checked
constexpr int kBacklog = 1024;

/// No delay for small messages; a vanished host is noticed after about half a minute.
void set_options(int fd) {
  const int on = 1;
  const int idle_s = 10;
  const int interval_s = 5;
  const int probes = 4;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  // TCP sends no keepalive probes while data is unacknowledged; this bounds that case equally.
  const unsigned unanswered_ms = 1000 * (idle_s + probes * interval_s);
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof(unanswered_ms));
}

bool is_same(const SocketAddress& a, const SocketAddress& b) {
  std::array<uint8_t, SocketAddress::kPackedBytes> first{};
  std::array<uint8_t, SocketAddress::kPackedBytes> second{};
  a.pack(first.data());
  b.pack(second.data());
  return first == second;
}

}  // namespace

// ---- SocketAddress ----

SocketAddress::SocketAddress(const sockaddr* address) {
  std::memcpy(&storage_, address,
              address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
}

socklen_t SocketAddress::raw_size() const {
  return family() == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

uint16_t SocketAddress::port() const {
  return family() == AF_INET6 ? ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port)
                              : ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
}

void SocketAddress::set_port(uint16_t port) {
  if (family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
  }
}

uint32_t SocketAddress::scope() const {
  return family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_scope_id : 0;
}

SocketAddress SocketAddress::as_seen_from(const SocketAddress& own) const {
  SocketAddress seen = *this;
  if (family() == AF_INET6 && reach_of(*raw()) == AddressReach::kLink && scope() == 0) {
    reinterpret_cast<sockaddr_in6*>(&seen.storage_)->sin6_scope_id = own.scope();
  }
  return seen;
}

bool SocketAddress::is_loopback() const {
  constexpr uint32_t kLoopbackNet = 127;
  constexpr int kNetBits = 24;
  if (family() == AF_INET6) {
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr) != 0;
  }
  const auto& v4 = *reinterpret_cast<const sockaddr_in*>(&storage_);
  return ntohl(v4.sin_addr.s_addr) >> kNetBits == kLoopbackNet;
}

std::string SocketAddress::to_host() const {
  char host[NI_MAXHOST] = "?";
  getnameinfo(raw(), raw_size(), host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return host;
}

std::string SocketAddress::to_string() const {
  return family() == AF_INET6 ? fmt::format("[{}]:{}", to_host(), port())
                              : fmt::format("{}:{}", to_host(), port());
}

static std::string host_of(std::string_view text) {
  std::string host(text.substr(0, text.rfind(':') == std::string_view::npos ? 0 : text.rfind(':')));
  return host.size() > 1 && host.front() == '[' && host.back() == ']'
             ? host.substr(1, host.size() - 2)
             : host;
}

bool SocketAddress::is_numeric(std::string_view text) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(host_of(text).c_str(), nullptr, &hints, &found) != 0) {
    return false;
  }
  freeaddrinfo(found);
  return true;
}

Result<SocketAddress> SocketAddress::parse(std::string_view text) {
  const size_t colon = text.rfind(':');
  const std::string host = host_of(text);
  const std::string port(colon == std::string_view::npos ? "" : text.substr(colon + 1));
  const bool numeric = !port.empty() && port.find_first_not_of("0123456789") == std::string::npos;
  if (host.empty() || !numeric || port.size() > 5 || std::stoi(port) > 65535) {
    return fail(Code::kInvalidArgument, "'{}' is not an address: write host:port or [v6]:port",
                text);
  }
  addrinfo* found = nullptr;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return fail(Code::kInvalidArgument, "cannot resolve '{}': {}", host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  return SocketAddress(found->ai_addr);
}

void SocketAddress::pack(uint8_t* bytes) const {
  std::memset(bytes, 0, kPackedBytes);
  bytes[0] = family() == AF_INET6 ? 6 : 4;
  bytes[2] = static_cast<uint8_t>(port() >> 8);
  bytes[3] = static_cast<uint8_t>(port());
  if (family() == AF_INET6) {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(&storage_);
    std::memcpy(bytes + 4, &v6.sin6_addr, 16);
  } else {
    std::memcpy(bytes + 4, &reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr, 4);
  }
}

Result<SocketAddress> SocketAddress::unpack(const uint8_t* bytes) {
  SocketAddress address;
  if (bytes[0] == 4) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage_);
    v4.sin_family = AF_INET;
    std::memcpy(&v4.sin_addr, bytes + 4, 4);
  } else if (bytes[0] == 6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage_);
    v6.sin6_family = AF_INET6;
    std::memcpy(&v6.sin6_addr, bytes + 4, 16);
  } else {
    return fail(Code::kInvalidArgument, "unknown address family {}", bytes[0]);
  }
  address.set_port(static_cast<uint16_t>(bytes[2] << 8 | bytes[3]));
  return address;
}

// ---- waiting ----

Result<void> Patience::wait(int fd, short events, std::string_view what) const {
  for (;;) {
    if (stop != nullptr && stop->load(std::memory_order_acquire)) {
      return fail(Code::kInvalidUsage, "{}: aborted", what);
    }
    pollfd entry{fd, events, 0};
    const int ready = poll(&entry, 1, deadline.poll_ms(kPollMs));
    if (ready > 0) {
      return ok();
    }
    if (ready < 0 && errno != EINTR) {
      return fail(Code::kSystemError, "{}: poll failed: {}", what, std::strerror(errno));
    }
    if (deadline.expired()) {
      return fail(Code::kTimeout, "{}: no answer in time", what);
    }
  }
}

// ---- Socket ----

Socket Socket::reserve() { return open(AF_INET); }

Socket Socket::open(int family) {
  return Socket(OwnFds::instance().open(
      [&] { return ::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }));
}

Result<Socket> Socket::listen(SocketAddress address, int port_low, int port_high, bool is_shared) {
  const int fixed = address.port();
  const PortRange range = fixed != 0 ? PortRange{fixed, fixed} : PortRange{port_low, port_high};
  Socket socket;
  const bool listens = listen_in_range(range, [&](uint16_t port) {
    socket = open(address.family());
    const int on = 1;
    address.set_port(port);
    return socket.is_open() &&
           setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
           (!is_shared ||
            setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0) &&
           bind(socket.fd(), address.raw(), address.raw_size()) == 0 &&
           ::listen(socket.fd(), kBacklog) == 0;
  });
  const int error = errno;
  if (listens) {
    return socket;
  }
  if (!socket.is_open()) {
    return describe_refused_descriptor("cannot make a socket to listen at " + address.to_string(),
                                       error);
  }
  return fail(Code::kSystemError, "cannot listen at {} (ports {} to {}): {}", address.to_string(),
              range.low, range.high, std::strerror(error));
}

static Code code_of_connect(int error) {
  return error == ECONNREFUSED ? Code::kRemoteError
         : error == ETIMEDOUT  ? Code::kTimeout
                               : Code::kSystemError;
}

Result<Socket> Socket::connect(const SocketAddress& address, const Patience& patience) {
  PLEXUS_TRY(socket, start_connect(address));
  PLEXUS_TRY(patience.wait(socket.fd(), POLLOUT, "connecting to " + address.to_string()));
  PLEXUS_TRY(socket.finish_connect(address));
  return std::move(socket);
}

Result<Socket> Socket::start_connect(const SocketAddress& address) {
  Socket socket = open(address.family());
  if (!socket.is_open()) {
    const int error = errno;
    return describe_refused_descriptor("cannot make a socket to connect to " + address.to_string(),
                                       error);
  }
  set_options(socket.fd());
  if (::connect(socket.fd(), address.raw(), address.raw_size()) != 0 && errno != EINPROGRESS) {
    return fail(code_of_connect(errno), "cannot connect to {}: {}", address.to_string(),
                std::strerror(errno));
  }
  return socket;
}

Result<void> Socket::finish_connect(const SocketAddress& address) {
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    return fail(code_of_connect(error), "cannot connect to {}: {}", address.to_string(),
                std::strerror(error));
  }
  // TCP connects a socket to itself when the port that it was given is the one it connects to.
  const auto own = local_address();
  if (own.has_value() && is_same(own.value(), address)) {
    return fail(Code::kRemoteError, "cannot connect to {}: nothing listens there",
                address.to_string());
  }
  return ok();
}

Result<std::optional<Socket>> Socket::try_accept() {
  const int accepted = OwnFds::instance().open(
      [&] { return accept4(fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
  if (accepted >= 0) {
    set_options(accepted);
    return std::optional<Socket>(Socket(accepted));
  }
  const bool transient =
      errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ECONNABORTED;
  if (!transient) {
    return describe_refused_descriptor("cannot accept a connection");
  }
  return std::optional<Socket>();
}

Result<size_t> Socket::try_send(std::string_view bytes) {
  const ssize_t sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) {
    return static_cast<size_t>(sent);
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    return size_t{0};
  }
  return fail(Code::kRemoteError, "sending to {} failed: {}", peer_name(), std::strerror(errno));
}

Result<size_t> Socket::try_recv(void* bytes, size_t size_bytes) {
  const ssize_t received = ::recv(fd(), bytes, size_bytes, MSG_DONTWAIT);
  if (received > 0) {
    return static_cast<size_t>(received);
  }
  if (received == 0) {
    return fail(Code::kRemoteError, "{} closed the connection", peer_name());
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    return size_t{0};
  }
  return fail(Code::kRemoteError, "receiving from {} failed: {}", peer_name(),
              std::strerror(errno));
}

Result<void> Socket::send_all(std::string_view bytes, const Patience& patience) {
  while (!bytes.empty()) {
    PLEXUS_TRY(sent, try_send(bytes));
    bytes.remove_prefix(sent);
    if (sent == 0) {
      PLEXUS_TRY(patience.wait(fd(), POLLOUT, "sending to " + peer_name()));
    }
  }
  return ok();
}

Result<void> Socket::recv_all(void* bytes, size_t size_bytes, const Patience& patience) {
  auto* to = static_cast<char*>(bytes);
  while (size_bytes > 0) {
    PLEXUS_TRY(received, try_recv(to, size_bytes));
    to += received;
    size_bytes -= received;
    if (received == 0) {
      PLEXUS_TRY(patience.wait(fd(), POLLIN, "waiting for " + peer_name()));
    }
  }
  return ok();
}

Result<SocketAddress> Socket::local_address() const {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getsockname(fd(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return fail(Code::kSystemError, "getsockname failed: {}", std::strerror(errno));
  }
  return SocketAddress(reinterpret_cast<const sockaddr*>(&storage));
}

std::string Socket::peer_name() const {
  sockaddr_storage storage{};
  socklen_t size = sizeof(storage);
  if (getpeername(fd(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return "the peer";
  }
  return SocketAddress(reinterpret_cast<const sockaddr*>(&storage)).to_string();
}

// ---- interfaces ----

namespace {

struct Interface {
  std::string name;
  SocketAddress address;
};

struct Interfaces {
  std::vector<Interface> usable;         // the addresses that reach furthest first
  std::vector<std::string> unconnected;  // up, but (still) without carrier
};

Result<Interfaces> list_interfaces(const std::string& family) {
  ifaddrs* list = nullptr;
  Interfaces found;
  if (getifaddrs(&list) != 0) {  // it makes a socket
    return describe_refused_descriptor("cannot list the network interfaces");
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) {
      continue;
    }
    if (!is_usable_interface(entry->ifa_flags)) {
      found.unconnected.emplace_back(entry->ifa_name);
      continue;
    }
    const int wanted = entry->ifa_addr->sa_family;
    const bool fits =
        (wanted == AF_INET && family != "AF_INET6") || (wanted == AF_INET6 && family != "AF_INET");
    if (fits) {
      found.usable.push_back({entry->ifa_name, SocketAddress(entry->ifa_addr)});
    }
  }
  std::stable_sort(found.usable.begin(), found.usable.end(),
                   [](const Interface& a, const Interface& b) {
                     return order_of_address(*a.address.raw()) < order_of_address(*b.address.raw());
                   });
  return found;
}

/// list_interfaces(); an interface that `names` asks for and that is up gets time for its carrier:
/// a container often starts its program while the kernel connects the two ends of its network.
Result<Interfaces> list_connected_interfaces(const std::string& names, const std::string& family) {
  constexpr auto kCarrierTime = std::chrono::seconds(2);
  constexpr auto kPoll = std::chrono::milliseconds(10);
  const NameFilter wish(names);
  const auto is_named = [&](const std::string& name) { return wish.keeps(name); };
  for (const Deadline deadline = Deadline::after(kCarrierTime);;) {
    PLEXUS_TRY(found, list_interfaces(family));
    const bool waits = wish.names_some() &&
                       std::none_of(found.usable.begin(), found.usable.end(),
                                    [&](const Interface& each) { return is_named(each.name); }) &&
                       std::any_of(found.unconnected.begin(), found.unconnected.end(), is_named);
    if (!waits || deadline.expired()) {
      return std::move(found);
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace

Result<SocketAddress> find_interface(const std::string& names,
                                     const std::string& family,
                                     std::string_view setting) {
  PLEXUS_TRY(listed, list_connected_interfaces(names, family));
  const std::vector<Interface>& interfaces = listed.usable;
  std::vector<std::string> all;
  for (const Interface& each : interfaces) {
    if (std::find(all.begin(), all.end(), each.name) == all.end()) {
      all.push_back(each.name);
    }
  }
  const std::vector<std::string> chosen = choose_interfaces(all, names);
  for (const Interface& candidate : interfaces) {
    if (std::find(chosen.begin(), chosen.end(), candidate.name) != chosen.end()) {
      return candidate.address;
    }
  }
  if (names.empty()) {
    return fail(Code::kSystemError, "no network interface is up (not even loopback): bring one up");
  }
  return fail(Code::kInvalidUsage,
              "{}={} matches no network interface that is up and connected{}; available: {}",
              setting, names,
              family.empty() ? "" : " and has an address of NCCL_SOCKET_FAMILY=" + family,
              fmt::join(all, ", "));
}

}  // namespace plexus
