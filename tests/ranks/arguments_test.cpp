// SPDX-License-Identifier: Apache-2.0
// Bad arguments to every kind of call: the right code and an error sentence; the communicator works
// afterwards.
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_job::Job;

std::string last_error() { return ncclGetLastError(nullptr); }

/// One rank with buffers: a call with valid arguments is complete on return.
class ArgumentsTest : public testing::Test {
 protected:
  ncclResult_t all_reduce(ncclDataType_t type = ncclFloat32, ncclRedOp_t op = ncclSum) {
    return ncclAllReduce(send_.data(), recv_.data(), send_.size(), type, op, comm_, nullptr);
  }
  void TearDown() override {
    recv_.fill(0);
    EXPECT_EQ(all_reduce(), ncclSuccess) << "the communicator must live on: " << last_error();
    EXPECT_EQ(recv_[7], send_[7]);
  }

  Job job_{1};
  ncclComm_t comm_ = job_.comm(0);
  std::array<float, 8> send_{1, 2, 3, 4, 5, 6, 7, 8};
  std::array<float, 8> recv_{};
};

TEST_F(ArgumentsTest, ACommunicatorMustBeOne) {
  EXPECT_EQ(ncclAllReduce(send_.data(), recv_.data(), 8, ncclFloat32, ncclSum, nullptr, nullptr),
            ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("NULL"));
  std::array<uint64_t, 512> junk{};
  auto* const fake = reinterpret_cast<ncclComm_t>(junk.data());
  EXPECT_EQ(ncclAllReduce(send_.data(), recv_.data(), 8, ncclFloat32, ncclSum, fake, nullptr),
            ncclInvalidArgument);
  int count = 0;
  EXPECT_EQ(ncclCommCount(fake, &count), ncclInvalidArgument);
  EXPECT_EQ(ncclCommCount(comm_, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommUserRank(nullptr, &count), ncclInvalidArgument);
  ncclResult_t state = ncclSuccess;
  EXPECT_EQ(ncclCommGetAsyncError(nullptr, &state), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGetAsyncError(comm_, nullptr), ncclInvalidArgument);
}

TEST_F(ArgumentsTest, ADestroyedCommunicatorIsRefused) {
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitAll(&comm, 1, nullptr), ncclSuccess);
  ASSERT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(send_.data(), recv_.data(), 8, ncclFloat32, ncclSum, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("destroyed"));
}

