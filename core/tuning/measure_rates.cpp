// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/measure_rates.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <immintrin.h>
#include <limits>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "core/base/thread.hpp"
#include "core/os/cpu_set.hpp"
#include "core/os/host.hpp"
#include "core/os/process_memory.hpp"
#include "core/os/shared_memory.hpp"

namespace plexus {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::milliseconds(150);  // per pair of cores
constexpr uint64_t kSlotCount = 8;
constexpr size_t kSlotBytes = size_t{128} << 10;  // as kernels use them between processes
constexpr size_t kReadBytes = size_t{512} << 10;  // most bytes of one system call
constexpr uint64_t kLines = 1000;                 // exchanged at once
constexpr size_t kCacheLineBytes = 64;
// A time counts when another pass came this close to it. Disturbances only add.
constexpr double kRepeats = 1.15;
// Small buffers pass through all slots more than twice before a time counts.
constexpr int kPassesMin = 5;
constexpr int kPassesMinOfSmall = 20;
constexpr uint64_t kSmallBufferBytes = uint64_t{256} << 10;
constexpr int kPassesMore = 10;  // then no time repeats itself

struct alignas(kCacheLineBytes) Counter {
  std::atomic<uint64_t> value{0};
  [[nodiscard]] uint64_t load() const { return value.load(std::memory_order_acquire); }
  void store(uint64_t next) { value.store(next, std::memory_order_release); }
};

enum class Task : uint8_t { kLine, kThroughSlots, kAttach, kMapped };

/// One of the two threads: its memory and what it shows the other.
struct Side {
  SharedMemory slots;   // that it fills
  SharedMemory source;  // what the other takes
  SharedMemory seen;    // the other's source, mapped once more, as by another process
  std::vector<std::byte> target;
  Counter line;
  Counter filled;  // slots
  Counter taken;   // of the other's slots
  Counter done;    // tasks

  Result<void> allocate() {
    const auto most = static_cast<size_t>(kRatesBytes.back());
    PLEXUS_TRY(made_slots, SharedMemory::create(kSlotCount * kSlotBytes));
    PLEXUS_TRY(made_source, SharedMemory::create(most));
    slots = std::move(made_slots);
    source = std::move(made_source);
    target.resize(most);
    // The first use of a page takes longer than its copy; every pass uses other slots.
    std::memset(slots.data(), 1, slots.size());
    std::memset(source.data(), 1, source.size());
    return ok();
  }
  Result<void> map(const SharedMemory& others) {
    PLEXUS_TRY(
        mapped,
        SharedMemory::open_peer(
            {.pid = getpid(), .fd = others.fd(), .size_bytes = others.size(), .id = others.id()}));
    seen = std::move(mapped);
    return ok();
  }
};

/// Two threads, each on a core, that do the same tasks at the same time. Side 0 sets the tasks and
/// reads the clock.
class PairBenchmark {
 public:
  explicit PairBenchmark(CorePair cores) : cores_(cores), end_(Clock::now() + kPatience) {}

  Result<PairRates> run() {
    for (Side& side : sides_) {
      PLEXUS_TRY(side.allocate());
    }
    for (const size_t side : {0, 1}) {
      PLEXUS_TRY(sides_[side].map(sides_[1 - side].source));
    }
    PLEXUS_TRY(second, start_thread("measure this host", [this] { follow(); }));
    auto first = start_thread("measure this host", [this] { lead(); });
    if (first.has_error()) {
      failed_ = true;
      second.join();
      return std::move(first).error();
    }
    first.value().join();
    second.join();
    if (failed_) {
      return fail(Code::kSystemError,
                  "cores {} and {} cannot be measured: they are busy, or may not be used",
                  cores_.first, cores_.second);
    }
    return rates_;
  }

 private:
  /// Takes as long as the core is busy, and the other side may give up meanwhile: never unsets
  /// failed_.
  void bind(int core) {
    const auto now = CpuSet::of_thread();
    if (!now.has_value() || !CpuSet::one(*now, static_cast<size_t>(core)).apply()) {
      failed_ = true;
    }
  }

