// SPDX-License-Identifier: Apache-2.0
// CUDA ranks in separate processes: this program starts itself once for each rank with a role. The
// exit code says whether the rank succeeded, its log which transports it used.
#include "tests/device/processes.hpp"

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include "tests/device/rank.hpp"
#include "tests/device/role.hpp"
#include "tests/device/shapes.hpp"

namespace plexus::testing_device {
namespace {

/// All-reduce of several sizes, each twice.
int all_reduce_role() {
  const Rank me;
  bool is_right = true;
  for (const size_t count : {size_t{1}, size_t{900}, size_t{30'000}, Rank::kCountMax}) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      me.fill(count, me.rank + 1);
      if (me.all_reduce(count) != ncclSuccess) {
        return 2;
      }
      me.synchronize();
      is_right = is_right && me.holds(count, me.sum());
    }
  }
  if (ncclCommDestroy(me.comm) != ncclSuccess) {
    return 4;
  }
  return is_right ? 0 : kWrongSum;
}

/// One small all-reduce.
int all_reduce_once_role() {
  const Rank me;
  me.fill(10, me.rank + 1);
  if (me.all_reduce(10) != ncclSuccess) {
    return 2;
  }
  me.synchronize();
  if (!me.holds(10, me.sum())) {
    return 3;
  }
  return ncclCommDestroy(me.comm) == ncclSuccess ? 0 : 4;
}

/// Every collective, and a message to the next rank.
int collectives_role() {
  const Rank me;
  const auto nranks = static_cast<size_t>(me.nranks);
  for (const size_t count : {size_t{5}, size_t{3'000}}) {
    for (const Shape& shape : kShapes) {
      std::vector<int32_t> values(shape.in_count(count, nranks));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = value_of(me.rank, i);
      }
      const Buffer<int32_t> in(me.device, values);
      const Buffer<int32_t> out(me.device, shape.out_count(count, nranks));
      if (shape.call(in.data(), out.data(), count, me.comm, me.stream) != ncclSuccess) {
        return 2;
      }
      me.synchronize();
      if ((!shape.root_only || me.rank == kRoot) &&
          out.values() != shape.expected_output(me.nranks, me.rank, count)) {
        std::fprintf(stderr, "%s of %zu is wrong\n", shape.name, count);
        return 3;
      }
    }
  }
  me.fill(1, me.rank);
  const Buffer<int64_t> from(me.device, 1);
  if (ncclGroupStart() != ncclSuccess ||
      ncclSend(me.memory, 1, ncclInt64, (me.rank + 1) % me.nranks, me.comm, me.stream) !=
          ncclSuccess ||
      ncclRecv(from.data(), 1, ncclInt64, (me.rank + me.nranks - 1) % me.nranks, me.comm,
               me.stream) != ncclSuccess ||
      ncclGroupEnd() != ncclSuccess) {
    return 4;
  }
  me.synchronize();
  if (from.value() != (me.rank + me.nranks - 1) % me.nranks) {
    return 5;
  }
  return ncclCommDestroy(me.comm) == ncclSuccess ? 0 : 6;
}

/// The cost of sharing a device: time of a small and a larger all-reduce, as a table row.
int measure_role() {
  const Rank me;
  const size_t large_bytes = size_t{64} << (machine().is_software() ? 10 : 20);
  const Buffer<int64_t> large(me.device, large_bytes / sizeof(int64_t));
  const auto measure_us = [&](int64_t* data, size_t count, int calls) {
    std::chrono::steady_clock::time_point begin;
    for (int call = -3; call < calls; ++call) {
      if (call == 0) {
        begin = std::chrono::steady_clock::now();
      }
      if (ncclAllReduce(data, data, count, ncclInt64, ncclMax, me.comm, me.stream) != ncclSuccess) {
        return -1.0;
      }
      me.synchronize();
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    return took.count() / calls;
  };
  const double small_us = measure_us(me.memory, 1, 50);
  const double large_us = measure_us(large.data(), large_bytes / sizeof(int64_t), 5);
  if (small_us <= 0 || large_us <= 0) {
    return 2;
  }
  if (me.rank == 0) {
    std::printf("| %d processes | %.1f | %.4g | %.1f | %.2f |\n", me.nranks, small_us,
                static_cast<double>(large_bytes) / (1 << 20), large_us,
                static_cast<double>(large_bytes) / large_us / 1e3);
  }
  return ncclCommDestroy(me.comm) == ncclSuccess ? 0 : 4;
}

/// A captured all-reduce, replayed; the pumps of a network follow the replays.
int graph_role() {
  const Rank me;
  constexpr size_t kCount = 20'000;
  machine().begin_capture(me.stream);
  if (me.all_reduce(kCount) != ncclSuccess) {
    return 2;
  }
  const auto graph = machine().end_capture(me.stream);
  me.fill(kCount, 1);
  int64_t expected = 1;
  for (int replay = 0; replay < 5; ++replay) {
    machine().replay(graph, me.stream);
    expected *= me.nranks;
  }
  me.synchronize();
  if (!me.holds(kCount, expected)) {
    return 3;
  }
  return ncclCommDestroy(me.comm) == ncclSuccess ? 0 : 4;
}

/// The last rank dies in the middle; the others' kernels end with an error that names it.
int death_role() {
  const Rank me;
  if (me.all_reduce(10) != ncclSuccess) {
    return 2;
  }
  me.synchronize();
  if (me.rank == me.nranks - 1) {
    _exit(0);
  }
  const ncclResult_t called = me.all_reduce(1000);
  if (called != ncclSuccess && called != ncclRemoteError) {  // the death may already be known
    return 3;
  }
  me.synchronize();
  ncclResult_t state = ncclInProgress;
  if (ncclCommGetAsyncError(me.comm, &state) != ncclSuccess || state != ncclRemoteError) {
    return 4;
  }
  return ncclCommAbort(me.comm) == ncclSuccess ? 0 : 5;
}

// ---- tests ----

using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

Environment through_network() {
  return {{"NCCL_SHM_DISABLE", "1"},
          {"NCCL_P2P_DISABLE", "1"},
          {"NCCL_NET", "socket"},
          {"PLEXUS_PLUGIN_PATH", setting("PLEXUS_TEST_LIB_DIR")}};
}

TEST(DeviceProcesses, MeetOnTheDevice) {
  const auto logs = run_processes("all_reduce", {0, 0, 1}, {});
  EXPECT_THAT(logs, Each(HasSubstr("via p2p")));
  EXPECT_THAT(logs, Each(Not(HasSubstr("via shm"))));
}

TEST(DeviceProcesses, MeetInHostMemoryWhereTheDriverRefusesIpc) {
  if (!machine().is_software()) {
    GTEST_SKIP() << "the software device refuses what it is told to";
  }
  const auto logs = run_processes("all_reduce", {0, 0, 1}, {{"PLEXUS_TEST_HABITS", "refuses_ipc"}});
  EXPECT_THAT(logs, Each(HasSubstr("via shm")));
  EXPECT_THAT(logs[0], HasSubstr("CUDA IPC is refused: rank 0"));
  EXPECT_THAT(logs[1], Not(HasSubstr("CUDA IPC is refused")));
}

TEST(DeviceProcesses, MeetInHostMemory) {
  const auto logs = run_processes("all_reduce", {0, 1}, {{"NCCL_P2P_DISABLE", "1"}});
  EXPECT_THAT(logs, Each(HasSubstr("via shm")));
}

TEST(DeviceProcesses, MeetHostRanksInHostMemory) {
  const auto logs = run_processes("all_reduce", {0, -1, 0}, {});
  EXPECT_THAT(logs[1], HasSubstr("via shm"));
}

TEST(DeviceProcesses, SayThatTheirInputsAreNotLookedAtWhereHostRanksAre) {
  const auto logs = run_processes("all_reduce", {0, -1, 0}, {{"PLEXUS_CHECK_NAN", "1"}});
  constexpr const char* kRefused = "PLEXUS_CHECK_NAN looks at the input of host ranks only: rank ";
  EXPECT_THAT(logs[0], HasSubstr(kRefused));
  EXPECT_THAT(logs[1], Not(HasSubstr(kRefused)));
  EXPECT_THAT(logs[2], HasSubstr(kRefused));
}

TEST(DeviceProcesses, MeetOverANetwork) {
  const auto logs = run_processes("all_reduce", {0, 1, -1}, through_network());
  EXPECT_THAT(logs, Each(HasSubstr("via net")));
}

/// Simulates one host per rank.
Environment through_collnet() {
  Environment environment = through_network();
  for (const auto& [name, value] : Environment{{"NCCL_HOSTID", "host{}"},
                                               {"NCCL_SOCKET_IFNAME", "lo"},
                                               {"NCCL_COLLNET_ENABLE", "1"},
                                               {"PLEXUS_COLLNET_PLUGIN", "aggregator"},
                                               {"NCCL_ALGO", "allreduce:collnetchain"}}) {
    environment.emplace_back(name, value);
  }
  return environment;
}

TEST(DeviceProcesses, LetTheNetworkReduce) {
  const auto logs = run_processes("all_reduce", {0, -1, 1}, through_collnet());
  EXPECT_THAT(logs, Each(ContainsRegex("-> network [0-9]+ via collnet/.*\\(3 hosts\\)")));
}

TEST(DeviceProcesses, ReplayGraphsOfANetworkThatReduces) {
  run_processes("graph", {0, 1}, through_collnet());
}

/// Rank r in datacenter r % 2; `script`: faults of the connections.
Environment through_datacenters(const std::filesystem::path& fabric, const std::string& script) {
  std::ofstream(fabric) << "host host[0,2] dc berlin\nhost host[1,3] dc paris\n";
  return {{"NCCL_HOSTID", "host{}"},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_NET_PLUGIN", "chaos"},
          {"PLEXUS_CHAOS_SCRIPT", script},
          {"PLEXUS_FABRIC_FILE", fabric.string()},
          {"PLEXUS_XDC_TIMEOUT_MSEC", "500"},
          {"PLEXUS_PLUGIN_PATH", setting("PLEXUS_TEST_LIB_DIR")}};
}

std::filesystem::path fabric_file() {
  return std::filesystem::temp_directory_path() / fmt::format("plexus_device_{}_fabric", getpid());
}

TEST(DeviceProcesses, LoseALinkBetweenDatacentersAndGoOn) {
  const auto logs =
      run_processes("all_reduce", {0, 1}, through_datacenters(fabric_file(), "send: cut=1000000"));
  EXPECT_THAT(logs, Each(HasSubstr("lost the link to")));
  std::filesystem::remove(fabric_file());
}

TEST(DeviceProcesses, LoseALinkToAHostRankAndGoOn) {
  const auto logs =
      run_processes("all_reduce", {0, -1}, through_datacenters(fabric_file(), "send: cut=1000000"));
  EXPECT_THAT(logs, Each(HasSubstr("lost the link to")));
  std::filesystem::remove(fabric_file());
}

TEST(DeviceProcesses, ReplayGraphsOverALostLink) {
  const auto logs =
      run_processes("graph", {0, 1}, through_datacenters(fabric_file(), "send: cut=300000"));
  EXPECT_THAT(logs, Each(HasSubstr("lost the link to")));
  std::filesystem::remove(fabric_file());
}

TEST(DeviceProcesses, DoEveryCollectiveWithTwoRanksOfADevice) {
  run_processes("collectives", {0, 0}, {});
}

TEST(DeviceProcesses, DoEveryCollectiveWithFourRanksOfADevice) {
  run_processes("collectives", {0, 0, 0, 0}, {});
}

TEST(DeviceProcesses, DoEveryCollectiveWithEightRanksOfADevice) {
  run_processes("collectives", std::vector<int>(8, 0), {{"NCCL_MAX_CTAS", "2"}});
}

TEST(DeviceProcesses, ShareADeviceInMeasuredTime) {
  std::printf(
      "| ranks on one device | 8 B, us | MiB | us | GB/s of the call |\n|---|---|---|---|---|\n");
  std::fflush(stdout);
  for (const size_t nranks : {2, 4, 8}) {
    run_processes("measure", std::vector<int>(nranks, 0), {});
  }
}

TEST(DeviceProcesses, SixtyFourShareADevice) {
  run_processes("all_reduce_once", std::vector<int>(64, 0), {{"NCCL_MAX_CTAS", "1"}});
}

TEST(DeviceProcesses, ReplayGraphs) { run_processes("graph", {0, 0}, {}); }

TEST(DeviceProcesses, ReplayGraphsOverANetwork) {
  run_processes("graph", {0, 1}, through_network());
}

TEST(DeviceProcesses, ADeathIsSeenByKernelsThatWait) { run_processes("death", {0, 0, 1}, {}); }

TEST(DeviceProcesses, ADeathIsSeenOverANetwork) {
  run_processes("death", {0, 1}, through_network());
}

}  // namespace

int run_role(const std::string& role) {
  if (role == "all_reduce") {
    return all_reduce_role();
  }
  if (role == "all_reduce_once") {
    return all_reduce_once_role();
  }
  if (role == "collectives") {
    return collectives_role();
  }
  if (role == "measure") {
    return measure_role();
  }
  if (role == "graph") {
    return graph_role();
  }
  if (role == "peer_mapped") {
    return peer_mapped_role();
  }
  if (role == "peer_mapped_graph") {
    return peer_mapped_graph_role();
  }
  if (role == "private") {
    return private_role();
  }
  if (role == "shared_pieces") {
    return shared_pieces_role();
  }
  return death_role();
}

}  // namespace plexus::testing_device