TEST_F(ArgumentsTest, NullEndsNothing) {
  EXPECT_EQ(ncclCommDestroy(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommFinalize(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommDeregister(comm_, nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommWindowDeregister(comm_, nullptr), ncclSuccess);
}

TEST_F(ArgumentsTest, RootsAndPeersAreRanks) {
  for (const int wrong :
       {-1, 1, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()}) {
    EXPECT_EQ(ncclBroadcast(send_.data(), recv_.data(), 8, ncclFloat32, wrong, comm_, nullptr),
              ncclInvalidArgument);
    EXPECT_THAT(last_error(), AllOf(HasSubstr("root " + std::to_string(wrong)), HasSubstr("0..0")));
    EXPECT_EQ(ncclBcast(recv_.data(), 8, ncclFloat32, wrong, comm_, nullptr), ncclInvalidArgument);
    EXPECT_EQ(
        ncclReduce(send_.data(), recv_.data(), 8, ncclFloat32, ncclSum, wrong, comm_, nullptr),
        ncclInvalidArgument);
    EXPECT_EQ(ncclGather(send_.data(), recv_.data(), 8, ncclFloat32, wrong, comm_, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclScatter(send_.data(), recv_.data(), 8, ncclFloat32, wrong, comm_, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclSend(send_.data(), 8, ncclFloat32, wrong, comm_, nullptr), ncclInvalidArgument);
    EXPECT_THAT(last_error(), HasSubstr("peer"));
    EXPECT_EQ(ncclRecv(recv_.data(), 8, ncclFloat32, wrong, comm_, nullptr), ncclInvalidArgument);
  }
}

TEST_F(ArgumentsTest, TypesAreThoseOfTheHeader) {
  for (const int wrong : {-1, static_cast<int>(ncclNumTypes), 1 << 20}) {
    EXPECT_EQ(all_reduce(std::bit_cast<ncclDataType_t>(wrong)), ncclInvalidArgument);
    EXPECT_THAT(last_error(),
                AllOf(HasSubstr("datatype " + std::to_string(wrong)), HasSubstr("0..11")));
  }
}

TEST_F(ArgumentsTest, OperationsAreBuiltInOrMadeForThisCommunicatorAndType) {
  for (const int wrong : {-1, static_cast<int>(ncclNumOps), static_cast<int>(ncclMaxRedOp)}) {
    EXPECT_EQ(all_reduce(ncclFloat32, std::bit_cast<ncclRedOp_t>(wrong)), ncclInvalidArgument);
  }
  const Job other(1);
  float scalar = 2;
  ncclRedOp_t op = ncclSum;
  ASSERT_EQ(
      ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, other.comm(0)),
      ncclSuccess);
  EXPECT_EQ(all_reduce(ncclFloat32, op), ncclInvalidArgument) << "another communicator's";
  EXPECT_EQ(ncclRedOpDestroy(op, comm_), ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpDestroy(ncclSum, comm_), ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpDestroy(op, nullptr), ncclInvalidArgument);
  ASSERT_EQ(ncclRedOpDestroy(op, other.comm(0)), ncclSuccess);
  EXPECT_EQ(ncclRedOpDestroy(op, other.comm(0)), ncclInvalidArgument);
  ASSERT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate, comm_),
            ncclSuccess);
  EXPECT_EQ(all_reduce(ncclInt32, op), ncclInvalidArgument) << "created for datatype float";
  EXPECT_EQ(ncclRedOpDestroy(op, comm_), ncclSuccess);
  EXPECT_EQ(ncclRedOpCreatePreMulSum(nullptr, &scalar, ncclFloat32, ncclScalarHostImmediate, comm_),
            ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat32, ncclScalarHostImmediate, comm_),
            ncclInvalidArgument);
}

TEST_F(ArgumentsTest, BuffersThatAreUsedMustNotBeNull) {
  EXPECT_EQ(ncclAllReduce(nullptr, recv_.data(), 8, ncclFloat32, ncclSum, comm_, nullptr),
            ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("send buffer is NULL"));
  EXPECT_EQ(ncclAllGather(send_.data(), nullptr, 8, ncclFloat32, comm_, nullptr),
            ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("receive buffer is NULL"));
  EXPECT_EQ(ncclSend(nullptr, 8, ncclFloat32, 0, comm_, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclRecv(nullptr, 8, ncclFloat32, 0, comm_, nullptr), ncclInvalidArgument);
}

TEST_F(ArgumentsTest, NothingIsDoneWithACountOfZero) {
  EXPECT_EQ(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, comm_, nullptr), ncclSuccess);
  EXPECT_EQ(ncclBroadcast(nullptr, nullptr, 0, ncclFloat32, 0, comm_, nullptr), ncclSuccess);
  EXPECT_EQ(ncclAlltoAll(nullptr, nullptr, 0, ncclFloat32, comm_, nullptr), ncclSuccess);
}

TEST_F(ArgumentsTest, SizesThatOverflowAreRefused) {
  EXPECT_EQ(
      ncclAllReduce(send_.data(), recv_.data(), SIZE_MAX / 2, ncclFloat32, ncclSum, comm_, nullptr),
      ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("exceeds the address space"));
}

TEST_F(ArgumentsTest, StreamsAreOurs) {
  int somewhere = 0;
  auto* const stream = reinterpret_cast<cudaStream_t>(&somewhere);
  EXPECT_EQ(ncclAllReduce(send_.data(), recv_.data(), 8, ncclFloat32, ncclSum, comm_, stream),
            ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("plexusStreamCreate"));
  EXPECT_EQ(plexusStreamSynchronize(stream), ncclInvalidArgument);
  EXPECT_EQ(plexusStreamDestroy(stream), ncclInvalidArgument);
  EXPECT_EQ(plexusStreamQuery(nullptr), ncclInvalidArgument);
  EXPECT_EQ(plexusStreamCreate(nullptr), ncclInvalidArgument);
}

TEST_F(ArgumentsTest, InitChecksRanksAndPointers) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_EQ(ncclGetUniqueId(nullptr), ncclInvalidArgument);
  int number = 0;
  EXPECT_EQ(plexusGetUniqueIdFromEnvironment(nullptr, &number, &number), ncclInvalidArgument);
  EXPECT_EQ(plexusGetUniqueIdFromEnvironment(&id, nullptr, &number), ncclInvalidArgument);
  EXPECT_EQ(plexusGetUniqueIdFromEnvironment(&id, &number, nullptr), ncclInvalidArgument);
  ncclComm_t comm = comm_;
  EXPECT_EQ(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT_EQ(comm, nullptr) << "on failure the communicator is NULL";
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("rank 2 of 2"));
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, -1), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 2, 0, 0, &id, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 2, 0, 3, &id, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 2, 0, 1, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitAll(nullptr, 1, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitAll(&comm, -1, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
}

TEST_F(ArgumentsTest, ConfigMustComeFromItsInitializerAndKeepItsRanges) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ncclConfig_t config{};
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("NCCL_CONFIG_INITIALIZER"));
  const auto refused = [&](int ncclConfig_t::*field, int value) {
    ncclConfig_t wrong = NCCL_CONFIG_INITIALIZER;
    wrong.*field = value;
    return ncclCommInitRankConfig(&comm, 1, id, 0, &wrong);
  };
  EXPECT_EQ(refused(&ncclConfig_t::blocking, 2), ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("blocking is 2"));
  EXPECT_EQ(refused(&ncclConfig_t::minCTAs, 0), ncclInvalidArgument);
  EXPECT_EQ(refused(&ncclConfig_t::maxCTAs, -3), ncclInvalidArgument);
  EXPECT_EQ(refused(&ncclConfig_t::splitShare, 7), ncclInvalidArgument);
  EXPECT_EQ(refused(&ncclConfig_t::nChannelsPerNetPeer, 65), ncclInvalidArgument);
  EXPECT_EQ(refused(&ncclConfig_t::graphUsageMode, 3), ncclInvalidArgument);
  ncclConfig_t crossed = NCCL_CONFIG_INITIALIZER;
  crossed.minCTAs = 8;
  crossed.maxCTAs = 4;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &crossed), ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("greater than maxCTAs"));
}

