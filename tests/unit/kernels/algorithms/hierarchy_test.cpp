// SPDX-License-Identifier: Apache-2.0
#include "kernels/algorithms/hierarchy.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(Hierarchy, SharesAsManyChunksAsMembersOneByOneUpToAMillion) {
  for (const int count : {3, 46'341, 100'000, 1'000'000}) {  // 46,341 squared is above 2^31
    for (const int member : {0, 1, count / 2, count - 1}) {
      EXPECT_EQ(share_of(member, count, count), member) << count;
      EXPECT_EQ(first_of(member, count, count), member) << count;
    }
  }
}

}  // namespace
}  // namespace plexus
