// SPDX-License-Identifier: Apache-2.0
#include "core/device/host_stream.hpp"

#include <memory>
#include <thread>

#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(HostStream, AMarkIsReachedWithTheWorkThatWasThere) {
  HostStream stream;
  stream.begin();
  stream.begin();
  const auto mark = stream.mark();
  stream.begin();
  stream.end(nullptr);
  EXPECT_FALSE(mark->reached());
  stream.end(nullptr);
  EXPECT_TRUE(mark->reached());
  EXPECT_EQ(mark->error(), nullptr);
  EXPECT_FALSE(stream.query().value());
}

TEST(HostStream, AMarkOfAnIdleStreamIsReached) {
  HostStream stream;
  EXPECT_TRUE(stream.mark()->reached());
  stream.begin();
  stream.end(nullptr);
  EXPECT_TRUE(stream.mark()->reached());
}

TEST(HostStream, AMarkHasTheFailuresBeforeItAndNoneAfter) {
  HostStream stream;
  const auto error = std::make_shared<const Error>(fail(Code::kRemoteError, "rank 1 died"));
  stream.begin();
  const auto before = stream.mark();
  stream.begin();
  const auto after = stream.mark();
  stream.end(nullptr);
  stream.end(error);
  EXPECT_EQ(before->error(), nullptr);
  ASSERT_NE(after->error(), nullptr);
  EXPECT_EQ(after->error()->message(), "rank 1 died");
  EXPECT_EQ(stream.mark()->error()->code(), Code::kRemoteError);
}

TEST(HostStream, AMarkOutlivesItsStream) {
  auto stream = std::make_unique<HostStream>();
  stream->begin();
  const auto mark = stream->mark();
  stream->end(nullptr);
  stream.reset();
  EXPECT_TRUE(mark->reached());
}

TEST(HostStream, AThreadWaitsForAMark) {
  HostStream stream;
  stream.begin();
  const auto mark = stream.mark();
  std::thread waiter([&] { mark->wait(); });
  stream.end(nullptr);
  waiter.join();
}

TEST(HostStream, KeepsItsFirstErrorForEveryLaterQuery) {
  HostStream stream;
  const auto first = std::make_shared<const Error>(fail(Code::kRemoteError, "rank 1 died"));
  const auto second = std::make_shared<const Error>(fail(Code::kTimeout, "rank 2 is late"));
  stream.begin();
  stream.begin();
  stream.end(first);
  EXPECT_EQ(stream.query().error().message(), "rank 1 died") << "although work is pending";
  stream.end(second);
  EXPECT_EQ(stream.wait().error().message(), "rank 1 died");
  stream.begin();
  stream.end(nullptr);
  EXPECT_EQ(stream.query().error().code(), Code::kRemoteError);
}

TEST(HostStream, WaitReturnsWhenAnotherThreadEndsTheWork) {
  HostStream stream;
  EXPECT_TRUE(stream.wait().has_value()) << "idle";
  stream.begin();
  std::thread worker([&] { stream.end(nullptr); });
  EXPECT_TRUE(stream.wait().has_value());
  EXPECT_TRUE(stream.query().value());
  worker.join();
}

TEST(HostEvent, RecordedAgainHasTheLaterMark) {
  HostStream stream;
  HostEvent event;
  EXPECT_EQ(event.last(), nullptr);
  event.record(stream);
  EXPECT_TRUE(event.last()->reached());
  stream.begin();
  event.record(stream);
  EXPECT_FALSE(event.last()->reached());
  stream.end(nullptr);
  EXPECT_TRUE(event.last()->reached());
}

}  // namespace
}  // namespace plexus
