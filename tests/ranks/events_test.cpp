// SPDX-License-Identifier: Apache-2.0
// Events and host functions of asynchronous streams. Work stays pending as long as a test wants:
// rank 0 makes a call, and rank 1 makes it later.
#include <atomic>

#include "tests/ranks/job.hpp"

namespace plexus {
namespace {

using testing_job::Job;

class Stream {
 public:
  Stream() { EXPECT_EQ(plexusStreamCreate(&stream_), ncclSuccess); }
  ~Stream() { (void)plexusStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  // NOLINTNEXTLINE(google-explicit-constructor): converts to the handle
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { EXPECT_EQ(plexusEventCreate(&event_), ncclSuccess); }
  ~Event() { destroy(); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  // NOLINTNEXTLINE(google-explicit-constructor): converts to the handle
  operator plexusEvent_t() const { return event_; }
  void destroy() {
    if (event_ != nullptr) {
      EXPECT_EQ(plexusEventDestroy(std::exchange(event_, nullptr)), ncclSuccess);
    }
  }

 private:
  plexusEvent_t event_ = nullptr;
};

/// Two ranks of a communicator with a stream each; a call ends when both have made it.
class Pair {
 public:
  /// The rank's next all-reduce.
  void call(int rank) { call_on(rank, streams_[rank]); }
  void call_on(int rank, cudaStream_t stream) {
    EXPECT_EQ(
        ncclAllReduce(&input_[rank], &sum_[rank], 1, ncclInt, ncclSum, job_.comm(rank), stream),
        ncclSuccess)
        << ncclGetLastError(nullptr);
  }
  [[nodiscard]] cudaStream_t stream(int rank) const { return streams_[rank]; }
  [[nodiscard]] const Job& job() const { return job_; }
  [[nodiscard]] int sum(int rank) const { return sum_[rank]; }
  void set_input(int rank, int value) { input_[rank] = value; }

 private:
  int input_[2] = {1, 2};
  int sum_[2] = {0, 0};
  Job job_{2};
  Stream streams_[2];
};

void set_flag(void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); }

/// Returns when the engine has started everything submitted before that can start.
void let_engine_run() {
  const Stream stream;
  std::atomic<bool> ran{false};
  ASSERT_EQ(plexusLaunchHostFunc(stream, set_flag, &ran), ncclSuccess);
  ASSERT_EQ(plexusStreamSynchronize(stream), ncclSuccess);
  ASSERT_TRUE(ran);
}

TEST(Events, StandForTheWorkSoFar) {
  Pair pair;
  const Event event;
  pair.call(0);
  ASSERT_EQ(plexusEventRecord(event, pair.stream(0)), ncclSuccess);
  pair.call(0);
  EXPECT_EQ(plexusEventQuery(event), ncclInProgress);
  pair.call(1);
  EXPECT_EQ(plexusEventSynchronize(event), ncclSuccess);
  EXPECT_EQ(plexusEventQuery(event), ncclSuccess);
  EXPECT_EQ(pair.sum(0), 3);
  EXPECT_EQ(plexusStreamQuery(pair.stream(0)), ncclInProgress) << "the second call is later work";
  pair.call(1);
  EXPECT_EQ(plexusStreamSynchronize(pair.stream(0)), ncclSuccess);
}

TEST(Events, NeverRecordedNobodyWaits) {
  const Event event;
  const Stream stream;
  EXPECT_EQ(plexusEventQuery(event), ncclSuccess);
  EXPECT_EQ(plexusEventSynchronize(event), ncclSuccess);
  EXPECT_EQ(plexusStreamWaitEvent(stream, event), ncclSuccess);
  EXPECT_EQ(plexusStreamQuery(stream), ncclSuccess);
}

TEST(Events, AStreamThatWaitsStartsNothingLater) {
  Pair first;
  Pair second;
  const Event event;
  first.call(0);
  ASSERT_EQ(plexusEventRecord(event, first.stream(0)), ncclSuccess);
  ASSERT_EQ(plexusStreamWaitEvent(second.stream(0), event), ncclSuccess);
  std::atomic<bool> started{false};
  ASSERT_EQ(plexusLaunchHostFunc(second.stream(0), set_flag, &started), ncclSuccess);
  second.call(0);
  second.call(1);
  let_engine_run();
  EXPECT_FALSE(started);
  EXPECT_EQ(plexusStreamQuery(second.stream(0)), ncclInProgress);
  EXPECT_EQ(plexusStreamQuery(second.stream(1)), ncclInProgress);
  first.call(1);
  EXPECT_EQ(plexusStreamSynchronize(second.stream(1)), ncclSuccess);
  EXPECT_TRUE(started);
  EXPECT_EQ(second.sum(1), 3);
  EXPECT_EQ(first.sum(0), 3);
}

TEST(Events, OtherStreamsGoOnBesideOneThatWaits) {
  Pair held;
  Pair waiting;
  Pair other;
  const Event event;
  held.call(0);
  ASSERT_EQ(plexusEventRecord(event, held.stream(0)), ncclSuccess);
  ASSERT_EQ(plexusStreamWaitEvent(waiting.stream(0), event), ncclSuccess);
  other.call(0);
  other.call(1);
  EXPECT_EQ(plexusStreamSynchronize(other.stream(0)), ncclSuccess);
  EXPECT_EQ(plexusStreamQuery(waiting.stream(0)), ncclInProgress);
  held.call(1);
  EXPECT_EQ(plexusStreamSynchronize(waiting.stream(0)), ncclSuccess);
}

/// A stream waits for work that itself waits for an event.
TEST(Events, ChainOverStreams) {
  Pair pair;
  const Stream streams[3];
  const Event events[3];
  pair.call(0);
  cudaStream_t before = pair.stream(0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(plexusEventRecord(events[i], before), ncclSuccess);
    ASSERT_EQ(plexusStreamWaitEvent(streams[i], events[i]), ncclSuccess);
    before = streams[i];
  }
  let_engine_run();
  EXPECT_EQ(plexusEventQuery(events[2]), ncclInProgress);
  EXPECT_EQ(plexusStreamQuery(streams[2]), ncclInProgress);
  pair.call(1);
  EXPECT_EQ(plexusStreamSynchronize(streams[2]), ncclSuccess);
  EXPECT_EQ(plexusEventQuery(events[2]), ncclSuccess);
}

TEST(Events, RecordedAgainReplacesForLaterWaitsOnly) {
  Pair pair;
  const Event event;
  const Stream idle;
  const Stream early;
  const Stream late;
  pair.call(0);
  ASSERT_EQ(plexusEventRecord(event, pair.stream(0)), ncclSuccess);
  ASSERT_EQ(plexusStreamWaitEvent(early, event), ncclSuccess);
  ASSERT_EQ(plexusEventRecord(event, idle), ncclSuccess);
  ASSERT_EQ(plexusStreamWaitEvent(late, event), ncclSuccess);
  EXPECT_EQ(plexusEventQuery(event), ncclSuccess);
  EXPECT_EQ(plexusStreamQuery(late), ncclSuccess);
  let_engine_run();
  EXPECT_EQ(plexusStreamQuery(early), ncclInProgress);
  pair.call(1);
  EXPECT_EQ(plexusStreamSynchronize(early), ncclSuccess);
}

TEST(Events, MayGoWhileStreamsAndThreadsWait) {
  Pair pair;
  Event event;
  const Stream waiting;
  pair.call(0);
  ASSERT_EQ(plexusEventRecord(event, pair.stream(0)), ncclSuccess);
  ASSERT_EQ(plexusStreamWaitEvent(waiting, event), ncclSuccess);
  std::atomic<bool> asked{false};
  std::thread thread([&asked, handle = plexusEvent_t{event}] {
    EXPECT_EQ(plexusEventQuery(handle), ncclInProgress);
    asked = true;
    asked.notify_one();
    const ncclResult_t waited = plexusEventSynchronize(handle);
    // Either it already waits when the event is destroyed, or the event no longer exists.
    EXPECT_TRUE(waited == ncclSuccess || waited == ncclInvalidArgument);
  });
  asked.wait(false);
  const plexusEvent_t handle = event;
  event.destroy();
  EXPECT_EQ(plexusEventQuery(handle), ncclInvalidArgument);
  EXPECT_EQ(plexusEventDestroy(handle), ncclInvalidArgument);
  EXPECT_EQ(plexusStreamQuery(waiting), ncclInProgress);
  pair.call(1);
  thread.join();
  EXPECT_EQ(plexusStreamSynchronize(waiting), ncclSuccess);
}

TEST(Events, OutliveTheirStream) {
  Pair pair;
  const Event event;
  {
    const Stream stream;
    pair.call_on(0, stream);
    ASSERT_EQ(plexusEventRecord(event, stream), ncclSuccess);
    pair.call(1);
  }
  EXPECT_EQ(plexusEventQuery(event), ncclSuccess);
}

TEST(Events, ThreadsWaitForOneTogether) {
  Pair pair;
  const Event event;
  pair.call(0);
  ASSERT_EQ(plexusEventRecord(event, pair.stream(0)), ncclSuccess);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      EXPECT_EQ(plexusEventSynchronize(event), ncclSuccess);
      EXPECT_EQ(pair.sum(0), 3);
    });
  }
  pair.call(1);
  for (std::thread& thread : threads) {
    thread.join();
  }
}

