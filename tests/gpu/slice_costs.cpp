// SPDX-License-Identifier: Apache-2.0
// Counts what the shipped kernel does for a slice, for every algorithm: its source runs under the
// compiler's hooks (tests/support/memory_explorer.hpp), with as many threads to a block as take a
// table in one round, and every access is seen. Prints JSON; tests/gpu/static_costs compares it.
//
// Loads are counted in turn: between two syncs, those of the thread that has most, since the others
// load beside it. Loads of a line of 128 bytes are one, until the thread acquires: this may have
// emptied the cache. A slice's window begins where the one before it ends, and so has what is done
// for the step, too, if the slice begins one. What is counted is the most of any block and slice of
// a call's second half, when slots are used again.
#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/block_state.hpp"
#include "tests/gpu/watched_kernel.hpp"
#include "tests/unit/kernels/cuda/world.hpp"

namespace plexus::test {
namespace {

constexpr uint32_t kThreads = 32;  // a word each takes a step
static_assert(sizeof(Step) <= kThreads * sizeof(uint32_t));
constexpr uint32_t kSlotBytes = 512;
constexpr uint32_t kSlices = 10;  // of a chunk in all loops: more than a connection has slots
constexpr size_t kLineBytes = 128;

using Kind = Region::Kind;

/// A line of a table; tables begin with one.
struct Place {
  const void* table;
  size_t line;
  auto operator<=>(const Place&) const = default;
};

/// Where an address is on a machine with a GPU.
class Places {
 public:
  explicit Places(const std::vector<Region>& regions) {
    for (const Region& region : regions) {
      add(region);
    }
  }
  void add(const Region& region) { found_[reinterpret_cast<uintptr_t>(region.begin)] = region; }

  /// nullptr: no table of the launch.
  [[nodiscard]] const Region* region_at(uintptr_t address) const {
    const auto next = found_.upper_bound(address);
    if (next == found_.begin()) {
      return nullptr;
    }
    const Region& region = std::prev(next)->second;
    return offset_in(region, address) < region.size_bytes ? &region : nullptr;
  }
  /// The word of a slot's lines with the hash, for which the receiver waits before the pass, is in
  /// device memory as a header is.
  [[nodiscard]] static Kind kind_at(const Region& region, uintptr_t address) {
    if (region.kind != Kind::kLines) {
      return region.kind;
    }
    constexpr uintptr_t kLL128 = kSlots * kSlotBytesLL;
    const uintptr_t offset = offset_in(region, address);
    const bool is_awaited = offset < kLL128
                                ? offset % kSlotBytesLL == 0
                                : (offset - kLL128) % kSlotBytesLL128 == kDataBytesOfLineLL128;
    return is_awaited ? Kind::kDevice : Kind::kBytes;
  }
  [[nodiscard]] static Place place_of(const Region& region, uintptr_t address) {
    return {region.begin, offset_in(region, address) / kLineBytes};
  }

 private:
  static uintptr_t offset_in(const Region& region, uintptr_t address) {
    return address - reinterpret_cast<uintptr_t>(region.begin);
  }
  std::map<uintptr_t, Region> found_;
};

/// What a thread does between two syncs, or what all of a block do in turn.
struct Counts {
  uint32_t pinned = 0;    // loads
  uint32_t device = 0;    // loads before the slice's first byte
  uint32_t releases = 0;  // at system scope, each of which is a fence
  uint32_t syncs = 0;
};
Counts most(const Counts& a, const Counts& b) {
  return {std::max(a.pinned, b.pinned), std::max(a.device, b.device),
          std::max(a.releases, b.releases), std::max(a.syncs, b.syncs)};
}

struct Window {
  bool begins_step = false;
  std::optional<size_t> first_bytes;  // phase in which a thread first touches some
  std::vector<Counts> phases;         // between two syncs: the most of any thread

