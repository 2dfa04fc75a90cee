// SPDX-License-Identifier: Apache-2.0
// Memory that cannot be had in the library's own threads: an error of the communicator, whichever
// allocation fails. This program's operator new throws in chosen threads on request.
#include <array>
#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <limits>
#include <new>
#include <pthread.h>
#include <thread>

#include "tests/ranks/job.hpp"

namespace {

std::atomic<bool> marks_threads{false};  // threads that the main thread starts now are victims
std::atomic<int> grants{std::numeric_limits<int>::max()};  // allocations before the first refusal
std::atomic<int> refusals{0};                              // still to come
std::atomic<int> refused{0};
thread_local bool is_main = false;
thread_local bool is_victim = false;

void* allocate(size_t size) {
  if (is_victim && grants.fetch_sub(1) <= 0 && refusals.fetch_sub(1) > 0) {
    refused.fetch_add(1);
    throw std::bad_alloc();
  }
  void* const memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

struct Start {
  void* (*function)(void*);
  void* argument;
};

void* start_victim(void* raw) {
  const Start start = *static_cast<Start*>(raw);
  std::free(raw);
  is_victim = true;
  return start.function(start.argument);
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming,cppcoreguidelines-owning-memory)
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t* thread,
                                                                     const pthread_attr_t* attr,
                                                                     void* (*function)(void*),
                                                                     void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  if (!is_main || !marks_threads) {
    return next(thread, attr, function, argument);
  }
  auto* const start = static_cast<Start*>(std::malloc(sizeof(Start)));
  *start = {function, argument};
  return next(thread, attr, &start_victim, start);
}
__attribute__((visibility("default"))) void* operator new(size_t size) { return allocate(size); }
__attribute__((visibility("default"))) void* operator new(size_t size,
                                                          const std::nothrow_t&) noexcept {
  try {
    return allocate(size);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
__attribute__((visibility("default"), noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((visibility("default"), noinline)) void operator delete(void* memory,
                                                                      size_t) noexcept {
  std::free(memory);
}
// NOLINTEND(readability-identifier-naming,cppcoreguidelines-owning-memory)

namespace plexus {
namespace {

using testing::HasSubstr;

/// While it exists, the victims' allocations fail: those after the first `first`, `count` of them.
class Refusal {
 public:
  Refusal(int first, int count) {
    refused = 0;
    refusals = count;
    grants = first;
  }
  ~Refusal() { grants = std::numeric_limits<int>::max(); }
  Refusal(const Refusal&) = delete;
  Refusal& operator=(const Refusal&) = delete;
};

/// Threads that this thread starts while it exists are victims.
class Marking {
 public:
  Marking() {
    is_main = true;
    marks_threads = true;
  }
  ~Marking() { marks_threads = false; }
  Marking(const Marking&) = delete;
  Marking& operator=(const Marking&) = delete;
};

/// Runs `attempt` with `count` refusals in a row, from every allocation on once (or from every
/// `step`th), until all are granted.
template <class Attempt>
void refuse_everywhere(int count, const Attempt& attempt, int step = 1) {
  int failed = 0;
  refused = 1;
  for (int first = 0; refused > 0; first += step) {
    SCOPED_TRACE(testing::Message() << count << " refused after " << first);
    failed += attempt(first) ? 0 : 1;
    if (testing::Test::HasFailure()) {
      return;
    }
  }
  EXPECT_GT(failed, 0) << "no refusal had any effect";
}

void expect_lack_of_memory(ncclResult_t result) {
  EXPECT_EQ(result, ncclSystemError) << ncclGetLastError(nullptr);
}

TEST(RefusedMemory, OfTheEnginesThreadIsAnErrorOfTheCommunicator) {
  constexpr int kRanks = 2;
  {
    const Marking marking;  // the engine's thread starts with the first stream
    cudaStream_t stream = nullptr;
    ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
    ASSERT_EQ(plexusStreamDestroy(stream), ncclSuccess);
  }
  const auto attempt = [&](int first, int count) {
    std::array<ncclComm_t, kRanks> comms{};
    std::array<cudaStream_t, kRanks> streams{};
    std::array<float, kRanks> values{1, 2};
    EXPECT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess);
    for (cudaStream_t& stream : streams) {
      EXPECT_EQ(plexusStreamCreate(&stream), ncclSuccess);
    }
    bool is_well = true;
    {
      const Refusal refusal(first, count);
      EXPECT_EQ(ncclGroupStart(), ncclSuccess);
      for (size_t rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(ncclAllReduce(&values[rank], &values[rank], 1, ncclFloat, ncclSum, comms[rank],
                                streams[rank]),
                  ncclSuccess);
      }
      EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
      for (const cudaStream_t stream : streams) {
        if (const ncclResult_t result = plexusStreamSynchronize(stream); result != ncclSuccess) {
          expect_lack_of_memory(result);
          EXPECT_THAT(ncclGetLastError(nullptr), HasSubstr("no memory is left"));
          is_well = false;
        }
      }
    }
    for (size_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(!is_well || values[rank] == 3);
      EXPECT_EQ(is_well ? ncclCommDestroy(comms[rank]) : ncclCommAbort(comms[rank]), ncclSuccess);
      (void)plexusStreamDestroy(streams[rank]);
    }
    return is_well;
  };
  for (const int count : {1, 3}) {  // the second and third are those for the error itself
    refuse_everywhere(count, [&](int first) { return attempt(first, count); });
  }
}

TEST(RefusedMemory, OfAnInitializerIsAnErrorOfTheCommunicator) {
  refuse_everywhere(1, [&](int first) {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ncclResult_t state = ncclInProgress;
    {
      const Refusal refusal(first, 1);
      const Marking marking;
      EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
      while (state == ncclInProgress) {
        EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
        std::this_thread::yield();
      }
    }
    if (state != ncclSuccess) {
      expect_lack_of_memory(state);
    }
    EXPECT_EQ(state == ncclSuccess ? ncclCommDestroy(comm) : ncclCommAbort(comm), ncclSuccess);
    return state == ncclSuccess;
  });
}

/// The introducer's thread and the agent's. Both ranks end, whatever is refused to these threads.
TEST(RefusedMemory, OfTheControlPlaneIsAnErrorOfTheCommunicator) {
  setenv("PLEXUS_BOOTSTRAP_TIMEOUT", "20", 1);
  const auto attempt = [](int first) {
    ncclUniqueId id;
    std::array<ncclComm_t, 2> comms{};
    std::array<ncclResult_t, 2> results{};
    std::atomic<bool> has_id{false};
    const auto join = [&](int rank) {
      const auto at = static_cast<size_t>(rank);
      results[at] = ncclCommInitRank(&comms[at], 2, id, rank);
      if (results[at] != ncclSuccess) {
        EXPECT_STRNE(ncclGetLastError(nullptr), "");
      }
    };
    std::thread other([&] {
      has_id.wait(false);
      join(1);
    });
    {
      const Refusal refusal(first, 3);  // the second and third are those for the error itself
      const Marking marking;
      EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
      has_id = true;
      has_id.notify_one();
      join(0);
      other.join();
    }
    bool is_well = true;
    for (size_t rank = 0; rank < comms.size(); ++rank) {
      // The other rank may only know that this process does not answer.
      EXPECT_THAT(results[rank], testing::AnyOf(ncclSuccess, ncclSystemError, ncclRemoteError));
      is_well = is_well && results[rank] == ncclSuccess;
    }
    for (const ncclComm_t comm : comms) {
      if (comm != nullptr) {
        EXPECT_EQ(is_well ? ncclCommDestroy(comm) : ncclCommAbort(comm), ncclSuccess);
      }
    }
    return is_well;
  };
  refuse_everywhere(3, attempt, 3);  // each allocation is refused once: ends take up to 10 s
  unsetenv("PLEXUS_BOOTSTRAP_TIMEOUT");
}

}  // namespace
}  // namespace plexus
