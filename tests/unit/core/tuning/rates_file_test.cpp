// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/rates_file.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

namespace fs = std::filesystem;

class RatesFile : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }
  [[nodiscard]] size_t count_files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  static HostRates some(uint64_t line_ns) {
    HostRates rates = built_in_rates();
    rates.near.line_ns = line_ns;
    return rates;
  }

  const fs::path folder_ = fs::temp_directory_path() / fmt::format("plexus-rates-{}", getpid());
  const fs::path path_ = folder_ / "rates.txt";
};

TEST_F(RatesFile, IsInTheUsersCacheUnlessNamedOrSwitchedOff) {
  EXPECT_EQ(rates_path("")->parent_path(), folder_ / "plexus");
  EXPECT_EQ(rates_path(""), rates_path(""));
  EXPECT_EQ(*rates_path("/x/y"), "/x/y");
  EXPECT_FALSE(rates_path("none"));
  setenv("XDG_CACHE_HOME", "relative", 1);
  setenv("HOME", "/somewhere", 1);
  EXPECT_EQ(rates_path("")->parent_path(), "/somewhere/.cache/plexus");
  unsetenv("HOME");
  EXPECT_FALSE(rates_path(""));
}

TEST_F(RatesFile, GivesBackWhatWasWrittenAndIsReplacedAsAWhole) {
  const fs::path path = folder_ / "new" / "rates.txt";
  ASSERT_TRUE(write_rates(path, some(1)).has_value());
  ASSERT_TRUE(write_rates(path, some(2)).has_value());
  EXPECT_EQ(read_rates(path).value(), some(2));
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), {}), 1) << "nothing is left";
}

TEST_F(RatesFile, IsAlwaysWholeForReadersWhileOthersWrite) {
  ASSERT_TRUE(write_rates(path_, some(1)).has_value());
  std::vector<std::thread> writers;
  for (uint64_t writer = 1; writer <= 3; ++writer) {
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(write_rates(path_, some(writer)).has_value());
      }
    });
  }
  for (int i = 0; i < 200; ++i) {
    EXPECT_TRUE(read_rates(path_).has_value());
  }
  for (std::thread& writer : writers) {
    writer.join();
  }
  EXPECT_EQ(count_files(), 1U);
}

TEST_F(RatesFile, ThatIsNoFileOrTooLongIsAnErrorAtOnce) {
  EXPECT_TRUE(read_rates(folder_ / "missing").has_error());
  EXPECT_TRUE(read_rates(folder_).has_error());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_TRUE(read_rates(path_).has_error()) << "a pipe that nobody writes must not block";
  fs::remove(path_);
  std::ofstream(path_) << format_rates(some(1), describe_measured_host()) << std::string(9000, ' ');
  EXPECT_TRUE(read_rates(path_).has_error());
}

TEST_F(RatesFile, ThatCannotBeWrittenIsAnErrorAndLeavesNothing) {
  EXPECT_TRUE(write_rates("/proc/none/rates.txt", some(1)).has_error());
  fs::create_directories(path_);  // a folder in its place
  EXPECT_TRUE(write_rates(path_, some(1)).has_error());
  EXPECT_EQ(count_files(), 1U);
}

TEST_F(RatesFile, IsReadOnceByAProcess) {
  ASSERT_TRUE(write_rates(path_, some(77)).has_value());
  RatesCache cache;
  EXPECT_EQ(cache.find(path_.string()), some(77));
  ASSERT_TRUE(write_rates(path_, some(78)).has_value());
  EXPECT_EQ(cache.find(path_.string()), some(77));
  RatesCache off;
  EXPECT_EQ(off.find("none"), std::nullopt);
}

TEST_F(RatesFile, ThatIsWrongIsMeasuredAnew) {
  std::ofstream(path_) << "plexus rates 1\nhost another\n";
  RatesCache cache;
  const auto rates = cache.find(path_.string());
  if (!rates) {
    GTEST_SKIP() << "this machine cannot be measured now";
  }
  EXPECT_TRUE(is_plausible(*rates));
  EXPECT_EQ(read_rates(path_).value(), *rates);
}

}  // namespace
}  // namespace plexus
