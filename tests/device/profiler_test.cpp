// SPDX-License-Identifier: Apache-2.0
// The profiler's events about kernels, which the recorder of tests/abi/nccl_profiler writes to a
// file.
#include "plugin-api/nccl/profiler.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <numeric>
#include <sstream>
#include <unistd.h>

#include "tests/device/job.hpp"

namespace plexus::testing_device {
namespace {

struct Heard {
  uint64_t type = 0;
  uint64_t parent = 0;
  std::vector<int> states;
  int stops = 0;
  size_t stopped_at = 0;   // line of the file
  std::string about = {};  // of a start
};

/// The recorder uses one file for the whole process.
class Profiler : public testing::Test {
 protected:
  Profiler()
      : plugin_("NCCL_PROFILER_PLUGIN", plugin_path().c_str()),
        output_("PROFILER_FIXTURE_FILE", file().c_str()),
        lines_before_(count_lines()) {}
  static void TearDownTestSuite() { std::filesystem::remove(written()); }

  /// Events of this test so far, by number.
  [[nodiscard]] std::map<uint64_t, Heard> events() const {
    std::map<uint64_t, Heard> events;
    std::ifstream lines(written());
    size_t at = 0;
    for (std::string line; std::getline(lines, line); ++at) {
      if (at < lines_before_) {
        continue;
      }
      std::istringstream words(line);
      std::string what;
      std::string skipped;
      uint64_t number = 0;
      words >> what;
      if (what == "init" || what == "finalize") {
        continue;
      }
      words >> number;
      Heard& event = events[number];
      if (what == "start") {
        words >> skipped >> event.type >> skipped >> event.parent;
        event.about = line;
      } else if (what == "stop") {
        ++event.stops;
        event.stopped_at = at;
      } else {
        int state = 0;
        words >> state;
        event.states.push_back(state);
      }
    }
    return events;
  }
  static size_t count(const std::map<uint64_t, Heard>& events, uint64_t type) {
    return static_cast<size_t>(std::count_if(events.begin(), events.end(), [&](const auto& entry) {
      return entry.second.type == type;
    }));
  }

 private:
  static std::string plugin_path() {
    return std::filesystem::read_symlink("/proc/self/exe").parent_path() /
           "libnccl-profiler-recorder-v5.so";
  }
  static std::filesystem::path file() {
    return std::filesystem::temp_directory_path() / "plexus_device_profiler";
  }
  static std::filesystem::path written() { return fmt::format("{}.{}", file().string(), getpid()); }
  static size_t count_lines() {
    std::ifstream lines(written());
    return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(lines), {}, '\n'));
  }

  Setting plugin_;
  Setting output_;
  size_t lines_before_;
};

void all_reduce(Job& job, const std::vector<Buffer<int32_t>>& data) {
  job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
    int32_t* const values = data[static_cast<size_t>(rank)].data();
    return ncclAllReduce(values, values, 500, ncclInt32, ncclSum, comm, stream);
  });
}

TEST_F(Profiler, HearsOfLaunchesAndKernelsWithoutHoldingThemUp) {
  if (machine().waits_in_launch()) {
    GTEST_SKIP() << kWaitsInLaunch;
  }
  std::vector<Buffer<int32_t>> data;
  data.emplace_back(0, std::vector<int32_t>(500, 1));
  data.emplace_back(0, std::vector<int32_t>(500, 1));
  {
    Job job({0, 0});
    std::promise<void> go;
    machine().enqueue(job.stream(0), [wait = go.get_future().share()] { wait.wait(); });
    all_reduce(job, data);
    all_reduce(job, data);  // returns although the first has not started
    go.set_value();
    job.synchronize();
  }
  EXPECT_EQ(data[1].values(), std::vector<int32_t>(500, 4));
  const auto heard = events();
  EXPECT_EQ(count(heard, NCCL_PROFILE_KERNEL_LAUNCH), 4U);  // one per rank
  EXPECT_EQ(count(heard, NCCL_PROFILE_COLL), 4U);
  EXPECT_GE(count(heard, NCCL_PROFILE_KERNEL_CHANNEL), 4U);
  for (const auto& [number, event] : heard) {
    EXPECT_EQ(event.stops, 1) << number;
    if (event.type == NCCL_PROFILE_KERNEL_CHANNEL) {
      EXPECT_EQ(heard.at(event.parent).type, uint64_t{NCCL_PROFILE_COLL});
      EXPECT_THAT(event.states, testing::ElementsAre(NCCL_PROFILE_KERNEL_CHANNEL_STOP));
    }
    if (event.type == NCCL_PROFILE_KERNEL_LAUNCH) {
      EXPECT_EQ(heard.at(event.parent).type, uint64_t{NCCL_PROFILE_GROUP_API});
    }
  }
}

/// The number after the word "channel" or "channels".
int number_after(const std::string& about, const std::string& word) {
  return std::stoi(about.substr(about.find(word) + word.size()));
}

TEST_F(Profiler, HearsOfTheChannelsOfEveryCallOfAGroupAfterItsStop) {
  const std::vector<int32_t> ones(500, 1);
  {
    std::vector<Buffer<int32_t>> first;
    std::vector<Buffer<int32_t>> second;
    for (int rank = 0; rank < 2; ++rank) {
      first.emplace_back(0, ones);
      second.emplace_back(0, ones);
    }
    Job job({0, 0});
    job.run_in_group([&](int rank, ncclComm_t comm, DeviceStream stream) {
      for (const auto* const data : {&first, &second}) {
        int32_t* const values = (*data)[static_cast<size_t>(rank)].data();
        if (ncclAllReduce(values, values, 500, ncclInt32, ncclSum, comm, stream) != ncclSuccess) {
          return ncclInternalError;
        }
      }
      return ncclSuccess;
    });
    job.synchronize();
  }
  const auto heard = events();
  ASSERT_EQ(count(heard, NCCL_PROFILE_COLL), 4U);
  for (const auto& [number, coll] : heard) {
    if (coll.type != NCCL_PROFILE_COLL) {
      continue;
    }
    std::vector<int> channels;
    size_t last_stop = 0;
    for (const auto& [child_number, child] : heard) {
      if (child.type == NCCL_PROFILE_KERNEL_CHANNEL && child.parent == number) {
        channels.push_back(number_after(child.about, " channel "));
        last_stop = std::max(last_stop, child.stopped_at);
      }
    }
    std::vector<int> expected(static_cast<size_t>(number_after(coll.about, " channels ")));
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_FALSE(expected.empty());
    EXPECT_THAT(channels, testing::UnorderedElementsAreArray(expected)) << coll.about;
    EXPECT_LT(coll.stopped_at, last_stop);
  }
}

TEST_F(Profiler, HearsOfTheCaptureOfAGraphAndNotOfItsReplays) {
  std::vector<Buffer<int32_t>> data;
  data.emplace_back(0, std::vector<int32_t>(500, 1));
  {
    Job job({0});
    machine().begin_capture(job.stream(0));
    all_reduce(job, data);
    const auto graph = machine().end_capture(job.stream(0));
    machine().replay(graph, job.stream(0));
    machine().replay(graph, job.stream(0));
    job.synchronize();
  }
  const auto heard = events();
  EXPECT_EQ(count(heard, NCCL_PROFILE_KERNEL_LAUNCH), 1U);
  EXPECT_EQ(count(heard, NCCL_PROFILE_KERNEL_CHANNEL), 0U);
  for (const auto& [number, event] : heard) {
    EXPECT_EQ(event.stops, 1) << number;
  }
}

}  // namespace
}  // namespace plexus::testing_device
