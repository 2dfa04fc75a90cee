// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/peer.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace plexus::net_ofi {
namespace {

using namespace std::chrono_literals;

constexpr Clock::time_point kStart(1h);

TEST(PeerTimer, LooksAtMostEveryFiveMilliseconds) {
  PeerTimer timer(1s, kStart);
  EXPECT_FALSE(timer.look_is_due(kStart + 4ms));
  EXPECT_TRUE(timer.look_is_due(kStart + 5ms));
  EXPECT_FALSE(timer.look_is_due(kStart + 9ms));
  EXPECT_TRUE(timer.look_is_due(kStart + 10ms));
}

TEST(PeerTimer, ProbesLessAndLessOften) {
  PeerTimer timer(1s, kStart);
  EXPECT_FALSE(timer.is_probe_due(kStart + 999ms));
  EXPECT_TRUE(timer.is_probe_due(kStart + 1s));
  auto at = kStart + 1s;
  for (const auto pause : {2s, 4s, 8s, 16s, 32s, 60s, 60s}) {
    EXPECT_TRUE(timer.note_probe(true, at));
    EXPECT_FALSE(timer.is_probe_due(at + pause - 1ms)) << pause.count();
    at += pause;
    EXPECT_TRUE(timer.is_probe_due(at)) << pause.count();
  }
  timer.note_event(at);
  EXPECT_FALSE(timer.is_probe_due(at + 999ms));
  EXPECT_TRUE(timer.is_probe_due(at + 1s));
}

TEST(PeerTimer, APeerIsUnreachableWhenNoProbeGoesForFiveSeconds) {
  PeerTimer timer(1s, kStart);
  EXPECT_TRUE(timer.note_probe(false, kStart + 1s));
  EXPECT_TRUE(timer.is_probe_due(kStart + 1s)) << "again at once";
  EXPECT_TRUE(timer.note_probe(false, kStart + 6s));
  EXPECT_FALSE(timer.note_probe(false, kStart + 6s + 1ms));
}

TEST(PeerTimer, AnEventOrAProbeThatGoesEndsTheTimeOfRefusals) {
  PeerTimer timer(1s, kStart);
  EXPECT_TRUE(timer.note_probe(false, kStart + 1s));
  timer.note_event(kStart + 2s);
  EXPECT_TRUE(timer.note_probe(false, kStart + 9s));
  EXPECT_TRUE(timer.note_probe(true, kStart + 10s));
  EXPECT_TRUE(timer.note_probe(false, kStart + 30s));
}

TEST(PeerTimer, EarlierMessagesOfAPeerThatIsGoneComeForAsLongAsSomeDo) {
  PeerTimer timer(1s, kStart);
  timer.note_departure(kStart + 1s);
  EXPECT_FALSE(timer.is_silent(kStart + 1100ms));
  EXPECT_TRUE(timer.is_silent(kStart + 1101ms));
  timer.note_event(kStart + 1050ms);
  EXPECT_FALSE(timer.is_silent(kStart + 1150ms));
}

TEST(PeerWatch, SeesTheEndOfAProcessOfThisHost) {
  const WireProcess here = this_process("");
  const pid_t child = fork();
  if (child == 0) {
    for (;;) {
      pause();
    }
  }
  WireProcess there = here;
  there.process_id = static_cast<uint32_t>(child);
  there.start_time = 0;  // unknown
  const PeerWatch watch(here, there);
  EXPECT_FALSE(watch.has_ended());
  there.host_id ^= 1;
  const PeerWatch elsewhere(here, there);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(watch.has_ended());
  EXPECT_FALSE(elsewhere.has_ended()) << "its numbers mean nothing here";
  EXPECT_FALSE(PeerWatch(here, here).has_ended());
}

}  // namespace
}  // namespace plexus::net_ofi
