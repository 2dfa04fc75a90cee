// SPDX-License-Identifier: Apache-2.0
// ncclCommSuspend, ncclCommResume and ncclCommMemStats: what they give back and make again, that
// the numbers are those of the system, and what is refused.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/ranks/job.hpp"

namespace {

/// Private mappings without a file that the library made and has not unmapped, in bytes.
class Mappings {
 public:
  static Mappings& instance() {
    static Mappings mappings;
    return mappings;
  }
  void add(void* at, size_t size_bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[at] = size_bytes;
  }
  void remove(void* at) {
    const std::lock_guard lock(mutex_);
    sizes_.erase(at);
  }
  size_t sum() {
    const std::lock_guard lock(mutex_);
    size_t all = 0;
    for (const auto& [at, size_bytes] : sizes_) {
      all += size_bytes;
    }
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<void*, size_t> sizes_;  // guarded by mutex_
};

}  // namespace

#ifdef __SANITIZE_THREAD__
constexpr bool kKnowsMappings = false;  // mmap is the sanitizer's
#else
constexpr bool kKnowsMappings = true;
// The C library's own calls (of malloc, for stacks) do not come here.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" __attribute__((visibility("default"))) void* mmap(
    void* address, size_t length, int protection, int flags, int fd, off_t offset) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what the system call returns
  auto* const at =
      reinterpret_cast<void*>(syscall(SYS_mmap, address, length, protection, flags, fd, offset));
  if (at != MAP_FAILED && fd < 0) {
    Mappings::instance().add(at, length);
  }
  return at;
}
extern "C" __attribute__((visibility("default"))) int munmap(void* address,
                                                             size_t length) noexcept {
  Mappings::instance().remove(address);
  return static_cast<int>(syscall(SYS_munmap, address, length));
}
// NOLINTEND(readability-identifier-naming)
#endif

namespace plexus::testing_job {
namespace {

using ::testing::HasSubstr;
constexpr size_t kCount = 20'000;

uint64_t stat_of(ncclComm_t comm, ncclCommMemStat_t which) {
  uint64_t value = ~uint64_t{0};
  EXPECT_EQ(ncclCommMemStats(comm, which, &value), ncclSuccess) << ncclGetLastError(comm);
  return value;
}

uint64_t sum_of(const Job& job, ncclCommMemStat_t which) {
  uint64_t sum = 0;
  for (int rank = 0; rank < job.nranks(); ++rank) {
    sum += stat_of(job.comm(rank), which);
  }
  return sum;
}

/// Bytes of the shared memory that the library has made, by its descriptors.
uint64_t shared_bytes() {
  uint64_t sum = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    struct stat status {};
    if (!error && target.find("plexus") != std::string::npos &&
        target.find("(deleted)") != std::string::npos && stat(entry.path().c_str(), &status) == 0) {
      sum += static_cast<uint64_t>(status.st_size);
    }
  }
  return sum;
}

void set_transport(const std::string& transport) {
  unsetenv("NCCL_P2P_DISABLE");
  unsetenv("NCCL_SHM_DISABLE");
  if (transport != "Direct") {
    setenv("NCCL_P2P_DISABLE", "1", 1);
  }
  if (transport == "Net") {
    setenv("NCCL_SHM_DISABLE", "1", 1);
  }
}

class Suspend : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    set_transport(GetParam());
    setenv("NCCL_ALGO", "ring", 1);  // computes without memory of its own
  }
  void TearDown() override {
    set_transport("Direct");
    unsetenv("NCCL_ALGO");
  }

  static std::vector<float> input_of(int rank) {
    return std::vector<float>(kCount, static_cast<float>(rank + 1));
  }
  static ncclResult_t sum_up(int rank, ncclComm_t comm, int nranks) {
    std::vector<float> data = input_of(rank);
    const ncclResult_t result =
        ncclAllReduce(data.data(), data.data(), kCount, ncclFloat, ncclSum, comm, nullptr);
    if (result == ncclSuccess) {
      const auto expected = static_cast<float>(nranks * (nranks + 1) / 2);
      EXPECT_THAT(data, testing::Each(expected));
    }
    return result;
  }
  static void expect_all(const std::vector<ncclResult_t>& results, ncclResult_t expected) {
    EXPECT_THAT(results, testing::Each(expected)) << ncclGetLastError(nullptr);
  }
  static void sum_up(Job& job, ncclResult_t expected = ncclSuccess) {
    expect_all(job.run_in_threads(
                   [&job](int rank, ncclComm_t comm) { return sum_up(rank, comm, job.nranks()); }),
               expected);
  }
  static void suspend(Job& job) {
    job.run_in_group(
        [](int /*rank*/, ncclComm_t comm) { return ncclCommSuspend(comm, NCCL_SUSPEND_MEM); });
  }
  static void resume(const Job& job) {
    for (int rank = 0; rank < job.nranks(); ++rank) {
      EXPECT_EQ(ncclCommResume(job.comm(rank)), ncclSuccess) << ncclGetLastError(nullptr);
    }
  }
};

