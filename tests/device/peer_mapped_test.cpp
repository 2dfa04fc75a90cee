// SPDX-License-Identifier: Apache-2.0
// Buffers of CUDA ranks that other processes read in place. Only the software device reports which
// were mapped; on CUDA the tests check results and logs.
#include <array>
#include <cstddef>
#include <fstream>
#include <iterator>

#include "core/device/device_runtime.hpp"
#include "tests/device/processes.hpp"
#include "tests/device/rank.hpp"
#include "tests/device/role.hpp"
#include "tests/support/software_device.hpp"

namespace plexus::testing_device {
namespace {

constexpr size_t kCount = 100'000;
constexpr size_t kGranules = 3;
/// Which memory the role registers: `pieces`, each of a granule; `closed`: pieces that their
/// program made for itself; `pool`; `odd`, of a size that the software device does not export;
/// otherwise that of ncclMemAlloc.
constexpr const char* kMemory = "PLEXUS_TEST_MEMORY";

// ---- the role of a rank ----

/// Memory that another process may be able to map. It lives as long as the rank.
struct Exportable {
  explicit Exportable(const Rank& me) {
    const std::string kind = setting(kMemory);
    if (kind == "pieces" || kind == "closed") {
      whole = software_devices().allocate_in_pieces(
          me.device, std::vector<size_t>(kGranules, kExportGranule), kind == "pieces");
    } else if (kind == "pool") {
      whole = software_devices().allocate_private(me.device, kGranules * kExportGranule);
    } else if (kind == "odd") {
      whole = machine().allocate(me.device, kGranules * kExportGranule + 1);
    } else {
      EXPECT_EQ(ncclMemAlloc(&whole, kGranules * kExportGranule), ncclSuccess)
          << ncclGetLastError(nullptr);
    }
  }
  /// kCount elements, half of them before the end of a granule.
  [[nodiscard]] int64_t* elements(size_t granule = 0) const {
    return reinterpret_cast<int64_t*>(static_cast<std::byte*>(whole) +
                                      (granule + 1) * kExportGranule) -
           kCount / 2;
  }
  void* whole = nullptr;
};

void fill(const Rank& me, int64_t* memory, int64_t value) {
  const std::vector<int64_t> values(kCount, value);
  machine().copy(me.device, memory, values.data(), kCount * sizeof(int64_t));
}

bool holds(const Rank& me, const int64_t* memory, int64_t value) {
  std::vector<int64_t> found(kCount);
  machine().copy(me.device, found.data(), memory, kCount * sizeof(int64_t));
  return found == std::vector<int64_t>(kCount, value);
}

/// Buffers of works that were mapped so far, by peer.
int loans() { return software_devices().loans(); }

/// Repeats all-reduces of `memory` and, as a barrier, of whether all ranks see `reached`; on CUDA,
/// where that cannot be observed, a fixed number of times.
bool repeat_until(const Rank& me, int64_t* memory, const std::function<bool()>& reached) {
  constexpr int kCallsUnseen = 20;
  for (int call = 0; call < 1000; ++call) {
    const bool is_reached = machine().is_software() ? reached() : call == kCallsUnseen;
    fill(me, memory, me.rank + 1);
    me.fill(1, is_reached ? 1 : 0);
    if (ncclAllReduce(memory, memory, kCount, ncclInt64, ncclSum, me.comm, me.stream) !=
            ncclSuccess ||
        me.all_reduce(1) != ncclSuccess) {
      return false;
    }
    me.synchronize();
    if (!holds(me, memory, me.sum())) {
      return false;
    }
    if (me.holds(1, me.nranks)) {
      return true;
    }
  }
  return false;
}

}  // namespace

/// A buffer is mapped from its registration until its deregistration, which closes the mapping.
int peer_mapped_role() {
  const Rank me;
  const Exportable exportable(me);
  int64_t* const memory = exportable.elements();
  const bool is_seen = machine().is_software();
  const auto imports = [] { return software_devices().imports(); };
  if (!repeat_until(me, memory, [] { return true; }) || (is_seen && loans() != 0)) {
    return 2;
  }
  const size_t imports_before = is_seen ? imports() : 0;
  void* handle = nullptr;
  if (ncclCommRegister(me.comm, memory, kCount * sizeof(int64_t), &handle) != ncclSuccess ||
      !repeat_until(me, memory, [] { return loans() != 0; })) {
    return 3;
  }
  if ((is_seen && imports() == imports_before) ||
      ncclCommDeregister(me.comm, handle) != ncclSuccess) {
    return 4;
  }
  const int loans_before = is_seen ? loans() : 0;
  if (!repeat_until(me, memory, [&] { return imports() == imports_before; }) ||
      (is_seen && loans() != loans_before)) {
    return 5;
  }
  const bool is_ours = setting(kMemory).empty();
  return ncclCommDestroy(me.comm) == ncclSuccess &&
                 (!is_ours || ncclMemFree(exportable.whole) == ncclSuccess)
             ? 0
             : 6;
}

/// Two registered buffers with a piece in common, each mapped as long as it is registered.
int shared_pieces_role() {
  const Rank me;
  const Exportable memory(me);
  std::array<void*, 2> handles{};
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const int loans_before = loans();
    if (ncclCommRegister(me.comm, memory.elements(i), kCount * sizeof(int64_t), &handles.at(i)) !=
            ncclSuccess ||
        !repeat_until(me, memory.elements(i), [&] { return loans() != loans_before; })) {
      return 2;
    }
  }
  const size_t imports_before = software_devices().imports();
  if (ncclCommDeregister(me.comm, handles[0]) != ncclSuccess ||
      !repeat_until(me, memory.elements(0),
                    [&] { return software_devices().imports() < imports_before; })) {
    return 3;
  }
  const int loans_before = loans();
  if (!repeat_until(me, memory.elements(1), [&] { return loans() != loans_before; })) {
    return 4;
  }
  return ncclCommDestroy(me.comm) == ncclSuccess ? 0 : 5;
}

