// SPDX-License-Identifier: Apache-2.0
// ncclCollConfig_t and its list of options as callers pass them, good and bad.
#include "core/api/coll_config.hpp"

#include <array>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using testing::HasSubstr;

std::string why_not(const ncclCollConfig_t& config) {
  const auto checked = check_coll_config(config);
  if (checked.has_value()) {
    return "accepted";
  }
  EXPECT_EQ(checked.error().code(), Code::kInvalidArgument);
  return std::string(checked.error().message());
}

ncclConfigExt_t option_of(int vendor, int option, int value, ncclConfigExt_t* next = nullptr) {
  ncclConfigExt_t made{};
  made.next = next;
  made.key.vendorId = vendor;
  made.key.optionId = option;
  made.val.i = value;
  return made;
}

TEST(CollConfig, TheInitializerAsksForNothing) {
  const ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  const CollConfig checked = check_coll_config(config).value();
  EXPECT_EQ(checked.selection, "");
  EXPECT_TRUE(checked.is_forced);
  EXPECT_EQ(checked.min_ctas, 0);
  EXPECT_EQ(checked.max_ctas, 0);
  EXPECT_EQ(checked.tag, 0U);
  EXPECT_FALSE(checked.deterministic);
  EXPECT_EQ(checked.on_choice.function, nullptr);
}

TEST(CollConfig, ABadHeaderIsRefused) {
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.magic = 1;
  EXPECT_THAT(why_not(config), HasSubstr("NCCL_COLLCONFIG_INITIALIZER"));
  config = NCCL_COLLCONFIG_INITIALIZER;
  config.size = 15;
  EXPECT_THAT(why_not(config), HasSubstr("NCCL_COLLCONFIG_INITIALIZER"));
  config = NCCL_COLLCONFIG_INITIALIZER;
  config.forceAlgSelection = 2;
  EXPECT_THAT(why_not(config), HasSubstr("forceAlgSelection is 2"));
  config = NCCL_COLLCONFIG_INITIALIZER;
  for (const int policy : {-1, 4}) {
    config.CTAPolicy = policy;
    EXPECT_THAT(why_not(config), HasSubstr("CTAPolicy")) << policy;
  }
}

TEST(CollConfig, ChannelsOutOfRangeAreThoseOfTheCommunicator) {
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.minCTAs = 65;
  config.maxCTAs = 0;
  EXPECT_EQ(check_coll_config(config).value().min_ctas, 0);
  EXPECT_EQ(check_coll_config(config).value().max_ctas, 0);
  config.minCTAs = 8;
  config.maxCTAs = 4;
  EXPECT_EQ(check_coll_config(config).value().min_ctas, 1) << "NCCL's rule for min above max";
  EXPECT_EQ(check_coll_config(config).value().max_ctas, 4);
}