TEST_F(ArgumentsTest, ConfigOfAnOlderHeaderIsTakenAsFarAsItGoes) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclConfig_t old = NCCL_CONFIG_INITIALIZER;
  old.size = 24;  // NCCL 2.14: up to blocking
  old.version = 21403;
  old.minCTAs = -99;  // beyond its end: not read
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &old), ncclSuccess) << last_error();
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(ArgumentsTest, MemoryFunctionsCheckTheirArguments) {
  EXPECT_EQ(ncclMemAlloc(nullptr, 16), ncclInvalidArgument);
  int local = 0;
  EXPECT_EQ(ncclMemFree(&local), ncclInvalidArgument);
  EXPECT_EQ(ncclMemFree(nullptr), ncclSuccess);
  void* handle = nullptr;
  EXPECT_EQ(ncclCommRegister(comm_, nullptr, 16, &handle), ncclInvalidArgument);
  EXPECT_EQ(ncclCommRegister(comm_, &local, sizeof(local), nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDeregister(comm_, &local), ncclInvalidUsage);
  ncclWindow_t window = nullptr;
  EXPECT_EQ(ncclCommWindowRegister(comm_, nullptr, 16, &window, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommWindowRegister(comm_, &local, 0, &window, 0), ncclInvalidArgument);
}

TEST_F(ArgumentsTest, MemoryBeyondThisHostIsRefused) {
  constexpr size_t kMost = std::numeric_limits<size_t>::max();
  for (const size_t size :
       {kMost, kMost - 1, kMost - 4095, kMost - 4096, kMost - 8192, kMost / 2 + 1, kMost / 2,
        kMost / 2 - 8192, size_t{1} << 62, size_t{1} << 50}) {
    void* memory = this;
    EXPECT_EQ(ncclMemAlloc(&memory, size), ncclSystemError) << size;
    EXPECT_EQ(memory, nullptr);
    EXPECT_THAT(last_error(), AllOf(HasSubstr(std::to_string(size)), HasSubstr("ncclMemAlloc")));
  }
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 0), ncclSuccess) << last_error();
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
}

