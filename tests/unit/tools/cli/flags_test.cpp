// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/flags.hpp"

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

namespace plexus {
namespace {

TEST(ParseSize, TakesBytesAndBinaryUnits) {
  EXPECT_EQ(parse_size("0").value(), 0U);
  EXPECT_EQ(parse_size("8").value(), 8U);
  EXPECT_EQ(parse_size("64K").value(), 65536U);
  EXPECT_EQ(parse_size("64k").value(), 65536U);
  EXPECT_EQ(parse_size("32M").value(), size_t{32} << 20U);
  EXPECT_EQ(parse_size("3G").value(), size_t{3} << 30U);
  EXPECT_EQ(parse_size("1.5M").value(), size_t{3} << 19U);
  EXPECT_EQ(parse_size("0.3K").value(), 307U);
  EXPECT_EQ(parse_size("1e6").value(), 1000000U);
  EXPECT_EQ(parse_size("64KB").value(), 65536U);
  EXPECT_EQ(parse_size("2GiB").value(), size_t{2} << 30U);
}

TEST(ParseSize, RefusesEverythingElse) {
  for (const char* text :
       {"", "K", "B", "iB", "KB", "8B", "8KX", "8BB", "-8", "-1.5M", "nan", "inf", "1e30", "0x10",
        " 8", "8 ", "99999999999G", "18446744073709551616"}) {
    EXPECT_FALSE(parse_size(text)) << text;
  }
}

TEST(SplitList, GivesTheWordsBetweenCommas) {
  EXPECT_EQ(split_at_commas("2,4"), (std::vector<std::string_view>{"2", "4"}));
  EXPECT_EQ(split_at_commas("2,"), (std::vector<std::string_view>{"2", ""}));
  EXPECT_EQ(split_at_commas(""), (std::vector<std::string_view>{""}));
}

TEST(ParseCollective, TakesTheNamesOfPerfButNotSendAndReceive) {
  EXPECT_EQ(parse_collective("reduce_scatter").value(), Collective::kReduceScatter);
  EXPECT_FALSE(parse_collective("send"));
  EXPECT_FALSE(parse_collective(""));
}

TEST(ParseInt, HoldsTheRange) {
  EXPECT_EQ(parse_int("4", {1, 4}).value(), 4);
  EXPECT_EQ(parse_int("-1", {-1, 4}).value(), -1);
  EXPECT_FALSE(parse_int("5", {1, 4}));
  EXPECT_FALSE(parse_int("0", {1, 4}));
  EXPECT_FALSE(parse_int("4x", {1, 4}));
  EXPECT_FALSE(parse_int("", {1, 4}));
}

TEST(ParseNumber, HoldsTheRangeAndRefusesNan) {
  EXPECT_EQ(parse_number("2.5", 1, 4).value(), 2.5);
  EXPECT_FALSE(parse_number("nan", 1, 4));
  EXPECT_FALSE(parse_number("5", 1, 4));
}

TEST(AddInt, WrongTextNamesTheFlagAndWhatItTakes) {
  CLI::App app;
  int ranks = 0;
  add_int(app, "--ranks", &ranks, {1, 64}, "ranks");
  try {
    app.parse("--ranks many");
    FAIL() << "taken";
  } catch (const CLI::ParseError& error) {
    EXPECT_STREQ(error.what(), "--ranks: expects a whole number from 1 to 64, not 'many'");
  }
  EXPECT_EQ(ranks, 0);
}

TEST(AddInt, StoresTheValue) {
  CLI::App app;
  int ranks = 0;
  add_int(app, "--ranks", &ranks, {1, 64}, "ranks");
  app.parse("--ranks 7");
  EXPECT_EQ(ranks, 7);
}

}  // namespace
}  // namespace plexus