  template <class IsTrue>
  bool wait_until(IsTrue is_true) {
    constexpr uint32_t kClockPolls = 4096;
    for (uint32_t polls = 1; !is_true(); ++polls) {
      _mm_pause();
      if (failed_.load(std::memory_order_relaxed) ||
          (polls % kClockPolls == 0 && Clock::now() > end_)) {
        failed_ = true;
        return false;
      }
    }
    return true;
  }

  void lead() {
    bind(cores_.first);
    rates_.line_ns = std::max<uint64_t>(measure(Task::kLine, 0) / kLines, 1);
    const bool attaches = PeerProcess(getpid(), process_id(), process_mark_address()).probe() == 0;
    for (size_t size = 0; size < kRatesBytes.size() && !failed_; ++size) {
      const auto keep = [&](CopyMethod method, Task task) {
        rates_.exchange_ns[static_cast<size_t>(method)][size] = measure(task, kRatesBytes[size]);
      };
      keep(CopyMethod::kThroughSlots, Task::kThroughSlots);
      if (attaches) {
        keep(CopyMethod::kAttach, Task::kAttach);
      }
      keep(CopyMethod::kMapped, Task::kMapped);
    }
    over_ = true;
    set_.store(tasks_ + 1);
  }

  void follow() {
    bind(cores_.second);
    for (uint64_t next = 1; wait_until([&] { return set_.load() >= next; }) && !over_; ++next) {
      perform(1);
    }
  }

  /// The least time of several passes; sets failed_ when none repeats itself.
  uint64_t measure(Task task, uint64_t size_bytes) {
    if (failed_) {
      return 0;  // the other side may still be at the last task
    }
    task_ = task;
    size_bytes_ = size_bytes;
    uint64_t least = std::numeric_limits<uint64_t>::max();
    uint64_t second = least;
    const int passes_min = size_bytes <= kSmallBufferBytes ? kPassesMinOfSmall : kPassesMin;
    for (int pass = 0; pass < passes_min + kPassesMore && !failed_ && Clock::now() < end_; ++pass) {
      const uint64_t ns = time_pass();
      second = std::min(second, std::max(ns, least));
      least = std::min(least, ns);
      if (pass >= passes_min &&
          static_cast<double>(second) <= static_cast<double>(least) * kRepeats) {
        return std::max<uint64_t>(least, 1);
      }
    }
    failed_ = true;
    return 0;
  }

  uint64_t time_pass() {
    set_.store(++tasks_);  // pairs with the load in follow()
    const auto begin = Clock::now();
    perform(0);
    if (!wait_until([&] { return sides_[1].done.load() == tasks_; })) {
      return 0;
    }
    return static_cast<uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
  }

  void perform(size_t me) {
    Side& mine = sides_[me];
    const Side& other = sides_[1 - me];
    switch (task_) {
      case Task::kLine:
        exchange_lines(mine, other);
        break;
      case Task::kThroughSlots:
        exchange_slots(mine, other);
        break;
      case Task::kAttach:
        read_attached(mine, other);
        break;
      case Task::kMapped:
        std::memcpy(mine.target.data(), mine.seen.data(), size_bytes_);
        break;
    }
    mine.done.store(mine.done.load() + 1);
  }

  void exchange_lines(Side& mine, const Side& other) {
    const uint64_t last = mine.line.load() + kLines;
    for (uint64_t next = mine.line.load() + 1; next <= last; ++next) {
      mine.line.store(next);
      if (!wait_until([&] { return other.line.load() >= next; })) {
        return;
      }
    }
  }

  /// Fills free slots and empties filled ones in turn, as a rank does.
  void exchange_slots(Side& mine, const Side& other) {
    const uint64_t count = (size_bytes_ + kSlotBytes - 1) / kSlotBytes;
    const uint64_t first = mine.filled.load();  // the same on both sides
    uint64_t sent = 0;
    uint64_t received = 0;
    const auto bytes_of = [&](uint64_t slot) {
      return std::min<size_t>(size_bytes_ - slot * kSlotBytes, kSlotBytes);
    };
    const auto may_send = [&] {
      return sent < count && first + sent < other.taken.load() + kSlotCount;
    };
    const auto may_receive = [&] {
      return received < count && other.filled.load() > first + received;
    };
    while (sent < count || received < count) {
      if (!wait_until([&] { return may_send() || may_receive(); })) {
        return;
      }
      if (may_send()) {
        std::memcpy(mine.slots.data() + (first + sent) % kSlotCount * kSlotBytes,
                    mine.source.data() + sent * kSlotBytes, bytes_of(sent));
        mine.filled.store(first + ++sent);
      }
      if (may_receive()) {
        std::memcpy(mine.target.data() + received * kSlotBytes,
                    other.slots.data() + (first + received) % kSlotCount * kSlotBytes,
                    bytes_of(received));
        mine.taken.store(first + ++received);
      }
    }
  }

