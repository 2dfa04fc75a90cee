// SPDX-License-Identifier: Apache-2.0
// Argument checks by themselves, and those of a call on a communicator of one rank. What public
// functions return is tested in tests/ranks/arguments_test.cpp.
#include "core/api/arguments.hpp"

#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sys/mman.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::HasSubstr;

TEST(CheckArguments, APointerMustNotBeNull) {
  const int value = 0;
  EXPECT_TRUE(check_pointer(&value, "value").has_value());
  const auto refused = check_pointer(nullptr, "nranks");
  ASSERT_TRUE(refused.has_error());
  EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(refused.error().message(), "nranks is NULL");
}

TEST(CheckArguments, ATypeMustBeInRange) {
  EXPECT_TRUE(check_type(ncclInt8).has_value());
  EXPECT_TRUE(check_type(static_cast<ncclDataType_t>(ncclNumTypes - 1)).has_value());
  EXPECT_TRUE(check_type(ncclNumTypes).has_error());
  EXPECT_EQ(check_type(static_cast<ncclDataType_t>(-1)).error().code(), Code::kInvalidArgument);
}

TEST(CheckArguments, ARankMustBeBelowNranks) {
  EXPECT_TRUE(check_ranks(1, 0).has_value());
  EXPECT_TRUE(check_ranks(4, 3).has_value());
  EXPECT_TRUE(check_ranks(4, 4).has_error());
  EXPECT_TRUE(check_ranks(4, -1).has_error());
  EXPECT_EQ(check_ranks(0, 0).error().code(), Code::kInvalidArgument);
}

TEST(CheckArguments, OnlyACommunicatorIsLive) {
  EXPECT_EQ(check_live(nullptr).error().code(), Code::kInvalidArgument);
  std::array<uint64_t, 16> local{};  // the handle's first words are read
  const auto refused = check_ready(reinterpret_cast<ncclComm_t>(&local));
  ASSERT_TRUE(refused.has_error()) << "it has not the magic number of one";
  EXPECT_THAT(refused.error().message(), HasSubstr("not a communicator"));
}

// ---- ncclConfig_t ----

class CheckConfig : public testing::Test {
 protected:
  CheckConfig() { unsetenv("NCCL_COMM_BLOCKING"); }
  ~CheckConfig() override { unsetenv("NCCL_COMM_BLOCKING"); }
  ncclConfig_t config_ = NCCL_CONFIG_INITIALIZER;
};

TEST_F(CheckConfig, NullAndAnUntouchedConfigAreTheDefaults) {
  const ncclConfig_t* const both[] = {nullptr, &config_};
  for (const ncclConfig_t* const config : both) {
    const CommConfig made = check_config(config).value();
    EXPECT_TRUE(made.blocking);
    EXPECT_EQ(made.min_ctas, 0);
    EXPECT_EQ(made.max_ctas, 0);
    EXPECT_EQ(made.net_name, "");
    EXPECT_EQ(made.traffic_class, -1);
    EXPECT_FALSE(made.split_share);
    EXPECT_FALSE(made.collnet_enable);
  }
}

TEST_F(CheckConfig, TakesWhatTheUserSet) {
  config_.blocking = 0;
  config_.minCTAs = 2;
  config_.maxCTAs = 8;
  config_.netName = "Socket";
  config_.splitShare = 1;
  config_.trafficClass = 5;
  config_.commName = "left";
  const CommConfig made = check_config(&config_).value();
  EXPECT_FALSE(made.blocking);
  EXPECT_EQ(made.min_ctas, 2);
  EXPECT_EQ(made.max_ctas, 8);
  EXPECT_EQ(made.net_name, "Socket");
  EXPECT_TRUE(made.split_share);
  EXPECT_EQ(made.traffic_class, 5);
  EXPECT_EQ(made.comm_name, "left");
}

