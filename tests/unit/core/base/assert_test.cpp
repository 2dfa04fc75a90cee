// SPDX-License-Identifier: Apache-2.0
// What a failed assertion prints.
#include "guest/assert.hpp"

#include <string>

#include <gtest/gtest.h>

namespace plexus {
namespace {

enum class Colour { kRed, kGreen };

class Assert : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(Assert, PrintsExpressionPlaceAndValues) {
  const int used = 5;
  const std::string name = "slots";
  EXPECT_DEATH(PLEXUS_ASSERT(used < 4, used, name, Colour::kGreen, true),
               "assert_test.cpp:[0-9]+: .*'used < 4' does not hold "
               "\\(used, name, Colour::kGreen, true: 5, \"slots\", 1, true\\)");
  EXPECT_DEATH(PLEXUS_ASSERT(used < 4), "'used < 4' does not hold");
}

TEST_F(Assert, IsQuietWhereItHolds) {
  int calls = 0;
  PLEXUS_ASSERT(++calls == 1, calls);
  EXPECT_EQ(calls, 1) << "evaluated once";
}

TEST_F(Assert, AsksForTheFlightRecordOnce) {
  flight_record().store([] {
    std::fputs("rank 3 waits\n", stderr);
    PLEXUS_ASSERT(false);  // of a record that is itself wrong
  });
  EXPECT_DEATH(PLEXUS_ASSERT(1 > 2), "1 > 2.*\nrank 3 waits\n.*'false' does not hold");
  flight_record().store(nullptr);
}

TEST_F(Assert, OfTheDataPathIsCompiledOnlyWhereItIsOff) {
  int calls = 0;
  PLEXUS_DCHECK(++calls == 1);
#ifdef PLEXUS_DEBUG_CHECKS
  EXPECT_EQ(calls, 1);
  EXPECT_DEATH(PLEXUS_DCHECK(calls == 0, calls), "calls == 0.*: 1");
#else
  EXPECT_EQ(calls, 0);
#endif
}

}  // namespace
}  // namespace plexus
