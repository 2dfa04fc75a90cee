// SPDX-License-Identifier: Apache-2.0
// The orders of memory of the device executor: its shipped source under MemoryExplorer. Small calls
// run in many schedules; then each acquire, release and sync is taken out alone, to see that a
// schedule fails without it.
#include <set>

#include <gtest/gtest.h>

#include "kernels/cuda/in_turn.hpp"
#include "tests/support/memory_explorer.hpp"
#include "tests/unit/kernels/cuda/world.hpp"

namespace plexus::test {
namespace {

struct Case {
  const char* name;
  const char* algorithm;
  int nranks;
  uint64_t count;       // enough for slots to be used again
  uint32_t slot_bytes;  // 8 of 16 bytes hold 32 elements
  Protocol protocol;
  uint32_t times = 1;
  bool by_address = false;
  bool in_turn = false;
  bool in_place = false;
};

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = {
      {"Simple", "ring_all_reduce", 2, 60, 16, Protocol::kSimple},
      {"SimpleAllToAll", "pairwise_all_to_all", 3, 40, 16, Protocol::kSimple},
      {"LL", "ring_all_reduce", 2, 60, 16, Protocol::kLL},
      {"LLOfOneUnit", "two_shot_all_reduce", 3, 6, 8, Protocol::kLL},
      {"LL128", "ring_all_reduce", 2, 60, 16, Protocol::kLL128},
      {"LL128OfThreeLines", "pairwise_all_to_all", 3, 200, 256, Protocol::kLL128},
      {"Address", "two_shot_all_reduce", 3, 150, 64, Protocol::kSimple, 1, true},
      {"AddressAllToAll", "pairwise_all_to_all", 3, 160, 64, Protocol::kSimple, 1, true},
      {"InTurn", "two_shot_all_reduce", 2, 60, 16, Protocol::kSimple, 1, false, true},
      {"InTurnByAddress", "two_shot_all_reduce", 3, 60, 64, Protocol::kSimple, 2, true, true},
      {"Lanes", "tree_all_reduce", 3, 20, 16, Protocol::kSimple, 2, false, false, true},
      {"LanesLL", "tree_all_reduce", 3, 20, 16, Protocol::kLL, 2, false, false, true},
      {"LanesLLOfOneWord", "tree_all_reduce", 3, 1, 16, Protocol::kLL, 2, false, false, true},
      {"LanesByAddress", "tree_all_reduce", 3, 100, 64, Protocol::kSimple, 2, true, false, true},
  };
  return cases;
}

void write_again(const void* memory, size_t size_bytes) {
  auto* const bytes = static_cast<volatile uint8_t*>(const_cast<void*>(memory));
  for (size_t i = 0; i < size_bytes; ++i) {
    bytes[i] = bytes[i];
  }
}

/// What the host and the user do once a queue has been left: they read the result, and write to the
/// buffers and the tables.
void use_again(const DeviceQueue& queue, size_t buffer_bytes) {
  for (uint32_t polls = 1; load_acquire(queue.done) == 0; ++polls) {
    pause_between_polls(polls);
  }
  for (uint32_t work = 0; work < queue.work_count; ++work) {
    write_again(queue.works[work].input, buffer_bytes);
    write_again(queue.works[work].output, buffer_bytes);
    write_again(queue.works + work, sizeof(DeviceWork));
  }
}

/// The first fault of one schedule in words; empty: none.
std::string explore(const Case& each, OrderSites* sites, uint64_t seed) {
  Call call = make_call(each.algorithm, each.nranks, each.count, each.protocol);
  call.slot_bytes = each.slot_bytes;
  call.chunk_bytes = 2 * each.slot_bytes;
  const auto nranks = static_cast<size_t>(each.nranks);
  WorldOptions options{.on_device = std::vector<bool>(nranks, true),
                       .by_address = each.by_address,
                       .inline_bytes = seed % 2 == 0 ? kInlineBytes : 0,
                       .in_turn = each.in_turn};
  World world(call, options);
  options.on_device.assign(nranks, false);
  World host(call, options);
  for (World* const one : {&world, &host}) {
    fill_inputs(*one, call.type, 1);
    if (each.in_place) {
      one->make_in_place();
    }
  }
  constexpr uint32_t kThreads = 2;
  MemoryExplorer explorer(sites);
  std::vector<std::unique_ptr<BlockState>> states;
  std::set<const uint64_t*> watched;
  const std::vector<DeviceBlock> tasks = world.prepare(each.times);
  for (const DeviceBlock& task : tasks) {
    ExploredBlock& block = explorer.add_block(kThreads);
    BlockState& state = *states.emplace_back(std::make_unique<BlockState>());
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      explorer.add_thread([&, thread] {
        const ExploredThread self(block, thread);
        run_block(self, state, task);
      });
    }
    for (const DeviceQueue* queue = &task.queue; queue != nullptr; queue = queue->next) {
      if (watched.insert(queue->done).second) {
        explorer.add_thread([&, queue] { use_again(*queue, world.input_bytes()); });
      }
    }
  }
  std::string fault = explorer.run(seed);
  if (fault.empty() && !world.has_succeeded(each.times)) {
    fault = "the call failed";
  }
  if (!fault.empty() || !host.run(each.times)) {
    return fault;
  }
  for (size_t rank = 0; rank < world.size(); ++rank) {
    if (world.output(rank) != host.output(rank)) {
      return "wrong result";
    }
  }
  return "";
}

class Orders : public testing::TestWithParam<Case> {};