/// This rank's log has said that something is read in place, or is not.
bool has_said_why() {
  std::ifstream file(setting("NCCL_DEBUG_FILE"));
  const std::string log(std::istreambuf_iterator<char>(file), {});
  return log.find("in place") != std::string::npos;
}

/// A buffer that no other process can map, or that none is allowed to map.
int private_role() {
  const Rank me;
  const Exportable exportable(me);
  int64_t* const memory = exportable.elements();
  void* handle = nullptr;
  if (ncclCommRegister(me.comm, memory, kCount * sizeof(int64_t), &handle) != ncclSuccess) {
    return 2;
  }
  const bool is_tried = setting("NCCL_P2P_DIRECT_DISABLE").empty();
  for (int call = 0; call < 3; ++call) {
    if (!repeat_until(me, memory, [&] { return !is_tried || has_said_why(); })) {
      return 3;
    }
  }
  if (machine().is_software() && loans() != 0) {
    return 4;
  }
  return ncclCommDestroy(me.comm) == ncclSuccess ? 0 : 5;
}

/// A graph's buffers are mapped from its first replay on, whether registered or not.
int peer_mapped_graph_role() {
  const Rank me;
  const Exportable exportable(me);
  int64_t* const memory = exportable.elements();
  machine().begin_capture(me.stream);
  if (ncclAllReduce(memory, memory, kCount, ncclInt64, ncclSum, me.comm, me.stream) !=
      ncclSuccess) {
    return 2;
  }
  const auto graph = machine().end_capture(me.stream);
  fill(me, memory, 1);
  machine().replay(graph, me.stream);
  machine().replay(graph, me.stream);
  me.synchronize();
  if (!holds(me, memory, int64_t{me.nranks} * me.nranks)) {
    return 3;
  }
  if (machine().is_software() && loans() == 0) {
    return 4;
  }
  return ncclCommDestroy(me.comm) == ncclSuccess ? 0 : 5;
}

// ---- tests ----