TEST_P(Suspend, GivesSlotsBackAndMakesThemAgain) {
  Job job(3);
  EXPECT_EQ(sum_of(job, ncclStatGpuMemSuspend), 0) << "nothing is connected";
  sum_up(job);
  const uint64_t held = sum_of(job, ncclStatGpuMemSuspend);
  EXPECT_GT(held, 0);
  for (int round = 0; round < 3; ++round) {
    suspend(job);
    EXPECT_EQ(sum_of(job, ncclStatGpuMemSuspend), 0);
    EXPECT_EQ(sum_of(job, ncclStatGpuMemSuspended), 3) << "each rank says 1";
    EXPECT_EQ(sum_of(job, ncclStatGpuMemTotal), sum_of(job, ncclStatGpuMemPersist));
    sum_up(job, ncclInvalidUsage);
    resume(job);
    EXPECT_EQ(sum_of(job, ncclStatGpuMemSuspended), 0);
    sum_up(job);
    EXPECT_EQ(sum_of(job, ncclStatGpuMemSuspend), held);
  }
}

TEST_P(Suspend, SaysWhatTheSystemSays) {
  if (!kKnowsMappings) {
    GTEST_SKIP() << "mmap cannot be replaced beside ThreadSanitizer";
  }
  Job job(3);
  const uint64_t shared_before = shared_bytes();
  const uint64_t private_before = Mappings::instance().sum();
  sum_up(job);
  const auto in_system = [&] {
    return shared_bytes() - shared_before + Mappings::instance().sum() - private_before;
  };
  EXPECT_EQ(sum_of(job, ncclStatGpuMemTotal), in_system());
  EXPECT_GT(in_system(), 0);
  suspend(job);
  EXPECT_EQ(in_system(), 0) << "to the byte";
}

TEST_P(Suspend, CountsWhatAnAlgorithmComputesIn) {
  if (!kKnowsMappings) {
    GTEST_SKIP() << "mmap cannot be replaced beside ThreadSanitizer";
  }
  setenv("NCCL_ALGO", "pat", 1);
  Job job(4);
  std::vector<float> input(4 * kCount, 1);
  const size_t mapped_before = Mappings::instance().sum() + shared_bytes();
  expect_all(job.run_in_threads([&](int /*rank*/, ncclComm_t comm) {
    std::vector<float> output(kCount);
    return ncclReduceScatter(input.data(), output.data(), kCount, ncclFloat, ncclSum, comm,
                             nullptr);
  }),
             ncclSuccess);
  const uint64_t mapped = Mappings::instance().sum() + shared_bytes() - mapped_before;
  EXPECT_GT(sum_of(job, ncclStatGpuMemSuspend), mapped) << "slots are not all";
  suspend(job);
  EXPECT_EQ(sum_of(job, ncclStatGpuMemTotal), 0);
}

TEST_P(Suspend, KeepsTheOrderOfCallsOnStreams) {
  Job job(2);
  std::array<cudaStream_t, 2> streams{};
  std::array<std::vector<float>, 2> data{input_of(0), input_of(1)};
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(plexusStreamCreate(&streams[rank]), ncclSuccess);
  }
  expect_all(job.run_in_threads([&](int rank, ncclComm_t comm) {
    const auto at = static_cast<size_t>(rank);
    const ncclResult_t result = ncclAllReduce(data[at].data(), data[at].data(), kCount, ncclFloat,
                                              ncclSum, comm, streams[at]);
    return result == ncclSuccess ? ncclCommSuspend(comm, NCCL_SUSPEND_MEM) : result;
  }),
             ncclSuccess);
  EXPECT_THAT(data[0], testing::Each(3.0F)) << "it had ended before";
  resume(job);
  sum_up(job);
  for (const cudaStream_t stream : streams) {
    EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
  }
}

TEST_P(Suspend, LosesNoMessageThatWasNotReceived) {
  Job job(2);
  float value = 7;
  float got = 0;
  expect_all(job.run_in_threads([&](int rank, ncclComm_t comm) {  // so that they are connected
    return rank == 0 ? ncclSend(&value, 1, ncclFloat, 1, comm, nullptr)
                     : ncclRecv(&got, 1, ncclFloat, 0, comm, nullptr);
  }),
             ncclSuccess);
  value = 8;
  ASSERT_EQ(ncclSend(&value, 1, ncclFloat, 1, job.comm(0), nullptr), ncclSuccess);
  expect_all(job.run_in_threads([](int /*rank*/, ncclComm_t comm) {
    return ncclCommSuspend(comm, NCCL_SUSPEND_MEM);
  }),
             ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr),
              HasSubstr("1 message that the ranks have sent to each other is not received yet"));
  EXPECT_EQ(sum_of(job, ncclStatGpuMemSuspended), 0);
  ASSERT_EQ(ncclRecv(&got, 1, ncclFloat, 0, job.comm(1), nullptr), ncclSuccess);
  EXPECT_EQ(got, 8);
  suspend(job);
  resume(job);
  sum_up(job);
}

