// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/network.hpp"

#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/soak/command.hpp"

namespace plexus::soak {

// Names begin as those of tests/processes/netns.py, which removes what killed programs leave.
Network::Network(uint64_t seed, int nhosts)
    : prefix_(fmt::format("plexus-{}-soak{}", getpid(), seed)), nhosts_(nhosts) {}

std::unique_ptr<Network> Network::make(uint64_t seed, int nhosts) {
  std::unique_ptr<Network> network(new Network(seed, nhosts));
  return network->build() ? std::move(network) : nullptr;
}

std::string Network::why_not() {
  if (geteuid() != 0) {
    return "network namespaces need root";
  }
  for (const char* const program : {"ip", "ss"}) {
    if (run_command({program, "-V"}) != 0) {
      return fmt::format("{} is missing: install iproute2", program);
    }
  }
  if (run_command({"nft", "--version"}) != 0) {
    return "nft is missing: install nftables";
  }
  const auto network = make(0, 1);
  if (network == nullptr) {
    return "network namespaces cannot be made";
  }
  return run_command({"ip", "netns", "exec", network->name_of(0), "nft", "add table inet fault"}) ==
                 0
             ? ""
             : "nft does not work in network namespaces";
}

Network::~Network() {
  for (int host = 0; host < nhosts_; ++host) {
    run_command({"ip", "netns", "del", name_of(host)});
  }
  run_command({"ip", "netns", "del", bridge()});
}

std::string Network::name_of(int host) const { return fmt::format("{}x{}", prefix_, host); }
std::string Network::bridge() const { return prefix_ + "bridge"; }

bool Network::build() const {
  std::string batch = fmt::format("netns add {}\n", bridge());
  for (int host = 0; host < nhosts_; ++host) {
    batch += fmt::format("netns add {}\n", name_of(host));
  }
  if (run_command({"ip", "-batch", "-"}, batch) != 0) {
    return false;
  }
  std::string in_bridge = "link add br0 type bridge\nlink set br0 up\n";
  for (int host = 0; host < nhosts_; ++host) {
    in_bridge += fmt::format(
        "link add port{0} type veth peer name eth0 netns {1}\nlink set port{0} master br0 up\n",
        host, name_of(host));
  }
  if (run_command({"ip", "-n", bridge(), "-batch", "-"}, in_bridge) != 0) {
    return false;
  }
  for (int host = 0; host < nhosts_; ++host) {
    const std::string in_host = fmt::format(
        "link set lo up\naddress add 10.77.0.{}/24 dev eth0\nlink set eth0 up\n", host + 1);
    if (run_command({"ip", "-n", name_of(host), "-batch", "-"}, in_host) != 0) {
      return false;
    }
  }
  // The kernel says so up to a second after both ends are up.
  const char* const until_connected =
      "tries=0; until [ \"$(cat /sys/class/net/eth0/operstate)\" = up ]; do "
      "tries=$((tries + 1)); [ $tries -lt 1000 ] || exit 1; sleep 0.01; done";
  for (int host = 0; host < nhosts_; ++host) {
    if (run_command({"ip", "netns", "exec", name_of(host), "sh", "-c", until_connected}) != 0) {
      return false;
    }
  }
  return true;
}

void Network::enter(int host) const {
  const int file = open(("/run/netns/" + name_of(host)).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || setns(file, CLONE_NEWNET) != 0) {
    std::perror("setns");
    _exit(2);
  }
  close(file);
}

bool Network::nft(int host, const std::string& rules) const {
  return run_command({"ip", "netns", "exec", name_of(host), "nft", "-f", "-"}, rules) == 0;
}

bool Network::lose(int host, int percent, Direction direction) const {
  constexpr int kAll = 100;
  const std::string which =
      percent == kAll ? "" : fmt::format("numgen random mod {} < {} ", kAll, percent);
  std::string rules = "add table inet fault\n";
  const auto add = [&](const char* hook, const char* interface) {
    rules += fmt::format(
        "add chain inet fault {0} {{ type filter hook {0} priority 0; }}\n"
        "add rule inet fault {0} {1} != \"lo\" {2}drop\n",
        hook, interface, which);
  };
  if (direction != Direction::kOut) {
    add("input", "iifname");
  }
  if (direction != Direction::kIn) {
    add("output", "oifname");
  }
  return nft(host, rules);
}

bool Network::heal(int host) const { return nft(host, "delete table inet fault\n"); }

bool Network::reset(int host) const {
  return run_command(
             {"ip", "netns", "exec", name_of(host), "ss", "-K", "-t", "state", "established"}) == 0;
}

}  // namespace plexus::soak
