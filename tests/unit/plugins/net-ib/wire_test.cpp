// SPDX-License-Identifier: Apache-2.0
// What peers tell each other: checks of the handshake, immediate data, striping.
#include "plugins/net-ib/wire.hpp"

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::net_ib {
namespace {

using testing::HasSubstr;

WireHello good_hello() {
  WireHello hello{};
  hello.magic = kWireMagic;
  hello.rails = 2;
  hello.qps = 4;
  for (WireRail& rail : hello.rail) {
    rail.link_layer = IBV_LINK_LAYER_ETHERNET;
    rail.mtu = IBV_MTU_4096;
  }
  return hello;
}
std::string hello_error(const WireHello& hello) {
  const auto read = read_hello(std::as_bytes(std::span(&hello, 1)));
  return read.has_error() ? read.error().text : "accepted";
}

TEST(IbWire, HelloIsChecked) {
  WireHello hello = good_hello();
  EXPECT_EQ(hello_error(hello), "accepted");
  hello.magic ^= 1;
  EXPECT_THAT(hello_error(hello), HasSubstr("not one of this version"));
  hello = good_hello();
  hello.rails = kRailsMax + 1;
  EXPECT_THAT(hello_error(hello), HasSubstr("invalid numbers"));
  hello = good_hello();
  hello.qps = 0;
  EXPECT_THAT(hello_error(hello), HasSubstr("invalid numbers"));
  hello = good_hello();
  hello.rail[1].mtu = 6;
  EXPECT_THAT(hello_error(hello), HasSubstr("invalid numbers"));
  hello = good_hello();
  hello.rail[2].mtu = 6;  // no rail of this connection
  EXPECT_EQ(hello_error(hello), "accepted");
  hello.rail[0].link_layer = 7;
  EXPECT_THAT(hello_error(hello), HasSubstr("invalid numbers"));
  EXPECT_TRUE(read_hello({}).has_error());
}

TEST(IbWire, ControlIsChecked) {
  WireControl control{};
  const auto is_accepted = [&] {
    return read_control(std::as_bytes(std::span(&control, 1))).has_value();
  };
  EXPECT_FALSE(is_accepted());
  for (control.type = 1; control.type <= kControlTypeMax; ++control.type) {
    const bool has_info = control.type == static_cast<uint32_t>(ControlType::kRailOffer) ||
                          control.type == static_cast<uint32_t>(ControlType::kRailAnswer);
    EXPECT_EQ(is_accepted(), !has_info) << control.type;
  }
  EXPECT_FALSE(is_accepted());
  control.type = 1;
  control.rail = kRailsMax;
  EXPECT_FALSE(is_accepted());
}

TEST(IbWire, HandleIsChecked) {
  WireHandle wire{};
  wire.magic = kWireMagic;
  wire.address = {4, 1000, {}};
  plexus_net_handle_t handle{};
  std::memcpy(handle.bytes, &wire, sizeof wire);
  EXPECT_TRUE(read_handle(handle).has_value());
  handle.bytes[0] ^= 1;
  EXPECT_THAT(read_handle(handle).error().text, HasSubstr("same network plugin"));
}

TEST(IbWire, TextsEndAndArePrintable) {
  std::array<char, 8> text{};
  write_text(text, "long enough to be cut");
  EXPECT_EQ(readable(text), "long en");
  text.fill('\n');
  EXPECT_EQ(readable(text), "????????");
}

TEST(Immediate, SurvivesPacking) {
  for (uint32_t i = 0; i < 32; ++i) {
    const Immediate brief = {
        .request = i, .buffer = i % 8, .round = 31 - i, .size_bytes = (1U << 18) - 1 - i};
    Immediate out = Immediate::unpack(brief.pack());
    EXPECT_TRUE(out.is_short);
    EXPECT_EQ(out.request, i);
    EXPECT_EQ(out.buffer, i % 8);
    EXPECT_EQ(out.round, 31 - i);
    EXPECT_EQ(out.size_bytes, (1U << 18) - 1 - i);
    const Immediate part = {.request = 31 - i,
                            .buffer = 7 - i % 8,
                            .round = i + 32,
                            .is_short = false,
                            .part = i,
                            .parts = 32};
    out = Immediate::unpack(part.pack());
    EXPECT_FALSE(out.is_short);
    EXPECT_EQ(out.request, 31 - i);
    EXPECT_EQ(out.buffer, 7 - i % 8);
    EXPECT_EQ(out.round, i);
    EXPECT_EQ(out.part, i);
    EXPECT_EQ(out.parts, 32U);
  }
}

TEST(Striping, PartsCoverTheMessageInOrder) {
  for (const uint64_t size : {0ul, 1ul, 4095ul, 65536ul, 65537ul, 1000003ul, 1ul << 30}) {
    for (uint32_t lanes = 1; lanes <= 40; ++lanes) {
      const uint32_t parts = count_parts(size, lanes, 4096);
      ASSERT_GE(parts, 1U);
      ASSERT_LE(parts, std::min(lanes, kPartsMax));
      uint64_t end = 0;
      for (uint32_t i = 0; i < parts; ++i) {
        const Part part = cut_part(size, parts, i);
        ASSERT_EQ(part.begin, end);
        ASSERT_TRUE(part.begin % 4096 == 0 || part.begin == size);
        end += part.size_bytes;
      }
      ASSERT_EQ(end, size);
    }
  }
}

TEST(Striping, ShortMessagesAreNotCut) {
  EXPECT_EQ(count_parts(65535, 8, 65536), 1U);
  EXPECT_EQ(count_parts(2 * 65536, 8, 65536), 2U);
  EXPECT_EQ(count_parts(uint64_t{1} << 30, 8, 65536), 8U);
  EXPECT_EQ(count_parts(0, 0, 0), 1U);
}

}  // namespace
}  // namespace plexus::net_ib