/// In the struct of a release, what follows cannot be read.
TEST(CollConfig, NothingBeyondItsSizeIsRead) {
  struct Release {
    size_t size_bytes;
    unsigned version;
  };
  const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const pages =
      mmap(nullptr, 2 * page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  auto* const end = static_cast<std::byte*>(pages) + page_bytes;
  ASSERT_EQ(mprotect(end, page_bytes, PROT_NONE), 0);
  for (const Release& release : {Release{16, 23102}, Release{64, 23102}, Release{72, 23203},
                                 Release{80, 23300}, Release{4096, 99999}}) {
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    config.size = release.size_bytes;
    config.version = release.version;
    config.userProfilerTag = 7;
    std::byte* const at = end - release.size_bytes;
    std::memset(at, 0x5a, release.size_bytes);
    std::memcpy(at, &config, std::min(sizeof config, release.size_bytes));
    const auto checked = check_coll_config(*reinterpret_cast<const ncclCollConfig_t*>(at));
    ASSERT_TRUE(checked.has_value()) << release.size_bytes;
    EXPECT_EQ(checked.value().tag, release.size_bytes < 64 ? 0U : 7U);
  }
  EXPECT_EQ(munmap(pages, 2 * page_bytes), 0);
}

TEST(CollConfig, APointerThatTheSizeCutsInTwoIsNotUsed) {
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.algSelection = "ring";
  config.ext = reinterpret_cast<ncclConfigExt_t*>(-1);  // NOLINT(performance-no-int-to-ptr)
  for (size_t size_bytes = 16; size_bytes < 24; ++size_bytes) {
    config.size = size_bytes;
    EXPECT_EQ(check_coll_config(config).value().selection, "");
  }
  config.ext = nullptr;
  for (size_t size_bytes = 40; size_bytes < 48; ++size_bytes) {
    config.size = size_bytes;
    EXPECT_EQ(check_coll_config(config).value().selection, "");
  }
  config.size = 48;
  EXPECT_EQ(check_coll_config(config).value().selection, "ring");
}

TEST(CollConfig, OptionsOfOtherVendorsArePassedOverWithoutALook) {
  ncclConfigExt_t last = option_of(PLEXUS_VENDOR_ID, PLEXUS_OPTION_DETERMINISTIC, 1);
  ncclConfigExt_t wild = option_of(0x123456, PLEXUS_OPTION_EXPLAIN, 0, &last);
  wild.val.raw = reinterpret_cast<void*>(1);  // NOLINT(performance-no-int-to-ptr): must not be read
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.ext = &wild;
  EXPECT_TRUE(check_coll_config(config).value().deterministic);
}

TEST(CollConfig, AnOptionOfALaterPlexusHasNoEffect) {
  ncclConfigExt_t later = option_of(PLEXUS_VENDOR_ID, 12345, -1);
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.ext = &later;
  EXPECT_EQ(why_not(config), "accepted");
}

TEST(CollConfig, ABadValueOfAnOptionIsRefused) {
  ncclConfigExt_t option = option_of(PLEXUS_VENDOR_ID, PLEXUS_OPTION_DETERMINISTIC, 2);
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.ext = &option;
  EXPECT_THAT(why_not(config), HasSubstr("PLEXUS_OPTION_DETERMINISTIC is 2"));
  option = option_of(PLEXUS_VENDOR_ID, PLEXUS_OPTION_EXPLAIN, 0);
  option.val.raw = nullptr;
  EXPECT_THAT(why_not(config), HasSubstr("plexusExplain_t"));
  plexusExplain_t nobody{};
  option.val.raw = &nobody;
  EXPECT_THAT(why_not(config), HasSubstr("plexusExplain_t"));
}

TEST(CollConfig, ACircularListIsRefusedAndALongOneIsNot) {
  ncclConfigExt_t first = option_of(0x123456, 1, 0);
  ncclConfigExt_t second = option_of(0x123456, 2, 0, &first);
  first.next = &second;
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.ext = &first;
  EXPECT_THAT(why_not(config), HasSubstr("is it circular?"));
  std::array<ncclConfigExt_t, kExtensionsMax> list{};
  for (size_t i = 0; i < list.size(); ++i) {
    list[i] =
        option_of(0x123456, static_cast<int>(i), 0, i + 1 < list.size() ? &list[i + 1] : nullptr);
  }
  config.ext = list.data();
  EXPECT_EQ(why_not(config), "accepted");
  list.back().next = &second;
  first.next = nullptr;
  EXPECT_THAT(why_not(config), HasSubstr("more than 1024 options"));
}

/// What is left of a list whose writer stopped halfway.
TEST(CollConfig, AListWithAnOptionOfNobodyIsRefused) {
  ncclConfigExt_t truncated{};
  ncclConfigExt_t first = option_of(PLEXUS_VENDOR_ID, PLEXUS_OPTION_DETERMINISTIC, 0, &truncated);
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.ext = &first;
  EXPECT_THAT(why_not(config), HasSubstr("option 1 of ncclCollConfig_t.ext has vendorId 0"));
  truncated.key.vendorId = 1 << 24;
  EXPECT_THAT(why_not(config), HasSubstr("must be in 1..16777215"));
}

}  // namespace
}  // namespace plexus
