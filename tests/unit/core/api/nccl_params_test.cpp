// SPDX-License-Identifier: Apache-2.0
// The parameter API on settings that the test gives by the environment.
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "core/api/public.hpp"

namespace plexus {
namespace {

constexpr const char* kNumber = "NCCL_BUFFSIZE";
constexpr const char* kText = "NCCL_ALGO";

class NcclParams : public testing::Test {
 protected:
  NcclParams() { clear(); }
  ~NcclParams() override { clear(); }
  static ncclParamHandle_t bind(const char* key) {
    ncclParamHandle_t handle = nullptr;
    EXPECT_EQ(ncclParamBind(&handle, key), ncclSuccess);
    return handle;
  }

 private:
  static void clear() {
    unsetenv(kNumber);
    unsetenv(kText);
  }
};

TEST_F(NcclParams, AnUnsetParameterHasItsDefault) {
  int64_t value = -1;
  EXPECT_EQ(ncclParamGetI64(bind(kNumber), &value), ncclSuccess);
  EXPECT_EQ(value, 0);
}

TEST_F(NcclParams, AHandleReadsTheValueOfTheMoment) {
  ncclParamHandle_t const handle = bind(kNumber);
  setenv(kNumber, "65536", 1);
  int32_t value = 0;
  EXPECT_EQ(ncclParamGetI32(handle, &value), ncclSuccess);
  EXPECT_EQ(value, 65536);
  setenv(kNumber, "4096", 1);
  EXPECT_EQ(ncclParamGetI32(handle, &value), ncclSuccess);
  EXPECT_EQ(value, 4096);
}

TEST_F(NcclParams, ANumberMustFitTheTypeAsAWhole) {
  ncclParamHandle_t const handle = bind(kNumber);
  setenv(kNumber, "256", 1);
  uint8_t small = 7;
  EXPECT_EQ(ncclParamGetU8(handle, &small), ncclInvalidArgument);
  uint16_t fits = 0;
  EXPECT_EQ(ncclParamGetU16(handle, &fits), ncclSuccess);
  EXPECT_EQ(fits, 256);
  setenv(kNumber, "12x", 1);
  EXPECT_EQ(ncclParamGetU16(handle, &fits), ncclInvalidArgument);
  setenv(kNumber, "-1", 1);
  EXPECT_EQ(ncclParamGetU64(handle, nullptr), ncclInvalidArgument);
  uint64_t negative = 0;
  EXPECT_EQ(ncclParamGetU64(handle, &negative), ncclInvalidArgument);
}

TEST_F(NcclParams, TextsAreReadAsTheyAre) {
  setenv(kText, "ring,tree", 1);
  const char* text = nullptr;
  EXPECT_EQ(ncclParamGetStr(bind(kText), &text), ncclSuccess);
  EXPECT_STREQ(text, "ring,tree");
  int length = 0;
  EXPECT_EQ(ncclParamGetParameter(kText, &text, &length), ncclSuccess);
  EXPECT_STREQ(text, "ring,tree");
  EXPECT_EQ(length, 9);
}

TEST_F(NcclParams, ACopyNeedsRoomForTheTerminatingZero) {
  setenv(kText, "ring", 1);
  std::array<char, 5> copy{};
  int length = 0;
  EXPECT_EQ(ncclParamGet(bind(kText), copy.data(), 4, &length), ncclInvalidArgument);
  EXPECT_EQ(ncclParamGet(bind(kText), copy.data(), 5, &length), ncclSuccess);
  EXPECT_STREQ(copy.data(), "ring");
  EXPECT_EQ(length, 4);
}

TEST_F(NcclParams, UnknownKeysAndHandlesAreRefused) {
  ncclParamHandle_t handle = nullptr;
  EXPECT_EQ(ncclParamBind(&handle, "NCCL_NO_SUCH_THING"), ncclInvalidArgument);
  EXPECT_EQ(handle, nullptr);
  EXPECT_EQ(ncclParamBind(nullptr, kText), ncclInvalidArgument);
  EXPECT_EQ(ncclParamBind(&handle, nullptr), ncclInvalidArgument);
  int local = 0;
  const char* text = nullptr;
  EXPECT_EQ(ncclParamGetStr(reinterpret_cast<ncclParamHandle_t>(&local), &text),
            ncclInvalidArgument);
}

TEST_F(NcclParams, EveryListedKeyCanBeBound) {
  const char** keys = nullptr;
  int count = 0;
  ASSERT_EQ(ncclParamGetAllParameterKeys(&keys, &count), ncclSuccess);
  ASSERT_GT(count, 0);
  bool has_number = false;
  for (int i = 0; i < count; ++i) {
    EXPECT_NE(bind(keys[i]), nullptr) << keys[i];
    has_number = has_number || std::string_view(keys[i]) == kNumber;
  }
  EXPECT_TRUE(has_number);
}

}  // namespace
}  // namespace plexus
