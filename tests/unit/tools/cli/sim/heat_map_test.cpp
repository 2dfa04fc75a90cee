// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/sim/heat_map.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(HeatMap, ShowsValuesInPercentTheLargerTheDarker) {
  const HeatMap map{.title = "a < b",
                    .row_name = "ranks",
                    .rows = {"2", "4"},
                    .columns = {"8", "1 Ki"},
                    .values = {{0, 0.1}, {0.25, 15.5}}};
  const std::string svg = draw_heat_maps({&map, 1}, 3);
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  for (const char* text : {">ranks<", ">4<", ">1 Ki<", ">0<", ">10<", ">25<", ">1550<"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  EXPECT_THAT(svg, HasSubstr("#ffffff"));
  EXPECT_THAT(svg, HasSubstr("#fee08b")) << "10 %";
  EXPECT_THAT(svg, HasSubstr("#f9a767")) << "between 10 % and 40 %";
  EXPECT_THAT(svg, HasSubstr("#a50026")) << "100 % and more";
}

TEST(HeatMap, PutsFurtherMapsBelow) {
  const HeatMap map{
      .title = "t", .row_name = "r", .rows = {"2"}, .columns = {"8"}, .values = {{0.0}}};
  const std::vector<HeatMap> maps(3, map);
  const std::string one = draw_heat_maps({maps.data(), 1}, 2);
  const std::string three = draw_heat_maps(maps, 2);
  EXPECT_THAT(one, HasSubstr("width=\"134\" height=\"88\""));
  EXPECT_THAT(three, HasSubstr("width=\"268\" height=\"176\""));
  EXPECT_THAT(draw_heat_maps({}, 2), Not(HasSubstr("<text")));
}

}  // namespace
}  // namespace plexus
