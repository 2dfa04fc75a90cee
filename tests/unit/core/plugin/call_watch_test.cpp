// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/call_watch.hpp"

#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr auto kBound = std::chrono::seconds(30);

TEST(CallWatch, NamesACallThatLastsOnceAndWhomItIsFor) {
  std::promise<std::string> told;
  int times = 0;
  {
    CallWatcher watcher(milliseconds(20), [&](const std::string& text) {
      ++times;
      if (text.find("Patient") != std::string::npos) {  // on a busy machine the other one lasts too
        told.set_value(text);
      }
    });
    const WatchedCall other({"Quick", "listen", {}}, watcher);
    const WatchedCall call({"Patient", "accept", "rank 1 (there:22)"}, watcher);
    auto text = told.get_future();
    // the call lasts until it is reported
    ASSERT_EQ(text.wait_for(kBound), std::future_status::ready);
    EXPECT_THAT(text.get(), AllOf(HasSubstr("plugin Patient: accept for rank 1 (there:22)"),
                                  HasSubstr("has not returned for")));
  }
  EXPECT_LE(times, 2);  // each call at most once
}

TEST(CallWatch, WatchesAgainAfterCallsThatWereQuick) {
  std::mutex mutex;
  std::condition_variable changed;
  int told = 0;
  CallWatcher watcher(milliseconds(4), [&](const std::string& text) {
    const std::scoped_lock lock(mutex);
    told += text.find("Slow") != std::string::npos ? 1 : 0;
    changed.notify_all();
  });
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < 100; ++i) {
      const WatchedCall call({"Quick", "connect", {}}, watcher);
    }
    const WatchedCall call({"Slow", "connect", {}}, watcher);
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, kBound, [&] { return told == round; }));
  }
}

}  // namespace
}  // namespace plexus