TEST_F(ArgumentsTest, BuffersMustNotEndBeyondTheAddresses) {
  constexpr size_t kMost = std::numeric_limits<size_t>::max();
  void* handle = nullptr;
  EXPECT_EQ(ncclCommRegister(comm_, send_.data(), kMost, &handle), ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr(std::to_string(kMost)));
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 4096), ncclSuccess);
  ncclWindow_t window = nullptr;
  EXPECT_EQ(ncclCommWindowRegister(comm_, memory, kMost, &window, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
}

TEST_F(ArgumentsTest, CountsPerRankAreCheckedBeforeAnythingIsRead) {
  const std::array<size_t, 1> count{4};
  const std::array<size_t, 1> none{0};
  const std::array<size_t, 1> far{2};
  const std::array<size_t, 1> huge{std::numeric_limits<size_t>::max() / 4 + 1};
  using Counts = const size_t*;
  const auto all_to_all = [&](const void* send, Counts sends, Counts from, void* recv,
                              Counts receives, Counts to) {
    return plexusAllToAllV(send, sends, from, recv, receives, to, ncclFloat32, comm_, nullptr);
  };
  const auto refused = [](ncclResult_t result, const char* what) {
    EXPECT_EQ(result, ncclInvalidArgument);
    EXPECT_THAT(last_error(), HasSubstr(what));
  };
  const Counts one = count.data();
  const Counts zero = none.data();
  float* const send = send_.data();
  float* const recv = recv_.data();
  refused(all_to_all(nullptr, one, zero, recv, one, zero), "sendbuff is NULL");
  refused(all_to_all(nullptr, one, far.data(), recv, one, zero), "sendbuff is NULL");
  refused(all_to_all(send, one, zero, nullptr, one, far.data()), "recvbuff is NULL");
  refused(all_to_all(send, nullptr, zero, recv, one, zero), "sendcounts is NULL");
  refused(all_to_all(send, one, nullptr, recv, one, zero), "senddispls is NULL");
  refused(all_to_all(send, one, zero, recv, nullptr, zero), "recvcounts is NULL");
  refused(all_to_all(send, one, zero, recv, one, nullptr), "recvdispls is NULL");
  refused(all_to_all(send, one, huge.data(), recv, one, zero), "senddispls[0]");
  refused(all_to_all(send, huge.data(), zero, recv, one, zero), "sendcounts[0]");
  refused(all_to_all(send, one, zero, recv, huge.data(), huge.data()), "recvcounts[0]");
  refused(plexusAllGatherV(nullptr, 4, recv, one, far.data(), ncclFloat32, comm_, nullptr),
          "sendbuff is NULL");
  refused(plexusAllGatherV(send, 4, nullptr, one, far.data(), ncclFloat32, comm_, nullptr),
          "recvbuff is NULL");
  refused(plexusAllGatherV(send, 4, recv, nullptr, zero, ncclFloat32, comm_, nullptr),
          "recvcounts is NULL");
  refused(plexusAllGatherV(send, huge[0], recv, one, zero, ncclFloat32, comm_, nullptr),
          "sendcount ");
  EXPECT_EQ(plexusAllToAllV(send, one, zero, recv, one, zero, ncclFloat32, nullptr, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(all_to_all(nullptr, zero, far.data(), nullptr, zero, zero), ncclSuccess)
      << "nothing is read or written: " << last_error();
  EXPECT_EQ(all_to_all(send, one, far.data(), recv, one, zero), ncclSuccess) << last_error();
  EXPECT_EQ(recv_[0], send_[2]);
}

TEST_F(ArgumentsTest, ARefusedAllToAllVFailsItsGroup) {
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  recv_.fill(-1);
  EXPECT_EQ(all_reduce(), ncclSuccess);
  EXPECT_EQ(plexusAllToAllV(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, ncclFloat32,
                            comm_, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(recv_[0], -1) << "nothing of the group ran";
}

TEST_F(ArgumentsTest, AFailureInsideAGroupIsTheGroupsToo) {
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(all_reduce(std::bit_cast<ncclDataType_t>(99)), ncclInvalidArgument);
  recv_.fill(-1);
  EXPECT_EQ(all_reduce(), ncclSuccess);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(recv_[0], -1) << "nothing of the group ran";
}

TEST_F(ArgumentsTest, ParametersAreKnownByName) {
  const char* value = nullptr;
  int length = 0;
  EXPECT_EQ(ncclParamGetParameter("NCCL_NO_SUCH", &value, &length), ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("NCCL_NO_SUCH"));
  EXPECT_EQ(ncclParamGetParameter(nullptr, &value, &length), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGetParameter("NCCL_BUFFSIZE", &value, &length), ncclSuccess) << last_error();
  ncclParamHandle_t handle = nullptr;
  int64_t number = -1;
  ASSERT_EQ(ncclParamBind(&handle, "NCCL_SOCKET_RETRY_CNT"), ncclSuccess);
  EXPECT_EQ(ncclParamGetI64(handle, &number), ncclSuccess);
  EXPECT_EQ(number, 34);
  EXPECT_EQ(ncclParamBind(nullptr, "NCCL_BUFFSIZE"), ncclInvalidArgument);
}

TEST(Arguments, EveryErrorCodeHasAText) {
  for (int code = -1; code <= ncclNumResults + 1; ++code) {
    const char* const text = ncclGetErrorString(std::bit_cast<ncclResult_t>(code));
    ASSERT_NE(text, nullptr);
    EXPECT_STRNE(text, "");
  }
}

TEST(Arguments, SplitAndShrinkCheckTheirs) {
  const Job job(2);
  ncclComm_t child = nullptr;
  std::array<int, 2> excluded{0, 5};
  EXPECT_EQ(ncclCommShrink(job.comm(0), nullptr, 1, &child, nullptr, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommShrink(job.comm(0), excluded.data(), 0, &child, nullptr, 0),
            ncclInvalidArgument);
  EXPECT_EQ(ncclCommShrink(job.comm(0), excluded.data(), 1, &child, nullptr, 0),
            ncclInvalidArgument)
      << "the caller";
  EXPECT_EQ(ncclCommShrink(job.comm(1), excluded.data(), 2, &child, nullptr, 0),
            ncclInvalidArgument)
      << "no rank 5";
  EXPECT_EQ(ncclCommSplit(job.comm(0), 0, 0, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommSplit(nullptr, 0, 0, &child, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommRevoke(job.comm(0), 1), ncclInvalidArgument);
}

TEST(Arguments, GoneRanksChecksIts) {
  const Job job(2);
  std::array<int, 2> ranks{-1, -1};
  int count = -1;
  EXPECT_EQ(plexusCommGoneRanks(nullptr, ranks.data(), &count), ncclInvalidArgument);
  EXPECT_EQ(plexusCommGoneRanks(job.comm(0), nullptr, &count), ncclInvalidArgument);
  EXPECT_EQ(plexusCommGoneRanks(job.comm(0), ranks.data(), nullptr), ncclInvalidArgument);
  EXPECT_EQ(plexusCommGoneRanks(job.comm(0), ranks.data(), &count), ncclSuccess);
  EXPECT_EQ(count, 0) << "all live";
  EXPECT_EQ(ncclCommFinalize(job.comm(1)), ncclSuccess);
  EXPECT_EQ(plexusCommGoneRanks(job.comm(1), ranks.data(), &count), ncclInvalidUsage);
}

TEST(Arguments, GrowChecksIts) {
  const Job job(2);
  ncclComm_t grown = nullptr;
  ncclUniqueId id;
  EXPECT_EQ(ncclCommGetUniqueId(nullptr, &id), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGetUniqueId(job.comm(0), nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGrow(job.comm(0), 3, nullptr, -1, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGrow(job.comm(0), 2, nullptr, -1, &grown, nullptr), ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("ncclCommShrink makes it smaller"));
  EXPECT_EQ(ncclCommGrow(job.comm(0), 3, nullptr, 0, &grown, nullptr), ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("gives -1"));
  EXPECT_EQ(ncclCommGrow(nullptr, 3, nullptr, 2, &grown, nullptr), ncclInvalidArgument);
  EXPECT_THAT(last_error(), HasSubstr("uniqueId"));
  EXPECT_EQ(ncclCommRevoke(job.comm(0), NCCL_REVOKE_DEFAULT), ncclSuccess);
  EXPECT_EQ(ncclCommGrow(job.comm(0), 3, nullptr, -1, &grown, nullptr), ncclInvalidUsage);
}

TEST(Arguments, HostRanksHaveNoCudaDevice) {
  const Job job(1);
  int device = 0;
  EXPECT_EQ(ncclCommCuDevice(job.comm(0), &device), ncclSuccess);
  EXPECT_EQ(device, -1);
}

}  // namespace
}  // namespace plexus
