// SPDX-License-Identifier: Apache-2.0
// Rules for every call.
#include "tools/conformance/monitor.hpp"

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

using testing::HasSubstr;

class MonitorTest : public testing::Test {
 protected:
  void say(int32_t level, const char* text) {
    Monitor::write_line(monitor_.sink(), level, "file", 1, text);
  }
  std::string breach() const { return status_.has_broken_text ? status_.broken.get() : ""; }
  ProcessStatus status_;
  Monitor monitor_{status_};
};

TEST_F(MonitorTest, AWellBehavedCallIsNoBreach) {
  EXPECT_EQ(monitor_.call(Place::kIsend, [] { return PLEXUS_AGAIN; }), PLEXUS_AGAIN);
  EXPECT_EQ(monitor_.call(Place::kIsend,
                          [&] {
                            say(PLEXUS_LOG_ERROR, "the peer is gone");
                            return PLEXUS_REMOTE_ERROR;
                          }),
            PLEXUS_REMOTE_ERROR);
  EXPECT_EQ(monitor_.last_failure(), "the peer is gone");
  EXPECT_EQ(monitor_.last_failure_lines(), 1u);
  EXPECT_EQ(breach(), "");
}

TEST_F(MonitorTest, AnExceptionIsABreach) {
  monitor_.call(Place::kAccept, []() -> int32_t { throw std::runtime_error("out"); });
  EXPECT_THAT(breach(), HasSubstr("exception escaped from accept"));
}

TEST_F(MonitorTest, AFailureWithoutAReasonIsABreach) {
  monitor_.call(Place::kListen, [] { return PLEXUS_SYSTEM_ERROR; });
  EXPECT_THAT(breach(), HasSubstr("without a PLEXUS_LOG_ERROR line"));
}

TEST_F(MonitorTest, AgainWhereItMayNotBeIsABreach) {
  monitor_.call(Place::kRegisterSend, [] { return PLEXUS_AGAIN; });
  EXPECT_THAT(breach(), HasSubstr("register_send returned PLEXUS_AGAIN"));
}

TEST_F(MonitorTest, AnUnknownCodeIsABreach) {
  monitor_.call(Place::kTest, [] { return -11; });
  EXPECT_THAT(breach(), HasSubstr("-11"));
}

TEST_F(MonitorTest, AReasonWithoutAFailureIsABreach) {
  monitor_.call(Place::kTest, [&] {
    say(PLEXUS_LOG_ERROR, "oh");
    return PLEXUS_OK;
  });
  EXPECT_THAT(breach(), HasSubstr("oh"));
}

TEST_F(MonitorTest, AnUnknownLevelIsABreach) {
  say(4, "abort");
  EXPECT_THAT(breach(), HasSubstr("level 4"));
}

TEST_F(MonitorTest, MeasuresCallsOfTheThreadThatIsMeasured) {
  monitor_.call(Place::kTest, [] { return PLEXUS_AGAIN; });
  EXPECT_EQ(monitor_.times(Place::kTest).calls, 0u);
  monitor_.measure_this_thread();
  for (int i = 0; i < 3; ++i) {
    monitor_.call(Place::kTest, [] { return PLEXUS_AGAIN; });
  }
  EXPECT_EQ(monitor_.times(Place::kTest).calls, 3u);
  EXPECT_GE(monitor_.times(Place::kTest).longest.count(), 0);
  EXPECT_EQ(monitor_.times(Place::kIsend).calls, 0u);
}

TEST(GuardedBuffer, SeesEveryByteBesideAMessage) {
  const Bytes message = make_message(10, 1);
  for (const int64_t at : {-64, -1, 10, 19, 20, 60}) {
    GuardedBuffer target(20);
    std::copy(message.begin(), message.end(), target.data());
    EXPECT_TRUE(target.expect_message(message).has_value());
    target.data()[at] = std::byte{1};
    EXPECT_TRUE(target.expect_message(message).has_error()) << at;
  }
}

TEST(GuardedBuffer, SeesAWrongByte) {
  const Bytes message = make_message(1000, 1);
  GuardedBuffer target(1000, 3);
  std::copy(message.begin(), message.end(), target.data());
  target.data()[999] ^= std::byte{1};
  const auto checked = target.expect_message(message);
  ASSERT_TRUE(checked.has_error());
  EXPECT_THAT(checked.error().message(), HasSubstr("byte 999"));
}

TEST(Message, DependsOnItsSeed) {
  EXPECT_EQ(make_message(100, 1), make_message(100, 1));
  EXPECT_NE(make_message(100, 1), make_message(100, 2));
}

}  // namespace
}  // namespace plexus::conformance
