// SPDX-License-Identifier: Apache-2.0
// The receiving end of a cross-DC connection, with a sender that the test plays. Both ends together
// are tested by xdc_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/transport/network/xdc_peer.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;
using test::XdcMessage;
using testing::HasSubstr;

class XdcRecv : public testing::Test {
 protected:
  explicit XdcRecv(uint32_t sockets = 1)
      : peer_(1, 2), end_(peer_.id(), peer_.options(milliseconds(20000), sockets)) {}

  bool progress() {
    const auto connected = end_.progress_connect();
    EXPECT_TRUE(connected.has_value()) << connected.error().message();
    return connected.has_error() || connected.value();
  }
  /// Calls, and lets itself be called, for the attempt that the end has begun.
  void call(uint64_t sockets) {
    progress();
    begun_ = peer_.take();
    ASSERT_TRUE(begun_.has_value());
    for (uint64_t i = 0; i < sockets; ++i) {
      data_.push_back(peer_.context().connect(0, begun_->handle));
    }
    listen_ = peer_.context().listen(0).value();
    acks_ = listen_->accept();
    try_connect(1);
    peer_.post({.kind = XdcMessage::kAcks, .epoch = 0, .count = 1, .handle = listen_->handle()});
  }
  /// Of the first `count` connections of the sender those that are next.
  void try_connect(size_t count) {
    while (met_ < count && data_[met_].try_connect().value() == NetProgress::kDone) {
      ++met_;
    }
  }
  /// Until the first `count` connections of the sender are made, and that for acknowledgements.
  bool is_met(size_t count) {
    return test::poll_until([&] {
      progress();
      try_connect(count);
      has_acks_ = has_acks_ || acks_->try_accept().value() == NetProgress::kDone;
      return met_ == count && has_acks_;
    });
  }

  test::XdcPeer peer_;
  XdcRecvEnd end_;
  std::optional<XdcMessage> begun_;
  std::vector<NetSend> data_;
  std::optional<NetListen> listen_;
  std::optional<NetRecv> acks_;
  size_t met_ = 0;
  bool has_acks_ = false;
};

TEST_F(XdcRecv, BeginsAndSaysWhereItListensAndWhatItHas) {
  EXPECT_FALSE(progress());
  const auto first = peer_.take();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->kind, XdcMessage::kListening);
  EXPECT_EQ(first->epoch, 0U);
  EXPECT_EQ(first->count, 0U);
  EXPECT_EQ(first->route, "Minimal 0");
  EXPECT_FALSE(progress());
  EXPECT_FALSE(peer_.take().has_value()) << "once";
}

TEST_F(XdcRecv, GoesByTheNextPathWhenTheSenderAsks) {
  progress();
  ASSERT_TRUE(peer_.take().has_value());
  peer_.post({.kind = XdcMessage::kMove, .epoch = 0, .count = 0});  // nothing is open to lose
  progress();
  auto next = peer_.take();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->epoch, 1U);
  EXPECT_EQ(next->route, "Minimal 1");
  peer_.post({.kind = XdcMessage::kMove, .epoch = 1, .count = 1});
  progress();
  next = peer_.take();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->epoch, 2U);
  EXPECT_EQ(next->route, "Minimal 0");
}

TEST_F(XdcRecv, IgnoresWhatIsOfAnotherAttempt) {
  progress();
  ASSERT_TRUE(peer_.take().has_value());
  for (const uint64_t epoch : {1U, 7U}) {
    peer_.post({.kind = XdcMessage::kMove, .epoch = epoch, .count = 1});
    peer_.post({.kind = XdcMessage::kSwitch, .epoch = epoch, .count = 3});
  }
  progress();
  EXPECT_FALSE(peer_.take().has_value());
}

TEST_F(XdcRecv, RefusesAMessageThatIsNone) {
  progress();
  peer_.post({.kind = XdcMessage::kSwitch + 1, .epoch = 0, .count = 0});
  auto refused = end_.progress_connect();
  ASSERT_TRUE(refused.has_error());
  EXPECT_THAT(refused.error().message(),
              HasSubstr("rank P (there:22) sent a malformed control message"));
  peer_.post_bytes("short");
  EXPECT_TRUE(end_.progress_connect().has_error());
}

class XdcRecvOfTwo : public XdcRecv {
 protected:
  XdcRecvOfTwo() : XdcRecv(2) {}
};

/// For some plugins block in accept.
TEST_F(XdcRecvOfTwo, AcceptsAsManyConnectionsAsTheSenderHasCalled) {
  ASSERT_NO_FATAL_FAILURE(call(2));
  ASSERT_TRUE(is_met(1));
  const auto called = peer_.take();
  ASSERT_TRUE(called.has_value());
  EXPECT_EQ(called->kind, XdcMessage::kCalled);
  EXPECT_EQ(called->count, 1U);
  try_connect(2);
  for (int turn = 0; turn < 100; ++turn) {
    ASSERT_FALSE(progress());
  }
  peer_.post({.kind = XdcMessage::kCalled, .epoch = 0, .count = 2});
  ASSERT_TRUE(is_met(2));
  EXPECT_TRUE(test::poll_until([&] { return progress(); }));
}

TEST_F(XdcRecv, RefusesAMessageThatDiffersFromItsHeader) {
  ASSERT_NO_FATAL_FAILURE(call(1));
  ASSERT_TRUE(is_met(1));
  ASSERT_TRUE(test::poll_until([&] { return progress(); }));
  end_.expect(1);
  const std::vector<std::byte> message(4);
  NetRequest* request = nullptr;
  ASSERT_TRUE(test::poll_until([&] {
    EXPECT_FALSE(end_.progress_pump().has_error());
    return data_[0].isend(message, 0, nullptr, &request) == NetStatus::kOk;
  }));
  std::string why;
  ASSERT_TRUE(test::poll_until([&] {
    if (request != nullptr && data_[0].test(request, nullptr) == NetStatus::kOk) {
      request = nullptr;
    }
    auto pumped = end_.progress_pump();
    why = pumped.has_error() ? pumped.error().message() : "";
    return !why.empty();
  }));
  EXPECT_THAT(why, HasSubstr("message 0 of rank P (there:22) has 4 bytes as the plugin says, 0 of "
                             "payload as its header says"));
}

}  // namespace
}  // namespace plexus
