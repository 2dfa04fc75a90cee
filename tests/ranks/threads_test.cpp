// SPDX-License-Identifier: Apache-2.0
// A system that refuses threads (ulimit -u, a cgroup's pids.max). This program's pthread_create
// replaces libc's and refuses on request, so that every place can be tested.
#include <array>
#include <atomic>
#include <cerrno>
#include <dlfcn.h>
#include <filesystem>
#include <limits>
#include <pthread.h>

#include "tests/ranks/job.hpp"

namespace {

std::atomic<int> threads_granted{std::numeric_limits<int>::max()};

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libc's name
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attr,
                                                                     void* (*start)(void*),
                                                                     void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return threads_granted.fetch_sub(1) > 0 ? next(thread, attr, start, argument) : EAGAIN;
}

namespace plexus {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// While it exists, this many threads can be started.
class Granted {
 public:
  explicit Granted(int count) { threads_granted = count; }
  ~Granted() { threads_granted = std::numeric_limits<int>::max(); }
  Granted(const Granted&) = delete;
  Granted& operator=(const Granted&) = delete;
};

std::string last_error() { return ncclGetLastError(nullptr); }

auto says_what_to_do() {
  return AllOf(HasSubstr("cannot start a thread"), HasSubstr("ulimit -u"), HasSubstr("pids.max"));
}

std::ptrdiff_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return std::distance(begin(entries), end(entries));
}

int sum_of_ones(ncclComm_t comm) {
  int value = 1;
  EXPECT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, nullptr), ncclSuccess)
      << last_error();
  return value;
}

/// Whatever number of its threads starts, the group fails as a whole and can be repeated.
TEST(RefusedThreads, AGroupThatSplitsFailsAndCanBeRepeated) {
  constexpr int kRanks = 4;
  std::array<ncclComm_t, kRanks> parents{};
  std::array<ncclComm_t, kRanks> children{};
  ASSERT_EQ(ncclCommInitAll(parents.data(), kRanks, nullptr), ncclSuccess);
  const auto split_all = [&] {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(ncclCommSplit(parents[rank], 0, static_cast<int>(rank), &children[rank], nullptr),
                ncclSuccess);
    }
    return ncclGroupEnd();
  };
  for (int granted = 0; granted < kRanks; ++granted) {
    const Granted so_many(granted);
    EXPECT_EQ(split_all(), ncclSystemError) << granted;
    EXPECT_THAT(last_error(), says_what_to_do());
    for (const ncclComm_t child : children) {
      EXPECT_EQ(child, nullptr);
    }
  }
  ASSERT_EQ(split_all(), ncclSuccess) << last_error();
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(ncclCommDestroy(children[rank]), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(parents[rank]), ncclSuccess);
  }
}

TEST(RefusedThreads, CommunicatorsThatAGroupCouldNotDestroyLiveOn) {
  std::array<ncclComm_t, 3> comms{};
  ASSERT_EQ(ncclCommInitAll(comms.data(), 3, nullptr), ncclSuccess);
  const auto destroy_all = [&] {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    for (const ncclComm_t comm : comms) {
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
    return ncclGroupEnd();
  };
  {
    const Granted two(2);
    EXPECT_EQ(destroy_all(), ncclSystemError);
    EXPECT_THAT(last_error(), says_what_to_do());
  }
  int count = 0;
  EXPECT_EQ(ncclCommCount(comms[0], &count), ncclSuccess);
  EXPECT_EQ(destroy_all(), ncclSuccess) << last_error();
}

TEST(RefusedThreads, UniqueIdInitAndStreamSaySo) {
  const std::ptrdiff_t before = entries_of("/proc/self/fd");
  ncclUniqueId id;
  {
    const Granted none(0);
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSystemError);
    EXPECT_THAT(last_error(), says_what_to_do());
    cudaStream_t stream = nullptr;
    EXPECT_EQ(plexusStreamCreate(&stream), ncclSystemError);
    EXPECT_THAT(last_error(), says_what_to_do());
  }
  EXPECT_EQ(entries_of("/proc/self/fd"), before);
  ncclComm_t comm = nullptr;
  {
    const Granted only_the_hub(1);
    ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess) << last_error();
    EXPECT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSystemError);
    EXPECT_THAT(last_error(), says_what_to_do());
    EXPECT_EQ(comm, nullptr);
  }
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess) << last_error();
  EXPECT_EQ(sum_of_ones(comm), 1);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

/// The other ranks get an error at once.
TEST(RefusedThreads, OtherRanksOfAnInitAreTold) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::atomic<bool> refused{false};
  ncclResult_t waited = ncclSuccess;
  std::string reported;
  std::thread other([&] {
    refused.wait(false);
    ncclComm_t comm = nullptr;
    waited = ncclCommInitRank(&comm, 2, id, 1);
    reported = last_error();
  });
  {
    const Granted none(0);
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclSystemError);
  }
  refused = true;
  refused.notify_one();
  other.join();
  EXPECT_EQ(waited, ncclRemoteError);
  EXPECT_THAT(reported, AllOf(HasSubstr("before rank 1 joined"), says_what_to_do()));
}

TEST(RefusedThreads, NonBlockingInitIsRefusedAtOnce) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  {
    const Granted none(0);
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclSystemError);
    EXPECT_THAT(last_error(), says_what_to_do());
  }
  EXPECT_EQ(comm, nullptr);
  ASSERT_EQ(ncclCommInitRank(&comm, 1, id, 0), ncclSuccess) << last_error();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

}  // namespace
}  // namespace plexus
