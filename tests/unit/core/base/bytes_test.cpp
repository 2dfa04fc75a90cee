// SPDX-License-Identifier: Apache-2.0
#include "core/base/bytes.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

std::string some_message() {
  ByteWriter writer;
  writer.put(uint16_t{7});
  writer.put(2.5F);
  writer.put_text<uint32_t>("name");
  writer.put_bytes("tail");
  return writer.take();
}

TEST(Bytes, ComeBackAsTheyWereWritten) {
  const std::string bytes = some_message();
  ByteReader reader(bytes);
  EXPECT_EQ(reader.take<uint16_t>(), 7);
  EXPECT_EQ(reader.take<float>(), 2.5F);
  EXPECT_EQ(reader.take_text<uint32_t>(4), "name");
  EXPECT_FALSE(reader.whole());
  EXPECT_EQ(reader.rest(), "tail");
  EXPECT_EQ(reader.take_bytes(4), "tail");
  EXPECT_TRUE(reader.whole());
}

TEST(Bytes, AMessageThatWasCutAnywhereIsBroken) {
  const std::string bytes = some_message();
  for (size_t size = 0; size < bytes.size(); ++size) {
    ByteReader reader(std::string_view(bytes).substr(0, size));
    (void)reader.take<uint16_t>();
    (void)reader.take<float>();
    (void)reader.take_text<uint32_t>(4);
    (void)reader.take_bytes(4);
    EXPECT_TRUE(reader.broken()) << size;
    EXPECT_FALSE(reader.whole()) << size;
  }
}

TEST(Bytes, ValuesOutOfRangeBreakTheMessage) {
  ByteWriter writer;
  writer.put(int32_t{5});
  const std::string bytes = writer.take();
  EXPECT_EQ(ByteReader(bytes).take_between(5, 5), 5);
  ByteReader low(bytes);
  EXPECT_EQ(low.take_between(6, 9), 6);
  EXPECT_TRUE(low.broken());
  ByteReader high(bytes);
  EXPECT_EQ(high.take_between(1, 4), 1);
  EXPECT_TRUE(high.broken());
}

// Not inlined: GCC 12 misreads the length of the text that is moved out of the writer.
[[gnu::noinline]] std::string message_of(const std::string& text) {
  ByteWriter writer;
  writer.put_text<uint64_t>(text);
  return writer.take();
}

TEST(Bytes, TextLongerThanAllowedOrThanTheMessageBreaksIt) {
  const std::string text(40, 'x');
  std::string bytes = message_of(text);
  EXPECT_EQ(ByteReader(bytes).take_text<uint64_t>(40), text);
  ByteReader longer(bytes);
  EXPECT_TRUE(longer.take_text<uint64_t>(39).empty());
  EXPECT_TRUE(longer.broken());
  bytes.pop_back();
  ByteReader cut(bytes);
  EXPECT_TRUE(cut.take_text<uint64_t>(40).empty());
  EXPECT_TRUE(cut.broken());
}

TEST(Bytes, NothingIsReadFromABrokenMessage) {
  ByteWriter writer;
  writer.put(uint32_t{9});
  writer.put(uint32_t{3});
  const std::string bytes = writer.take();
  ByteReader reader(bytes);
  (void)reader.take_between<uint32_t>(0, 8);
  EXPECT_EQ(reader.take<uint32_t>(), 0U);
  EXPECT_TRUE(reader.take_bytes(1).empty());
  EXPECT_FALSE(reader.whole());
}

}  // namespace
}  // namespace plexus
