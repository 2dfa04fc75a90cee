// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/reference.hpp"

#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ReferenceTest : public ::testing::Test {
 protected:
  ReferenceTest() {
    CLI::App* const plugin = program_.add_subcommand("plugin", "Plugins");
    plugin->add_subcommand("list", "All of them");
    plugin->add_subcommand("info", "One")->add_option("FILE", file_, "its library");
    CLI::App* const perf = program_.add_subcommand("perf", "Time a call");
    perf->add_option("-b,--minbytes", file_,
                     "smallest size, from -b on\n.not a request; \\ is kept");
    perf->add_flag("--json", flag_, "as JSON");
    perf->add_option("--secret", file_, "of developers")->group("");
    program_.add_subcommand("internal", "of developers")->group("");
  }
  std::vector<std::string> complete(const std::vector<std::string>& words) {
    return complete_words(program_, words);
  }

  std::string file_;
  bool flag_ = false;
  CLI::App program_{"A command", "plexus"};
};

TEST_F(ReferenceTest, CompletesSubcommandsOfTheirs) {
  EXPECT_THAT(complete({""}), ElementsAre("plugin", "perf"));
  EXPECT_THAT(complete({"pl"}), ElementsAre("plugin"));
  EXPECT_THAT(complete({"plugin", ""}), ElementsAre("list", "info"));
  EXPECT_THAT(complete({"plugin", "info", ""}), IsEmpty()) << "a file";
  EXPECT_THAT(complete({"elsewhere", "x"}), IsEmpty());
  EXPECT_THAT(complete({}), IsEmpty());
}

TEST_F(ReferenceTest, CompletesOptionsAndLeavesTheirValuesAlone) {
  EXPECT_THAT(complete({"perf", "--"}), ElementsAre("--help", "--minbytes", "--json"));
  EXPECT_THAT(complete({"perf", "--m"}), ElementsAre("--minbytes"));
  EXPECT_THAT(complete({"perf", "-b", ""}), IsEmpty()) << "its value";
  EXPECT_THAT(complete({"-b", "perf", "--j"}), ElementsAre("--json")) << "no option of the program";
  EXPECT_THAT(complete({"perf", "-b", "plugin", "--j"}), ElementsAre("--json"));
  EXPECT_THAT(complete({"perf", "--json", "--m"}), ElementsAre("--minbytes"));
}

TEST_F(ReferenceTest, WritesAPageThatRoffReadsAsText) {
  const std::string page = make_man_page(program_, "1.2");
  EXPECT_THAT(page, HasSubstr(".TH PLEXUS 1 \"\" \"plexus 1.2\"\n"));
  EXPECT_THAT(page,
              HasSubstr(".SS plexus plugin info FILE\nOne\n.TP\n\\fIFILE\\fR\nits library\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-b\\fR, \\fB\\-\\-minbytes\\fR"));
  EXPECT_THAT(page, HasSubstr("from \\-b on\n\\&.not a request; \\e is kept\n"));
  EXPECT_THAT(page, HasSubstr("\\fB\\-\\-json\\fR\nas JSON\n"));
  EXPECT_THAT(page, Not(HasSubstr("developers")));
}

}  // namespace
}  // namespace plexus
