// SPDX-License-Identifier: Apache-2.0
// Half round trips over libfabric's tcp;ofi_rxm between two processes on a core each: of net
// plugins, and of a reference, which is one libfabric endpoint per process with libfabric's
// defaults, as aws-ofi-nccl has. In turns in one run, each time in new processes.
//
//   net_ofi_pingpong ROUNDS PLUGIN... [-- BYTES...]
//
// PLUGIN `reference` is the reference once more: its ratio to itself shows the noise. Every second
// round goes through them backwards.
//
// Prints the 5th percentile and the median of each (medians over the rounds), and the ratio of the
// medians to the reference's, with its smallest and largest value. Wants two free cores.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>
#include <sched.h>
#include <span>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "core/plugin/net_plugin.hpp"
#include "tests/bench/must.hpp"

namespace plexus {
namespace {

constexpr unsigned kSecondsMax = 60;  // of a process
constexpr std::string_view kReference = "reference";

void check(ssize_t result, const char* what) {
  if (result < 0) {
    die(fmt::format("{}: {}", what, fi_strerror(static_cast<int>(-result))));
  }
}

/// Sends `bytes` to the other process and replaces them by its own.
template <class Bytes>
void swap(int socket, Bytes& bytes) {
  const size_t size = sizeof bytes;
  if (::write(socket, &bytes, size) != static_cast<ssize_t>(size) ||
      ::recv(socket, &bytes, size, MSG_WAITALL) != static_cast<ssize_t>(size)) {
    die("the other process has ended");
  }
}

/// One end of an exchange.
struct End {
  std::function<void(std::span<std::byte>)> send;
  std::function<void(std::span<std::byte>)> recv;
};

// ---- a plugin ----

struct PluginEnd {
  NetContext context;
  NetSend send;
  NetRecv recv;
};

PluginEnd connect_plugin(const std::string& path, int socket) {
  NetContext context = must(NetContext::create(must(NetPlugin::load(path)), {}));
  const NetListen listen = must(context.listen(0));
  NetHandle handle = listen.handle();
  swap(socket, handle);
  NetSend send = context.connect(0, handle);
  NetRecv recv = listen.accept();
  bool is_sending = false;
  bool is_receiving = false;
  while (!is_sending || !is_receiving) {
    is_sending = is_sending || must(send.try_connect()) == NetProgress::kDone;
    is_receiving = is_receiving || must(recv.try_accept()) == NetProgress::kDone;
  }
  return {std::move(context), std::move(send), std::move(recv)};
}

/// Repeats `call` until it is done.
template <class Call>
void finish(const Call& call) {
  NetStatus status = NetStatus::kAgain;
  while ((status = call()) == NetStatus::kAgain) {
  }
  if (status != NetStatus::kOk) {
    die("the plugin's connection failed");
  }
}

End plugin_end(const std::string& path, int socket) {
  const auto end = std::make_shared<PluginEnd>(connect_plugin(path, socket));
  return {[end](std::span<std::byte> bytes) {
            NetRequest* request = nullptr;
            finish([&] { return end->send.isend(bytes, 7, nullptr, &request); });
            finish([&] { return end->send.test(request, nullptr); });
          },
          [end](std::span<std::byte> bytes) {
            const NetBuffer buffer{bytes.data(), bytes.size(), nullptr, 7, 0};
            NetRequest* request = nullptr;
            finish([&] { return end->recv.irecv({&buffer, 1}, &request); });
            finish([&] { return end->recv.test(request, nullptr); });
          }};
}

// ---- the reference ----

struct Reference {
  fid_cq* completions = nullptr;
  fid_ep* endpoint = nullptr;
  fi_addr_t peer = FI_ADDR_UNSPEC;
  fi_context2 context{};

