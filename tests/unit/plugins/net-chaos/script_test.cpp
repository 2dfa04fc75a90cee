// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-chaos/script.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::net_chaos {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

Effects effects_of(std::string_view text, const Subject& subject = {}) {
  const auto script = Script::parse(text);
  EXPECT_TRUE(script.has_value()) << script.error().text;
  return script.value().effects_of(subject);
}

TEST(ChaosScript, EmptyOneDoesNothing) {
  for (const char* text : {"", "  \n ; \n", "# only a comment", "*:"}) {
    const Effects effects = effects_of(text);
    EXPECT_EQ(effects.delay, 0ns);
    EXPECT_EQ(effects.cut_at_byte, UINT64_MAX);
    EXPECT_EQ(effects.piece_bytes, 0u);
  }
}

TEST(ChaosScript, ReadsEveryEffectWithItsUnits) {
  const Effects effects = effects_of(
      "*: delay=2ms jitter=30us rate=5Gbit/s stall=1MiB/1s cut=7KiB again=20% reorder=8 "
      "flip=3 late=4ms overtake=5ms elsewhere=6ms piece=4096");
  EXPECT_EQ(effects.delay, 2ms);
  EXPECT_EQ(effects.jitter, 30us);
  EXPECT_EQ(effects.rate_bit_per_s, 5'000'000'000u);
  EXPECT_EQ(effects.stall_every_bytes, 1u << 20);
  EXPECT_EQ(effects.stall, 1s);
  EXPECT_EQ(effects.cut_at_byte, 7u * 1024);
  EXPECT_EQ(effects.again_percent, 20u);
  EXPECT_EQ(effects.reorder_tests_max, 8u);
  EXPECT_EQ(effects.flip_at_byte, 3u);
  EXPECT_EQ(effects.late, 4ms);
  EXPECT_EQ(effects.overtake, 5ms);
  EXPECT_EQ(effects.elsewhere, 6ms);
  EXPECT_EQ(effects.piece_bytes, 4096u);
}

TEST(ChaosScript, LaterRulesWinEffectByEffect) {
  const char* text =
      "*: delay=1ms again=10%  # all\n"
      "send device=1: delay=3ms; recv connection=2: again=50%";
  EXPECT_EQ(effects_of(text, {.is_send = true, .device = 1}).delay, 3ms);
  EXPECT_EQ(effects_of(text, {.is_send = true, .device = 1}).again_percent, 10u);
  EXPECT_EQ(effects_of(text, {.is_send = false, .device = 1}).delay, 1ms);
  EXPECT_EQ(effects_of(text, {.is_send = false, .connection = 2}).again_percent, 50u);
  EXPECT_EQ(effects_of(text, {.is_send = true, .connection = 2}).again_percent, 10u);
}

TEST(ChaosScript, SelectsRanks) {
  const auto script = Script::parse("rank=1: slow=3us; send rank=1 peer=2: delay=1ms");
  ASSERT_FALSE(script.has_error());
  EXPECT_TRUE(script.value().names_ranks());
  EXPECT_EQ(script.value().effects_of({.rank = 1, .peer = 2}).delay, 1ms);
  EXPECT_EQ(script.value().effects_of({.rank = 1, .peer = 3}).delay, 0ms);
  EXPECT_EQ(script.value().effects_of({.rank = 1, .peer = 3}).slow, 3us);
  EXPECT_EQ(script.value().effects_of({.rank = 2, .peer = 1}).slow, 0us);
  EXPECT_EQ(script.value().find_effect_not_in({"slow"}), "delay");
  EXPECT_EQ(script.value().find_effect_not_in({"slow", "delay"}), "");
  EXPECT_FALSE(Script::parse("send: delay=1ms").value().names_ranks());
}

TEST(ChaosScript, BadTextNamesTheWord) {
  const struct {
    const char* text;
    const char* says;
  } rows[] = {
      {"delay=1ms", "has no ':'"},
      {": delay=1ms", "selects nothing"},
      {"all: delay=1ms", "'all'"},
      {"device=x: delay=1ms", "'x'"},
      {"*: delay", "'delay'"},
      {"*: delay=1", "'1'"},
      {"*: delay=1h", "'1h'"},
      {"*: delay=-1ms", "'-1ms'"},
      {"*: delay=61s", "'61s'"},
      {"*: delay=99999999999999999999s", "is not a number"},
      {"*: rate=0Mbit/s", "lets nothing through"},
      {"*: stall=1MiB", "SIZE/TIME"},
      {"*: again=100%", "'100%'"},
      {"*: loss=1%", "'loss=1%'"},
      {"send: piece=4", "both ends must agree"},
      {"rank=-1: delay=1ms", "'-1'"},
      {"send rank=1: slow=1ms", "applies to ranks"},
  };
  for (const auto& row : rows) {
    const auto script = Script::parse(row.text);
    ASSERT_TRUE(script.has_error()) << row.text;
    EXPECT_EQ(script.error().code, PLEXUS_INVALID_USAGE);
    EXPECT_THAT(script.error().text, HasSubstr(row.says));
  }
}

}  // namespace
}  // namespace plexus::net_chaos