TEST_F(CheckConfig, TheEnvironmentWinsOverTheConfig) {
  config_.blocking = 0;
  setenv("NCCL_COMM_BLOCKING", "1", 1);
  EXPECT_TRUE(check_config(&config_).value().blocking);
  setenv("NCCL_COMM_BLOCKING", "0", 1);
  EXPECT_FALSE(check_config(nullptr).value().blocking);
}

TEST_F(CheckConfig, AnUninitialisedConfigIsRefused) {
  config_.magic = 0;
  EXPECT_THAT(check_config(&config_).error().message(), HasSubstr("NCCL_CONFIG_INITIALIZER"));
  config_ = NCCL_CONFIG_INITIALIZER;
  config_.size = offsetof(ncclConfig_t, blocking) - 1;
  EXPECT_EQ(check_config(&config_).error().code(), Code::kInvalidArgument);
}

TEST_F(CheckConfig, ABadFieldIsNamedWithItsRange) {
  config_.nChannelsPerNetPeer = 65;
  EXPECT_THAT(check_config(&config_).error().message(), HasSubstr("nChannelsPerNetPeer is 65"));
  EXPECT_THAT(check_config(&config_).error().message(), HasSubstr("1..64"));
}

TEST_F(CheckConfig, MinCtasMustNotExceedMaxCtas) {
  config_.minCTAs = 4;
  config_.maxCTAs = 4;
  EXPECT_TRUE(check_config(&config_).has_value());
  config_.minCTAs = 5;
  EXPECT_THAT(check_config(&config_).error().message(), HasSubstr("greater than maxCTAs"));
}

TEST_F(CheckConfig, FieldsBeyondTheCallersStructAreIgnored) {
  config_.minCTAs = -1;
  EXPECT_TRUE(check_config(&config_).has_error());
  config_.size = offsetof(ncclConfig_t, minCTAs);
  EXPECT_TRUE(check_config(&config_).has_value());
}

TEST_F(CheckConfig, APointerThatTheSizeCutsInTwoIsNotUsed) {
  config_.netName = "Socket";
  for (size_t size_bytes = offsetof(ncclConfig_t, netName);
       size_bytes < offsetof(ncclConfig_t, splitShare); ++size_bytes) {
    config_.size = size_bytes;
    EXPECT_EQ(check_config(&config_).value().net_name, "") << size_bytes;
  }
  config_.size = offsetof(ncclConfig_t, splitShare);
  EXPECT_EQ(check_config(&config_).value().net_name, "Socket");
}

/// A field is ignored if the caller's NCCL version did not have it, whatever `size` says.
struct Epoch {
  int ncclConfig_t::*field;
  unsigned version;  // the first one with the field
};

class ConfigEpoch : public testing::TestWithParam<Epoch> {};

TEST_P(ConfigEpoch, AFieldCountsFromTheVersionThatAddedIt) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.*GetParam().field = -1;
  config.version = GetParam().version;
  EXPECT_TRUE(check_config(&config).has_error());
  config.version = GetParam().version - 1;
  EXPECT_TRUE(check_config(&config).has_value());
}

INSTANTIATE_TEST_SUITE_P(CheckConfig,
                         ConfigEpoch,
                         testing::Values(Epoch{&ncclConfig_t::cgaClusterSize, 21700},
                                         Epoch{&ncclConfig_t::splitShare, 21800},
                                         Epoch{&ncclConfig_t::collnetEnable, 22700},
                                         Epoch{&ncclConfig_t::nChannelsPerNetPeer, 22800},
                                         Epoch{&ncclConfig_t::graphUsageMode, 22900},
                                         Epoch{&ncclConfig_t::maxP2pPeers, 23000},
                                         Epoch{&ncclConfig_t::graphStreamOrdering, 23005},
                                         Epoch{&ncclConfig_t::numRmaSig, 23100},
                                         Epoch{&ncclConfig_t::nvlsHostMode, 23200}));

