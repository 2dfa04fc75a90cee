// SPDX-License-Identifier: Apache-2.0
#include "core/setup/agreement.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::vector<PeerInfo> make_ranks(size_t count) {
  std::vector<PeerInfo> infos(count);
  for (size_t rank = 0; rank < count; ++rank) {
    std::strncpy(infos[rank].host, ("node" + std::to_string(rank)).c_str(),
                 sizeof(infos[rank].host) - 1);
  }
  return infos;
}

/// `texts`: of the setting that differs, by rank.
Result<void> check(const std::vector<PeerInfo>& infos, const std::vector<std::string>& texts = {}) {
  return check_agreement(infos, Config(),
                         [&](const std::string&) -> Result<Gathered> { return Gathered(texts); });
}

std::string refusal_of(const std::vector<PeerInfo>& infos,
                       const std::vector<std::string>& texts = {}) {
  const auto checked = check(infos, texts);
  EXPECT_TRUE(checked.has_error());
  EXPECT_EQ(checked.error().code(), Code::kInvalidUsage);
  return checked.error().message();
}

TEST(Agreement, IsThereWhenAllAreAlike) {
  EXPECT_TRUE(check(make_ranks(1)).has_value());
  EXPECT_TRUE(check(make_ranks(5)).has_value());
}

TEST(Agreement, NamesTheSettingTheValuesAndTheRanks) {
  auto infos = make_ranks(4);
  infos[2].deterministic = 1;
  EXPECT_THAT(refusal_of(infos), AllOf(HasSubstr("PLEXUS_DETERMINISTIC is '0' on ranks 0, 1, 3 "
                                                 "(node0) and '1' on rank 2 (node2)"),
                                       HasSubstr("the same value on all ranks")));
  infos = make_ranks(3);
  infos[0].algorithms = 5;
  EXPECT_THAT(refusal_of(infos, {"bogus", "", ""}),
              HasSubstr("NCCL_ALGO is 'bogus' on rank 0 (node0) and '' on ranks 1, 2 (node1)"));
  infos = make_ranks(2);
  infos[1].protocols = 5;
  EXPECT_THAT(refusal_of(infos, {"", "LL"}), HasSubstr("NCCL_PROTO is '' on rank 0"));
  infos = make_ranks(2);
  infos[1].programs = 5;
  EXPECT_THAT(refusal_of(infos), AllOf(HasSubstr("files in PLEXUS_PROGRAM_PATH is '0' on rank 0"),
                                       HasSubstr("give all ranks the same files")));
  infos = make_ranks(2);
  infos[1].version = 7;
  EXPECT_THAT(refusal_of(infos), HasSubstr("rank 1 (node1) runs Plexus 7"));
}

TEST(Agreement, NamesAFewOfManyRanks) {
  auto infos = make_ranks(100);
  infos[50].deterministic = 1;
  EXPECT_THAT(refusal_of(infos), HasSubstr("on ranks 0, 1, 2, 3, 4, 5, 6, 7 (node0) and 91 more "
                                           "and '1' on rank 50 (node50)"));
}

}  // namespace
}  // namespace plexus
