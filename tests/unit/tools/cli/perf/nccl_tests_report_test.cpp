// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/nccl_tests_report.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus::perf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

JobFacts make_facts(Collective collective = Collective::kAllReduce) {
  JobFacts facts = {
      .version = "0.1.0", .nccl_version = 23007, .options = {}, .mode = "procs", .printer = ""};
  facts.options.collective = collective;
  facts.options.nranks = 2;
  facts.options.sizes = {.min_bytes = 8, .max_bytes = 100, .step_factor = 2};
  return facts;
}

Row make_row(bool in_place, double time_us = 100) {
  Row row{};
  row.variant = {.type = Type::kFloat, .op = Op::kSum, .root = -1};
  row.size_bytes = 1000000;
  row.count = 250000;
  row.in_place = in_place;
  row.iterations = 20;
  row.time_us = {.median = time_us,
                 .min = 90,
                 .p99 = 130,
                 .p95 = 120,
                 .max = 140,
                 .mean = 100,
                 .deviation = 5};
  row.cpu_us = 33;
  row.wrong = 0;
  return row;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<std::string>(stream), {}};
}

TEST(NcclTestsLine, HasThirteenColumns) {
  Row unchecked = make_row(true);
  unchecked.wrong = Row::kUnchecked;
  EXPECT_THAT(words_of(nccl_tests_line(make_facts(), make_row(false), unchecked)),
              ElementsAre("1000000", "250000", "float", "sum", "-1", "100.00", "10.00", "10.00",
                          "0", "100.00", "10.00", "10.00", "N/A"));
}

TEST(NcclTestsLine, NumbersKeepTheirWidth) {
  const auto time = [](double time_us) {
    return words_of(nccl_tests_line(make_facts(), make_row(false, time_us), make_row(true)))[5];
  };
  EXPECT_EQ(time(0.18), "0.18");
  EXPECT_EQ(time(12345.678), "12345.7");
  EXPECT_EQ(time(1234567.8), "1234568");
  EXPECT_EQ(time(123456789), "1.2e+08");
}

TEST(NcclTestsLine, TheOperationIsNoneOrNamedAsByNcclTests) {
  const auto redop = [](Collective collective) {
    return words_of(nccl_tests_line(make_facts(collective), make_row(false), make_row(true)))[3];
  };
  EXPECT_EQ(redop(Collective::kReduceScatter), "sum");
  EXPECT_EQ(redop(Collective::kSendRecv), "sum");
  EXPECT_EQ(redop(Collective::kAllGather), "none");
  EXPECT_EQ(redop(Collective::kHyperCube), "none");
}

TEST(NcclTestsLine, HasMoreColumnsWhenTheyAreWanted) {
  JobFacts facts = make_facts();
  facts.options.outputs.per_iteration = true;
  facts.options.outputs.timestamps = true;
  facts.options.outputs.cpu_time = true;
  const auto words = words_of(nccl_tests_line(facts, make_row(false), make_row(true)));
  ASSERT_EQ(words.size(), 13U + 8U + 2U);
  EXPECT_EQ(words[5], "33.00");
  EXPECT_EQ(words[6], "10.00");  // bandwidths are those of the whole time
  EXPECT_THAT(std::vector(words.begin() + 9, words.begin() + 13),
              ElementsAre("90.00", "140.00", "130.00", "5.00"));
  EXPECT_THAT(words[21], ::testing::MatchesRegex("20..-..-.."));
  EXPECT_THAT(nccl_tests_header(facts, {}),
              ::testing::AllOf(HasSubstr("cputime"), HasSubstr("i_p99"), HasSubstr("timestamp")));
}

TEST(NcclTestsHeader, NamesColumnsRunAndRanks) {
  RankPlace place = {.rank = 1, .pid = 77, .index = 1, .host = {'n', '1'}};
  JobFacts facts = make_facts();
  facts.printer = "rank 0 (a job)";
  const std::string text = nccl_tests_header(facts, {place});
  EXPECT_THAT(text, HasSubstr("# Collective test starting: all_reduce_perf\n"));
  EXPECT_THAT(text, HasSubstr("# nThread 1 nGpus 1 minBytes 8 maxBytes 100 step: 2(factor)"));
  EXPECT_THAT(text, HasSubstr("#  Rank  1 Group  0 Pid     77 on         n1 device  1 "));
  EXPECT_THAT(text, HasSubstr("printed by rank 0 (a job)\n"));
  std::istringstream lines(text);
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line.front(), '#');
    if (line.find("algbw") != std::string::npos) {
      names = words_of(line);
    }
  }
  EXPECT_THAT(names, ElementsAre("#", "size", "count", "type", "redop", "root", "time", "algbw",
                                 "busbw", "#wrong", "time", "algbw", "busbw", "#wrong"));
}