  void read_attached(Side& mine, const Side& other) {
    const PeerProcess process(getpid(), process_id(), process_mark_address());
    for (size_t done = 0; done < size_bytes_; done += kReadBytes) {
      const auto from = reinterpret_cast<uintptr_t>(other.source.data()) + done;
      if (process.read(mine.target.data() + done, from,
                       std::min<size_t>(size_bytes_ - done, kReadBytes)) != 0) {
        failed_ = true;
        return;
      }
    }
  }

  CorePair cores_;
  Clock::time_point end_;
  std::array<Side, 2> sides_;
  PairRates rates_;  // side 0 writes
  // Written by side 0 before set_:
  Task task_ = Task::kLine;
  size_t size_bytes_ = 0;
  uint64_t tasks_ = 0;
  bool over_ = false;
  Counter set_;  // tasks that were set
  std::atomic<bool> failed_{false};
};

std::string read_line(const std::string& path) {
  std::string text;
  std::getline(std::ifstream(path), text);
  return text;
}

/// What the kernel says of a core.
struct CoreFacts {
  int core;
  std::string siblings;
  std::string cache;  // the cores that share its last cache
  std::string package;
};

CoreFacts facts_of(int core, const std::string& sysfs) {
  const std::string folder = fmt::format("{}/devices/system/cpu/cpu{}", sysfs, core);
  CoreFacts facts{.core = core,
                  .siblings = read_line(folder + "/topology/thread_siblings_list"),
                  .cache = read_line(folder + "/cache/index3/shared_cpu_list"),
                  .package = read_line(folder + "/topology/physical_package_id")};
  facts.cache += '/' + facts.package;
  return facts;
}

/// The cores that this process can get, which may be more than the calling thread may run on now.
std::vector<int> list_cores() {
  std::vector<int> cores;
  const auto before = CpuSet::of_thread();
  if (!before.has_value()) {
    return cores;
  }
  auto possible = before;
  if (CpuSet::all(*before).apply()) {
    possible = CpuSet::of_thread();
    (void)before->apply();
  }
  for (size_t core = 0; possible.has_value() && core < possible->end(); ++core) {
    if (possible->has(core)) {
      cores.push_back(static_cast<int>(core));
    }
  }
  return cores;
}

}  // namespace

CorePairs find_core_pairs(std::span<const int> cores, const std::string& sysfs) {
  CorePairs pairs;
  if (cores.empty()) {
    return pairs;
  }
  const CoreFacts first = facts_of(cores.front(), sysfs);
  std::string far_package = first.package;
  for (const int core : cores.subspan(1)) {
    const CoreFacts facts = facts_of(core, sysfs);
    if (facts.cache == first.cache) {
      if (!pairs.near && (facts.siblings.empty() || facts.siblings != first.siblings)) {
        pairs.near = CorePair{first.core, core};
      }
    } else if (!pairs.far || (far_package == first.package && facts.package != first.package)) {
      pairs.far = CorePair{first.core, core};
      far_package = facts.package;
    }
  }
  return pairs;
}

Result<HostRates> measure_host_rates() {
  const CorePairs pairs = find_core_pairs(list_cores());
  if (!pairs.near && !pairs.far) {
    return fail(Code::kSystemError, "there are no two cores whose exchange could be measured");
  }
  HostRates rates;
  // A host of cores that share no cache has one distance.
  PLEXUS_TRY(near, PairBenchmark(pairs.near ? *pairs.near : *pairs.far).run());
  rates.near = near;
  if (pairs.near && pairs.far) {
    PLEXUS_TRY(far, PairBenchmark(*pairs.far).run());
    rates.far = far;
  }
  if (!is_plausible(rates)) {
    return fail(Code::kSystemError, "this host was measured, but not with times that can be true");
  }
  return rates;
}

}  // namespace plexus
