// SPDX-License-Identifier: Apache-2.0
// The tables of checks as users see them.
#include "tools/conformance/check.hpp"

#include <regex>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/conformance/runner.hpp"

namespace plexus::conformance {
namespace {

TEST(Checks, OfNetPluginsAreMoreThan120) {
  EXPECT_GE(checks_of(PluginKind::kNet).size(), 120u);
  EXPECT_GE(checks_of(PluginKind::kTuner).size(), 40u);
}

TEST(Checks, HaveDistinctIdsATitleAndARule) {
  for (const PluginKind kind : {PluginKind::kNet, PluginKind::kTuner}) {
    std::set<std::string> ids;
    for (const Check* check : checks_of(kind)) {
      EXPECT_TRUE(ids.insert(check->id).second) << check->id;
      EXPECT_TRUE(std::regex_match(check->id, std::regex("[a-z]+\\.[a-z0-9_]+"))) << check->id;
      EXPECT_GT(std::string(check->title).size(), 8u) << check->id;
      EXPECT_GT(std::string(check->rule).size(), 8u) << check->id;
      EXPECT_TRUE(check->options.processes == 1 || check->options.processes == 2);
    }
  }
}

TEST(Checks, EveryRowOfTheGradesNamesACheckOnce) {
  std::multiset<std::string> ids;
  for (const PluginKind kind : kPluginKinds) {
    for (const Check* check : checks_of(kind)) {
      ids.insert(check->id);
    }
  }
  std::set<std::string_view> rows;
  for (const GradeRow& row : grade_rows()) {
    EXPECT_TRUE(ids.contains(std::string(row.id))) << row.id;
    EXPECT_TRUE(rows.insert(row.id).second) << row.id;
  }
}

TEST(Checks, AreGradedUnderNcclAndAllCountForNativePlugins) {
  const Identity vendor{PluginKind::kNet, "ncclNetPlugin_v8", "Some", "", "", ""};
  const Identity native{PluginKind::kNet, "plexus 1.4", "Some", "", "", ""};
  const Check reversed = {"order.tags_reversed", "", "", nullptr};
  EXPECT_EQ(grade_of(reversed, vendor), Grade::kBeyond);
  EXPECT_EQ(grade_of(reversed, native), Grade::kBreaksJobs);
  EXPECT_EQ(grade_under_nccl("order.fifo"), Grade::kBreaksJobs);
}

TEST(Checks, AreSelectedByIdAndByFirstWords) {
  const auto all = checks_of(PluginKind::kNet);
  const auto one = select_checks(all, {"message.1g"});
  ASSERT_TRUE(one.has_value());
  ASSERT_EQ(one.value().size(), 1u);
  EXPECT_STREQ(one.value()[0]->id, "message.1g");
  const auto group = select_checks(all, {"message", "log.voice"});
  ASSERT_TRUE(group.has_value());
  EXPECT_GT(group.value().size(), 10u);
  EXPECT_EQ(select_checks(all, {}).value().size(), all.size());
}

TEST(Checks, SelectedByAWordThatNamesNothingAreAnError) {
  const auto none = select_checks(checks_of(PluginKind::kNet), {"mess"});
  ASSERT_TRUE(none.has_error());
  EXPECT_THAT(none.error().message(), testing::HasSubstr("'mess'"));
}

}  // namespace
}  // namespace plexus::conformance
