// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/measure_rates.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

namespace fs = std::filesystem;

/// A /sys of eight cores: two packages, in each two caches of two cores.
class CorePairsTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / fmt::format("plexus-cores-{}", getpid());
    for (int core = 0; core < 8; ++core) {
      const fs::path folder = root_ / fmt::format("devices/system/cpu/cpu{}", core);
      write(folder / "topology/physical_package_id", fmt::format("{}", core / 4));
      write(folder / "topology/thread_siblings_list", fmt::format("{}", core));
      write(folder / "cache/index3/shared_cpu_list",
            fmt::format("{}-{}", core / 2 * 2, core / 2 * 2 + 1));
    }
  }
  void TearDown() override { fs::remove_all(root_); }

  static void write(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  void make_siblings(int core, const std::string& list) {
    write(root_ / fmt::format("devices/system/cpu/cpu{}/topology/thread_siblings_list", core),
          list);
  }
  [[nodiscard]] CorePairs find(std::initializer_list<int> cores) const {
    return find_core_pairs(std::vector<int>(cores), root_.string());
  }

  fs::path root_;
};

TEST_F(CorePairsTest, AreNearInACacheAndFarInAnotherPackage) {
  const CorePairs pairs = find({0, 1, 2, 3, 4, 5});
  EXPECT_EQ(pairs.near, (CorePair{0, 1}));
  EXPECT_EQ(pairs.far, (CorePair{0, 4}));
}

TEST_F(CorePairsTest, AreFarInAnotherCacheWhereThereIsOnePackage) {
  EXPECT_EQ(find({0, 1, 2, 3}).far, (CorePair{0, 2}));
}

TEST_F(CorePairsTest, AreNoSiblingsOfOneCore) {
  make_siblings(0, "0-1");
  make_siblings(1, "0-1");
  EXPECT_EQ(find({0, 1, 2}).near, std::nullopt);
}

TEST_F(CorePairsTest, AreOnlyThoseThatThisProcessMayUse) {
  EXPECT_EQ(find({1}).near, std::nullopt);
  EXPECT_EQ(find({1}).far, std::nullopt);
  EXPECT_EQ(find({}).near, std::nullopt);
  EXPECT_EQ(find({2, 6}).near, std::nullopt);
  EXPECT_EQ(find({2, 6}).far, (CorePair{2, 6}));
}

TEST_F(CorePairsTest, AreNearWhereTheKernelSaysNothing) {
  EXPECT_EQ(find_core_pairs(std::array{3, 5}, "/nowhere").near, (CorePair{3, 5}));
}

TEST(MeasureHost, GivesPlausibleRatesOrSaysWhyNot) {
  const auto rates = measure_host_rates();
  if (rates.has_error()) {
    GTEST_SKIP() << rates.error().message();
  }
  EXPECT_TRUE(is_plausible(rates.value()));
  const PairRates& near = rates.value().near;
  EXPECT_GT(near.time_ns(CopyMethod::kThroughSlots, kRatesBytes.back()),
            near.time_ns(CopyMethod::kThroughSlots, kRatesBytes.front()));
}

}  // namespace
}  // namespace plexus
