// SPDX-License-Identifier: Apache-2.0
// Buffers of CUDA ranks that other processes read in place. Only the software device reports which
// were mapped; on CUDA the tests check results and logs.
#include <cstddef>

#include "core/device/device_runtime.hpp"
#include "tests/device/processes.hpp"
#include "tests/device/rank.hpp"
#include "tests/device/role.hpp"
#include "tests/support/software_device.hpp"

namespace plexus::testing_device {
namespace {

constexpr size_t kCount = 100'000;
constexpr size_t kGranules = 2;

// ---- the role of a rank ----

/// Memory that another process can map, and kCount of its elements: not where it begins.
struct Exportable {
  Exportable() {
    EXPECT_EQ(ncclMemAlloc(&whole, kGranules * kExportGranule), ncclSuccess)
        << ncclGetLastError(nullptr);
    elements = reinterpret_cast<int64_t*>(static_cast<std::byte*>(whole) + kExportGranule / 2);
  }
  void* whole = nullptr;
  int64_t* elements = nullptr;
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
  const Exportable memory;
  const bool is_seen = machine().is_software();
  const auto imports = [] { return software_devices().imports(); };
  if (!repeat_until(me, memory.elements, [] { return true; }) || (is_seen && loans() != 0)) {
    return 2;
  }
  const size_t imports_before = is_seen ? imports() : 0;
  void* handle = nullptr;
  if (ncclCommRegister(me.comm, memory.elements, kCount * sizeof(int64_t), &handle) !=
          ncclSuccess ||
      !repeat_until(me, memory.elements, [] { return loans() != 0; })) {
    return 3;
  }
  if ((is_seen && imports() == imports_before) ||
      ncclCommDeregister(me.comm, handle) != ncclSuccess) {
    return 4;
  }
  const int loans_before = is_seen ? loans() : 0;
  if (!repeat_until(me, memory.elements, [&] { return imports() == imports_before; }) ||
      (is_seen && loans() != loans_before)) {
    return 5;
  }
  return ncclCommDestroy(me.comm) == ncclSuccess && ncclMemFree(memory.whole) == ncclSuccess ? 0
                                                                                             : 6;
}

/// A buffer that no other process can map (on the software device because of its size), or that
/// none is allowed to map.
int private_role() {
  const Rank me;
  const Buffer<int64_t> memory(me.device, kCount);
  void* handle = nullptr;
  if (ncclCommRegister(me.comm, memory.data(), kCount * sizeof(int64_t), &handle) != ncclSuccess) {
    return 2;
  }
  for (int call = 0; call < 3; ++call) {
    if (!repeat_until(me, memory.data(), [] { return true; })) {
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
  const Exportable memory;
  machine().begin_capture(me.stream);
  if (ncclAllReduce(memory.elements, memory.elements, kCount, ncclInt64, ncclSum, me.comm,
                    me.stream) != ncclSuccess) {
    return 2;
  }
  const auto graph = machine().end_capture(me.stream);
  fill(me, memory.elements, 1);
  machine().replay(graph, me.stream);
  machine().replay(graph, me.stream);
  me.synchronize();
  if (!holds(me, memory.elements, int64_t{me.nranks} * me.nranks)) {
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
  const auto logs = run_processes("private", {0, 1}, {});
  EXPECT_THAT(logs, Each(HasSubstr("user memory is not read in place by other processes")));
}

TEST(DeviceProcesses, MapNothingWhenDirectReadsAreOff) {
  const auto logs = run_processes("private", {0, 1}, {{"NCCL_P2P_DIRECT_DISABLE", "1"}});
  EXPECT_THAT(logs, Each(Not(HasSubstr("in place"))));
}

}  // namespace
}  // namespace plexus::testing_device