namespace {

using testing::ContainsRegex;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

TEST(DeviceProcesses, ReadRegisteredMemoryOfEachOtherInPlace) {
  const auto logs = run_processes("peer_mapped", {0, 0, 1}, {});
  EXPECT_THAT(logs, Each(ContainsRegex("reads memory number [0-9]+ of rank [0-9]+ in place")));
}

TEST(DeviceProcesses, ReadTheBuffersOfGraphsInPlace) {
  const auto logs = run_processes("peer_mapped_graph", {0, 1}, {});
  EXPECT_THAT(logs, Each(ContainsRegex("reads memory number [0-9]+ of rank [0-9]+ in place")));
}

TEST(DeviceProcesses, SendWhatCannotBeMapped) {
  if (!machine().is_software()) {
    GTEST_SKIP() << "on CUDA other processes can map all memory of cudaMalloc";
  }
  const auto logs = run_processes("private", {0, 1}, {{kMemory, "odd"}});
  EXPECT_THAT(logs, Each(HasSubstr("user memory is not read in place by other processes")));
}

int lines_with(const std::string& log, const std::string& words) {
  int count = 0;
  for (size_t at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) {
    ++count;
  }
  return count;
}

/// Pieces and refusals are those of the software device.
class DevicePieces : public testing::Test {
 protected:
  void SetUp() override {
    if (!machine().is_software()) {
      GTEST_SKIP() << "the software device has pieces, and refuses what it is told to";
    }
  }
  /// Each rank of two says once that bytes go through slots, and why.
  static void expect_sent(const Environment& environment, const std::string& why) {
    for (const std::string& log : run_processes("private", {0, 1}, environment)) {
      EXPECT_EQ(lines_with(log, why), 1) << log;
    }
  }
};

TEST_F(DevicePieces, AreReadInPlace) {
  const auto logs = run_processes("peer_mapped", {0, 0, 1}, {{kMemory, "pieces"}});
  EXPECT_THAT(logs, Each(ContainsRegex("reads memory number [0-9]+ of rank [0-9]+ in place")));
}

TEST_F(DevicePieces, AreReadInPlaceByGraphs) {
  const auto logs = run_processes("peer_mapped_graph", {0, 1}, {{kMemory, "pieces"}});
  EXPECT_THAT(logs, Each(ContainsRegex("reads memory number [0-9]+ of rank [0-9]+ in place")));
}

TEST_F(DevicePieces, OfSeveralBuffersAreMappedOnceForEach) {
  run_processes("shared_pieces", {0, 1}, {{kMemory, "pieces"}});
}

TEST_F(DevicePieces, OfTheLibraryAreOfCudaMallocWhereTheDriverRefusesThem) {
  const auto logs =
      run_processes("peer_mapped", {0, 0, 1}, {{"PLEXUS_TEST_HABITS", "refuses_cumem"}});
  for (const std::string& log : logs) {
    EXPECT_EQ(lines_with(log, "ncclMemAlloc gives memory of cudaMalloc: cuMemCreate failed"), 1);
    EXPECT_THAT(log, ContainsRegex("reads memory number [0-9]+ of rank [0-9]+ in place"));
  }
}

TEST_F(DevicePieces, AreNotAskedForWhereASettingSaysSo) {
  const auto logs =
      run_processes("peer_mapped", {0, 0},
                    {{"PLEXUS_TEST_HABITS", "refuses_export"}, {"NCCL_CUMEM_ENABLE", "0"}});
  EXPECT_THAT(logs, Each(ContainsRegex("reads memory number [0-9]+ of rank [0-9]+ in place")));
}

TEST_F(DevicePieces, ThatTheDriverDoesNotExportAreSent) {
  expect_sent({{"PLEXUS_TEST_HABITS", "refuses_export"}},
              "is not read in place by other processes: cuMemExportToShareableHandle failed");
}

TEST_F(DevicePieces, ThatTheProgramMadeForItselfAreSent) {
  expect_sent({{kMemory, "closed"}},
              "is not read in place by other processes: cuMemExportToShareableHandle failed");
}

TEST_F(DevicePieces, ThatTheReaderCannotMapAreSent) {
  expect_sent({{"PLEXUS_TEST_HABITS", "refuses_import"}},
              "in place: cuMemImportFromShareableHandle failed");
}

TEST_F(DevicePieces, MemoryOfAPoolIsSent) {
  expect_sent({{kMemory, "pool"}}, "user memory is not read in place by other processes");
}

/// The software device ends a test whose call waits for kernels in a thread that launches them.
TEST_F(DevicePieces, AreMappedWhereADriverMayWaitForKernels) {
  run_processes("peer_mapped", {0, 0, 1},
                {{kMemory, "pieces"}, {"PLEXUS_TEST_HABITS", "free_waits"}});
}

TEST(DeviceProcesses, MapNothingWhenDirectReadsAreOff) {
  const auto logs = run_processes("private", {0, 1}, {{"NCCL_P2P_DIRECT_DISABLE", "1"}});
  EXPECT_THAT(logs, Each(Not(HasSubstr("in place"))));
}

}  // namespace
}  // namespace plexus::testing_device
