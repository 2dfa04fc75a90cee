// SPDX-License-Identifier: Apache-2.0
// What the library owes the program that it is a guest of: descriptors 0 to 2, signals, traps of
// floating-point arithmetic, small stacks, files that settings name.
#include <cfenv>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <pthread.h>
#include <set>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/ranks/job.hpp"
#include "tests/support/forked.hpp"

namespace plexus {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_fork::run_in_child;
using testing_job::Job;

void take_the_network() {
  setenv("NCCL_P2P_DISABLE", "1", 1);
  setenv("NCCL_SHM_DISABLE", "1", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  setenv("NCCL_NET_PLUGIN", "none", 1);
  setenv("NCCL_SOCKET_NTHREADS", "2", 1);
  setenv("NCCL_NSOCKS_PERTHREAD", "2", 1);
}

ncclResult_t all_reduce(ncclComm_t comm, cudaStream_t stream = nullptr) {
  static float in[1000];
  static thread_local float out[1000];
  return ncclAllReduce(in, out, 1000, ncclFloat, ncclSum, comm, stream);
}

void run(Job& job) {
  for (const ncclResult_t result :
       job.run_in_threads([](int /*rank*/, ncclComm_t comm) { return all_reduce(comm); })) {
    EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
  }
}

/// Communicators made by each rank in a thread of its own, over the control plane.
void run_joined(int nranks) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < nranks; ++rank) {
    ranks.emplace_back([=] {
      ncclComm_t comm = nullptr;
      EXPECT_EQ(ncclCommInitRank(&comm, nranks, id, rank), ncclSuccess)
          << ncclGetLastError(nullptr);
      EXPECT_EQ(all_reduce(comm), ncclSuccess) << ncclGetLastError(nullptr);
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
}

TEST(Guest, HasNoneOfTheDescriptorsOfStandardInputAndOutput) {
  run_in_child([] {
    take_the_network();
    setenv("NCCL_DEBUG", "INFO", 1);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      close(fd);
    }
    Job job(2);
    run(job);
    run_joined(2);
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      EXPECT_EQ(fcntl(fd, F_GETFD), -1) << fd;
    }
  });
}

std::set<std::string> threads() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    found.insert(entry.path().filename());
  }
  return found;
}

/// Lines of /proc of threads that are not in `before` and take a signal.
std::string threads_that_take_signals(const std::set<std::string>& before) {
  sigset_t all;
  sigfillset(&all);
  std::string listed;
  for (const std::string& thread : threads()) {
    std::ifstream status("/proc/self/task/" + thread + "/status");
    std::string name;
    for (std::string line; std::getline(status, line);) {
      name = line.starts_with("Name:") ? line : name;
      if (before.count(thread) == 0 && line.starts_with("SigBlk:")) {
        const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
        for (int signal = 1; signal < SIGRTMIN; ++signal) {
          const bool can_be =
              signal != SIGKILL && signal != SIGSTOP && sigismember(&all, signal) == 1;
          if (can_be && (blocked >> (signal - 1) & 1) == 0) {
            listed += name + " takes signal " + std::to_string(signal) + "\n";
            break;
          }
        }
      }
    }
  }
  return listed;
}

TEST(Guest, TakesNoSignalInItsThreads) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer starts a thread of its own";
#endif
  run_in_child([] {
    take_the_network();
    const auto before = threads();
    Job job(2);
    run(job);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
    job.run_in_group([&](int /*rank*/, ncclComm_t comm) { return all_reduce(comm, stream); });
    ASSERT_EQ(plexusStreamSynchronize(stream), ncclSuccess);
    ncclUniqueId id;
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t waiting = nullptr;
    ASSERT_EQ(ncclCommInitRankConfig(&waiting, 2, id, 0, &config), ncclInProgress);
    EXPECT_GT(threads().size(), before.size());
    EXPECT_EQ(threads_that_take_signals(before), "");
    EXPECT_EQ(ncclCommAbort(waiting), ncclSuccess);
    plexusStreamDestroy(stream);
  });
}

// What other ranks send is not the program's arithmetic: infinity and its negative, NaN, zero to
// divide by; and 8-bit floats are reduced by tables over all values.
TEST(Guest, LeavesTheTrapsOfFloatingPointArithmeticToTheProgram) {
  run_in_child([] {
    constexpr int kTraps = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW;
    feenableexcept(kTraps);
    Job job(2);
    const uint64_t patterns[] = {
        0,           0x7f800000ff800000, 0x7fc0fc007e007c00, 0x7ff0000000000000, 0xfff0000000000000,
        ~uint64_t{0}};
    for (int type = 0; type < ncclNumTypes; ++type) {
      for (int op = 0; op < ncclNumOps; ++op) {
        uint64_t out[2][6];
        job.run_in_group([&](int rank, ncclComm_t comm) {
          return ncclAllReduce(patterns, out[rank], 6, static_cast<ncclDataType_t>(type),
                               static_cast<ncclRedOp_t>(op), comm, nullptr);
        });
      }
    }
    EXPECT_EQ(fegetexcept(), kTraps);
    EXPECT_EQ(fetestexcept(FE_INVALID), 0) << "flags are the program's, too";
  });
}

