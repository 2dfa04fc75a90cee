// SPDX-License-Identifier: Apache-2.0
// Registered host memory over a network that gathers it: messages leave from where they lie, for as
// long as the memory is registered. The plugin (tests/conformance/gathering_net.cpp) fails a
// message whose memory is not registered with it while it is under way.
#include <chrono>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <string>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing_job::Job;
using testing_job::value_of;

constexpr int kRanks = 2;
constexpr uint64_t kCount = 100'003;  // of elements of 4 bytes: more messages than slots

uint64_t ask_plugin(const char* what) {
  const std::string path =
      std::string(std::getenv("PLEXUS_TEST_EXAMPLE_DIR")) + "/libplexus-net-gathering.so";
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* const count = reinterpret_cast<uint64_t (*)()>(dlsym(library, what));
  const uint64_t answer = count == nullptr ? UINT64_MAX : count();
  dlclose(library);
  return answer;
}

/// Memory from ncclMemAlloc, of `count` elements.
struct Memory {
  explicit Memory(uint64_t count) {
    EXPECT_EQ(ncclMemAlloc(&data, count * sizeof(int32_t)), ncclSuccess);
  }
  ~Memory() { EXPECT_EQ(ncclMemFree(data), ncclSuccess); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  [[nodiscard]] int32_t* elements() const { return static_cast<int32_t*>(data); }
  void* data = nullptr;
};

void fill(int rank, int32_t* data, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    data[i] = static_cast<int32_t>(value_of(rank, i));
  }
}

/// Each has the sum of all, times `factor`.
void expect_sum(const int32_t* data, int factor = 1) {
  for (uint64_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(data[i], factor * (value_of(0, i) + value_of(1, i))) << i;
  }
}

ncclResult_t all_reduce(ncclComm_t comm,
                        const int32_t* send,
                        int32_t* recv,
                        cudaStream_t stream = nullptr) {
  return ncclAllReduce(send, recv, kCount, ncclInt32, ncclSum, comm, stream);
}

/// How much was gathered meanwhile.
uint64_t gathered_in(const std::function<void()>& run) {
  const uint64_t before = ask_plugin("gathered_bytes");
  run();
  return ask_plugin("gathered_bytes") - before;
}

/// Sums, all-gathers and passes on what is in `data` of each rank; 2 * kCount elements of it.
void use(Job& job, const std::vector<int32_t*>& data) {
  std::vector<std::vector<int32_t>> received(kRanks, std::vector<int32_t>(2 * kCount));
  const auto expect_success = [&](const Job::Body& body) {
    for (const ncclResult_t result : job.run_in_threads(body)) {
      ASSERT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
    }
  };
  const auto of = [&](int rank) { return data[static_cast<size_t>(rank)]; };
  const auto into = [&](int rank) { return received[static_cast<size_t>(rank)].data(); };
  expect_success([&](int rank, ncclComm_t comm) {
    fill(rank, of(rank), kCount);
    return all_reduce(comm, of(rank), into(rank));
  });
  expect_sum(into(0));
  expect_sum(into(1));
  expect_success([&](int rank, ncclComm_t comm) {
    return ncclAllGather(of(rank), into(rank), kCount, ncclInt32, comm, nullptr);
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int source = 0; source < kRanks; ++source) {
      EXPECT_EQ(std::memcmp(into(rank) + static_cast<uint64_t>(source) * kCount, of(source),
                            kCount * sizeof(int32_t)),
                0);
    }
  }
  expect_success([&](int rank, ncclComm_t comm) {
    EXPECT_EQ(ncclGroupStart(), ncclSuccess);
    EXPECT_EQ(ncclSend(of(rank), kCount, ncclInt32, 1 - rank, comm, nullptr), ncclSuccess);
    EXPECT_EQ(ncclRecv(into(rank), kCount, ncclInt32, 1 - rank, comm, nullptr), ncclSuccess);
    return ncclGroupEnd();
  });
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(std::memcmp(into(rank), of(1 - rank), kCount * sizeof(int32_t)), 0);
  }
  for (int times = 1; times <= 4; times *= 2) {  // in place: what is sent is stored over soon
    expect_success([&](int rank, ncclComm_t comm) { return all_reduce(comm, of(rank), of(rank)); });
    expect_sum(of(0), times);
    expect_sum(of(1), times);
  }
}

TEST(Registered, BuffersAreSentWithoutACopyUntilTheyAreDeregistered) {
  Job job(kRanks);
  std::vector<std::vector<int32_t>> memory(kRanks, std::vector<int32_t>(2 * kCount));
  const std::vector<int32_t*> data = {memory[0].data(), memory[1].data()};
  EXPECT_EQ(gathered_in([&] { use(job, data); }), 0U);
  std::vector<void*> handles(kRanks);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(ncclCommRegister(job.comm(static_cast<int>(rank)), data[rank],
                               2 * kCount * sizeof(int32_t), &handles[rank]),
              ncclSuccess);
  }
  EXPECT_GT(gathered_in([&] { use(job, data); }), kCount * sizeof(int32_t));
  const uint64_t registrations = ask_plugin("live_registrations");
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(ncclCommDeregister(job.comm(rank), handles[static_cast<size_t>(rank)]), ncclSuccess);
  }
  EXPECT_LT(ask_plugin("live_registrations"), registrations);
  EXPECT_EQ(gathered_in([&] { use(job, data); }), 0U);
}