TEST_P(Suspend, RepeatedGroupsSeeIt) {
  Job job(1);
  float value = 1;
  const auto call = [&] {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, job.comm(0), nullptr),
              ncclSuccess);
    EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclFloat, ncclProd, job.comm(0), nullptr),
              ncclSuccess);
    return ncclGroupEnd();
  };
  EXPECT_EQ(call(), ncclSuccess);
  EXPECT_EQ(call(), ncclSuccess);
  suspend(job);
  EXPECT_EQ(ncclGroupStart(), ncclSuccess);
  (void)ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, job.comm(0), nullptr);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  resume(job);
  EXPECT_EQ(call(), ncclSuccess);
}

TEST_P(Suspend, KeepsWindowsAndSignals) {
  Job job(2);
  std::array<void*, 2> memory{};
  std::array<ncclWindow_t, 2> windows{};
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(ncclMemAlloc(&memory[rank], 4096), ncclSuccess);
    ASSERT_EQ(ncclCommWindowRegister(job.comm(static_cast<int>(rank)), memory[rank], 4096,
                                     &windows[rank], NCCL_WIN_COLL_SYMMETRIC),
              ncclSuccess);
  }
  EXPECT_GT(stat_of(job.comm(0), ncclStatGpuMemPersist), 0) << "counters";
  suspend(job);
  EXPECT_EQ(
      ncclPutSignal(memory[0], 1, ncclFloat, 1, windows[0], 64, 0, 0, 0, job.comm(0), nullptr),
      ncclInvalidUsage);
  resume(job);
  *static_cast<float*>(memory[0]) = 5;
  ASSERT_EQ(
      ncclPutSignal(memory[0], 1, ncclFloat, 1, windows[0], 64, 0, 0, 0, job.comm(0), nullptr),
      ncclSuccess);
  ncclWaitSignalDesc_t wait{1, 0, 0, 0};
  ASSERT_EQ(ncclWaitSignal(1, &wait, job.comm(1), nullptr), ncclSuccess);
  EXPECT_EQ(static_cast<float*>(memory[1])[16], 5);
  for (size_t rank = 0; rank < 2; ++rank) {
    const ncclComm_t comm = job.comm(static_cast<int>(rank));
    EXPECT_EQ(ncclCommWindowDeregister(comm, windows[rank]), ncclSuccess);
    EXPECT_EQ(ncclMemFree(memory[rank]), ncclSuccess);
  }
}

TEST_P(Suspend, RefusesWhatMakesNoSense) {
  Job job(1);
  const ncclComm_t comm = job.comm(0);
  EXPECT_EQ(ncclCommSuspend(nullptr, NCCL_SUSPEND_MEM), ncclInvalidArgument);
  EXPECT_EQ(ncclCommResume(nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommSuspend(comm, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommSuspend(comm, 3), ncclInvalidArgument);
  EXPECT_EQ(ncclCommResume(comm), ncclInvalidUsage) << "it is not suspended";
  uint64_t value = 0;
  EXPECT_EQ(ncclCommMemStats(comm, ncclStatGpuMemTotal, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommMemStats(nullptr, ncclStatGpuMemTotal, &value), ncclInvalidArgument);
  // NOLINTNEXTLINE(clang-analyzer-optin.core.EnumCastOutOfRange)
  EXPECT_EQ(ncclCommMemStats(comm, static_cast<ncclCommMemStat_t>(4), &value), ncclInvalidArgument);
  EXPECT_EQ(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclSuccess);
  EXPECT_EQ(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclInvalidUsage) << "twice";
  ncclComm_t child = nullptr;
  EXPECT_EQ(ncclCommSplit(comm, 0, 0, &child, nullptr), ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("suspended"));
  EXPECT_EQ(ncclCommResume(comm), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
  EXPECT_EQ(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclInvalidUsage) << "it is finalized";
}

TEST_P(Suspend, RefusesCommunicatorsThatShare) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.splitShare = 1;
  const Job job(1);
  ncclComm_t child = nullptr;
  ASSERT_EQ(ncclCommSplit(job.comm(0), 0, 0, &child, &config), ncclSuccess);
  EXPECT_EQ(ncclCommSuspend(child, NCCL_SUSPEND_MEM), ncclInvalidUsage);
  EXPECT_EQ(ncclCommSuspend(job.comm(0), NCCL_SUSPEND_MEM), ncclInvalidUsage);
  EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
  EXPECT_EQ(ncclCommSuspend(job.comm(0), NCCL_SUSPEND_MEM), ncclSuccess);
}

TEST_P(Suspend, EndsWhenAPeerAborts) {
  std::array<ncclComm_t, 2> comms{};
  ASSERT_EQ(ncclCommInitAll(comms.data(), 2, nullptr), ncclSuccess);
  std::thread other([&] { EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess); });
  const ncclResult_t result = ncclCommSuspend(comms[0], NCCL_SUSPEND_MEM);
  other.join();
  EXPECT_EQ(result, ncclRemoteError) << ncclGetLastError(comms[0]);
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
}

INSTANTIATE_TEST_SUITE_P(Transports,
                         Suspend,
                         testing::Values("Direct", "Shm", "Net"),
                         [](const auto& transport) { return std::string(transport.param); });

}  // namespace
}  // namespace plexus::testing_job
