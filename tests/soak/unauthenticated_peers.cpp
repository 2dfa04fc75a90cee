// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/unauthenticated_peers.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <netinet/in.h>
#include <set>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

namespace plexus::soak {
namespace {

constexpr size_t kSocketsMax = 400;
constexpr std::string_view kHello = "PLXHELL1";  // core/control/README.md

/// Inodes of the sockets of a process.
std::set<unsigned long> sockets_of(pid_t pid) {
  std::set<unsigned long> inodes;
  std::error_code error;
  for (std::filesystem::directory_iterator at(fmt::format("/proc/{}/fd", pid), error), end;
       !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(at->path(), ignored).string();
    unsigned long inode = 0;
    if (std::sscanf(target.c_str(), "socket:[%lu]", &inode) == 1) {
      inodes.insert(inode);
    }
  }
  return inodes;
}

}  // namespace

UnauthenticatedPeers::~UnauthenticatedPeers() { go(); }

void UnauthenticatedPeers::go() {
  for (const int socket : sockets_) {
    close(socket);
  }
  sockets_.clear();
}

void UnauthenticatedPeers::come(const std::vector<pid_t>& processes) {
  for (const pid_t pid : processes) {
    const std::set<unsigned long> inodes = sockets_of(pid);
    std::ifstream table(fmt::format("/proc/{}/net/tcp", pid));
    std::string line;
    while (std::getline(table, line)) {
      unsigned address = 0;
      unsigned port = 0;
      unsigned state = 0;
      unsigned long inode = 0;
      constexpr unsigned kListen = 0x0a;
      if (std::sscanf(line.c_str(), " %*d: %x:%x %*x:%*x %x %*x:%*x %*x:%*x %*x %*d %*d %lu",
                      &address, &port, &state, &inode) == 4 &&
          state == kListen && inodes.count(inode) != 0) {
        const int ncalls = random_.between(1, kCallsPerPort);
        for (int i = 0; i < ncalls; ++i) {
          connect_to(address, static_cast<uint16_t>(port));
        }
      }
    }
  }
}

void UnauthenticatedPeers::connect_to(uint32_t address, uint16_t port) {
  if (sockets_.size() >= kSocketsMax) {
    return;
  }
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) {
    return;
  }
  sockets_.push_back(socket);
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_addr.s_addr = address == INADDR_ANY ? htonl(INADDR_LOOPBACK) : address;
  target.sin_port = htons(port);
  // Over loopback the connection is there at once.
  (void)connect(socket, reinterpret_cast<const sockaddr*>(&target), sizeof(target));
  std::string bytes;
  const int way = random_.below(4);
  if (way == 1 || way == 2) {
    bytes = way == 1 ? "" : kHello;
    const int size = random_.between(1, way == 1 ? 3000 : 100);
    for (int i = 0; i < size; ++i) {
      bytes += static_cast<char>(random_.next());
    }
  }
  (void)!write(socket, bytes.data(), bytes.size());
  if (way == 3) {
    shutdown(socket, SHUT_WR);
  }
  ++count_;
}

}  // namespace plexus::soak