TEST_P(Orders, HoldInEverySchedule) {
  OrderSites sites;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    ASSERT_EQ(explore(GetParam(), &sites, seed), "") << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, Orders, testing::ValuesIn(all_cases()), [](const auto& each) {
  return each.param.name;
});

/// The sites of all cases, each with the cases that come by.
class Weakened : public testing::Test {
 protected:
  void SetUp() override {
    for (const Case& each : all_cases()) {
      OrderSites sites;
      ASSERT_EQ(explore(each, &sites, 1), "");
      ASSERT_EQ(explore(each, &sites, 2), "");
      for (const auto& [place, site] : sites.found) {
        sites_[place] = site;
        cases_[place].push_back(&each);
      }
    }
  }
  /// The first fault that any schedule has with these sites.
  std::string find_fault(const void* place, OrderSites sites) {
    std::string fault;
    for (const Case* const each : cases_[place]) {
      for (uint64_t seed = 1; seed <= 20 && fault.empty(); ++seed) {
        fault = explore(*each, &sites, seed);
      }
    }
    return fault;
  }

  std::map<const void*, OrderSite> sites_;
  std::map<const void*, std::vector<const Case*>> cases_;
};

TEST_F(Weakened, OrdersAreMissed) {
  std::multiset<std::string> needless;
  for (const auto& [place, site] : sites_) {
    OrderSites sites;
    sites.weakened = place;
    if (find_fault(place, sites).empty()) {
      needless.insert(site.kind + " of " + site.function);
    }
  }
  EXPECT_GT(sites_.size(), 30);
  // - The words of a slot of LL are read before its `taken` is written, as nothing here writes
  //   before it has read.
  // - The second word of a unit of LL comes with the first, which tells the same.
  // - The threads of a block that serves queues in turn agree on whether a slice can move.
  // - After a batch there is a sync before anything else, unless it is the last of several lanes:
  //   no algorithm has that.
  EXPECT_EQ(needless,
            (std::multiset<std::string>{"dependent of finish_receive", "dependent of store_unit",
                                        "sync of is_ready", "sync of run_batch"}));
}

TEST_F(Weakened, SendersThatAreASlotAheadAreFound) {
  for (const auto& [place, site] : sites_) {
    if (site.function == "await_taken") {
      OrderSites sites;
      sites.ahead = place;
      EXPECT_NE(find_fault(place, sites), "");
    }
  }
}

// ---- the explorer ----

/// One thread writes data, then a flag; the other waits for the flag, then uses the data.
template <class Store, class Load, class Write, class Use>
size_t count_faults(Store store, Load load, Write write, Use use) {
  size_t faults = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    OrderSites sites;
    MemoryExplorer explorer(&sites);
    auto data = std::make_unique<int>(0);
    auto flag = std::make_unique<uint64_t>(0);
    explorer.add_thread([&] {
      write(*data);
      store(flag.get(), uint64_t{1});
    });
    explorer.add_thread([&] {
      while (load(flag.get()) == 0) {
      }
      use(*data);
    });
    faults += explorer.run(seed).empty() ? 0 : 1;
  }
  return faults;
}

TEST(MemoryExplorer, KnowsWhatReleaseAndAcquireOrder) {
  const auto write = [](int& data) { data = 1; };
  const auto read = [](int& data) { static_cast<void>(*const_cast<volatile int*>(&data)); };
  const auto release = [](uint64_t* flag, uint64_t value) { store_release(flag, value); };
  const auto relaxed = [](uint64_t* flag, uint64_t value) { store_relaxed(flag, value); };
  const auto dependent = [](uint64_t* flag, uint64_t value) { store_dependent(flag, value); };
  const auto acquire = [](const uint64_t* flag) { return load_acquire(flag); };
  const auto late = [](const uint64_t* flag) { return load_relaxed(flag); };
  const auto by_value = [](const uint64_t* flag) { return load_dependent(flag); };
  EXPECT_EQ(count_faults(release, acquire, write, read), 0);
  EXPECT_EQ(count_faults(relaxed, acquire, write, read), 100);
  EXPECT_EQ(count_faults(release, late, write, read), 100);
  EXPECT_EQ(count_faults(dependent, by_value, read, write), 0);
  EXPECT_EQ(count_faults(dependent, by_value, write, read), 100);
}

/// Two threads that each store and then load the other's word may both miss it, in C++ as on any
/// machine with store buffers.
TEST(MemoryExplorer, LoadsMayBeLate) {
  size_t both_late = 0;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    OrderSites sites;
    MemoryExplorer explorer(&sites);
    uint64_t words[2] = {0, 0};
    uint64_t seen[2] = {1, 1};
    for (size_t self = 0; self < 2; ++self) {
      explorer.add_thread([&, self] {
        store_release(&words[self], uint64_t{1});
        seen[self] = load_acquire(&words[1 - self]);
      });
    }
    ASSERT_EQ(explorer.run(seed), "");
    both_late += seen[0] + seen[1] == 0 ? 1 : 0;
  }
  EXPECT_GT(both_late, 5);
}

TEST(MemoryExplorer, EndsThreadsThatWaitForEver) {
  OrderSites sites;
  MemoryExplorer explorer(&sites);
  uint64_t never = 0;
  explorer.add_thread([&] {
    while (load_acquire(&never) == 0) {
    }
  });
  EXPECT_EQ(explorer.run(1), "hang: the threads wait for each other");
}

}  // namespace
}  // namespace plexus::test
