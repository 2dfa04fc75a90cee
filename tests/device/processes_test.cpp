// SPDX-License-Identifier: Apache-2.0
// CUDA ranks in processes of their own: this program starts itself once for each rank. What a rank
// does is a role; its exit code says how it went, its log which transports it took.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/device/job.hpp"
#include "tests/device/role.hpp"

namespace plexus::testing_device {
namespace {

using Environment = std::vector<std::pair<std::string, std::string>>;

std::string hex_of(const ncclUniqueId& id) {
  std::string text;
  for (const char byte : id.internal) {
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return text;
}

ncclUniqueId id_of(const std::string& text) {
  ncclUniqueId id{};
  for (size_t i = 0; i < sizeof(id.internal); ++i) {
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  }
  return id;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Starts `on.size()` ranks of `role`, rank r on device on[r] (-1: the host), waits for them; {} in
/// the environment is the rank. Returns their logs. All are to end with `exit_code`.
std::vector<std::string> run_processes(const std::string& role,
                                       const std::vector<int>& on,
                                       const Environment& environment,
                                       int exit_code = 0) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("plexus_device_{}_{}", getpid(), role);
  std::filesystem::create_directories(folder);
  ncclUniqueId id;
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  std::vector<pid_t> children;
  for (size_t rank = 0; rank < on.size(); ++rank) {
    std::vector<std::string> words = {"env",
                                      "PLEXUS_TEST_ROLE=" + role,
                                      fmt::format("PLEXUS_TEST_RANK={}", rank),
                                      fmt::format("PLEXUS_TEST_RANKS={}", on.size()),
                                      "PLEXUS_TEST_ID=" + hex_of(id),
                                      fmt::format("PLEXUS_TEST_DEVICE={}", std::max(on[rank], 0)),
                                      on[rank] < 0 ? "PLEXUS_DEVICE=host" : "PLEXUS_DEVICE=cuda",
                                      "NCCL_DEBUG=INFO",
                                      "NCCL_DEBUG_SUBSYS=ALL",
                                      fmt::format("NCCL_DEBUG_FILE={}/{}", folder.string(), rank)};
    for (const auto& [name, value] : environment) {
      words.push_back(name + "=" + fmt::format(fmt::runtime(value), rank));
    }
    words.push_back(std::filesystem::read_symlink("/proc/self/exe").string());
    std::vector<char*> arguments;
    for (std::string& word : words) {
      arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    const pid_t child = vfork();
    if (child == 0) {
      execvp("env", arguments.data());
      _exit(127);
    }
    children.push_back(child);
  }
  std::vector<std::string> logs;
  for (size_t rank = 0; rank < on.size(); ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    logs.push_back(read_file(folder / std::to_string(rank)));
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == exit_code) << "rank " << rank << ":\n"
                                                                       << logs.back();
  }
  std::filesystem::remove_all(folder);
  return logs;
}

// ---- what a rank does ----

int number(const char* name) { return std::atoi(std::getenv(name)); }

/// This process's rank, with a stream and memory where it computes.
class Rank {
 public:
  Rank() : rank(number("PLEXUS_TEST_RANK")), nranks(number("PLEXUS_TEST_RANKS")) {
    const int device = number("PLEXUS_TEST_DEVICE");
    SoftwareDevice::set_current(device);
    const ncclResult_t made =
        ncclCommInitRank(&comm, nranks, id_of(std::getenv("PLEXUS_TEST_ID")), rank);
    if (made != ncclSuccess) {
      std::fprintf(stderr, "%s\n", ncclGetLastError(nullptr));
      std::exit(1);
    }
    if (std::string_view(std::getenv("PLEXUS_DEVICE")) == "cuda") {
      stream = devices().make_stream();
    }
    memory = static_cast<int64_t*>(devices().allocate(device, kCountMax * sizeof(int64_t)).value());
  }

  void fill(size_t count) const { std::fill(memory, memory + count, rank + 1); }
  [[nodiscard]] bool holds(size_t count, int64_t value) const {
    return std::all_of(memory, memory + count, [&](int64_t found) { return found == value; });
  }
  [[nodiscard]] int64_t sum() const { return int64_t{nranks} * (nranks + 1) / 2; }
  [[nodiscard]] ncclResult_t all_reduce(size_t count) const {
    return ncclAllReduce(memory, memory, count, ncclInt64, ncclSum, comm, stream);
  }
  void synchronize() const {
    if (stream != nullptr) {
      devices().synchronize(stream);
    }
  }

  static constexpr size_t kCountMax = 300'000;
  int rank;
  int nranks;
  ncclComm_t comm = nullptr;
  DeviceStream stream = nullptr;
  int64_t* memory = nullptr;
};

constexpr int kWrongSum = 3;

/// All-reduce of several sizes, each twice.
int all_reduce_role() {
  const Rank me;
  bool is_right = true;
  for (const size_t count : {size_t{1}, size_t{900}, size_t{30'000}, Rank::kCountMax}) {
    for (int repeat = 0; repeat < 2; ++repeat) {
      me.fill(count);
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

/// Memory that another process can map.
std::byte* exportable(size_t size_bytes) {
  void* memory = nullptr;
  EXPECT_EQ(ncclMemAlloc(&memory, size_bytes), ncclSuccess) << ncclGetLastError(nullptr);
  return static_cast<std::byte*>(memory);
}

/// All-reduces of `memory` and, in place of a barrier, of whether all ranks see `reached`.
bool repeat_until(const Rank& me,
                  int64_t* memory,
                  size_t count,
                  const std::function<bool()>& reached) {
  for (int call = 0; call < 1000; ++call) {
    std::fill(memory, memory + count, me.rank + 1);
    *me.memory = reached() ? 1 : 0;
    if (ncclAllReduce(memory, memory, count, ncclInt64, ncclSum, me.comm, me.stream) !=
            ncclSuccess ||
        me.all_reduce(1) != ncclSuccess) {
      return false;
    }
    me.synchronize();
    if (!std::all_of(memory, memory + count, [&](int64_t found) { return found == me.sum(); })) {
      return false;
    }
    if (*me.memory == me.nranks) {
      return true;
    }
  }
  return false;
}

constexpr size_t kLentCount = 100'000;

/// A buffer is lent from its registration to its deregistration, and closed then.
int lend_role() {
  const Rank me;
  auto* const whole = exportable(3 << 20);
  auto* const memory = reinterpret_cast<int64_t*>(whole + (1 << 20));  // not where it begins
  if (!repeat_until(me, memory, kLentCount, [] { return true; }) || devices().loans() != 0) {
    return 2;
  }
  const size_t imports = devices().imports();
  void* handle = nullptr;
  if (ncclCommRegister(me.comm, memory, kLentCount * sizeof(int64_t), &handle) != ncclSuccess ||
      !repeat_until(me, memory, kLentCount, [] { return devices().loans() != 0; })) {
    return 3;
  }
  if (devices().imports() == imports || ncclCommDeregister(me.comm, handle) != ncclSuccess) {
    return 4;
  }
  const int loans = devices().loans();
  if (!repeat_until(me, memory, kLentCount, [&] { return devices().imports() == imports; }) ||
      devices().loans() != loans) {
    return 5;
  }
  return ncclCommDestroy(me.comm) == ncclSuccess && ncclMemFree(whole) == ncclSuccess ? 0 : 6;
}

/// A buffer that no other process can map: its size says so here.
int private_role() {
  const Rank me;
  auto* const memory = static_cast<int64_t*>(
      devices().allocate(number("PLEXUS_TEST_DEVICE"), kLentCount * sizeof(int64_t)).value());
  void* handle = nullptr;
  if (ncclCommRegister(me.comm, memory, kLentCount * sizeof(int64_t), &handle) != ncclSuccess) {
    return 2;
  }
  for (int call = 0; call < 3; ++call) {
    if (!repeat_until(me, memory, kLentCount, [] { return true; })) {
      return 3;
    }
  }
  return devices().loans() == 0 && ncclCommDestroy(me.comm) == ncclSuccess ? 0 : 4;
}

/// A graph's buffers are lent from its first replay on, registered or not.
int lend_graph_role() {
  const Rank me;
  auto* const memory = reinterpret_cast<int64_t*>(exportable(2 << 20));
  devices().begin_capture(me.stream);
  if (ncclAllReduce(memory, memory, kLentCount, ncclInt64, ncclSum, me.comm, me.stream) !=
      ncclSuccess) {
    return 2;
  }
  const auto graph = devices().end_capture(me.stream);
  std::fill(memory, memory + kLentCount, 1);
  devices().replay(graph, me.stream);
  devices().replay(graph, me.stream);
  me.synchronize();
  const int64_t expected = int64_t{me.nranks} * me.nranks;
  if (!std::all_of(memory, memory + kLentCount, [&](int64_t found) { return found == expected; })) {
    return 3;
  }
  if (devices().loans() == 0) {
    return 4;
  }
  return ncclCommDestroy(me.comm) == ncclSuccess ? 0 : 5;
}

/// A captured all-reduce, replayed; the pumps of a network follow the replays.
int graph_role() {
  const Rank me;
  constexpr size_t kCount = 20'000;
  devices().begin_capture(me.stream);
  if (me.all_reduce(kCount) != ncclSuccess) {
    return 2;
  }
  const auto graph = devices().end_capture(me.stream);
  std::fill(me.memory, me.memory + kCount, 1);
  int64_t expected = 1;
  for (int replay = 0; replay < 5; ++replay) {
    devices().replay(graph, me.stream);
    expected *= me.nranks;
  }
  me.synchronize();
  if (!me.holds(kCount, expected)) {
    return 3;
  }
  return ncclCommDestroy(me.comm) == ncclSuccess ? 0 : 4;
}

/// The last rank dies in the middle; the others' kernels end with its name.
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
  if (called != ncclSuccess && called != ncclRemoteError) {  // the death may be known already
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

using testing::Each;
using testing::HasSubstr;
using testing::Not;

Environment through_network() {
  return {{"NCCL_SHM_DISABLE", "1"},
          {"NCCL_P2P_DISABLE", "1"},
          {"NCCL_NET", "socket"},
          {"PLEXUS_PLUGIN_PATH", std::getenv("PLEXUS_TEST_LIB_DIR")}};
}

TEST(DeviceProcesses, MeetOnTheDevice) {
  const auto logs = run_processes("all_reduce", {0, 0, 1}, {});
  EXPECT_THAT(logs, Each(HasSubstr("via p2p")));
  EXPECT_THAT(logs, Each(Not(HasSubstr("via shm"))));
}

TEST(DeviceProcesses, MeetInHostMemory) {
  const auto logs = run_processes("all_reduce", {0, 1}, {{"NCCL_P2P_DISABLE", "1"}});
  EXPECT_THAT(logs, Each(HasSubstr("via shm")));
}

TEST(DeviceProcesses, MeetHostRanksInHostMemory) {
  const auto logs = run_processes("all_reduce", {0, -1, 0}, {});
  EXPECT_THAT(logs[1], HasSubstr("via shm"));
}

TEST(DeviceProcesses, MeetOverANetwork) {
  const auto logs = run_processes("all_reduce", {0, 1, -1}, through_network());
  EXPECT_THAT(logs, Each(HasSubstr("via net")));
}

TEST(DeviceProcesses, ReadRegisteredMemoryOfEachOtherInPlace) {
  const auto logs = run_processes("lend", {0, 0, 1}, {});
  EXPECT_THAT(logs, Each(HasSubstr("in place")));
}

TEST(DeviceProcesses, ReadTheBuffersOfGraphsInPlace) { run_processes("lend_graph", {0, 1}, {}); }

TEST(DeviceProcesses, SendWhatCannotBeMapped) {
  const auto logs = run_processes("private", {0, 1}, {});
  EXPECT_THAT(logs, Each(HasSubstr("user memory is not read in place by other processes")));
}

TEST(DeviceProcesses, LendNothingWhenDirectReadsAreOff) {
  const auto logs = run_processes("private", {0, 1}, {{"NCCL_P2P_DIRECT_DISABLE", "1"}});
  EXPECT_THAT(logs, Each(Not(HasSubstr("in place"))));
}

/// Each rank on a host of its own.
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
  EXPECT_THAT(logs, Each(HasSubstr("a group of 3 hosts reduces through")));
}

TEST(DeviceProcesses, ReplayGraphsOfANetworkThatReduces) {
  run_processes("graph", {0, 1}, through_collnet());
}

/// Rank r in data centre r % 2; `script`: what befalls the connections.
Environment through_data_centres(const std::filesystem::path& fabric, const std::string& script) {
  std::ofstream(fabric) << "host host[0,2] dc berlin\nhost host[1,3] dc paris\n";
  return {{"NCCL_HOSTID", "host{}"},
          {"NCCL_SOCKET_IFNAME", "lo"},
          {"NCCL_NET_PLUGIN", "chaos"},
          {"PLEXUS_CHAOS_SCRIPT", script},
          {"PLEXUS_FABRIC_FILE", fabric.string()},
          {"PLEXUS_FAR_TIMEOUT_MSEC", "500"},
          {"PLEXUS_PLUGIN_PATH", std::getenv("PLEXUS_TEST_LIB_DIR")}};
}

std::filesystem::path fabric_file() {
  return std::filesystem::temp_directory_path() / fmt::format("plexus_device_{}_fabric", getpid());
}

TEST(DeviceProcesses, LoseALinkBetweenDataCentresAndGoOn) {
  const auto logs =
      run_processes("all_reduce", {0, 1}, through_data_centres(fabric_file(), "send: cut=1500000"));
  EXPECT_THAT(logs, Each(HasSubstr("lost the link to")));
  std::filesystem::remove(fabric_file());
}

TEST(DeviceProcesses, LoseALinkToAHostRankAndGoOn) {
  const auto logs = run_processes("all_reduce", {0, -1},
                                  through_data_centres(fabric_file(), "send: cut=1500000"));
  EXPECT_THAT(logs, Each(HasSubstr("lost the link to")));
  std::filesystem::remove(fabric_file());
}

TEST(DeviceProcesses, ReplayGraphsOverALostLink) {
  const auto logs =
      run_processes("graph", {0, 1}, through_data_centres(fabric_file(), "send: cut=300000"));
  EXPECT_THAT(logs, Each(HasSubstr("lost the link to")));
  std::filesystem::remove(fabric_file());
}

// ---- GPUDirect: slots in GPU memory, with a card that shows what it received after a flush ----

Environment through_card(Environment more) {
  Environment all = {{"NCCL_SHM_DISABLE", "1"},
                     {"NCCL_P2P_DISABLE", "1"},
                     {"NCCL_NET", "GPU"},
                     {"NCCL_NET_PLUGIN", std::string(std::getenv("PLEXUS_TEST_EXAMPLE_DIR")) +
                                             "/libplexus-net-gpu.so"},
                     {"NCCL_NET_GDR_LEVEL", "SYS"},
                     {"NCCL_NET_FORCE_FLUSH", "1"}};
  all.insert(all.end(), more.begin(), more.end());  // `env` takes the last one
  return all;
}

TEST(DeviceGdr, CarriesByDmabufWhereTheNetworkTakesIt) {
  const auto logs = run_processes("all_reduce", {0, 1, 0}, through_card({}));
  EXPECT_THAT(logs, Each(HasSubstr("GDR for sends and receives, flushed")));
  EXPECT_THAT(logs, Each(HasSubstr("(GDR, by dma-buf)")));
  EXPECT_THAT(logs, Each(HasSubstr("net-gpu: 0 by address")));
  EXPECT_THAT(logs, Each(HasSubstr("sends yes, flushes yes")));
}

TEST(DeviceGdr, CarriesByAddressWhereTheNetworkTakesNoDmabuf) {
  const auto logs =
      run_processes("all_reduce", {0, 1}, through_card({{"PLEXUS_TEST_GPU_KINDS", "cuda"}}));
  EXPECT_THAT(logs, Each(HasSubstr("(GDR, registered as CUDA memory)")));
  EXPECT_THAT(logs, Each(HasSubstr(" 0 by dma-buf, sends yes, flushes yes")));
}

TEST(DeviceGdr, CarriesByAddressWhenDmabufsAreSwitchedOff) {
  const auto logs =
      run_processes("all_reduce", {0, 1}, through_card({{"NCCL_DMABUF_ENABLE", "0"}}));
  EXPECT_THAT(logs, Each(HasSubstr("(GDR, registered as CUDA memory)")));
}

TEST(DeviceGdr, MeetsHostRanks) {
  const auto logs = run_processes("all_reduce", {0, -1, 1}, through_card({}));
  EXPECT_THAT(logs[0], HasSubstr("(GDR, by dma-buf)"));
  EXPECT_THAT(logs[1], Not(HasSubstr("(GDR,")));
  EXPECT_THAT(logs[1], HasSubstr(" GDR"));  // the route: headers travel apart
}

TEST(DeviceGdr, SendsFromHostMemoryWhenCardsMayNotRead) {
  const auto logs = run_processes("all_reduce", {0, 1}, through_card({{"NCCL_NET_GDR_READ", "0"}}));
  EXPECT_THAT(logs, Each(HasSubstr("GDR for receives, flushed")));
  EXPECT_THAT(logs, Each(HasSubstr("sends no, flushes yes")));
}

TEST(DeviceGdr, IsLeftOutForFarCardsAndSaysSo) {
  const auto logs = run_processes("all_reduce", {0, 1}, through_card({{"NCCL_NET_GDR_LEVEL", ""}}));
  EXPECT_THAT(logs, Each(HasSubstr("no GDR, the path between GPU and NIC is ")));
  EXPECT_THAT(logs, Each(HasSubstr("net-gpu: 0 by address, 0 by dma-buf, sends no, flushes no")));
}

// The card is on the PCIe switch of cuda:0; cuda:1 is on another one, which is too far.
TEST(DeviceGdr, DependsOnTheDistanceOfGpuAndCard) {
  const auto file = std::filesystem::temp_directory_path() /
                    fmt::format("plexus_device_{}_topology.xml", getpid());
  std::ofstream(file) << R"(<system version="1">
  <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143">
    <pci busid="0000:10:00.0" class="0x060400">
      <pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="90" gdr="1"/></pci>
      <pci busid="0000:11:00.0" class="0x020000">
        <nic><net name="lo" dev="0" speed="10000" port="0" gdr="1"/></nic>
      </pci>
    </pci>
    <pci busid="0000:20:00.0" class="0x060400">
      <pci busid="0000:02:00.0" class="0x030200"><gpu dev="1" sm="90" gdr="1"/></pci>
    </pci>
  </cpu>
</system>
)";
  const Environment near = {{"NCCL_TOPO_FILE", file.string()},
                            {"NCCL_SOCKET_IFNAME", "=lo"},
                            {"NCCL_NET_GDR_LEVEL", "PXB"}};
  const auto logs = run_processes("all_reduce", {0, 1}, through_card(near));
  EXPECT_THAT(logs[0], HasSubstr("GDR for sends and receives"));
  EXPECT_THAT(logs[1], HasSubstr("no GDR, the path between GPU and NIC is PHB"));
  EXPECT_THAT(logs[1], HasSubstr("sends no, flushes no"));
  std::filesystem::remove(file);
}

TEST(DeviceGdr, FallsBackToHostMemoryWhenTheNetworkRefuses) {
  const auto logs =
      run_processes("all_reduce", {0, 1}, through_card({{"PLEXUS_TEST_GPU_REFUSES", "1"}}));
  EXPECT_THAT(logs, Each(HasSubstr("no GDR with rank ")));
  EXPECT_THAT(logs, Each(HasSubstr("net-gpu: no GPU memory today")));
  for (const std::string& log : logs) {  // one line, however many connections
    EXPECT_EQ(log.find("no GDR with"), log.rfind("no GDR with"));
  }
  EXPECT_THAT(logs, Each(HasSubstr("sends no, flushes no")));
}

TEST(DeviceGdr, FlushesForACardThatAsksForIt) {
  const auto logs = run_processes(
      "all_reduce", {0, 1},
      through_card({{"NCCL_NET_FORCE_FLUSH", "0"}, {"PLEXUS_TEST_GPU_FORCE_FLUSH", "1"}}));
  EXPECT_THAT(logs, Each(HasSubstr("flushes yes")));
}

// What the tests above rest on: with this card a flush that is left out is wrong data.
TEST(DeviceGdr, WithoutAFlushWhatArrivedIsNotThere) {
  const auto logs =
      run_processes("all_reduce", {0, 1}, through_card({{"NCCL_NET_FORCE_FLUSH", "0"}}), kWrongSum);
  EXPECT_THAT(logs, Each(HasSubstr("flushes no")));
}

TEST(DeviceGdr, KeepsHeadersAndPayloadsTogetherWhateverCompletesFirst) {
  const std::string folder = std::getenv("PLEXUS_TEST_LIB_DIR");
  const std::string card =
      std::string(std::getenv("PLEXUS_TEST_EXAMPLE_DIR")) + "/libplexus-net-gpu.so";
  const auto logs = run_processes(
      "all_reduce", {0, 1, -1},
      through_card({{"NCCL_NET", ""},
                    {"NCCL_NET_PLUGIN", folder + "/libplexus-net-chaos.so"},
                    {"PLEXUS_CHAOS_NET", card},
                    {"PLEXUS_CHAOS_SCRIPT", "*: again=20% reorder=8; send: jitter=200us"}}));
  EXPECT_THAT(logs[0], HasSubstr("sends yes, flushes yes"));
}

TEST(DeviceGdr, ReplaysGraphs) { run_processes("graph", {0, 1}, through_card({})); }

TEST(DeviceGdr, SeesADeath) { run_processes("death", {0, 1}, through_card({})); }

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
  if (role == "graph") {
    return graph_role();
  }
  if (role == "lend") {
    return lend_role();
  }
  if (role == "lend_graph") {
    return lend_graph_role();
  }
  if (role == "private") {
    return private_role();
  }
  return death_role();
}

}  // namespace plexus::testing_device
