// SPDX-License-Identifier: Apache-2.0
// What the net plugin ABI and net-socket cost over bare TCP: the same two exchanges, over loopback,
// through the plugin and through two naked sockets, in turns in one run.
//
//   net_socket_pingpong PLUGIN [ROUNDS]
//
// 8 B: both sides send and receive at once, spinning. 256 MiB: one message, one way. Prints the
// best time of each and the ratio. Two threads, so it wants two free cores.
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <limits>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "core/plugin/net_plugin.hpp"
#include "tests/bench/must.hpp"

namespace plexus {
namespace {

constexpr size_t kBigBytes = size_t{256} << 20;
constexpr size_t kPagesOfRawChunk = size_t{512} << 10;
constexpr int kSmallPerRound = 20'000;

/// Seconds that two threads need for `body(side)`, measured from when both have started.
double time_pair(const std::function<void(int)>& body) {
  std::atomic<int> ready{0};
  std::atomic<double> seconds{0};
  const auto run = [&](int side) {
    ready.fetch_add(1);
    while (ready.load() < 2) {
    }
    const auto begin = std::chrono::steady_clock::now();
    body(side);
    const std::chrono::duration<double> mine = std::chrono::steady_clock::now() - begin;
    seconds.store(std::max(seconds.load(), mine.count()));
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  return seconds.load();
}

/// Two bare connected sockets.
struct RawPair {
  int ends[2] = {-1, -1};
  RawPair() {
    const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* raw = reinterpret_cast<sockaddr*>(&address);
    ends[0] = ::socket(AF_INET, SOCK_STREAM, 0);
    if (::bind(listener, raw, size) != 0 || ::listen(listener, 1) != 0 ||
        ::getsockname(listener, raw, &size) != 0 || ::connect(ends[0], raw, size) != 0) {
      die("cannot make a pair of sockets");
    }
    ends[1] = ::accept(listener, nullptr, nullptr);
    ::close(listener);
    const int one = 1;
    for (const int end : ends) {
      ::setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    }
  }
  ~RawPair() {
    ::close(ends[0]);
    ::close(ends[1]);
  }
  RawPair(const RawPair&) = delete;
  RawPair& operator=(const RawPair&) = delete;
};

void raw_send(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::send(fd, data, size, MSG_NOSIGNAL);
    if (n > 0) {
      data += n;
      size -= static_cast<size_t>(n);
    } else if (errno != EINTR) {
      die("raw send failed");
    }
  }
}

void raw_recv(int fd, char* data, size_t size, int flags) {
  while (size > 0) {
    const ssize_t n = ::recv(fd, data, size, flags);
    if (n > 0) {
      data += n;
      size -= static_cast<size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
      die("raw recv failed");
    }
  }
}

/// A connection in each direction between two contexts.
struct PluginPair {
  NetContext contexts[2];
  std::vector<NetSend> sends;  // [side]
  std::vector<NetRecv> recvs;  // [side]
};

uint32_t find_loopback(const NetContext& context) {
  for (uint32_t device = 0; device < context.device_count(); ++device) {
    if (context.properties(device).name == "lo") {
      return device;
    }
  }
  die("the plugin shows no device `lo`");
}

PluginPair connect_pair(const char* path) {
  const auto plugin = must(NetPlugin::load(path));
  PluginPair pair{
      {must(NetContext::create(plugin, {})), must(NetContext::create(plugin, {}))}, {}, {}};
  for (int side = 0; side < 2; ++side) {
    const NetContext& mine = pair.contexts[side];
    const NetContext& peers = pair.contexts[1 - side];
    const NetListen listen = must(peers.listen(find_loopback(peers)));
    NetSend send = mine.connect(find_loopback(mine), listen.handle());
    NetRecv recv = listen.accept();
    bool is_sending = false;
    bool is_receiving = false;
    while (!is_sending || !is_receiving) {
      is_sending = is_sending || must(send.try_connect()) == NetProgress::kDone;
      is_receiving = is_receiving || must(recv.try_accept()) == NetProgress::kDone;
    }
    pair.sends.push_back(std::move(send));
    pair.recvs.insert(pair.recvs.begin(), std::move(recv));
  }
  return pair;
}

void finish(NetSend& send, NetRequest* request) {
  NetStatus status = NetStatus::kAgain;
  while ((status = send.test(request, nullptr)) == NetStatus::kAgain) {
  }
  if (status != NetStatus::kOk) {
    die(send.explain("test", status).message());
  }
}

void finish(NetRecv& recv, NetRequest* request) {
  NetStatus status = NetStatus::kAgain;
  while ((status = recv.test(request, nullptr)) == NetStatus::kAgain) {
  }
  if (status != NetStatus::kOk) {
    die(recv.explain("test", status).message());
  }
}

NetRequest* post(NetRecv& recv, std::vector<char>& data) {
  const NetBuffer buffer{data.data(), data.size(), nullptr, 0, 0};
  NetRequest* request = nullptr;
  if (recv.irecv({&buffer, 1}, &request) != NetStatus::kOk) {
    die("irecv did not start");
  }
  return request;
}

NetRequest* post(NetSend& send, const std::vector<char>& data) {
  NetRequest* request = nullptr;
  if (send.isend(std::as_bytes(std::span(data)), 0, nullptr, &request) != NetStatus::kOk) {
    die("isend did not start");
  }
  return request;
}

struct Best {
  double raw = std::numeric_limits<double>::max();
  double plugin = std::numeric_limits<double>::max();
};

void measure_small(const RawPair& raw, PluginPair& pair, Best& best) {
  best.raw = std::min(best.raw, time_pair([&](int side) {
                        char data[8] = {};
                        for (int i = 0; i < kSmallPerRound; ++i) {
                          raw_send(raw.ends[side], data, sizeof data);
                          raw_recv(raw.ends[side], data, sizeof data, MSG_DONTWAIT);
                        }
                      }));
  best.plugin = std::min(best.plugin, time_pair([&](int side) {
                           const std::vector<char> out(8);
                           std::vector<char> in(8);
                           NetSend& send = pair.sends[static_cast<size_t>(side)];
                           NetRecv& recv = pair.recvs[static_cast<size_t>(side)];
                           for (int i = 0; i < kSmallPerRound; ++i) {
                             NetRequest* received = post(recv, in);
                             NetRequest* sent = post(send, out);
                             finish(recv, received);
                             finish(send, sent);
                           }
                         }));
}

void measure_big(const RawPair& raw, PluginPair& pair, std::vector<char> (&data)[2], Best& best) {
  best.raw = std::min(best.raw, time_pair([&](int side) {
                        for (size_t done = 0; done < kBigBytes; done += kPagesOfRawChunk) {
                          if (side == 0) {
                            raw_send(raw.ends[0], data[0].data() + done, kPagesOfRawChunk);
                          } else {
                            raw_recv(raw.ends[1], data[1].data() + done, kPagesOfRawChunk, 0);
                          }
                        }
                      }));
  best.plugin = std::min(best.plugin, time_pair([&](int side) {
                           if (side == 0) {
                             finish(pair.sends[0], post(pair.sends[0], data[0]));
                           } else {
                             finish(pair.recvs[1], post(pair.recvs[1], data[1]));
                           }
                         }));
}

int run(const char* path, int rounds) {
  const RawPair raw;
  PluginPair pair = connect_pair(path);
  std::vector<char> data[2] = {std::vector<char>(kBigBytes, 1), std::vector<char>(kBigBytes, 2)};
  Best small;
  Best big;
  for (int round = 0; round < rounds; ++round) {
    measure_small(raw, pair, small);
    measure_big(raw, pair, data, big);
  }
  const auto microseconds = [](double seconds) { return seconds * 1e6 / kSmallPerRound; };
  const auto gigabytes = [](double seconds) {
    return static_cast<double>(kBigBytes) * 1e-9 / seconds;
  };
  fmt::print(
      "8 B symmetric exchange   raw {:6.2f} us    plugin {:6.2f} us    plugin/raw time {:.2f}\n",
      microseconds(small.raw), microseconds(small.plugin), small.plugin / small.raw);
  fmt::print(
      "256 MiB one way          raw {:6.2f} GB/s  plugin {:6.2f} GB/s  plugin/raw time {:.2f}\n",
      gigabytes(big.raw), gigabytes(big.plugin), big.plugin / big.raw);
  return 0;
}

}  // namespace
}  // namespace plexus

int main(int argc, char** argv) {
  constexpr int kRounds = 5;
  if (argc < 2) {
    fmt::print(stderr, "usage: net_socket_pingpong PLUGIN [ROUNDS]\n");
    return 2;
  }
  ::setenv("NCCL_SOCKET_IFNAME", "=lo", 0);  // NOLINT(concurrency-mt-unsafe): before any thread
  return plexus::run(argv[1], argc > 2 ? std::atoi(argv[2]) : kRounds);
}
