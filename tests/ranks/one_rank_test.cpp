// SPDX-License-Identifier: Apache-2.0
// A communicator of one rank copies, whatever the settings are.
#include <array>
#include <cstdlib>
#include <ostream>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing_job::Job;

struct Forced {
  const char* variable;
  const char* value;
};
void PrintTo(const Forced& forced, std::ostream* out) {
  *out << forced.variable << '=' << forced.value;
}

class OneRank : public testing::TestWithParam<Forced> {};

TEST_P(OneRank, EveryCallIsACopy) {
  setenv(GetParam().variable, GetParam().value, 1);
  const Job job(1);
  unsetenv(GetParam().variable);
  const ncclComm_t comm = job.comm(0);
  const std::array<float, 4> in{1, 2, 3, 4};
  std::array<float, 4> out{};
  const auto copies = [&](ncclResult_t result) {
    EXPECT_EQ(result, ncclSuccess) << ncclGetLastError(nullptr);
    EXPECT_EQ(out, in);
    out.fill(0);
  };
  const float* const from = in.data();
  float* const to = out.data();
  copies(ncclAllReduce(from, to, 4, ncclFloat, ncclSum, comm, nullptr));
  copies(ncclAllReduce(from, to, 4, ncclFloat, ncclAvg, comm, nullptr));
  copies(ncclReduce(from, to, 4, ncclFloat, ncclMax, 0, comm, nullptr));
  copies(ncclBroadcast(from, to, 4, ncclFloat, 0, comm, nullptr));
  copies(ncclAllGather(from, to, 4, ncclFloat, comm, nullptr));
  copies(ncclReduceScatter(from, to, 4, ncclFloat, ncclSum, comm, nullptr));
  copies(ncclAlltoAll(from, to, 4, ncclFloat, comm, nullptr));
  copies(ncclGather(from, to, 4, ncclFloat, 0, comm, nullptr));
  copies(ncclScatter(from, to, 4, ncclFloat, 0, comm, nullptr));
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclSend(from, 4, ncclFloat, 0, comm, nullptr), ncclSuccess);
  EXPECT_EQ(ncclRecv(to, 4, ncclFloat, 0, comm, nullptr), ncclSuccess);
  copies(ncclGroupEnd());
}

INSTANTIATE_TEST_SUITE_P(Settings,
                         OneRank,
                         testing::Values(Forced{"NCCL_PROTO", "LL"},
                                         Forced{"NCCL_PROTO", "LL128"},
                                         Forced{"NCCL_PROTO", "^Simple"},
                                         Forced{"NCCL_PROTO", "allreduce:LL;broadcast:LL128"},
                                         Forced{"NCCL_ALGO", "NVLS"},
                                         Forced{"NCCL_ALGO", "collnetdirect"},
                                         Forced{"NCCL_ALGO", "tree"},
                                         Forced{"NCCL_ALGO", "dcpairs"},
                                         Forced{"NCCL_ALGO", "^allpairs,ring"},
                                         Forced{"PLEXUS_DETERMINISTIC", "1"}));

}  // namespace
}  // namespace plexus
