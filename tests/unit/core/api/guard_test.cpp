// SPDX-License-Identifier: Apache-2.0
#include "core/api/guard.hpp"

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(Guard, SuccessAndErrorsBecomeTheirResults) {
  EXPECT_EQ(guard([]() -> Result<void> { return ok(); }), ncclSuccess);
  EXPECT_EQ(guard([]() -> Result<void> { return fail(Code::kTimeout, "rank 2 is late"); }),
            ncclTimeout);
  EXPECT_STREQ(last_error_text(), "rank 2 is late");
}

TEST(Guard, NoExceptionEscapes) {
  EXPECT_EQ(guard([]() -> Result<void> { throw std::bad_alloc(); }), ncclSystemError);
  EXPECT_STREQ(last_error_text(), "out of memory");
  EXPECT_EQ(guard([]() -> Result<void> { throw std::runtime_error("odd"); }), ncclInternalError);
  EXPECT_STREQ(last_error_text(), "unexpected exception: odd");
  EXPECT_EQ(guard([]() -> Result<void> { throw 7; }), ncclInternalError);
}

TEST(Guard, InProgressIsNoLoggedError) {
  ASSERT_EQ(guard([]() -> Result<void> { return fail(Code::kInvalidUsage, "the last error"); }),
            ncclInvalidUsage);
  EXPECT_EQ(guard([]() -> Result<void> { return fail(Code::kInProgress, "not ready"); }),
            ncclInProgress);
  EXPECT_STREQ(last_error_text(), "the last error");
}

}  // namespace
}  // namespace plexus