  /// Repeats `start`, and waits for its end.
  template <class Start>
  void run(const Start& start) const {
    fi_cq_tagged_entry entry{};
    ssize_t result = 0;
    while ((result = start()) == -FI_EAGAIN) {
      static_cast<void>(::fi_cq_read(completions, &entry, 0));
    }
    check(result, "start an operation");
    while ((result = ::fi_cq_read(completions, &entry, 1)) == -FI_EAGAIN) {
    }
    check(result, "read a completion");
  }
};

End reference_end(int socket) {
  const auto end = std::make_shared<Reference>();
  fi_info* const hints = ::fi_allocinfo();
  hints->caps = FI_TAGGED;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->fabric_attr->prov_name = ::strdup("tcp;ofi_rxm");
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->addr_format = FI_SOCKADDR_IN;
  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_av* addresses = nullptr;
  fi_av_attr av_attributes{};
  fi_cq_attr cq_attributes{};
  cq_attributes.format = FI_CQ_FORMAT_TAGGED;
  check(::fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", nullptr, FI_SOURCE, hints, &info), "getinfo");
  check(::fi_fabric(info->fabric_attr, &fabric, nullptr), "fabric");
  check(::fi_domain(fabric, info, &domain, nullptr), "domain");
  check(::fi_av_open(domain, &av_attributes, &addresses, nullptr), "address vector");
  check(::fi_cq_open(domain, &cq_attributes, &end->completions, nullptr), "completion queue");
  check(::fi_endpoint(domain, info, &end->endpoint, nullptr), "endpoint");
  check(::fi_ep_bind(end->endpoint, &addresses->fid, 0), "bind");
  check(::fi_ep_bind(end->endpoint, &end->completions->fid, FI_SEND | FI_RECV), "bind");
  check(::fi_enable(end->endpoint), "enable");
  std::array<std::byte, 64> address{};
  size_t size = address.size();
  check(::fi_getname(&end->endpoint->fid, address.data(), &size), "getname");
  swap(socket, address);
  check(::fi_av_insert(addresses, address.data(), 1, &end->peer, 0, nullptr), "insert");
  return {[end](std::span<std::byte> bytes) {
            end->run([&] {
              return ::fi_tsend(end->endpoint, bytes.data(), bytes.size(), nullptr, end->peer, 7,
                                &end->context);
            });
          },
          [end](std::span<std::byte> bytes) {
            end->run([&] {
              return ::fi_trecv(end->endpoint, bytes.data(), bytes.size(), nullptr, FI_ADDR_UNSPEC,
                                7, 0, &end->context);
            });
          }};
}

// ---- measuring ----

/// Times of one size, in microseconds.
struct Times {
  double p5;
  double median;
};

Times measure(const End& end, bool is_first, std::span<std::byte> out, std::span<std::byte> in) {
  constexpr size_t kSmall = 100'000;
  constexpr size_t kMiddle = 2'000'000;
  const size_t count = out.size() < kSmall ? 6000 : out.size() < kMiddle ? 1000 : 80;
  std::vector<double> times;
  for (size_t i = 0; i < count + count / 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (is_first) {
      end.send(out);
      end.recv(in);
    } else {
      end.recv(in);
      end.send(out);
    }
    const std::chrono::duration<double, std::micro> both = std::chrono::steady_clock::now() - begin;
    times.push_back(both.count() / 2);
  }
  times.erase(times.begin(), times.begin() + static_cast<ptrdiff_t>(count / 10));
  std::sort(times.begin(), times.end());
  return {times[count / 20], times[count / 2]};
}

void run_process(const std::string& name,
                 const std::vector<size_t>& sizes,
                 int socket,
                 int results) {
  ::alarm(kSecondsMax);
  const bool is_first = results >= 0;
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(is_first ? 0 : 1, &core);
  ::sched_setaffinity(0, sizeof core, &core);
  const End end = name == kReference ? reference_end(socket) : plugin_end(name, socket);
  for (const size_t size : sizes) {
    std::vector<std::byte> out(size, std::byte{1});
    std::vector<std::byte> in(size, std::byte{2});
    const Times times = measure(end, is_first, out, in);
    if (is_first && ::write(results, &times, sizeof times) != sizeof times) {
      die("the parent has ended");
    }
  }
  char last = 0;
  swap(socket, last);  // neither ends before the other has everything
}

std::vector<Times> run_pair(const std::string& name, const std::vector<size_t>& sizes) {
  std::array<int, 2> sockets{};
  std::array<int, 2> results{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()) != 0 || ::pipe(results.data()) != 0) {
    die("no descriptors are left");
  }
  std::array<pid_t, 2> processes{};
  for (size_t i = 0; i < processes.size(); ++i) {
    processes[i] = ::fork();
    if (processes[i] == 0) {
      ::close(sockets[1 - i]);
      run_process(name, sizes, sockets[i], i == 0 ? results[1] : -1);
      ::_exit(0);
    }
  }
  ::close(sockets[0]);
  ::close(sockets[1]);
  ::close(results[1]);
  std::vector<Times> times(sizes.size());
  for (Times& each : times) {
    if (::read(results[0], &each, sizeof each) != sizeof each) {
      die(name + " did not finish");
    }
  }
  ::close(results[0]);
  for (const pid_t process : processes) {
    ::waitpid(process, nullptr, 0);
  }
  return times;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void print_row(size_t size,
               const std::vector<std::vector<std::vector<Times>>>& times,  // [name][round][size]
               size_t index) {
  fmt::print("| {} |", size);
  for (const auto& rounds : times) {
    std::vector<double> low;
    std::vector<double> middle;
    std::vector<double> ratios;
    for (size_t round = 0; round < rounds.size(); ++round) {
      low.push_back(rounds[round][index].p5);
      middle.push_back(rounds[round][index].median);
      ratios.push_back(rounds[round][index].median / times[0][round][index].median);
    }
    fmt::print(" {:.1f}, {:.1f} |", median(low), median(middle));
    if (&rounds != &times[0]) {
      fmt::print(" {:.2f} ({:.2f} to {:.2f}) |", median(ratios),
                 *std::min_element(ratios.begin(), ratios.end()),
                 *std::max_element(ratios.begin(), ratios.end()));
    }
  }
  fmt::print("\n");
}

int run(int rounds, std::vector<std::string> names, const std::vector<size_t>& sizes) {
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);            // NOLINT(concurrency-mt-unsafe)
  ::setenv("PLEXUS_OFI_PROVIDER", "tcp;ofi_rxm", 1);  // NOLINT(concurrency-mt-unsafe)
  names.insert(names.begin(), std::string(kReference));
  std::vector<std::vector<std::vector<Times>>> times(names.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t turn = 0; turn < names.size(); ++turn) {
      const size_t i = round % 2 == 0 ? turn : names.size() - 1 - turn;
      times[i].push_back(run_pair(names[i], sizes));
    }
  }
  fmt::print("| bytes |");
  for (const std::string& name : names) {
    fmt::print(" {} p5, median us |{}", name, &name == &names[0] ? "" : " ratio |");
  }
  fmt::print("\n");
  for (size_t i = 0; i < sizes.size(); ++i) {
    print_row(sizes[i], times, i);
  }
  return 0;
}

}  // namespace
}  // namespace plexus

int main(int count, char** arguments) {
  const std::vector<std::string> all(arguments + 1, arguments + count);
  const auto divider = std::find(all.begin(), all.end(), "--");
  const int rounds = all.empty() ? 0 : std::atoi(all[0].c_str());  // NOLINT(cert-err34-c): checked
  std::vector<size_t> sizes;
  for (auto each = divider; each != all.end(); ++each) {
    if (each != divider) {
      sizes.push_back(std::strtoull(each->c_str(), nullptr, 10));
    }
  }
  if (rounds < 1 || std::find(sizes.begin(), sizes.end(), 0U) != sizes.end()) {
    fmt::print(stderr, "usage: net_ofi_pingpong ROUNDS PLUGIN... [-- BYTES...]\n");
    return 2;
  }
  if (sizes.empty()) {
    sizes = {8, 1024, 8192, 65'536, 262'144, 1'048'576, 2'097'152, 4'194'304, 16'777'216};
  }
  return plexus::run(rounds, {all.begin() + 1, divider}, sizes);
}
