// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/saboteur.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include "tests/soak/container.hpp"
#include "tests/soak/unauthenticated_peers.hpp"

namespace plexus::soak {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr auto kSlowPause = milliseconds(40);
// Longer than one that makes a unique id waits for ranks that never come, and than pending peers
// are suffered; a process whose network has vanished waits for the leave messages of others.
constexpr auto kEndPatience = std::chrono::seconds(14);
constexpr auto kEndPatienceOfNetwork = std::chrono::seconds(45);

int count_entries(const char* folder) {
  std::error_code ignored;
  return static_cast<int>(std::distance(std::filesystem::directory_iterator(folder, ignored),
                                        std::filesystem::directory_iterator()));
}

/// For the launcher's finding.
void print_descriptors() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    std::printf("left: %s is %s\n", entry.path().c_str(),
                std::filesystem::read_symlink(entry.path(), ignored).c_str());
  }
  std::fflush(stdout);
}

}  // namespace

Saboteur::Saboteur(const Job& job, int process, ProcessProgress& page)
    : fault_(job.fault.has_value() && job.fault->process == process ? &*job.fault : nullptr),
      is_of_network_(job.fault.has_value() && is_of_network(job.fault->kind)),
      has_unauthenticated_peers_(job.fault.has_value() &&
                                 job.fault->kind == FaultKind::kUnauthenticated),
      nprocesses_(static_cast<int>(job.processes.size())),
      page_(page),
      ndescriptors_(count_entries("/proc/self/fd")) {}

Saboteur::~Saboteur() { wait(); }

void Saboteur::strike_at_start() {
  if (fault_ == nullptr) {
    return;
  }
  if (fault_->kind == FaultKind::kDescriptors) {
    const auto most = static_cast<rlim_t>(fault_->descriptors);
    const rlimit limit{.rlim_cur = most, .rlim_max = most};
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  if (fault_->kind == FaultKind::kDescriptors || fault_->kind == FaultKind::kFullLog ||
      fault_->kind == FaultKind::kFullShm) {
    page_.struck_us.store(now_us());
  }
}

bool Saboteur::is_at(int thread, int step) const {
  return fault_ != nullptr && fault_->thread == thread && fault_->step == step;
}

void Saboteur::start(std::function<void()> also) {
  if (fault_->delay_us == 0) {  // before the step
    strike();
    return also();
  }
  thread_ = std::thread([this, also = std::move(also)] {
    std::this_thread::sleep_for(microseconds(fault_->delay_us));
    strike();
    also();
  });
}

void Saboteur::strike() const {
  if (page_.struck_us.load() != 0) {
    return;
  }
  page_.struck_us.store(now_us());
  if (fault_->kind == FaultKind::kKill) {
    kill(getpid(), SIGKILL);
  } else if (fault_->kind == FaultKind::kStop || fault_->kind == FaultKind::kFreeze) {
    kill(getpid(), SIGSTOP);
  } else if (fault_->kind == FaultKind::kRefused && !refuse_attach_and_memfd()) {
    std::perror("a seccomp filter");
  }
}

void Saboteur::wait() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Saboteur::pause_if_slow() const {
  if (fault_ == nullptr || fault_->kind != FaultKind::kSlow || fault_->has_little_cpu) {
    return;
  }
  const int64_t struck = page_.struck_us.load();
  if (struck != 0 && now_us() < struck + microseconds(milliseconds(fault_->lasts_ms)).count()) {
    std::this_thread::sleep_for(kSlowPause);
  }
}

void Saboteur::count_leftovers(int nids) {
#ifdef __SANITIZE_THREAD__
  constexpr int kSanitizerThreads = 1;
#else
  constexpr int kSanitizerThreads = 0;
#endif
  // of asynchronous streams, stalled calls, doctor, RAS, shared memory, and libfabric's
  constexpr int kThreads = 6 + kSanitizerThreads;
  // at which `plexus doctor` and peers ask, and RAS clients, at both addresses of localhost
  constexpr int kDescriptors = 4;
  const int descriptors_of_id = 3 + nprocesses_;  // and a connection of each that still waits
  const int log = fault_ != nullptr && fault_->kind == FaultKind::kFullLog ? 1 : 0;
  // RAS takes clients that prove nothing, and these may stay connected, whichever process has its
  // port; UnauthenticatedPeers::come()
  const int clients = has_unauthenticated_peers_ ? kCallsPerPort : 0;
  const auto deadline =
      std::chrono::steady_clock::now() +
      (is_of_network_ ? kEndPatienceOfNetwork : kEndPatience) * static_cast<int>(time_factor());
  for (;;) {
    page_.ndescriptors.store(count_entries("/proc/self/fd") - ndescriptors_ - kDescriptors - log -
                             clients - nids * descriptors_of_id);
    page_.nthreads.store(count_entries("/proc/self/task") - 1 - kThreads - nids);
    if (page_.ndescriptors.load() <= 0 && page_.nthreads.load() <= 0) {
      return;
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return print_descriptors();
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
}

double end_queued(const std::vector<ncclComm_t>& comms, bool revokes) {
  cudaStream_t stream = nullptr;
  (void)plexusStreamCreate(&stream);
  std::vector<char> bytes(comms.size());
  for (size_t at = 0; at < comms.size(); ++at) {
    int rank = 0;
    int nranks = 0;
    if (ncclCommUserRank(comms[at], &rank) == ncclSuccess &&
        ncclCommCount(comms[at], &nranks) == ncclSuccess && nranks > 1) {
      (void)ncclRecv(&bytes[at], 1, ncclInt8, (rank + 1) % nranks, comms[at], stream);
    }
  }
  const auto begun = std::chrono::steady_clock::now();
  for (auto at = comms.rbegin(); at != comms.rend(); ++at) {
    if (revokes) {
      (void)ncclCommRevoke(*at, NCCL_REVOKE_DEFAULT);
    }
    (void)ncclCommAbort(*at);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  (void)plexusStreamSynchronize(stream);
  (void)plexusStreamDestroy(stream);
  return took.count();
}

}  // namespace plexus::soak
