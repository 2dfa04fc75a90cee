// SPDX-License-Identifier: Apache-2.0
// ncclCommQueryProperties and ncclTeam*: what they say of host ranks, and bad arguments.
#include <array>
#include <cstddef>
#include <cstring>
#include <nccl_device.h>

#include "tests/ranks/job.hpp"

namespace plexus::testing_job {
namespace {

using Triple = std::array<int, 3>;
Triple triple(const ncclTeam_t& team) { return {team.nRanks, team.rank, team.stride}; }

TEST(Teams, RanksOfOneHostAreOneTeamAndEachARailOfItsOwn) {
  Job job(3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(triple(ncclTeamWorld(job.comm(rank))), (Triple{3, rank, 1}));
    EXPECT_EQ(triple(ncclTeamLsa(job.comm(rank))), (Triple{3, rank, 1}));
    EXPECT_EQ(triple(ncclTeamRail(job.comm(rank))), (Triple{1, 0, 3}));
  }
}

TEST(Teams, RanksThatOnlyANetworkConnectsAreTeamsOfOne) {
  setenv("NCCL_SHM_DISABLE", "1", 1);
  setenv("NCCL_P2P_DISABLE", "1", 1);
  {
    Job job(3);
    EXPECT_EQ(triple(ncclTeamLsa(job.comm(2))), (Triple{1, 0, 1}));
    EXPECT_EQ(triple(ncclTeamRail(job.comm(2))), (Triple{3, 2, 1}));
    ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
    EXPECT_EQ(ncclCommQueryProperties(job.comm(2), &properties), ncclSuccess);
    EXPECT_EQ(properties.nLsaTeams, 3);
  }
  unsetenv("NCCL_SHM_DISABLE");
  unsetenv("NCCL_P2P_DISABLE");
}

TEST(Teams, ARankOfATeamIsTranslated) {
  Job job(3);
  const ncclTeam_t world = ncclTeamWorld(job.comm(1));
  EXPECT_EQ(ncclTeamRankToWorld(job.comm(1), world, 2), 2);
  EXPECT_EQ(ncclTeamRankToLsa(job.comm(1), world, 0), 0);
  EXPECT_EQ(ncclTeamRankToWorld(job.comm(1), ncclTeamRail(job.comm(1)), 0), 1);
}

TEST(Teams, WithoutACommunicatorThereIsNone) {
  EXPECT_EQ(triple(ncclTeamWorld(nullptr)), (Triple{0, 0, 0}));
  EXPECT_EQ(triple(ncclTeamLsa(nullptr)), (Triple{0, 0, 0}));
  EXPECT_EQ(ncclTeamRankToWorld(nullptr, {}, 0), -1);
}

TEST(Properties, SayWhatACommunicatorIs) {
  Job job(2);
  ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  ASSERT_EQ(ncclCommQueryProperties(job.comm(1), &properties), ncclSuccess);
  EXPECT_EQ(properties.rank, 1);
  EXPECT_EQ(properties.nRanks, 2);
  EXPECT_EQ(properties.cudaDev, -1);
  EXPECT_EQ(properties.nLsaTeams, 1);
  EXPECT_FALSE(properties.deviceApiSupport);
  EXPECT_EQ(properties.ginType, NCCL_GIN_TYPE_NONE);
  ncclCommProperties_t other = NCCL_COMM_PROPERTIES_INITIALIZER;
  ASSERT_EQ(ncclCommQueryProperties(job.comm(0), &other), ncclSuccess);
  EXPECT_EQ(properties.commHash, other.commHash);
  EXPECT_NE(properties.commHash, 0U);
}

TEST(Properties, NothingIsWrittenBeyondTheCallersRelease) {
  Job job(1);
  constexpr size_t kOldBytes = 56;  // of releases before 2.31
  std::array<std::byte, sizeof(ncclCommProperties_t)> bytes{};
  bytes.fill(std::byte{0x5a});
  ncclCommProperties_t old = NCCL_COMM_PROPERTIES_INITIALIZER;
  old.size = kOldBytes;
  old.version = 23007;
  std::memcpy(bytes.data(), &old, kOldBytes);
  ASSERT_EQ(
      ncclCommQueryProperties(job.comm(0), reinterpret_cast<ncclCommProperties_t*>(bytes.data())),
      ncclSuccess);
  for (size_t i = kOldBytes; i < bytes.size(); ++i) {
    EXPECT_EQ(bytes[i], std::byte{0x5a}) << i;
  }
}

TEST(Properties, BadArgumentsHaveNcclsCodes) {
  Job job(1);
  ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  EXPECT_EQ(ncclCommQueryProperties(nullptr, &properties), ncclInvalidArgument);
  EXPECT_EQ(ncclCommQueryProperties(job.comm(0), nullptr), ncclInvalidArgument);
  properties.magic = 0;
  EXPECT_EQ(ncclCommQueryProperties(job.comm(0), &properties), ncclInvalidUsage);
}

}  // namespace
}  // namespace plexus::testing_job
