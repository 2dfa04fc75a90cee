// SPDX-License-Identifier: Apache-2.0
// `Result`, `Error` and `PLEXUS_TRY`: what every other folder relies on when something fails.
#include "core/base/result.hpp"

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using ::testing::EndsWith;

Result<int> parse_digit(char text) {
  if (text < '0' || text > '9') {
    return fail(Code::kInvalidArgument, "'{}' is not a digit", text);
  }
  return text - '0';
}

Result<int> sum_digits(char first, char second, int* ncalls) {
  PLEXUS_TRY(a, parse_digit(first));
  ++*ncalls;
  PLEXUS_TRY(b, parse_digit(second));
  ++*ncalls;
  return a + b;
}

Result<> check_even(int value) {
  if (value % 2 != 0) {
    return fail(Code::kInvalidUsage, "{} is odd", value);
  }
  return ok();
}

Result<std::string> describe_even(int value) {
  PLEXUS_TRY(check_even(value));
  return fmt::format("{} is even", value);
}

TEST(Result, CarriesTheValueOfASuccess) {
  const Result<int> result = parse_digit('7');
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result.value(), 7);
}

TEST(Result, CarriesCodeAndFormattedTextOfAFailure) {
  const Result<int> result = parse_digit('x');
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(result.error().message(), "'x' is not a digit");
}

TEST(Result, HoldsMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(41);
  ASSERT_TRUE(result.has_value());
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 41);
}

TEST(Try, BindsTheValueAndGoesOn) {
  int ncalls = 0;
  const Result<int> result = sum_digits('4', '5', &ncalls);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result.value(), 9);
  EXPECT_EQ(ncalls, 2);
}

TEST(Try, ReturnsTheFirstFailureAndRunsNothingAfterIt) {
  int ncalls = 0;
  const Result<int> result = sum_digits('?', '!', &ncalls);
  ASSERT_TRUE(result.has_error());
  EXPECT_EQ(result.error().message(), "'?' is not a digit");
  EXPECT_EQ(ncalls, 0);
}

TEST(Try, PassesAFailureOnToAnotherValueType) {
  const Result<std::string> odd = describe_even(3);
  ASSERT_TRUE(odd.has_error());
  EXPECT_EQ(odd.error().code(), Code::kInvalidUsage);
  EXPECT_EQ(odd.error().message(), "3 is odd");

  const Result<std::string> even = describe_even(4);
  ASSERT_TRUE(even.has_value());
  EXPECT_EQ(even.value(), "4 is even");
}

TEST(Error, RemembersWhereItWasMade) {
  const int line_before = __LINE__;
  const Error error = fail(Code::kSystemError, "no space on {}", "/dev/shm");
  EXPECT_EQ(error.line(), line_before + 1);
  EXPECT_THAT(error.file(), EndsWith("result_test.cpp"));
}

TEST(Error, PutsContextInFrontAndKeepsCodeAndOrigin) {
  Error error = fail(Code::kRemoteError, "connection closed");
  const int line = error.line();
  error = std::move(error).with_context("rank 3");
  error = std::move(error).with_context("all_reduce");
  EXPECT_EQ(error.message(), "all_reduce: rank 3: connection closed");
  EXPECT_EQ(error.code(), Code::kRemoteError);
  EXPECT_EQ(error.line(), line);
}

TEST(Error, ClonesAreIndependent) {
  Error first = fail(Code::kTimeout, "rank 1 did not come");
  const Error second = first.clone();
  first = std::move(first).with_context("split");
  EXPECT_EQ(first.message(), "split: rank 1 did not come");
  EXPECT_EQ(second.message(), "rank 1 did not come");
  EXPECT_EQ(second.code(), Code::kTimeout);
}

TEST(Error, TextWithBracesInArgumentsIsNotFormattedAgain) {
  Error error = fail(Code::kInvalidArgument, "NCCL_ALGO is '{}'", "{ring}");
  EXPECT_EQ(error.message(), "NCCL_ALGO is '{ring}'");
  EXPECT_EQ(std::move(error).with_context("{0}").message(), "{0}: NCCL_ALGO is '{ring}'");
}

// The ABI boundary casts a Code to ncclResult_t without a table, so the numbers are part of the
// contract.
static_assert(static_cast<int>(Code::kSuccess) == 0);
static_assert(static_cast<int>(Code::kInvalidArgument) == 4);
static_assert(static_cast<int>(Code::kRemoteError) == 6);
static_assert(static_cast<int>(Code::kTimeout) == 8);
static_assert(!std::is_copy_constructible_v<Error>);
static_assert(std::is_nothrow_move_constructible_v<Result<>>);

}  // namespace
}  // namespace plexus
