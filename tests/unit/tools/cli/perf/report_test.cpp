// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/report.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace plexus::perf {
namespace {

JobFacts make_facts() {
  JobFacts facts = {
      .version = "0.1.0", .nccl_version = 23007, .options = {}, .mode = "procs", .printer = ""};
  facts.options.nranks = 4;
  return facts;
}

Row make_row(bool in_place) {
  Row row{};
  row.variant = {.type = Type::kFloat, .op = Op::kSum, .root = -1};
  row.size_bytes = 1000000;
  row.count = 250000;
  row.in_place = in_place;
  row.batch = 1;
  row.time_us = {.median = 100, .min = 90, .p99 = 130};
  row.wrong = 0;
  row.algorithm = make_name("ring");
  row.protocol = make_name("simple");
  row.channels = 2;
  return row;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(FormatJson, HasTheKeysOfTheContract) {
  const auto json =
      nlohmann::json::parse(format_json(make_facts(), {make_row(false), make_row(true)}));
  EXPECT_EQ(json["version"], "0.1.0");
  EXPECT_EQ(json["collective"], "all_reduce");
  EXPECT_EQ(json["ranks"], 4);
  EXPECT_EQ(json["mode"], "procs");
  EXPECT_EQ(json["wrong_total"], 0);
  ASSERT_EQ(json["rows"].size(), 2U);
  const auto& row = json["rows"][1];
  EXPECT_EQ(row["bytes"], 1000000);
  EXPECT_EQ(row["count"], 250000);
  EXPECT_EQ(row["type"], "float");
  EXPECT_EQ(row["redop"], "sum");
  EXPECT_EQ(row["root"], -1);
  EXPECT_EQ(row["in_place"], true);
  EXPECT_EQ(row["time_us"]["median"], 100.0);
  EXPECT_EQ(row["time_us"]["min"], 90.0);
  EXPECT_EQ(row["time_us"]["p99"], 130.0);
  EXPECT_DOUBLE_EQ(row["algbw_gb_per_s"], 10.0);
  EXPECT_DOUBLE_EQ(row["busbw_gb_per_s"], 15.0);
  EXPECT_EQ(row["wrong"], 0);
  EXPECT_EQ(row["algorithm"], "ring");
  EXPECT_EQ(row["protocol"], "simple");
  EXPECT_EQ(row["channels"], 2);
}

TEST(FormatJson, CountsWrongAndShowsUncheckedAsNull) {
  Row wrong = make_row(false);
  wrong.wrong = 5;
  Row unchecked = make_row(true);
  unchecked.wrong = Row::kUnchecked;
  const auto json = nlohmann::json::parse(format_json(make_facts(), {wrong, unchecked}));
  EXPECT_EQ(json["wrong_total"], 5);
  EXPECT_TRUE(json["rows"][1]["wrong"].is_null());
}

TEST(FormatJson, MovingCollectivesHaveNoOperation) {
  JobFacts facts = make_facts();
  facts.options.collective = Collective::kBroadcast;
  EXPECT_EQ(nlohmann::json::parse(format_json(facts, {make_row(false)}))["rows"][0]["redop"],
            "none");
}

TEST(FormatTsv, HasAsManyFieldsAsTheHeader) {
  const std::string header = tsv_header();
  const std::string line = format_tsv(make_facts(), make_row(false));
  EXPECT_EQ(std::count(header.begin(), header.end(), '\t'),
            std::count(line.begin(), line.end(), '\t'));
  EXPECT_THAT(line, ::testing::StartsWith("1000000\t250000\tfloat\tsum\t-1\t0\t100.000\t90."
                                          "000\t130.000\t10.0000\t15.0000\t0\tring"));
}

TEST(FormatTable, LineShowsBothPlaces) {
  const Row in_place = make_row(true);
  const std::string line = format_table_line(make_facts(), make_row(false), &in_place);
  EXPECT_THAT(line, ::testing::HasSubstr("ring/simple/2"));
  EXPECT_EQ(line.find("N/A"), std::string::npos);
  EXPECT_NE(format_table_line(make_facts(), make_row(false), nullptr).find("N/A"),
            std::string::npos);
}

TEST(ComputeBandwidth, AnUntimedRowHasNone) {
  Row row = make_row(false);
  row.time_us = {};
  EXPECT_EQ(compute_bandwidth(make_facts(), row).algbw_gb_per_s, 0);
}

TEST(MakeName, CutsWhatIsTooLong) {
  EXPECT_STREQ(make_name("a_name_that_is_longer_than_there_is_room").data(),
               "a_name_that_is_longer_t");
  EXPECT_STREQ(make_name(nullptr).data(), "");
}

Result<Reporter> make_reporter(Columns columns, const std::string& json, const std::string& tsv) {
  JobFacts facts = make_facts();
  facts.options.outputs = {.columns = columns, .json = json, .tsv = tsv, .nccl_tests_json = {}};
  return Reporter::create(std::move(facts), 2);
}

TEST(Reporter, RefusesTwoFormatsOnStdout) {
  EXPECT_FALSE(make_reporter(Columns::kPlexus, "-", "-"));
}

TEST(Reporter, NamesTheFlagOfAFileThatCannotBeWritten) {
  const auto reporter = make_reporter(Columns::kPlexus, "/nonexistent/x", "");
  ASSERT_FALSE(reporter);
  EXPECT_THAT(reporter.error().message(),
              ::testing::AllOf(::testing::StartsWith("--json: cannot write"),
                               ::testing::HasSubstr("/nonexistent/x")));
}

TEST(Reporter, WritesFilesAndATable) {
  const auto folder =
      std::filesystem::path(::testing::TempDir()) / ("report_test." + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  auto reporter = make_reporter(Columns::kPlexus, folder / "r.json", folder / "r.tsv").value();
  ::testing::internal::CaptureStdout();
  reporter.begin({});
  reporter.add(make_row(false));
  reporter.add(make_row(true));
  EXPECT_TRUE(reporter.finish().value());
  const std::string table = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(
      table, ::testing::AllOf(::testing::HasSubstr("out-of-place"), ::testing::HasSubstr("1000000"),
                              ::testing::HasSubstr("0 OK")));
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "r.json"))["rows"].size(), 2U);
  const std::string tsv = read_file(folder / "r.tsv");
  EXPECT_EQ(std::count(tsv.begin(), tsv.end(), '\n'), 3);
  std::filesystem::remove_all(folder);
}

TEST(Reporter, JsonOnStdoutIsAllOfStdout) {
  auto reporter = make_reporter(Columns::kNcclTests, "-", "").value();
  ::testing::internal::CaptureStdout();
  reporter.begin({});
  reporter.add(make_row(false));
  ASSERT_TRUE(reporter.finish());
  EXPECT_EQ(nlohmann::json::parse(::testing::internal::GetCapturedStdout())["rows"].size(), 1U);
}

}  // namespace
}  // namespace plexus::perf
