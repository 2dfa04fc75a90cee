// SPDX-License-Identifier: Apache-2.0
#include "core/control/message.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(Message, ComesOutOfTheStreamAsItWentIn) {
  const Message sent{.type = MessageType::kPost,
                     .from = 3,
                     .to = 4,
                     .group = 77,
                     .tag = ~uint64_t{0},
                     .payload = "text"};
  const std::string bytes = encode(sent);
  ASSERT_EQ(bytes.size(), kHeaderBytes + 4);
  MessageReader reader;
  for (const char byte : bytes + bytes) {  // one byte at a time
    reader.append(&byte, 1);
  }
  for (int i = 0; i < 2; ++i) {
    const auto next = reader.next();
    ASSERT_TRUE(next.has_value() && next.value().has_value());
    EXPECT_EQ(next.value()->type, sent.type);
    EXPECT_EQ(next.value()->from, sent.from);
    EXPECT_EQ(next.value()->to, sent.to);
    EXPECT_EQ(next.value()->group, sent.group);
    EXPECT_EQ(next.value()->tag, sent.tag);
    EXPECT_EQ(next.value()->payload, sent.payload);
  }
  EXPECT_FALSE(reader.next().value().has_value());
}

TEST(Message, IsRefusedWhenItsHeaderIsNone) {
  const std::string good = encode(Message{.type = MessageType::kLate});
  const auto refused = [&](size_t at, uint8_t value) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(value);
    MessageReader reader;
    reader.append(bytes.data(), bytes.size());
    return reader.next().has_error();
  };
  EXPECT_TRUE(refused(0, 'X'));   // magic
  EXPECT_TRUE(refused(7, 0x7f));  // size
  EXPECT_TRUE(refused(8, 0));     // type
  EXPECT_TRUE(refused(8, 99));
}

TEST(Message, PayloadsSurviveTheirEncoding) {
  const JoinInfo info{.rank = 2,
                      .nranks = 5,
                      .version = 1,
                      .process = {.process = 99, .pid = 4711, .host = "node7"}};
  const auto joined = decode_join(encode(info));
  ASSERT_TRUE(joined.has_value());
  EXPECT_EQ(joined.value().rank, 2U);
  EXPECT_EQ(joined.value().process.host, "node7");
  EXPECT_EQ(decode_ranks(encode(std::vector<uint32_t>{4, 2, 9})).value(),
            (std::vector<uint32_t>{4, 2, 9}));
  const std::vector<LeaveNote> notes = {{.rank = 3, .gathers = 2, .record = "record"}};
  EXPECT_EQ(decode_leave_notes(encode(notes)).value()[0].record, "record");
  const std::vector<FailureNotice> notices = {{.subject = 4, .text = "died"},
                                              {.kind = FailureNotice::Kind::kFailure,
                                               .subject = 2,
                                               .group = 9,
                                               .code = Code::kInvalidUsage,
                                               .text = "why"}};
  EXPECT_EQ(decode_failure_notices(encode(notices)).value()[1].key(), notices[1].key());
  EXPECT_EQ(decode_failure_notices(encode(notices)).value()[0].text, "died");
  const Error error = decode_error(encode(Error(fail(Code::kInvalidUsage, "why"))));
  EXPECT_EQ(error.code(), Code::kInvalidUsage);
  EXPECT_EQ(error.message(), "why");
}

TEST(Message, DamagedPayloadsAreErrors) {
  EXPECT_TRUE(decode_join("short").has_error());
  EXPECT_TRUE(decode_join(encode(JoinInfo{.rank = 5, .nranks = 5})).has_error());
  EXPECT_TRUE(decode_join(encode(JoinInfo{.rank = 0, .nranks = 0})).has_error());
  const std::vector<MissingRank> missing = {{.rank = 3, .why = "is busy"}, {.rank = 9}};
  const auto decoded = decode_missing(encode(missing));
  ASSERT_TRUE(decoded.has_value());
  ASSERT_EQ(decoded.value().size(), 2U);
  EXPECT_EQ(decoded.value()[0].why, "is busy");
  EXPECT_EQ(decoded.value()[1].rank, 9U);
  EXPECT_TRUE(decode_missing(encode(missing).substr(1)).has_error());
  EXPECT_TRUE(decode_ranks("").has_error());
  EXPECT_TRUE(decode_ranks("12345").has_error());
  EXPECT_TRUE(decode_leave_notes("1234").has_error());
  EXPECT_TRUE(decode_failure_notices("x").has_error());
  EXPECT_EQ(decode_error("").code(), Code::kRemoteError);
  EXPECT_EQ(decode_error(std::string("\x63\0\0\0x", 5)).code(), Code::kRemoteError);
}

}  // namespace
}  // namespace plexus
