// SPDX-License-Identifier: Apache-2.0
// Plots: every point is inside of its plot, lines keep their names and colors, names are no markup.
#include "tools/cli/sim/plot.hpp"

#include <regex>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::HasSubstr;
using testing::Not;

size_t count(const std::string& text, const std::string& word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++found;
  }
  return found;
}

TEST(Plot, HasALinePerAlgorithmAndItsNameOnce) {
  const std::vector<Plot> plots = {
      {"sizes", "bytes", {{"ring", {{8, 1}, {1024, 2}}}, {"tree", {{8, 3}}}}},
      {"ranks", "ranks", {{"tree", {{2, 1}, {64, 100}}}}}};
  const std::string svg = draw_plots(plots);
  EXPECT_EQ(count(svg, "<title>ring</title>"), 1U);
  EXPECT_EQ(count(svg, "<title>tree</title>"), 2U);
  EXPECT_EQ(count(svg, ">tree</text>"), 1U);
  EXPECT_EQ(count(svg, "#d55e00"), 3U) << "one color for tree: two lines and its name";
}

TEST(Plot, PointsAreInside) {
  const std::vector<Plot> plots = {{"t", "x", {{"a", {{1, 0.0001}, {3, 1e9}, {1e12, 5}}}}}};
  const std::string svg = draw_plots(plots);
  std::smatch size;
  ASSERT_TRUE(std::regex_search(svg, size, std::regex(R"x(width="(\d+)" height="(\d+)")x")));
  const std::regex point(R"([ML](-?[\d.]+),(-?[\d.]+))");
  size_t points = 0;
  for (auto at = std::sregex_iterator(svg.begin(), svg.end(), point); at != std::sregex_iterator();
       ++at, ++points) {
    EXPECT_GE(std::stod((*at)[1]), 0);
    EXPECT_LE(std::stod((*at)[1]), std::stod(size[1]));
    EXPECT_GE(std::stod((*at)[2]), 0);
    EXPECT_LE(std::stod((*at)[2]), std::stod(size[2]));
  }
  EXPECT_GT(points, 3U);
}

TEST(Plot, MoreTimeIsHigher) {
  const std::string svg = draw_plots(std::vector<Plot>{{"t", "x", {{"a", {{2, 1}, {4, 1000}}}}}});
  std::smatch line;
  ASSERT_TRUE(std::regex_search(
      svg, line,
      std::regex(R"(<title>a</title>\n<path d="M([\d.]+),([\d.]+) L([\d.]+),([\d.]+))")));
  EXPECT_LT(std::stod(line[1]), std::stod(line[3]));
  EXPECT_GT(std::stod(line[2]), std::stod(line[4])) << "y of SVG goes down";
}

TEST(Plot, NamesAreNoMarkup) {
  const std::string svg = draw_plots(std::vector<Plot>{{"<a>", "&", {{"<script>\"", {{1, 1}}}}}});
  EXPECT_THAT(svg, Not(HasSubstr("<script>")));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;&quot;"));
}

TEST(Plot, WithoutPointsIsAnEmptyPicture) {
  EXPECT_THAT(draw_plots(std::vector<Plot>{{"t", "x", {{"a", {}}}}}), Not(HasSubstr("title")));
}

}  // namespace
}  // namespace plexus
