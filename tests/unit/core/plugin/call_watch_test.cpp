// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/call_watch.hpp"

#include <algorithm>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace plexus {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr auto kBound = std::chrono::seconds(30);

TEST(CallWatch, NamesACallThatLastsOnceAndWhomItIsFor) {
  std::promise<std::string> reported;
  int times = 0;
  {
    CallWatcher watcher(milliseconds(20), [&](const std::string& text) {
      ++times;
      if (text.find("Patient") != std::string::npos) {  // on a busy machine the other one lasts too
        reported.set_value(text);
      }
    });
    const WatchedCall other({"Quick", "listen", {}}, watcher);
    const WatchedCall call({"Patient", "accept", "rank 1 (there:22)"}, watcher);
    auto text = reported.get_future();
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
  int reported = 0;
  CallWatcher watcher(milliseconds(4), [&](const std::string& text) {
    const std::scoped_lock lock(mutex);
    reported += text.find("Slow") != std::string::npos ? 1 : 0;
    changed.notify_all();
  });
  for (int round = 1; round <= 3; ++round) {
    for (int i = 0; i < 100; ++i) {
      const WatchedCall call({"Quick", "connect", {}}, watcher);
    }
    const WatchedCall call({"Slow", "connect", {}}, watcher);
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, kBound, [&] { return reported == round; }));
  }
}

TEST(CallWatch, FindsTheLongestCallOfAThreadOrOfAny) {
  CallWatcher watcher(std::chrono::hours(1), [](const std::string&) {});
  EXPECT_FALSE(watcher.find_longest(std::nullopt).has_value());
  const WatchedCall mine({"Mine", "listen", {}}, watcher);
  std::promise<pthread_t> began;
  std::promise<void> ends;
  std::thread other([&] {
    const WatchedCall theirs({"Theirs", "connect", {}}, watcher);
    began.set_value(pthread_self());
    ends.get_future().wait();
  });
  const pthread_t thread = began.get_future().get();
  EXPECT_EQ(watcher.find_longest(std::nullopt)->plugin, "Mine") << "it began earlier";
  EXPECT_EQ(watcher.find_longest(thread)->plugin, "Theirs");
  EXPECT_EQ(watcher.find_longest(thread)->entry, "connect");
  ends.set_value();
  other.join();
}

TEST(CallWatch, FindsACallOfTheDataPathThatWasThereBefore) {
  CallWatcher& watcher = CallWatcher::of_process();
  DataPath path("Fast");
  watcher.look_at_data_paths();
  {
    const DataPath::Call call(path, "isend");
    EXPECT_FALSE(watcher.find_longest(std::nullopt).has_value()) << "it may have just begun";
    watcher.look_at_data_paths();
    const auto found = watcher.find_longest(std::nullopt);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->plugin, "Fast");
    EXPECT_EQ(found->entry, "isend");
  }
  const DataPath::Call next(path, "test");
  EXPECT_FALSE(watcher.find_longest(std::nullopt).has_value()) << "this is another call";
}

/// What is told of a data path whose calls do `work`.
std::vector<std::string> reports_of_calls(int calls, const std::function<void()>& work) {
  std::vector<std::string> reported;
  CallWatcher watcher(kBound, [&](const std::string& text) { reported.push_back(text); });
  DataPath path("Net", watcher);
  for (int i = 0; i < calls; ++i) {
    const DataPath::QuickCall call(path, "isend", "rank 1 (there:22)");
    work();
  }
  return reported;
}

TEST(DataPath, CallsThatBlockAreToldOnceWithEntryAndPeer) {
  const auto reported = reports_of_calls(20, [] { std::this_thread::sleep_for(milliseconds(3)); });
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_THAT(reported.front(), AllOf(HasSubstr("plugin Net: isend for rank 1 (there:22) took "),
                                      HasSubstr("it must return at once")));
}

TEST(DataPath, CallsThatOnlyLackACoreOrWorkALittleAreNotTold) {
  EXPECT_TRUE(reports_of_calls(1000, [] {}).empty());
  const auto copy = [from = std::vector<char>(1 << 18), to = std::vector<char>(1 << 18)]() mutable {
    std::copy(from.begin(), from.end(), to.begin());
    from[0] = to[1];
  };
  EXPECT_TRUE(reports_of_calls(300, copy).empty());
}

}  // namespace
}  // namespace plexus
