// SPDX-License-Identifier: Apache-2.0
// fork in a program whose ranks are all in one process: the parent is unaffected, and the child has
// a library as in a new process, in which the parent's handles are invalid.
#include <array>
#include <atomic>
#include <cstring>
#include <string>

#include "tests/ranks/job.hpp"
#include "tests/support/forked.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;
using testing_fork::exit_code_of;
using testing_fork::run_in_child;
using testing_fork::start_child;
using testing_job::Job;

constexpr size_t kCount = 1000;

/// Sums ones over all ranks, with or without a stream, and checks the result.
void all_reduce(const Job& job, cudaStream_t stream = nullptr) {
  std::vector<std::vector<float>> data(static_cast<size_t>(job.nranks()),
                                       std::vector<float>(kCount, 1));
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int rank = 0; rank < job.nranks(); ++rank) {
    float* const at = data[static_cast<size_t>(rank)].data();
    ASSERT_EQ(ncclAllReduce(at, at, kCount, ncclFloat32, ncclSum, job.comm(rank), stream),
              ncclSuccess)
        << ncclGetLastError(nullptr);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  if (stream != nullptr) {
    ASSERT_EQ(plexusStreamSynchronize(stream), ncclSuccess);
  }
  for (const auto& part : data) {
    ASSERT_EQ(part, std::vector<float>(kCount, static_cast<float>(job.nranks())));
  }
}

void expect_parents(ncclResult_t result, const std::string& what) {
  EXPECT_EQ(result, ncclInvalidUsage);
  EXPECT_THAT(ncclGetLastError(nullptr),
              HasSubstr("the " + what + " was created by process " + std::to_string(getppid())));
}

TEST(Fork, TheParentGoesOnAfterEveryKindOfChild) {
  NEEDS_THREADS_IN_CHILDREN();
  Job job(2);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  all_reduce(job);
  const std::function<void()> kinds[] = {
      [] {},
      [&] { (void)ncclCommDestroy(job.comm(0)); },
      [&] { (void)ncclCommAbort(job.comm(1)); },
      [&] { (void)plexusStreamDestroy(stream); },
      [] {
        ncclUniqueId id;
        EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
      },
      [] {
        const Job own(2);
        all_reduce(own);
      },
  };
  for (const auto& kind : kinds) {
    run_in_child(kind);
    all_reduce(job);
  }
  EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
}

TEST(Fork, AChildThatEndsInOrderIsNoMatter) {
  Job job(2);
  all_reduce(job);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(testing_fork::bound(testing_fork::kBoundSeconds));
    std::exit(0);  // with all handlers
  }
  EXPECT_EQ(exit_code_of(pid), 0);
  all_reduce(job);
}

TEST(Fork, EveryCallOnAParentsCommunicatorIsRefusedInAChild) {
  Job job(2);
  all_reduce(job);
  run_in_child([&] {
    const ncclComm_t comm = job.comm(0);
    float value = 1;
    int number = 0;
    ncclResult_t state = ncclSuccess;
    ncclComm_t other = nullptr;
    void* handle = nullptr;
    ncclRedOp_t op = ncclSum;
    expect_parents(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, comm, nullptr),
                   "communicator");
    expect_parents(ncclSend(&value, 1, ncclFloat32, 1, comm, nullptr), "communicator");
    expect_parents(ncclCommCount(comm, &number), "communicator");
    expect_parents(ncclCommGetAsyncError(comm, &state), "communicator");
    expect_parents(ncclCommSplit(comm, 0, 0, &other, nullptr), "communicator");
    expect_parents(ncclCommShrink(comm, &number, 1, &other, nullptr, 0), "communicator");
    expect_parents(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), "communicator");
    expect_parents(ncclCommRegister(comm, &value, sizeof value, &handle), "communicator");
    expect_parents(
        ncclRedOpCreatePreMulSum(&op, &value, ncclFloat32, ncclScalarHostImmediate, comm),
        "communicator");
    run_in_child([&] {  // the grandchild
      EXPECT_EQ(ncclCommCount(comm, &number), ncclInvalidUsage);
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    });
  });
  all_reduce(job);
}

TEST(Fork, GivingBackInAChildWhatIsItsParentsIsDone) {
  Job job(2);
  all_reduce(job);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  ncclRedOp_t op = ncclSum;
  float scalar = 2;
  ASSERT_EQ(
      ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, job.comm(0)),
      ncclSuccess);
  void* handle = nullptr;
  ASSERT_EQ(ncclCommRegister(job.comm(0), &scalar, sizeof scalar, &handle), ncclSuccess);
  run_in_child([&] {
    EXPECT_EQ(ncclRedOpDestroy(op, job.comm(0)), ncclSuccess);
    EXPECT_EQ(ncclCommDeregister(job.comm(0), handle), ncclSuccess);
    EXPECT_EQ(ncclCommFinalize(job.comm(0)), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(job.comm(0)), ncclSuccess);
    EXPECT_EQ(ncclCommDestroy(job.comm(0)), ncclInvalidArgument) << "destroyed before";
    EXPECT_EQ(ncclCommAbort(job.comm(1)), ncclSuccess);
    EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
  });
  all_reduce(job);
  EXPECT_EQ(ncclRedOpDestroy(op, job.comm(0)), ncclSuccess);
  EXPECT_EQ(ncclCommDeregister(job.comm(0), handle), ncclSuccess);
  EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
}

