// SPDX-License-Identifier: Apache-2.0
// CUDA ranks produce the same bits as host ranks: every type, every reduction, three algorithms,
// every protocol, through the public API.
#include "kernels/layout/types.hpp"
#include "tests/device/job.hpp"
#include "tests/support/random_input.hpp"

namespace plexus::testing_device {
namespace {

constexpr int kRanks = 3;
constexpr size_t kCount = 5'003;
constexpr int kRoot = 1;

/// Host ranks in this process.
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

/// One rank's part of a collective, in place: a block of kCount elements for each rank.
struct Part {
  std::byte* data;
  std::byte* own_block;
  ncclDataType_t type;
  ncclRedOp_t op;
  ncclComm_t comm;
  DeviceStream stream;
};
using InPlace = ncclResult_t (*)(const Part& part);

/// CUDA ranks and host ranks that do the same.
class BothKinds {
 public:
  void expect_same(ncclDataType_t type, const Reduction& reduction, InPlace call) {
    const size_t block_bytes = kCount * element_size(static_cast<DataType>(type));
    const size_t size_bytes = kRanks * block_bytes;
    std::vector<std::vector<std::byte>> on_host;
    std::vector<Buffer<std::byte>> on_device;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      on_host.push_back(test::make_input(static_cast<DataType>(type), size_bytes, rank));
      on_device.emplace_back(cuda_.device(static_cast<int>(rank)), on_host.back());
    }
    cuda_.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
      const auto r = static_cast<size_t>(rank);
      std::byte* const data = on_device[r].data();
      return call({data, data + r * block_bytes, type, reduction.make(type, comm), comm, stream});
    });
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int rank = 0; rank < kRanks; ++rank) {
      const ncclComm_t comm = host_.comm(rank);
      const auto r = static_cast<size_t>(rank);
      std::byte* const data = on_host[r].data();
      ASSERT_EQ(
          call({data, data + r * block_bytes, type, reduction.make(type, comm), comm, nullptr}),
          ncclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
    cuda_.synchronize();
    for (size_t rank = 0; rank < kRanks; ++rank) {
      ASSERT_EQ(on_device[rank].values(), on_host[rank]) << "rank " << rank;
    }
  }

 private:
  // Otherwise each kind of rank chooses its own number of channels.
  Setting channels_min_{"NCCL_MIN_CTAS", "2"};
  Setting channels_max_{"NCCL_MAX_CTAS", "2"};
  Job cuda_{{0, 0, 1}};
  HostJob host_;
};

ncclResult_t all_reduce(const Part& part) {
  return ncclAllReduce(part.data, part.data, kRanks * kCount, part.type, part.op, part.comm,
                       part.stream);
}

class SameBits : public testing::TestWithParam<Case> {};

TEST_P(SameBits, AsHostRanksForEveryTypeAndReduction) {
  const Setting algorithm("NCCL_ALGO", GetParam().algorithm);
  const Setting protocol("NCCL_PROTO", GetParam().protocol);
  BothKinds both;
  for (int type = 0; type < ncclNumTypes; ++type) {
    for (const Reduction& reduction : kReductions) {
      SCOPED_TRACE(testing::Message() << "type " << type << " " << reduction.name);
      both.expect_same(static_cast<ncclDataType_t>(type), reduction, all_reduce);
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

struct Other {
  const char* name;
  bool reduces;
  InPlace call;
};
const Other kOthers[] = {
    {"reduce", true,
     [](const Part& part) {
       return ncclReduce(part.data, part.data, kCount, part.type, part.op, kRoot, part.comm,
                         part.stream);
     }},
    {"reduce_scatter", true,
     [](const Part& part) {
       return ncclReduceScatter(part.data, part.own_block, kCount, part.type, part.op, part.comm,
                                part.stream);
     }},
    {"all_gather", false,
     [](const Part& part) {
       return ncclAllGather(part.own_block, part.data, kCount, part.type, part.comm, part.stream);
     }},
    {"broadcast", false,
     [](const Part& part) {
       return ncclBcast(part.data, kRanks * kCount, part.type, kRoot, part.comm, part.stream);
     }},
};

class SameBitsOf : public testing::TestWithParam<Other> {};

TEST_P(SameBitsOf, AsHostRanksForEveryType) {
  // otherwise each kind of rank chooses its own algorithm
  const Setting algorithm("NCCL_ALGO", "ring");
  BothKinds both;
  for (int type = 0; type < ncclNumTypes; ++type) {
    for (const Reduction& reduction : kReductions) {
      if (!GetParam().reduces && &reduction != kReductions) {
        continue;
      }
      SCOPED_TRACE(testing::Message() << "type " << type << " " << reduction.name);
      both.expect_same(static_cast<ncclDataType_t>(type), reduction, GetParam().call);
      if (HasFatalFailure()) {
        return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DeviceRanks, SameBitsOf, testing::ValuesIn(kOthers), [](const auto& row) {
  return std::string(row.param.name);
});

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
