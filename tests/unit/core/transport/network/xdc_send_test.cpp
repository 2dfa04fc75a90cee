// SPDX-License-Identifier: Apache-2.0
// The sending end of a cross-DC connection, with a receiver that the test plays. Both ends together
// are tested by xdc_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/core/transport/network/xdc_peer.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;
using test::XdcMessage;
using testing::HasSubstr;

class XdcSend : public testing::Test {
 protected:
  explicit XdcSend(size_t paths = 1, milliseconds patience = milliseconds(20000))
      : peer_(0, paths), end_(peer_.id(), peer_.options(patience)) {}

  XdcMessage listening(uint64_t epoch, uint64_t count, std::string route = "Minimal 0") {
    auto listen = peer_.context().listen(0);
    EXPECT_TRUE(listen.has_value());
    listen_ = std::move(listen).value();
    return {.kind = XdcMessage::kListening,
            .epoch = epoch,
            .count = count,
            .handle = listen_->handle(),
            .route = std::move(route)};
  }
  std::string refusal_of(const XdcMessage& message) {
    peer_.post(message);
    const auto refused = end_.progress_connect();
    return refused.has_error() ? refused.error().message() : "";
  }
  /// What the end posts next.
  XdcMessage await() {
    std::optional<XdcMessage> message;
    EXPECT_TRUE(test::poll_until([&] {
      EXPECT_TRUE((end_.connected() ? end_.progress_pump() : end_.progress_connect()).has_value());
      message = peer_.take();
      return message.has_value();
    }));
    return message.value_or(XdcMessage{});
  }
  void connect() {
    peer_.post(listening(0, 0));
    const XdcMessage acks = await();
    ASSERT_EQ(acks.kind, XdcMessage::kAcks);
    data_ = listen_->accept();
    acks_ = peer_.context().connect(0, acks.handle);
    peer_.post({.kind = XdcMessage::kCalled, .epoch = 0, .count = 1});
    bool accepted = false;
    bool called = false;
    ASSERT_TRUE(test::poll_until([&] {
      accepted = accepted || data_->try_accept().value() == NetProgress::kDone;
      called = called || acks_->try_connect().value() == NetProgress::kDone;
      return end_.progress_connect().value() && accepted && called;
    }));
  }
  void commit() {
    ASSERT_TRUE(end_.connection().try_acquire());
    end_.connection().commit(1, 99);
  }
  void acknowledge(uint64_t count) {
    count_ = count;
    ASSERT_TRUE(test::poll_until([&] {
      return acks_->isend(std::as_bytes(std::span(&count_, 1)), 0, nullptr, &request_) ==
             NetStatus::kOk;
    }));
  }
  /// Until the acknowledgement is there. The reason why the pump fails, if it does.
  std::string pump_until_settled() {
    std::string why;
    EXPECT_TRUE(test::poll_until([&] {
      if (request_ != nullptr && acks_->test(request_, nullptr) == NetStatus::kOk) {
        request_ = nullptr;
      }
      why = pump();
      return !why.empty() || end_.settled();
    }));
    return why;
  }
  /// The reason why the pump fails, if it does.
  std::string pump() {
    auto pumped = end_.progress_pump();
    return pumped.has_error() ? pumped.error().message() : "";
  }

  test::XdcPeer peer_;
  XdcSendEnd end_;
  std::optional<NetListen> listen_;
  std::optional<NetRecv> data_;
  std::optional<NetSend> acks_;
  uint64_t count_ = 0;
  NetRequest* request_ = nullptr;  // of the acknowledgement
};

TEST_F(XdcSend, WaitsForAReceiverThatListens) {
  EXPECT_FALSE(end_.progress_connect().value());
  EXPECT_FALSE(peer_.take().has_value()) << "the receiver leads";
}

TEST_F(XdcSend, SaysWhereItListensForAcknowledgementsWhenItHasCalled) {
  peer_.post(listening(0, 0));
  const XdcMessage acks = await();
  EXPECT_EQ(acks.kind, XdcMessage::kAcks);
  EXPECT_EQ(acks.epoch, 0U);
  EXPECT_EQ(acks.count, 1U);
  EXPECT_EQ(acks.route, "");
}

TEST_F(XdcSend, RefusesAReceiverThatHasMoreThanWasSent) {
  EXPECT_THAT(refusal_of(listening(0, 5)),
              HasSubstr("rank P (there:22) reports that 5 messages arrived, but 0 were sent"));
}

TEST_F(XdcSend, RefusesAControlMessageOfASender) {
  EXPECT_THAT(refusal_of({.kind = XdcMessage::kAcks, .epoch = 0, .count = 0}),
              HasSubstr("a control message that only a sender sends"));
}

TEST_F(XdcSend, RefusesAReceiverThatGoesByAnotherPath) {
  EXPECT_THAT(refusal_of(listening(0, 0, "Socket 7")), HasSubstr("Socket 7"));
}

TEST_F(XdcSend, GivesUpAfterTwiceAsManyAttemptsAsPathsAndTwo) {
  for (uint64_t epoch = 0; epoch < 5; ++epoch) {
    peer_.post(listening(epoch, 0));
    EXPECT_TRUE(end_.progress_connect().has_value()) << epoch;
  }
  EXPECT_THAT(refusal_of(listening(5, 0)), HasSubstr("and 4 attempts on 1 paths failed"));
}

TEST_F(XdcSend, IsSettledWhenAllIsAcknowledged) {
  ASSERT_NO_FATAL_FAILURE(connect());
  ASSERT_NO_FATAL_FAILURE(commit());
  ASSERT_EQ(pump(), "");
  EXPECT_FALSE(end_.settled());
  ASSERT_NO_FATAL_FAILURE(acknowledge(1));
  EXPECT_EQ(pump_until_settled(), "");
}

TEST_F(XdcSend, RefusesAcknowledgementsOfMessagesThatWereNotSent) {
  ASSERT_NO_FATAL_FAILURE(connect());
  ASSERT_NO_FATAL_FAILURE(commit());
  ASSERT_NO_FATAL_FAILURE(acknowledge(7));
  EXPECT_THAT(pump_until_settled(),
              HasSubstr("acknowledges 7 messages in 8 bytes, but 0 to 1 were expected in 8"));
}

TEST_F(XdcSend, AsksForAnotherPathWhenTheLinkIsLost) {
  ASSERT_NO_FATAL_FAILURE(connect());
  ASSERT_NO_FATAL_FAILURE(commit());
  data_.reset();
  acks_.reset();
  const XdcMessage move = await();
  EXPECT_EQ(move.kind, XdcMessage::kMove);
  EXPECT_EQ(move.epoch, 0U);
  EXPECT_EQ(move.count, 1U) << "at once";
}

class ImpatientXdcSend : public XdcSend {
 protected:
  ImpatientXdcSend() : XdcSend(2, milliseconds(20)) {}
};

TEST_F(ImpatientXdcSend, AsksWhetherTheLinkIsLostWhenNothingIsAcknowledged) {
  ASSERT_NO_FATAL_FAILURE(connect());
  ASSERT_NO_FATAL_FAILURE(commit());
  const XdcMessage move = await();
  EXPECT_EQ(move.kind, XdcMessage::kMove);
  EXPECT_EQ(move.count, 0U) << "only if the receiver hears nothing either";
}

}  // namespace
}  // namespace plexus