/// An event recorded after a group of all communicators on one stream is reached after all of them.
TEST(Events, StandForAWholeGroup) {
  Pair pair;
  Pair other;
  const Stream stream;
  const Event event;
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  pair.call_on(0, stream);
  other.call_on(0, stream);
  ASSERT_EQ(plexusEventRecord(event, stream), ncclSuccess);
  EXPECT_EQ(plexusEventQuery(event), ncclSuccess) << "the group's work comes with its end";
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
  ASSERT_EQ(plexusEventRecord(event, stream), ncclSuccess);
  pair.call(1);
  EXPECT_EQ(plexusStreamSynchronize(pair.stream(1)), ncclSuccess);
  EXPECT_EQ(plexusEventQuery(event), ncclInProgress);
  other.call(1);
  EXPECT_EQ(plexusEventSynchronize(event), ncclSuccess);
  EXPECT_EQ(other.sum(0), 3);
}

TEST(Events, TellOfFailureAndCarryItOn) {
  ncclComm_t comms[2];
  ASSERT_EQ(ncclCommInitAll(comms, 2, nullptr), ncclSuccess);
  const Stream stream;
  const Stream waiting;
  const Event event;
  const Event early;
  int value = 1;
  ASSERT_EQ(plexusEventRecord(early, stream), ncclSuccess);
  ASSERT_EQ(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comms[0], stream), ncclSuccess);
  ASSERT_EQ(plexusEventRecord(event, stream), ncclSuccess);
  ASSERT_EQ(plexusStreamWaitEvent(waiting, event), ncclSuccess);
  std::atomic<bool> ran{false};
  ASSERT_EQ(plexusLaunchHostFunc(waiting, set_flag, &ran), ncclSuccess);
  ASSERT_EQ(ncclCommAbort(comms[1]), ncclSuccess);
  EXPECT_EQ(plexusEventSynchronize(event), ncclRemoteError);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("rank 1 called ncclCommAbort"));
  EXPECT_EQ(plexusEventQuery(event), ncclRemoteError);
  EXPECT_EQ(plexusStreamSynchronize(waiting), ncclRemoteError);
  EXPECT_TRUE(ran) << "who counts on it must not wait for ever";
  EXPECT_EQ(plexusEventQuery(early), ncclSuccess);
  ASSERT_EQ(ncclCommAbort(comms[0]), ncclSuccess);
}

