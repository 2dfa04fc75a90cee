// SPDX-License-Identifier: Apache-2.0
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "core/api/public.hpp"

namespace plexus {
namespace {

TEST(NcclErrors, EveryResultHasItsOwnText) {
  std::set<std::string> texts;
  for (int result = 0; result < ncclNumResults; ++result) {
    const std::string text = ncclGetErrorString(static_cast<ncclResult_t>(result));
    EXPECT_NE(text, "unknown result code") << result;
    EXPECT_TRUE(texts.insert(text).second) << result << " has another one's text: " << text;
  }
}

TEST(NcclErrors, UnknownResultsHaveATextToo) {
  EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(ncclNumResults)),
               "unknown result code");
  EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(-1)), "unknown result code");
}

TEST(NcclErrors, TheVersionIsTheHeaders) {
  int version = 0;
  EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

TEST(NcclErrors, TheLastErrorNamesWhatFailed) {
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
  EXPECT_STREQ(ncclGetLastError(nullptr), "version is NULL");
}

TEST(NcclErrors, TheOtherNameIsTheSameFunction) {
  int version = 0;
  EXPECT_EQ(pncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

}  // namespace
}  // namespace plexus
