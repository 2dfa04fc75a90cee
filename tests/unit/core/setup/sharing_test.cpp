// SPDX-License-Identifier: Apache-2.0
#include "core/setup/sharing.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<SharingReport> reports(const std::vector<std::vector<uint32_t>>& refused) {
  std::vector<SharingReport> all;
  for (const auto& each : refused) {
    all.push_back({.refused = each, .why = each.empty() ? "" : "cannot open it"});
  }
  return all;
}

TEST(Sharing, IsolatesTheFewestRanks) {
  EXPECT_THAT(list_isolated(reports({{}, {}, {}})), IsEmpty());
  EXPECT_THAT(list_isolated(reports({{2}, {2}, {}})), ElementsAre(2));
  EXPECT_THAT(list_isolated(reports({{}, {}, {0, 1}})), ElementsAre(2)) << "either direction";
  EXPECT_THAT(list_isolated(reports({{0}, {}, {}})), ElementsAre(0)) << "can make no memory";
  EXPECT_EQ(list_isolated(reports({{1, 2}, {0, 2}, {0, 1}})).size(), 2U);
  // 0 and 1 share, 2 and 3 do, but not with each other: two of them go.
  EXPECT_EQ(list_isolated(reports({{2, 3}, {2, 3}, {0, 1}, {0, 1}})).size(), 2U);
}

TEST(Sharing, SurvivesItsBytes) {
  SharingReport report{.user_namespace = 7, .user = 8, .is_dumpable = 0, .refused = {1, 3}};
  report.why = "because";
  const auto read = decode_sharing_report(encode(report), 4);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read.value().user_namespace, 7U);
  EXPECT_EQ(read.value().user, 8U);
  EXPECT_EQ(read.value().is_dumpable, 0);
  EXPECT_THAT(read.value().refused, ElementsAre(1, 3));
  EXPECT_EQ(read.value().why, "because");
  EXPECT_TRUE(decode_sharing_report(encode(report), 3).has_error()) << "no rank 3";
  EXPECT_TRUE(decode_sharing_report(encode(report).substr(0, 18), 4).has_error());
}

TEST(Sharing, NamesTheCause) {
  std::vector<PeerInfo> infos(2);
  auto found = reports({{1}, {}});
  EXPECT_THAT(describe_isolation(found, infos), HasSubstr("cannot open it"));
  found[1].is_dumpable = 0;
  EXPECT_THAT(describe_isolation(found, infos), HasSubstr("not dumpable"));
  found[1].user_namespace = 5;
  EXPECT_THAT(describe_isolation(found, infos), HasSubstr("user namespaces"));
}

/// Two ranks in "two" processes, which are this one.
std::vector<PeerInfo> make_infos(GroupCache<SharedMemory>& shown,
                                 std::vector<std::shared_ptr<const SharedMemory>>& held) {
  std::vector<PeerInfo> infos(2);
  for (size_t rank = 0; rank < infos.size(); ++rank) {
    infos[rank].process_id = 1 + rank;
    infos[rank].pid = getpid();
    held.push_back(show_memory(shown, 1 + rank, infos[rank]));
  }
  return infos;
}

TEST(Sharing, TriesTheMemoryOfPeers) {
  GroupCache<SharedMemory> shown;
  std::vector<std::shared_ptr<const SharedMemory>> held;
  auto infos = make_infos(shown, held);
  EXPECT_THAT(try_to_share(0, infos, 1 << 20).refused, IsEmpty());
  infos[1].process_id += 1;  // another process has that number in its namespace
  EXPECT_THAT(try_to_share(0, infos, 1 << 20).refused, ElementsAre(1));
  infos[1].shm_disable = 1;
  EXPECT_THAT(try_to_share(0, infos, 1 << 20).refused, IsEmpty());
}

TEST(Sharing, AsksForNoFileThatTheLimitForbids) {
  GroupCache<SharedMemory> shown;
  std::vector<std::shared_ptr<const SharedMemory>> held;
  const auto infos = make_infos(shown, held);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{.rlim_cur = 64 << 10, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const SharingReport report = try_to_share(1, infos, 1 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(report.refused, ElementsAre(1));
  EXPECT_THAT(report.why, HasSubstr("ulimit -f"));
}

}  // namespace
}  // namespace plexus