TEST(Guest, StartsInAThreadWithASmallStack) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers need more of the stack";
#endif
  run_in_child([] {
    take_the_network();
    constexpr size_t kStackBytes = 64 * 1024;
    pthread_attr_t small;
    pthread_attr_init(&small);
    ASSERT_EQ(pthread_attr_setstacksize(&small, kStackBytes), 0);
    pthread_t thread{};
    const auto body = [](void* /*unused*/) -> void* {
      ncclUniqueId id;
      ncclComm_t comms[2] = {};
      EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      for (int rank = 0; rank < 2; ++rank) {
        EXPECT_EQ(ncclCommInitRank(&comms[rank], 2, id, rank), ncclSuccess);
      }
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      for (const ncclComm_t comm : comms) {
        EXPECT_EQ(all_reduce(comm), ncclSuccess);
      }
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
      for (const ncclComm_t comm : comms) {
        EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
      }
      ncclComm_t alone = nullptr;
      EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
      EXPECT_EQ(ncclCommInitRank(&alone, 1, id, 0), ncclSuccess) << ncclGetLastError(nullptr);
      EXPECT_EQ(ncclCommDestroy(alone), ncclSuccess);
      return nullptr;
    };
    ASSERT_EQ(pthread_create(&thread, &small, body, nullptr), 0);
    pthread_join(thread, nullptr);
  });
}

TEST(Guest, NeverWaitsForAFileThatASettingNames) {
  const std::string pipe =
      std::filesystem::temp_directory_path() / ("plexus_guest_" + std::to_string(getpid()));
  ASSERT_EQ(mkfifo(pipe.c_str(), S_IRWXU), 0);
  const std::pair<const char*, bool> settings[] = {
      {"NCCL_TOPO_FILE", true},      {"NCCL_GRAPH_FILE", true},      {"PLEXUS_FABRIC_FILE", true},
      {"NCCL_TOPO_DUMP_FILE", true}, {"NCCL_GRAPH_DUMP_FILE", true}, {"NCCL_TUNER_PLUGIN", true},
      {"NCCL_NET_PLUGIN", true},     {"PLEXUS_PROGRAM_PATH", true},  {"NCCL_CONF_FILE", false},
      {"NCCL_DEBUG_FILE", false},    {"PLEXUS_RATES_FILE", false},   {"PLEXUS_STALL_FILE", false},
      {"PLEXUS_TUNE_FILE", true}};
  for (const auto& [name, must_fail] : settings) {
    run_in_child([&, setting = name, fails = must_fail] {
      take_the_network();
      setenv(setting, pipe.c_str(), 1);
      ncclComm_t comms[2] = {};
      const ncclResult_t made = ncclCommInitAll(comms, 2, nullptr);
      EXPECT_EQ(made == ncclSuccess, !fails) << setting << ": " << ncclGetLastError(nullptr);
      if (fails) {
        const bool is_net = std::string(setting) == "NCCL_NET_PLUGIN";
        EXPECT_THAT(ncclGetLastError(nullptr),
                    AllOf(HasSubstr(pipe), HasSubstr(is_net ? "net plugin" : setting)));
      }
    });
  }
  std::filesystem::remove(pipe);
}

TEST(Guest, RefusesUnknownWordsWithTheCodeThatIsDocumented) {
  for (const char* const setting : {"NCCL_ALGO", "NCCL_PROTO", "NCCL_P2P_LEVEL", "PLEXUS_IB_HCA",
                                    "NCCL_NETDEVS_POLICY", "PLEXUS_DEVICE"}) {
    run_in_child([=] {
      take_the_network();
      setenv("NCCL_NET_PLUGIN", "socket", 1);
      setenv(setting, "bogus", 1);
      ncclComm_t comms[2] = {};
      EXPECT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclInvalidArgument) << setting;
      EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr(setting));
    });
  }
}

TEST(Guest, SaysItsVersionAsNcclDoes) {
  for (const auto& [level, lines] :
       {std::pair{"VERSION", 1}, std::pair{"WARN", 1}, std::pair{"NONE", 0}}) {
    testing::internal::CaptureStdout();
    run_in_child([name = level] {
      setenv("NCCL_DEBUG", name, 1);
      const Job job(2);
      const Job another(2);
    });
    const std::string shown = testing::internal::GetCapturedStdout();
    EXPECT_EQ(std::count(shown.begin(), shown.end(), '\n'), lines) << shown;
    EXPECT_EQ(shown.starts_with("NCCL version 2."), lines == 1) << shown;
    const bool names_library =
        shown.find(", /") != std::string::npos && shown.ends_with("/libplexus.so.0)\n");
    EXPECT_EQ(names_library, lines == 1) << shown;
  }
}

}  // namespace
}  // namespace plexus
