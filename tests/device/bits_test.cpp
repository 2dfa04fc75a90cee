// SPDX-License-Identifier: Apache-2.0
// CUDA ranks give the bits of host ranks: every type, every reduction, three algorithms, every
// protocol, through the public API.
#include "kernels/layout/types.hpp"
#include "tests/device/job.hpp"
#include "tests/support/random_input.hpp"

namespace plexus::testing_device {
namespace {

constexpr int kRanks = 3;
constexpr size_t kCount = 5'003;

/// Ranks of the host, in this process.
class HostJob {
 public:
  HostJob() {
    setenv("PLEXUS_DEVICE", "host", 1);
    EXPECT_EQ(ncclCommInitAll(comms_, kRanks, nullptr), ncclSuccess) << ncclGetLastError(nullptr);
    setenv("PLEXUS_DEVICE", "cuda", 1);
  }
  ~HostJob() {
    for (const ncclComm_t comm : comms_) {
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
  }
  HostJob(const HostJob&) = delete;
  HostJob& operator=(const HostJob&) = delete;
  [[nodiscard]] ncclComm_t comm(int rank) const { return comms_[rank]; }

 private:
  ncclComm_t comms_[kRanks] = {};
};

/// A reduction of the test; `op` is the communicator's own.
struct Reduction {
  const char* name;
  ncclRedOp_t (*make)(ncclDataType_t type, ncclComm_t comm);
};
ncclRedOp_t make_premul(ncclDataType_t type, ncclComm_t comm) {
  const auto own = static_cast<DataType>(type);
  uint64_t scalar = is_floating(own) ? ReduceOp::scalar_bits_of(own, 1.0 / 3) : 3;
  ncclRedOp_t op = ncclSum;
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, &scalar, type, ncclScalarHostImmediate, comm),
            ncclSuccess);
  return op;
}
const Reduction kReductions[] = {
    {"sum", [](ncclDataType_t, ncclComm_t) { return ncclSum; }},
    {"prod", [](ncclDataType_t, ncclComm_t) { return ncclProd; }},
    {"max", [](ncclDataType_t, ncclComm_t) { return ncclMax; }},
    {"min", [](ncclDataType_t, ncclComm_t) { return ncclMin; }},
    {"avg", [](ncclDataType_t, ncclComm_t) { return ncclAvg; }},
    {"premul", make_premul},
};

struct Case {
  const char* algorithm;
  const char* protocol;
};

class SameBits : public testing::TestWithParam<Case> {
 protected:
  void expect_same(ncclDataType_t type, const Reduction& reduction) {
    const size_t size_bytes = kCount * element_size(static_cast<DataType>(type));
    std::vector<std::vector<std::byte>> on_host;
    std::vector<Buffer<std::byte>> on_device;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      on_host.push_back(test::make_input(static_cast<DataType>(type), size_bytes, rank));
      on_device.emplace_back(cuda_.device(static_cast<int>(rank)), on_host.back());
    }
    cuda_.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
      std::byte* const data = on_device[static_cast<size_t>(rank)].data();
      return ncclAllReduce(data, data, kCount, type, reduction.make(type, comm), comm, stream);
    });
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int rank = 0; rank < kRanks; ++rank) {
      std::byte* const data = on_host[static_cast<size_t>(rank)].data();
      ASSERT_EQ(ncclAllReduce(data, data, kCount, type, reduction.make(type, host_.comm(rank)),
                              host_.comm(rank), nullptr),
                ncclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    cuda_.synchronize();
    for (size_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(on_device[rank].values(), on_host[rank]) << "rank " << rank;
    }
  }

  void SetUp() override {
    for (const ncclComm_t comm : {cuda_.comm(0), host_.comm(0)}) {
      ASSERT_NE(comm, nullptr);
    }
  }

 private:
  Setting algorithm_{"NCCL_ALGO", GetParam().algorithm};
  Setting protocol_{"NCCL_PROTO", GetParam().protocol};
  Job cuda_{{0, 0, 1}};
  HostJob host_;
};

TEST_P(SameBits, AsHostRanksForEveryTypeAndReduction) {
  for (int type = 0; type < ncclNumTypes; ++type) {
    for (const Reduction& reduction : kReductions) {
      SCOPED_TRACE(testing::Message() << "type " << type << " " << reduction.name);
      expect_same(static_cast<ncclDataType_t>(type), reduction);
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DeviceRanks,
                         SameBits,
                         testing::Values(Case{"ring", "LL"},
                                         Case{"ring", "LL128"},
                                         Case{"ring", "Simple"},
                                         Case{"tree", "LL"},
                                         Case{"tree", "LL128"},
                                         Case{"tree", "Simple"},
                                         Case{"allpairs", "LL"},
                                         Case{"allpairs", "LL128"},
                                         Case{"allpairs", "Simple"}),
                         [](const auto& row) {
                           return std::string(row.param.algorithm) + "_" + row.param.protocol;
                         });

}  // namespace
}  // namespace plexus::testing_device