TEST_F(CheckConfig, ModesOfGpusAreThoseOfNccl) {
  for (const int mode : {1, 2, 3, NCCL_CONFIG_UNDEF_INT}) {
    config_.hostCftMode = mode;
    EXPECT_TRUE(check_config(&config_).has_value()) << mode;
  }
  config_.hostCftMode = 4;
  EXPECT_THAT(check_config(&config_).error().message(), HasSubstr("hostCftMode is 4"));
  config_ = NCCL_CONFIG_INITIALIZER;
  for (const int mode : {0, 1, 2, 3, INT_MAX, NCCL_CONFIG_UNDEF_INT}) {
    config_.nvlsHostMode = mode;
    EXPECT_TRUE(check_config(&config_).has_value()) << mode;
  }
  config_.nvlsHostMode = 4;
  EXPECT_THAT(check_config(&config_).error().message(), HasSubstr("nvlsHostMode is 4"));
}

/// What the headers of releases have as size and version; one byte more than that is not readable.
struct Release {
  size_t size_bytes;
  unsigned version;
};

class ConfigOfRelease : public testing::TestWithParam<Release> {};

TEST_P(ConfigOfRelease, IsTakenWithoutALookBeyondItsSize) {
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const pages =
      mmap(nullptr, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  auto* const end = static_cast<std::byte*>(pages) + page_bytes;
  ASSERT_EQ(mprotect(end, page_bytes, PROT_NONE), 0);
  std::array<std::byte, 128> bytes{};
  bytes.fill(std::byte{0x5a});  // fields of later releases
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.size = GetParam().size_bytes;
  config.version = GetParam().version;
  std::memcpy(bytes.data(), &config, sizeof(config));
  std::byte* const at = end - GetParam().size_bytes;
  std::memcpy(at, bytes.data(), GetParam().size_bytes);
  EXPECT_TRUE(check_config(reinterpret_cast<const ncclConfig_t*>(at)).has_value());
  EXPECT_EQ(munmap(pages, 2 * page_bytes), 0);
}

INSTANTIATE_TEST_SUITE_P(CheckConfig,
                         ConfigOfRelease,
                         testing::Values(Release{24, 21400},
                                         Release{40, 21700},
                                         Release{48, 21903},
                                         Release{48, 22605},
                                         Release{72, 22703},
                                         Release{80, 22809},
                                         Release{88, 22907},
                                         Release{96, 23003},
                                         Release{96, 23007},
                                         Release{96, 23102},
                                         Release{112, 23102},
                                         Release{120, 23203},
                                         Release{128, 23300}));

// ---- calls ----

/// A communicator of one rank, on which calls are checked without being made.
class CheckCall : public testing::Test {
 protected:
  void SetUp() override {
    setenv("PLEXUS_DEVICE", "host", 1);
    ASSERT_EQ(ncclCommInitAll(&comm_, 1, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
  }
  void TearDown() override {
    if (comm_ != nullptr) {
      EXPECT_EQ(ncclCommDestroy(comm_), ncclSuccess);
    }
    unsetenv("PLEXUS_DEVICE");
  }
  /// A call, as the public functions pass it to issue().
  struct Arguments {
    CallShape shape;
    CallPlace place;
  };
  Arguments call(Collective collective) {
    return {
        .shape = {.collective = collective,
                  .type = ncclInt32,
                  .op = is_reduction(collective) ? static_cast<int>(ncclSum) : kNoOp,
                  .count = 4},
        .place = {.send = input_.data(), .recv = output_.data(), .comm = comm_, .stream = nullptr}};
  }
  static Result<Task> check(const Arguments& arguments) {
    CallShape shape = arguments.shape;
    shape.has_send = arguments.place.send != nullptr;
    shape.has_recv = arguments.place.recv != nullptr;
    shape.in_place = arguments.place.send == arguments.place.recv;
    return check_call(shape, arguments.place);
  }
  static std::string why_not(const Arguments& arguments) {
    const auto checked = check(arguments);
    if (checked.has_value()) {
      return "accepted";
    }
    EXPECT_EQ(checked.error().code(), Code::kInvalidArgument);
    return std::string(checked.error().message());
  }

  ncclComm_t comm_ = nullptr;
  std::array<int32_t, 4> input_{};
  std::array<int32_t, 4> output_{};
};

TEST_F(CheckCall, AGoodCallBecomesATaskWithItsArguments) {
  const Task task = check(call(Collective::kAllReduce)).value();
  EXPECT_EQ(task.shape.collective, Collective::kAllReduce);
  EXPECT_EQ(task.shape.datatype(), DataType::kInt32);
  EXPECT_EQ(task.op.kind, ReduceKind::kSum);
  EXPECT_EQ(task.send, input_.data());
  EXPECT_EQ(task.recv, output_.data());
  EXPECT_EQ(task.shape.count, 4U);
}

TEST_F(CheckCall, RootsPeersTypesAndOperationsMustBeInRange) {
  Arguments arguments = call(Collective::kBroadcast);
  arguments.shape.root = 1;
  EXPECT_THAT(why_not(arguments), HasSubstr("root 1 is not a rank"));
  arguments = call(Collective::kSend);
  arguments.shape.root = -1;
  EXPECT_THAT(why_not(arguments), HasSubstr("peer -1 is not a rank"));
  arguments = call(Collective::kAllGather);
  arguments.shape.type = ncclNumTypes;
  EXPECT_THAT(why_not(arguments), HasSubstr("datatype"));
  arguments = call(Collective::kReduce);
  arguments.shape.op = ncclNumOps;
  EXPECT_NE(why_not(arguments), "accepted");
}

TEST_F(CheckCall, ABufferThatIsUsedMustNotBeNullUnlessTheCountIsZero) {
  Arguments arguments = call(Collective::kAllReduce);
  arguments.place.send = nullptr;
  EXPECT_THAT(why_not(arguments), HasSubstr("send buffer is NULL"));
  arguments.shape.count = 0;
  EXPECT_EQ(why_not(arguments), "accepted");
  arguments = call(Collective::kRecv);
  arguments.place.send = nullptr;
  EXPECT_EQ(why_not(arguments), "accepted") << "a receive does not send";
  arguments.place.recv = nullptr;
  EXPECT_THAT(why_not(arguments), HasSubstr("receive buffer is NULL"));
}

TEST_F(CheckCall, ASizeThatOverflowsIsRefused) {
  Arguments arguments = call(Collective::kAllReduce);
  arguments.shape.count = std::numeric_limits<size_t>::max() / 4;
  EXPECT_THAT(why_not(arguments), HasSubstr("exceeds the address space"));
}

TEST_F(CheckCall, StreamsAreThoseOfPlexusAndCudasDefaultStreams) {
  Arguments arguments = call(Collective::kAllReduce);
  for (const uintptr_t default_stream : {uintptr_t{1}, uintptr_t{2}}) {
    arguments.place.stream = reinterpret_cast<cudaStream_t>(
        default_stream);  // NOLINT(performance-no-int-to-ptr): CUDA's values
    EXPECT_EQ(check(arguments).value().stream, nullptr) << "complete on return";
  }
  arguments.place.stream = reinterpret_cast<cudaStream_t>(&input_);
  EXPECT_THAT(why_not(arguments), HasSubstr("plexusStreamCreate"));
}

TEST_F(CheckCall, ADestroyedCommunicatorIsRefused) {
  const Arguments arguments = call(Collective::kAllReduce);
  ASSERT_EQ(ncclCommDestroy(comm_), ncclSuccess);
  comm_ = nullptr;
  EXPECT_THAT(why_not(arguments), HasSubstr("not a communicator"));
}

}  // namespace
}  // namespace plexus
