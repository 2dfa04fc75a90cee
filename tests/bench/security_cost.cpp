// SPDX-License-Identifier: Apache-2.0
// What PLEXUS_NET_SECURITY and PLEXUS_NET_CHECKSUM cost: processor time of one thread for a message
// over loopback TCP, sending and receiving together, and for making a connection. Processor time,
// so that other load on the machine changes little. Each row is the best of several batches.
#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <limits>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/transport/network/checksum.hpp"
#include "security/session.hpp"

namespace plexus {
namespace {

using security::Mode;
using security::Role;
using security::Session;
using State = Session::State;

double processor_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

template <class Body>
double best_us(int batches, int count, const Body& body) {
  double best = std::numeric_limits<double>::max();
  for (int batch = 0; batch < batches; ++batch) {
    const double before = processor_us();
    for (int i = 0; i < count; ++i) {
      body();
    }
    best = std::min(best, (processor_us() - before) / count);
  }
  return best;
}

/// Two connected sockets.
class Sockets {
 public:
  Sockets() {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const raw = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener, raw, size) != 0 || ::listen(listener, 1) != 0 ||
        ::getsockname(listener, raw, &size) != 0 || ::connect(fds[0], raw, size) != 0) {
      std::perror("loopback");
      std::exit(1);
    }
    fds[1] = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    for (const int fd : fds) {
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      ::fcntl(fd, F_SETFL, O_NONBLOCK);
    }
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;
  ~Sockets() {
    ::close(fds[0]);
    ::close(fds[1]);
  }
  std::array<int, 2> fds{::socket(AF_INET, SOCK_STREAM, 0), -1};
};

void prove(Session& caller, Session& listener) {
  for (;;) {
    const State one = caller.advance();
    const State other = listener.advance();
    if (one == State::kFailed || other == State::kFailed) {
      std::printf("a connection failed: %s\n", caller.error().c_str());
      std::exit(1);
    }
    if (one == State::kProven && other == State::kProven) {
      return;
    }
  }
}

void carry(Session& from, Session& to, const std::vector<char>& out, std::vector<char>& in) {
  size_t sent = 0;
  for (size_t received = 0; received < in.size();) {
    if (sent < out.size()) {
      sent += static_cast<size_t>(std::max<ssize_t>(0, from.send(&out[sent], out.size() - sent)));
    }
    received +=
        static_cast<size_t>(std::max<ssize_t>(0, to.receive(&in[received], in.size() - received)));
  }
}

void measure(Mode mode) {
  constexpr int kBatches = 15;
  const security::Terms terms{.mode = mode};
  const double connect = best_us(kBatches, 20, [&] {
    const Sockets sockets;
    Session caller(sockets.fds[0], Role::kCaller, terms);
    Session listener(sockets.fds[1], Role::kListener, terms);
    prove(caller, listener);
  });
  const Sockets sockets;
  Session caller(sockets.fds[0], Role::kCaller, terms);
  Session listener(sockets.fds[1], Role::kListener, terms);
  prove(caller, listener);
  std::array<double, 2> us{};
  const std::array<std::pair<size_t, int>, 2> sizes = {{{8, 20'000}, {1 << 20, 100}}};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<char> out(sizes[i].first, 'x');
    std::vector<char> in(out.size());
    us[i] = best_us(kBatches, sizes[i].second, [&] { carry(caller, listener, out, in); });
  }
  std::printf("| %-4s | %7.0f | %6.2f | %7.1f |\n", security::name_of(mode), connect, us[0], us[1]);
}

}  // namespace
}  // namespace plexus

int main() {
  using plexus::security::Mode;
  std::printf("processor time in us, both sides together\n| mode | connect | 8 B | 1 MiB |\n");
  for (const Mode mode : {Mode::kOff, Mode::kAuth, Mode::kTls}) {
    plexus::measure(mode);
  }
  for (const size_t size_bytes : {size_t{8}, size_t{1} << 20}) {
    const std::vector<std::byte> bytes(size_bytes);
    uint32_t sum = 0;
    const double us =
        plexus::best_us(15, size_bytes == 8 ? 100'000 : 200, [&] { sum += plexus::crc32c(bytes); });
    std::printf("CRC32C of %zu bytes: %.3f us, once at each side (%08x)\n", size_bytes, us, sum);
  }
  return 0;
}