struct Chain {
  Pair* pair;
  cudaStream_t stream;
  std::vector<int> sums;
};

TEST(HostFunctions, SeeTheResultsBeforeThemAndMayPutWorkOnStreams) {
  Pair pair;
  const Stream stream;
  Chain chain{&pair, stream, {}};
  const auto note = [](void* user) {
    auto& mine = *static_cast<Chain*>(user);
    mine.sums.push_back(mine.pair->sum(0));
    if (mine.sums.size() == 1) {
      mine.pair->set_input(0, 5);
      mine.pair->call(0);
      mine.pair->call(1);
    }
  };
  pair.call(0);
  ASSERT_EQ(plexusLaunchHostFunc(pair.stream(0), note, &chain), ncclSuccess);
  pair.call(1);
  ASSERT_EQ(plexusStreamSynchronize(pair.stream(0)), ncclSuccess);
  ASSERT_EQ(plexusLaunchHostFunc(pair.stream(0), note, &chain), ncclSuccess);
  ASSERT_EQ(plexusStreamSynchronize(pair.stream(0)), ncclSuccess);
  ASSERT_EQ(plexusStreamSynchronize(pair.stream(1)), ncclSuccess);
  EXPECT_EQ(chain.sums, (std::vector<int>{3, 7}));
}

TEST(Events, HandlesAreOurs) {
  const Event event;
  const Stream stream;
  int somewhere = 0;
  auto* const strange = reinterpret_cast<plexusEvent_t>(&somewhere);
  EXPECT_EQ(plexusEventCreate(nullptr), ncclInvalidArgument);
  EXPECT_EQ(plexusEventDestroy(nullptr), ncclInvalidArgument);
  EXPECT_EQ(plexusEventQuery(strange), ncclInvalidArgument);
  EXPECT_EQ(plexusEventSynchronize(strange), ncclInvalidArgument);
  EXPECT_EQ(plexusEventRecord(strange, stream), ncclInvalidArgument);
  EXPECT_EQ(plexusEventRecord(event, nullptr), ncclInvalidArgument);
  EXPECT_EQ(plexusStreamWaitEvent(stream, strange), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(nullptr), testing::HasSubstr("plexusEventCreate"));
  EXPECT_EQ(plexusStreamWaitEvent(nullptr, event), ncclInvalidArgument);
  EXPECT_EQ(plexusLaunchHostFunc(stream, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(plexusLaunchHostFunc(nullptr, set_flag, nullptr), ncclInvalidArgument);
}

}  // namespace
}  // namespace plexus
