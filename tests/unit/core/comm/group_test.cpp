// SPDX-License-Identifier: Apache-2.0
// Groups by what they do with jobs that make and end communicators, which need no communicator
// here: nesting, failures, threads. Calls of groups are tested with ranks
// (tests/ranks/group_test.cpp).
#include "core/comm/group.hpp"

#include <chrono>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::chrono::seconds kPatience{60};

/// Adds a job that appends `name` to `done`.
void add_job(std::vector<std::string>& done, const std::string& name) {
  Group::current().add([&done, name]() -> Result<void> {
    done.push_back(name);
    return ok();
  });
}

std::string refusal(const Result<void>& result) {
  return result.has_error() ? std::string(result.error().message()) : "";
}

TEST(Group, RunsItsJobsOnceAtTheOutermostEnd) {
  std::vector<std::string> done;
  EXPECT_FALSE(Group::open());
  Group::start();
  Group::start();
  add_job(done, "made");
  EXPECT_TRUE(Group::end().has_value());
  EXPECT_TRUE(Group::open());
  EXPECT_THAT(done, IsEmpty());
  EXPECT_TRUE(Group::end().has_value());
  EXPECT_FALSE(Group::open());
  EXPECT_THAT(done, ElementsAre("made"));
  Group::start();
  EXPECT_TRUE(Group::end().has_value());
  EXPECT_THAT(done, ElementsAre("made")) << "the next group has no part of the last";
}

TEST(Group, AnEndWithoutAStartIsRefused) {
  EXPECT_THAT(refusal(Group::end()), HasSubstr("ncclGroupEnd without ncclGroupStart"));
  const auto simulated = Group::simulate_end();
  ASSERT_TRUE(simulated.has_error());
  EXPECT_THAT(simulated.error().message(), HasSubstr("without ncclGroupStart"));
  EXPECT_FALSE(Group::open());
}

TEST(Group, OneThatFailedRunsNothingAndTheNextIsWell) {
  std::vector<std::string> done;
  Group::start();
  Group::start();
  add_job(done, "first");
  fail_group(fail(Code::kInvalidArgument, "a bad argument"));
  EXPECT_TRUE(group_end().has_value()) << "the outermost end tells";
  EXPECT_EQ(refusal(group_end()), "a bad argument");
  EXPECT_THAT(done, IsEmpty());
  Group::start();
  add_job(done, "second");
  EXPECT_TRUE(Group::end().has_value());
  EXPECT_THAT(done, ElementsAre("second"));
}

TEST(Group, AFailureOutsideOfGroupsFailsNoLaterOne) {
  fail_group(fail(Code::kInvalidArgument, "a bad argument"));
  Group::start();
  EXPECT_TRUE(Group::end().has_value());
}

TEST(Group, JobsRunSideBySideInThreadsOfTheirOwn) {
  std::promise<void> told;
  std::thread::id teller;
  std::thread::id hearer;
  Group::start();
  Group::current().add([&]() -> Result<void> {  // waits for the one after it
    hearer = std::this_thread::get_id();
    return told.get_future().wait_for(kPatience) == std::future_status::ready
               ? Result<void>(ok())
               : fail(Code::kInternalError, "the other job did not run");
  });
  Group::current().add([&]() -> Result<void> {
    teller = std::this_thread::get_id();
    told.set_value();
    return ok();
  });
  EXPECT_EQ(refusal(Group::end()), "");
  EXPECT_EQ((std::set{teller, hearer, std::this_thread::get_id()}.size()), 3U);
}

TEST(Group, ASingleJobRunsInTheCallingThread) {
  std::thread::id runner;
  Group::start();
  Group::current().add([&]() -> Result<void> {
    runner = std::this_thread::get_id();
    return fail(Code::kSystemError, "alone");
  });
  EXPECT_EQ(refusal(Group::end()), "alone");
  EXPECT_EQ(runner, std::this_thread::get_id());
}

TEST(Group, OfSeveralFailuresThatOfTheFirstJobIsTold) {
  std::vector<std::string> done;
  Group::start();
  add_job(done, "well");
  for (const char* const text : {"first", "second"}) {
    Group::current().add([text]() -> Result<void> { return fail(Code::kSystemError, "{}", text); });
  }
  EXPECT_EQ(refusal(Group::end()), "first");
  EXPECT_THAT(done, ElementsAre("well"));
}

TEST(Group, IsOfOneThread) {
  std::vector<std::string> done;
  Group::start();
  add_job(done, "mine");
  auto other = std::async(std::launch::async, [] {
    const bool was_open = Group::open();
    Group::start();
    return !was_open && Group::end().has_value();
  });
  EXPECT_TRUE(other.get());
  EXPECT_TRUE(Group::open());
  EXPECT_THAT(done, IsEmpty());
  EXPECT_TRUE(Group::end().has_value());
  EXPECT_THAT(done, ElementsAre("mine"));
}

TEST(Group, ASimulatedEndRunsNothing) {
  std::vector<std::string> done;
  Group::start();
  Group::start();
  add_job(done, "never");
  const auto inner = Group::simulate_end();
  ASSERT_TRUE(inner.has_value());
  EXPECT_FALSE(inner.value().has_value()) << "it is not the outermost end";
  EXPECT_TRUE(Group::open());
  const auto outer = Group::simulate_end();
  ASSERT_TRUE(outer.has_error());
  EXPECT_THAT(outer.error().message(), HasSubstr("makes or ends communicators"));
  EXPECT_FALSE(Group::open());
  EXPECT_THAT(done, IsEmpty());
  Group::start();
  const auto empty = Group::simulate_end();
  ASSERT_TRUE(empty.has_value());
  EXPECT_EQ(empty.value(), 0.0);
  Group::start();
  EXPECT_TRUE(Group::end().has_value()) << "a simulated group leaves no failure behind";
}

}  // namespace
}  // namespace plexus