TEST(NcclTestsFooter, CountsAndAverages) {
  JobFacts facts = make_facts();
  Totals totals;
  totals.add(facts, make_row(false));
  totals.add(facts, make_row(true, 50));
  EXPECT_EQ(nccl_tests_footer(facts, totals),
            "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 15 \n#\n"
            "# Collective test concluded: all_reduce_perf\n#\n\n");
  Totals slow;
  slow.add(facts, make_row(false, 1e9));
  EXPECT_THAT(nccl_tests_footer(facts, slow), HasSubstr(": 0.000001 \n"));
  Row wrong = make_row(false);
  wrong.wrong = 3;
  totals.add(facts, wrong);
  facts.options.busbw_wanted = 14.8;
  EXPECT_THAT(nccl_tests_footer(facts, totals),
              ::testing::AllOf(HasSubstr(": 3 FAILED"), HasSubstr(": 13.3333 OK")));
  facts.options.busbw_wanted = 15;
  EXPECT_THAT(nccl_tests_footer(facts, totals), HasSubstr("13.3333 FAILED"));
}

class JsonFile : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string name(const std::string& file) const { return folder_ / file; }
  static nlohmann::json read(const std::string& path) {
    std::ifstream file(path);
    return nlohmann::json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  }

  std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) /
                                  ("nccl_tests_report_test." + std::to_string(getpid()));
};

TEST_F(JsonFile, HasTheKeysOfNcclTests) {
  setenv("NCCL_SOME_SETTING", "x", 1);
  setenv("PLEXUS_SOME_SECRET", "hidden", 1);
  JobFacts facts = make_facts();
  facts.options.outputs.per_iteration = true;
  NcclTestsJson json = NcclTestsJson::create(name("x.json")).value();
  EXPECT_EQ(json.notice(), "# Writing JSON output to " + name("x.json") + "\n");
  json.begin(facts, {{.rank = 0, .pid = 5, .index = 0, .host = {'h'}}});
  Row unchecked = make_row(true);
  unchecked.wrong = Row::kUnchecked;
  Totals totals;
  totals.add(facts, make_row(false));
  ASSERT_TRUE(json.finish(facts, {make_row(false), unchecked}, totals));
  const nlohmann::json read_back = read(name("x.json"));
  for (const char* const key :
       {"version", "start_time", "args", "env", "nccl_version", "config", "results",
        "out_of_bounds", "average_bus_bandwidth", "errors", "end_time"}) {
    EXPECT_TRUE(read_back.contains(key)) << key;
  }
  EXPECT_EQ(read_back["version"], 3);
  EXPECT_THAT(read_back["env"].dump(), HasSubstr("NCCL_SOME_SETTING=x"));
  EXPECT_THAT(read_back["env"].dump(), Not(HasSubstr("hidden")));
  EXPECT_EQ(read_back["config"]["devices"][0]["hostname"], "h");
  EXPECT_EQ(read_back["config"]["step_factor"], 2);
  const auto& result = read_back["results"][0];
  EXPECT_EQ(result["size"], 1000000);
  EXPECT_EQ(result["out_of_place"]["bus_bw"], 10.0);
  EXPECT_EQ(result["out_of_place"]["nwrong"], 0);
  EXPECT_TRUE(result["in_place"]["nwrong"].is_null());
  EXPECT_EQ(result["in_place_per_iter"]["p95_us"], 120.0);
  EXPECT_EQ(read_back["out_of_bounds"]["okay"], "true");
  EXPECT_EQ(read_back["average_bus_bandwidth"]["okay"], "unchecked");
}

TEST_F(JsonFile, NeverOverwrites) {
  for (const char* const file : {"x.json", "x.json.0", "x.json.1"}) {
    NcclTestsJson json = NcclTestsJson::create(name("x.json")).value();
    EXPECT_THAT(json.notice(), HasSubstr(name(file) + "\n"));
  }
  EXPECT_EQ(NcclTestsJson::create("").value().notice(), "");
  EXPECT_THAT(NcclTestsJson::create(name("no/x.json")).error().message(),
              ::testing::StartsWith("-J: cannot write to the file"));
}

}  // namespace
}  // namespace plexus::perf
