// SPDX-License-Identifier: Apache-2.0
#include "core/base/text.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(Lower, ChangesAsciiLettersAndNothingElse) {
  EXPECT_EQ(lower("Net-IB_0 ÄZ[`a{"), "net-ib_0 Äz[`a{");
  EXPECT_EQ(lower(""), "");
}

TEST(Counted, OneIsSingular) {
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(12, "message"), "12 messages");
}

}  // namespace
}  // namespace plexus
