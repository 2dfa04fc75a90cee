// SPDX-License-Identifier: Apache-2.0
#include "core/base/text.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(Lower, ChangesAsciiLettersAndNothingElse) {
  EXPECT_EQ(lower("Net-IB_0 ÄZ[`a{"), "net-ib_0 Äz[`a{");
  EXPECT_EQ(lower(""), "");
}

}  // namespace
}  // namespace plexus
