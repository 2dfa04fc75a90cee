// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "tests/soak/generate.hpp"

namespace plexus::soak {
namespace {

struct Algorithms {
  const char* collective;
  std::vector<const char*> names;
};

const std::vector<Algorithms>& algorithms() {
  static const std::vector<Algorithms> kAlgorithms = {
      {"allreduce",
       {"ring", "biring", "tree", "doubling", "quadrupling", "halving", "nearhalving", "swing",
        "torus", "twoshot", "allpairs"}},
      {"broadcast", {"ring", "binomial", "tree", "allpairs"}},
      {"reduce", {"ring", "binomial", "allpairs"}},
      {"allgather", {"ring", "biring", "bruck", "pat", "allpairs"}},
      {"reducescatter", {"ring", "pat", "allpairs"}},
      {"alltoall", {"pairwise", "bruck"}},
      {"gather", {"pairwise", "binomial"}},
      {"scatter", {"pairwise", "binomial"}}};
  return kAlgorithms;
}

class Layout {
 public:
  Layout(Job& job, Random& random, const Features& features)
      : job_(job), random_(random), features_(features) {}

  void choose() {
    choose_processes();
    choose_transport();
    choose_algorithms();
    choose_sizes();
    job_.is_nonblocking = random_.chance(15) && features_.has(Feature::kNonBlocking);
  }

 private:
  void set(const char* name, std::string value) {
    job_.environment.emplace_back(name, std::move(value));
  }

  void choose_processes() {
    int nprocesses = random_.pick(std::vector<int>{1, 1, 1, 2, 2, 3, 4});
    const int ranks_max = random_.chance(6) ? 16 : 8;
    nprocesses = features_.has(Feature::kProcesses) ? nprocesses : 1;
    if (job_.fault.has_value()) {  // the guilty one and others
      nprocesses = std::max(nprocesses, 2);
    }
    job_.processes.resize(static_cast<size_t>(nprocesses));
    std::vector<int> owners;  // by rank of the world: its process
    for (int process = 0; process < nprocesses; ++process) {
      const int nlocal = random_.between(1, std::max(1, ranks_max / nprocesses));
      owners.insert(owners.end(), static_cast<size_t>(nlocal), process);
    }
    if (random_.chance(20)) {
      random_.shuffle(owners);
    }
    job_.nranks = static_cast<int>(owners.size());
    for (int process = 0; process < nprocesses; ++process) {
      bool is_single = random_.chance(35);
      is_single =
          !features_.has(Feature::kThreads) || (is_single && features_.has(Feature::kSingle));
      std::vector<int> ranks;
      for (int rank = 0; rank < job_.nranks; ++rank) {
        if (owners[static_cast<size_t>(rank)] == process) {
          ranks.push_back(rank);
        }
      }
      add_threads(process, ranks, is_single);
    }
  }

  void add_threads(int process, const std::vector<int>& ranks, bool is_single) {
    if (is_single) {
      job_.threads.push_back({.process = process, .ranks = ranks});
    } else {
      for (const int rank : ranks) {
        job_.threads.push_back({.process = process, .ranks = {rank}});
      }
    }
    const bool is_async = random_.chance(55);
    for (Thread& thread : job_.threads) {
      if (thread.process == process) {
        const int nstreams = random_.between(1, 3);
        thread.nstreams = is_async && features_.has(Feature::kAsync) ? nstreams : 0;
      }
    }
  }

  /// Each process is alone on its host (network.hpp).
  void put_apart() {
    is_net_ = true;
    set("NCCL_SOCKET_IFNAME", "eth0");
    for (size_t process = 0; process < job_.processes.size(); ++process) {
      job_.processes[process].host_id = fmt::format("host{}", process);
    }
  }

  void choose_transport() {
    if (job_.fault.has_value() && is_of_network(job_.fault->kind)) {
      return put_apart();
    }
    set("NCCL_SOCKET_IFNAME", "lo");
    const int way = random_.below(10);
    is_net_ = true;
    if (!features_.has(Feature::kNet) || way < 4) {
      is_net_ = false;
      if (random_.chance(15)) {
        set("NCCL_P2P_DIRECT_DISABLE", "1");
      }
    } else if (way < 6) {
      is_net_ = false;
      set("NCCL_P2P_DISABLE", "1");
    } else if (way < 7) {
      set("NCCL_SHM_DISABLE", "1");
    } else if (way < 9) {
      set("NCCL_SHM_DISABLE", "1");
      set("NCCL_P2P_DISABLE", "1");
    } else {
      const int nhosts = random_.between(1, static_cast<int>(job_.processes.size()));
      for (size_t process = 0; process < job_.processes.size(); ++process) {
        job_.processes[process].host_id = fmt::format("host{}", static_cast<int>(process) % nhosts);
      }
    }
    const int plugin = random_.below(10);
    const bool is_ofi = is_net_ && plugin >= 2 && plugin < 4 && features_.has(Feature::kOfi);
    if (is_net_ && plugin < 2) {
      set("NCCL_NET_PLUGIN", "socket");
    } else if (is_ofi) {
      set("NCCL_NET_PLUGIN", "ofi");
    }
    if (random_.chance(20)) {
      set("PLEXUS_NET_SECURITY", is_ofi || random_.chance(30) ? "off" : "tls");
    }
    if (is_net_ && random_.chance(20)) {
      set("PLEXUS_NET_CHECKSUM", "1");
    }
    if (random_.chance(8)) {
      set("NCCL_LOCAL_REGISTER", "0");
    }
    if (random_.chance(30)) {
      set("PLEXUS_ATTACH_BYTES", "4096");
    }
  }

  void choose_algorithms() {
    const int way = random_.below(10);
    std::string list;
    for (const Algorithms& of : algorithms()) {
      const char* const name = random_.pick(of.names);
      if (random_.chance(70)) {
        list += fmt::format("{}{}:{}", list.empty() ? "" : ";", of.collective, name);
      }
    }
    if (features_.has(Feature::kAlgo)) {
      if (way < 4 && !list.empty()) {
        set("NCCL_ALGO", list);
      } else if (way < 5) {
        set("PLEXUS_DETERMINISTIC", "1");
      } else if (way < 6) {
        set("NCCL_TUNER_PLUGIN", "none");
      }
    }
    // LL and LL128 only work on connections through memory; over a network they leave no algorithm.
    const int protocol = random_.below(10);
    if (features_.has(Feature::kProto) && protocol < (is_net_ ? 1 : 4)) {
      set("NCCL_PROTO", random_.pick(is_net_ ? std::vector<const char*>{"Simple"}
                                             : std::vector<const char*>{"Simple", "LL", "LL128"}));
    }
  }

  void choose_sizes() {
    if (random_.chance(25)) {
      set("NCCL_BUFFSIZE", std::to_string(1024 * (1 << random_.between(5, 12))));
    }
    const int few = random_.between(1, 3);
    const int many = random_.between(few, 6);
    if (random_.chance(20)) {
      set("NCCL_MIN_CTAS", std::to_string(few));
    }
    if (random_.chance(20)) {
      set("NCCL_MAX_CTAS", std::to_string(many));
    }
    if (is_net_ && random_.chance(30)) {
      set("NCCL_NCHANNELS_PER_NET_PEER", std::to_string(random_.between(1, 4)));
    }
  }

  Job& job_;
  Random& random_;
  const Features& features_;
  bool is_net_ = false;
};

}  // namespace

void choose_layout(Job& job, Random& random, const Features& features) {
  Layout(job, random, features).choose();
}

}  // namespace plexus::soak