  [[nodiscard]] Counts in_turn() const {
    Counts sum{
        .pinned = 0, .device = 0, .releases = 0, .syncs = static_cast<uint32_t>(phases.size()) - 1};
    for (size_t i = 0; i < phases.size(); ++i) {
      sum.pinned += phases[i].pinned;
      sum.device += i <= first_bytes.value_or(i) ? phases[i].device : 0;
      sum.releases += phases[i].releases;
    }
    return sum;
  }
};

struct WatchedBlock {
  BlockState state{};
  std::vector<Window> windows;
  Window& window(size_t index) {
    windows.resize(std::max(windows.size(), index + 1));
    return windows[index];
  }
};

/// A thread of a block, as far as it has come.
class WatchedThread {
 public:
  explicit WatchedThread(WatchedBlock& block) : block_(block) {}

  /// False: an access to memory of which nobody knows where it would be.
  bool see(const MemoryEvent& event, const Places& places) {
    switch (event.kind) {
      case MemoryEvent::Kind::kEnter:
        enter(*event.function);
        return true;
      case MemoryEvent::Kind::kLeave:
        leave(*event.function);
        return true;
      case MemoryEvent::Kind::kMeet:
        end_phase();
        return true;
      default:
        return !runs_ || is_shared(event.address) || access(event, places.region_at(event.address));
    }
  }

 private:
  void enter(const std::string& function) {
    runs_ = runs_ || function == "run_block";
    depth_ += function == "run_slice" ? 1 : 0;  // its lambdas have its name
    if (function == "run_step") {
      block_.window(window_).begins_step = true;
    }
  }
  void leave(const std::string& function) {
    if (function == "run_slice" && --depth_ == 0 && block_.window(window_).first_bytes) {
      end_phase();
      ++window_;
      phase_ = 0;
      has_bytes_ = false;
    }
  }
  void end_phase() {
    if (!runs_) {
      return;
    }
    std::vector<Counts>& phases = block_.window(window_).phases;
    phases.resize(std::max(phases.size(), phase_ + 1));
    phases[phase_] = most(phases[phase_], counts_);
    counts_ = {};
    ++phase_;
  }
  [[nodiscard]] bool is_shared(uintptr_t address) const {
    return address - reinterpret_cast<uintptr_t>(&block_.state) < sizeof(block_.state);
  }
  bool access(const MemoryEvent& event, const Region* region) {
    if (region == nullptr) {
      return false;
    }
    const Kind kind = Places::kind_at(*region, event.address);
    if (kind == Kind::kBytes) {
      Window& window = block_.window(window_);
      window.first_bytes = std::min(window.first_bytes.value_or(phase_), phase_);
      has_bytes_ = true;
    }
    const bool acquires = event.kind == MemoryEvent::Kind::kAcquire;
    counts_.releases += event.kind == MemoryEvent::Kind::kRelease ? 1 : 0;
    if (kind == Kind::kBytes || (!acquires && event.kind != MemoryEvent::Kind::kLoad)) {
      return true;
    }
    if (acquires) {
      lines_.clear();
    }
    const bool is_new = acquires || lines_.insert(Places::place_of(*region, event.address)).second;
    counts_.pinned += is_new && kind == Kind::kPinned ? 1 : 0;
    counts_.device += is_new && kind == Kind::kDevice && !has_bytes_ ? 1 : 0;
    return true;
  }