TEST(Fork, AParentsStreamIsRefusedAndAChildsOwnWorks) {
  NEEDS_THREADS_IN_CHILDREN();
  std::vector<cudaStream_t> streams(64);
  for (cudaStream_t& stream : streams) {
    ASSERT_EQ(plexusStreamCreate(&stream), ncclSuccess);
  }
  Job job(1);
  for (const cudaStream_t stream : streams) {
    all_reduce(job, stream);  // the thread that serves streams is running
  }
  run_in_child([&] {
    const Job own(1);
    float value = 1;
    for (const cudaStream_t stream : streams) {
      expect_parents(plexusStreamSynchronize(stream), "stream");
      expect_parents(plexusStreamQuery(stream), "stream");
      expect_parents(ncclAllReduce(&value, &value, 1, ncclFloat32, ncclSum, own.comm(0), stream),
                     "stream");
    }
    cudaStream_t mine = nullptr;
    ASSERT_EQ(plexusStreamCreate(&mine), ncclSuccess);
    all_reduce(own, mine);
    run_in_child([&] { EXPECT_EQ(plexusStreamQuery(streams[0]), ncclInvalidUsage); });
    EXPECT_EQ(plexusStreamDestroy(mine), ncclSuccess);
  });
  for (const cudaStream_t stream : streams) {
    all_reduce(job, stream);
    EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
  }
}

TEST(Fork, AChildIsOutsideOfItsParentsGroup) {
  NEEDS_THREADS_IN_CHILDREN();
  Job job(2);
  float data[2] = {1, 1};
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(ncclAllReduce(&data[0], &data[0], 1, ncclFloat32, ncclSum, job.comm(0), nullptr),
            ncclSuccess);
  run_in_child([&] {
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    const Job own(2);
    all_reduce(own);
  });
  ASSERT_EQ(ncclAllReduce(&data[1], &data[1], 1, ncclFloat32, ncclSum, job.comm(1), nullptr),
            ncclSuccess);
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  EXPECT_EQ(data[0], 2);
  EXPECT_EQ(data[1], 2);
}

/// In a thread whose first call was ncclGroupStart.
TEST(Fork, AChildOfAnEmptyGroupIsOutsideToo) {
  std::thread([] {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    run_in_child([] { EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage); });
    EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
  }).join();
}

TEST(Fork, MemoryIsSharedWithTheChildAndGoesForEachAlone) {
  NEEDS_THREADS_IN_CHILDREN();
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, kCount * sizeof(float)), ncclSuccess);
  auto* const floats = static_cast<float*>(memory);
  floats[0] = 3;
  run_in_child([&] {
    EXPECT_EQ(floats[0], 3);
    floats[1] = 4;
    const Job own(1);  // its own communicator may send from it
    EXPECT_EQ(ncclAllReduce(floats, floats + 2, 1, ncclFloat32, ncclSum, own.comm(0), nullptr),
              ncclSuccess);
    EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
    EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
    EXPECT_EQ(ncclMemAlloc(&memory, 1), ncclSuccess);
    EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  });
  EXPECT_EQ(floats[0], 3);
  EXPECT_EQ(floats[1], 4);
  EXPECT_EQ(floats[2], 3);
  floats[0] = 5;
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
}

TEST(Fork, ChildrenOfAThreadWorkWhileOthersAreInsideCalls) {
  NEEDS_THREADS_IN_CHILDREN();
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a child of fork may find the allocator of GCC 12's AddressSanitizer locked";
#endif
  Job job(2);
  std::atomic<bool> done{false};
  std::vector<std::thread> busy;
  busy.emplace_back([&] {
    while (!done) {
      all_reduce(job);
    }
  });
  busy.emplace_back([&] {
    while (!done) {
      const Job own(2);
      all_reduce(own);
    }
  });
  busy.emplace_back([&] {
    while (!done) {
      cudaStream_t stream = nullptr;
      void* memory = nullptr;
      EXPECT_EQ(plexusStreamCreate(&stream), ncclSuccess);
      EXPECT_EQ(ncclMemAlloc(&memory, 1), ncclSuccess);
      EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
      EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
      EXPECT_EQ(plexusStreamQuery(nullptr), ncclInvalidArgument);  // logs an error
    }
  });
  for (int round = 0; round < 10; ++round) {
    run_in_child([&] {
      EXPECT_EQ(ncclCommDestroy(job.comm(0)), ncclSuccess);
      const Job own(2);
      all_reduce(own);
      cudaStream_t stream = nullptr;
      EXPECT_EQ(plexusStreamCreate(&stream), ncclSuccess);
      const Job one(1);
      all_reduce(one, stream);
      EXPECT_EQ(plexusStreamDestroy(stream), ncclSuccess);
      ncclUniqueId id;
      EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    });
  }
  done = true;
  for (std::thread& thread : busy) {
    thread.join();
  }
}

}  // namespace
}  // namespace plexus