TEST(Registered, WindowsAndMemoryFromNcclMemAllocAreSentWithoutACopy) {
  Job job(kRanks);
  uint64_t registrations = 0;
  {
    const Memory first(2 * kCount);
    const Memory second(2 * kCount);
    const std::vector<int32_t*> data = {first.elements(), second.elements()};
    EXPECT_GT(gathered_in([&] { use(job, data); }), kCount * sizeof(int32_t));
    registrations = ask_plugin("live_registrations");
  }
  EXPECT_LT(ask_plugin("live_registrations"), registrations) << "ncclMemFree ends them";
  constexpr size_t kBytes = 2 * kCount * sizeof(int32_t);
  std::vector<void*> memory(kRanks);
  std::vector<ncclWindow_t> windows(kRanks);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(posix_memalign(&memory[rank], NCCL_WIN_REQUIRED_ALIGNMENT, kBytes), 0);
    ASSERT_EQ(ncclCommWindowRegister(job.comm(static_cast<int>(rank)), memory[rank], kBytes,
                                     &windows[rank], 0),
              ncclSuccess);
  }
  const std::vector<int32_t*> data = {static_cast<int32_t*>(memory[0]),
                                      static_cast<int32_t*>(memory[1])};
  EXPECT_GT(gathered_in([&] { use(job, data); }), kCount * sizeof(int32_t));
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(ncclCommWindowDeregister(job.comm(static_cast<int>(rank)), windows[rank]),
              ncclSuccess);
  }
  EXPECT_EQ(gathered_in([&] { use(job, data); }), 0U);
  for (void* const each : memory) {
    std::free(each);
  }
}

// The calls' thread is that of the streams; this one deregisters meanwhile.
TEST(Registered, BuffersMayBeDeregisteredWhileCallsAreUnderWay) {
  Job job(kRanks);
  std::vector<std::vector<int32_t>> used(kRanks, std::vector<int32_t>(kCount));
  std::vector<std::vector<int32_t>> received(kRanks, std::vector<int32_t>(kCount));
  std::vector<cudaStream_t> streams(kRanks);
  for (size_t rank = 0; rank < kRanks; ++rank) {
    fill(static_cast<int>(rank), used[rank].data(), kCount);
    ASSERT_EQ(plexusStreamCreate(&streams[rank]), ncclSuccess);
  }
  for (int turn = 0; turn < 20; ++turn) {
    std::vector<void*> handles(kRanks);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(ncclCommRegister(job.comm(static_cast<int>(rank)), used[rank].data(),
                                 kCount * sizeof(int32_t), &handles[rank]),
                ncclSuccess);
    }
    for (size_t rank = 0; rank < kRanks; ++rank) {
      std::fill(received[rank].begin(), received[rank].end(), 0);
      ASSERT_EQ(all_reduce(job.comm(static_cast<int>(rank)), used[rank].data(),
                           received[rank].data(), streams[rank]),
                ncclSuccess);
    }
    for (size_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(ncclCommDeregister(job.comm(static_cast<int>(rank)), handles[rank]), ncclSuccess);
    }
    for (size_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(plexusStreamSynchronize(streams[rank]), ncclSuccess) << ncclGetLastError(nullptr);
      expect_sum(received[rank].data());
    }
  }
  for (const cudaStream_t stream : streams) {
    EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
  }
}

// The other rank never makes the call, so that nothing takes the messages.
TEST(Registered, AbortEndsRegistrationsWhoseMessagesAreUnderWay) {
  const uint64_t registrations = ask_plugin("live_registrations");
  std::vector<int32_t> used(kCount);
  std::vector<int32_t> received(kCount);
  std::vector<ncclComm_t> comms(kRanks);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess);
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);  // connects
  std::vector<std::vector<int32_t>> first(kRanks, std::vector<int32_t>(kCount));
  for (size_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(all_reduce(comms[rank], first[rank].data(), first[rank].data()), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  void* handle = nullptr;
  ASSERT_EQ(ncclCommRegister(comms[0], used.data(), kCount * sizeof(int32_t), &handle),
            ncclSuccess);
  const uint64_t before = ask_plugin("gathered_bytes");
  ASSERT_EQ(all_reduce(comms[0], used.data(), received.data(), stream), ncclSuccess);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (ask_plugin("gathered_bytes") == before) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "nothing was sent";
    std::this_thread::yield();
  }
  EXPECT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
  EXPECT_EQ(ask_plugin("live_registrations"), registrations);
  EXPECT_EQ(plexusStreamDestroy(stream), ncclInvalidUsage) << "its call was aborted";
}

}  // namespace
}  // namespace plexus