  WatchedBlock& block_;
  bool runs_ = false;
  int depth_ = 0;  // of run_slice
  size_t window_ = 0;
  size_t phase_ = 0;
  bool has_bytes_ = false;  // this thread, in this window
  Counts counts_;
  std::set<Place> lines_;  // loaded since the last acquire
};

struct Form {
  const char* name;
  Protocol protocol;
  bool by_address;
  uint32_t slices_of_chunk = 2;
};
constexpr std::array kForms = {
    Form{"Simple", Protocol::kSimple, false},
    // Chunks of one slice, as in a plan: longer ones would not go in batches.
    Form{"Simple by address", Protocol::kSimple, true, 1},
    Form{"LL", Protocol::kLL, false},
    Form{"LL128", Protocol::kLL128, false},
};

Call make(const Algorithm& algorithm, int nranks, const Form& form) {
  Call call = make_call(algorithm.name, nranks, 0, form.protocol);
  call.slot_bytes = kSlotBytes;
  call.chunk_bytes = form.slices_of_chunk * kSlotBytes;
  const bool has_blocks = blocks_of(call) > 1 || geometry_of(call).blocked;
  const int chunks = has_blocks ? 1 : call.programs.front().chunks;
  call.count =
      uint64_t{kSlices} * static_cast<uint32_t>(chunks) * kSlotBytes / element_size(call.type);
  return call;
}

void print(const char* name, const Counts& counts) {
  std::printf(R"("%s": [%u, %u, %u, %u], )", name, counts.pinned, counts.device, counts.releases,
              counts.syncs);
}

void print(const std::vector<WatchedBlock>& blocks) {
  Counts first;
  std::optional<Counts> of_step;
  std::optional<Counts> of_slice;
  size_t moving = 0;
  for (const WatchedBlock& block : blocks) {
    const auto moves = [](const Window& window) { return window.first_bytes.has_value(); };
    const auto count =
        static_cast<size_t>(std::count_if(block.windows.begin(), block.windows.end(), moves));
    moving += count > 0 ? 1 : 0;
    for (size_t i = 0; i < count; ++i) {
      const Window& window = block.windows[i];
      const Counts counts = window.in_turn();
      if (i == 0) {
        first = most(first, counts);
      } else if (i >= count / 2) {
        auto& steady = window.begins_step ? of_step : of_slice;
        steady = most(steady.value_or(counts), counts);
      }
    }
  }
  print("first", first);
  if (of_step) {
    print("step", *of_step);
  }
  if (of_slice) {
    print("slice", *of_slice);
  }
  std::printf(R"("blocks": %zu, "idle": %zu)", blocks.size(), blocks.size() - moving);
}

/// Runs a call and prints what it does. False: it failed.
bool count(const Algorithm& algorithm, int nranks, const Form& form) {
  const Call call = make(algorithm, nranks, form);
  World world(call, {.on_device = std::vector<bool>(static_cast<size_t>(nranks), true),
                     .by_address = form.by_address});
  fill_inputs(world, call.type, 1);
  OrderSites sites;
  MemoryExplorer explorer(&sites);
  const std::vector<DeviceBlock> tasks = world.prepare(1);
  Places places(world.regions());
  places.add({Kind::kPinned, tasks.data(), tasks.size() * sizeof(DeviceBlock)});
  std::vector<WatchedBlock> blocks(tasks.size());
  std::vector<WatchedThread> threads;
  for (size_t i = 0; i < tasks.size(); ++i) {
    ExploredBlock& block = explorer.add_block(kThreads);
    for (uint32_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back(blocks[i]);
      explorer.add_thread([&, thread, i] {
        run_watched(ExploredThread(block, thread), blocks[i].state, tasks[i]);
      });
    }
  }
  bool all_known = true;
  std::string fault =
      explorer.watch({"run_block", "run_step", "run_slice"}, [&](const MemoryEvent& event) {
        all_known = threads[event.thread].see(event, places) && all_known;
      });
  if (fault.empty() && !all_known) {
    fault = "the kernel uses memory that World::regions() does not list";
  }
  if (!fault.empty() || !world.has_succeeded(1)) {
    std::fprintf(stderr, "%s, %s, %d ranks: %s\n", algorithm.name, form.name, nranks,
                 fault.empty() ? "the call failed" : fault.c_str());
    return false;
  }
  std::printf("\"%s, %s, %d ranks\": {", algorithm.name, form.name, nranks);
  print(blocks);
  std::printf("}");
  return true;
}

int count_all() {
  const char* before = "{\n";
  for (const Algorithm& algorithm : algorithms()) {
    // A network that reduces is a different kind of peer, and point-to-point calls come in pairs.
    if (algorithm.network_cost != nullptr || is_point_to_point(algorithm.collective)) {
      continue;
    }
    for (const Form& form : kForms) {
      for (const int nranks : {2, 4, 8}) {
        std::printf("%s", std::exchange(before, ",\n"));
        if (!count(algorithm, nranks, form)) {
          return 1;
        }
      }
    }
  }
  std::printf("\n}\n");
  return 0;
}

}  // namespace
}  // namespace plexus::test

int main() { return plexus::test::count_all(); }
