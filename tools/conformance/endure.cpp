// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/endure.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <thread>
#include <unistd.h>

#include "tools/conformance/leaks.hpp"
#include "tools/conformance/process_state.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kThreads = 3;      // of each process
constexpr uint32_t kConnections = 2;  // of each thread, in each direction
constexpr uint32_t kRounds = 6;       // of an epoch
constexpr uint32_t kWindow = 8;       // messages that may overtake each other
constexpr uint32_t kWindows = 2;      // of a connection and round
constexpr uint32_t kSizeBitsMost = 20;
constexpr uint64_t kWarmEpochs = 3;  // after them nothing may grow
constexpr uint64_t kEpochsLeast = 6;

/// A message that both processes know of.
struct Planned {
  uint64_t size_bytes;
  int32_t tag;
  uint64_t seed;
  uint64_t source_offset;
  uint64_t target_offset;
  uint64_t spare_bytes;
};

/// Where a message belongs.
struct Lot {
  uint64_t seed;  // of the run
  uint64_t epoch;
  uint32_t round;
  uint32_t connection;  // among all of both processes
};

class Dice {
 public:
  explicit Dice(const Lot& lot) : engine_(mix(lot)) {}
  uint64_t below(uint64_t end) { return engine_() % end; }

 private:
  static uint64_t mix(const Lot& lot) {
    constexpr uint64_t kSpread = 0x9E3779B97F4A7C15U;
    uint64_t mixed = lot.seed;
    for (const uint64_t part : {lot.epoch, uint64_t{lot.round}, uint64_t{lot.connection}}) {
      mixed = (mixed ^ (mixed >> 31U) ^ part) * kSpread;
    }
    return mixed;
  }
  std::mt19937_64 engine_;
};

/// A power of two, or one byte less or more; now and then the device's limit, up to 4 MiB.
uint64_t draw_size(Dice& dice, uint64_t most) {
  constexpr uint64_t kLimitEvery = 64;
  constexpr uint64_t kLongest = uint64_t{4} << kSizeBitsMost;
  const uint64_t beside = dice.below(3);
  if (dice.below(kLimitEvery) == 0) {
    return std::min(most, kLongest) - beside;
  }
  return std::min((uint64_t{1} << dice.below(kSizeBitsMost + 1)) + beside - 1, most);
}

/// The messages of a connection's round, in the order in which they are sent.
std::vector<Planned> plan(Dice& dice, uint64_t most) {
  constexpr uint64_t kOffsets = 64;
  std::vector<Planned> messages;
  for (uint32_t i = 0; i < kWindow * kWindows; ++i) {
    const uint64_t size_bytes = draw_size(dice, most);
    messages.push_back({.size_bytes = size_bytes,
                        .tag = static_cast<int32_t>(i % kWindow),
                        .seed = dice.below(~uint64_t{0}),
                        .source_offset = dice.below(kOffsets),
                        .target_offset = dice.below(kOffsets),
                        .spare_bytes = dice.below(2) * dice.below(kOffsets)});
  }
  return messages;
}

/// The order in which receives are posted: another than that of the sends within a window, unless
/// the plugin is of NCCL's ABI, whose hosts do not do that.
std::vector<size_t> order_of_receives(Dice& dice, bool is_native) {
  std::vector<size_t> order;
  for (size_t i = 0; i < size_t{kWindow} * kWindows; ++i) {
    order.push_back(i);
    const size_t begin = i - i % kWindow;
    const size_t other = begin + dice.below(i % kWindow + 1);
    if (is_native) {
      std::swap(order[i], order[other]);
    }
  }
  return order;
}

struct Source {
  explicit Source(const Planned& planned)
      : bytes(planned.source_offset + planned.size_bytes + 1),
        data(std::span<const std::byte>(bytes).subspan(planned.source_offset, planned.size_bytes)) {
    const Bytes message = make_message(planned.size_bytes, planned.seed);
    std::copy(message.begin(), message.end(),
              bytes.begin() + static_cast<ptrdiff_t>(planned.source_offset));
  }
  Bytes bytes;
  std::span<const std::byte> data;
};
struct Arrival {
  Planned planned;
  uint32_t connection;
  GuardedBuffer target;
};

/// The connections of a thread; `number`: of the first, among all of both processes.
struct Worker {
  uint32_t number = 0;
  std::deque<Send> sends;
  std::deque<Recv> recvs;
};

struct Sums {
  std::atomic<uint64_t> messages{0};
  std::atomic<uint64_t> bytes{0};
};

Result<void> run_round(Fixture& fixture, Worker& worker, Lot lot, bool is_native, Sums& sums) {
  std::deque<Source> sources;
  std::deque<Arrival> arrivals;
  Traffic traffic(fixture, is_native && lot.round % 2 == 1 ? Testing::kAll : Testing::kOldest);
  for (uint32_t i = 0; i < kConnections; ++i) {
    lot.connection = 2 * (worker.number + i) + fixture.role();
    Dice dice(lot);
    for (const Planned& planned : plan(dice, worker.sends[i].message_bytes_max())) {
      PLEXUS_TRY(traffic.send(worker.sends[i], sources.emplace_back(planned).data, planned.tag));
    }
    lot.connection = 2 * (worker.number + i) + 1 - fixture.role();
    Dice others(lot);
    const std::vector<Planned> expected = plan(others, worker.recvs[i].message_bytes_max());
    for (const size_t index : order_of_receives(others, is_native)) {
      const Planned& planned = expected[index];
      Arrival& arrival = arrivals.emplace_back(
          Arrival{planned, lot.connection,
                  GuardedBuffer(planned.size_bytes + planned.spare_bytes, planned.target_offset)});
      PLEXUS_TRY(traffic.recv(worker.recvs[i], arrival.target, planned.tag));
    }
  }
  PLEXUS_TRY(traffic.finish());
  for (const Arrival& arrival : arrivals) {
    const Bytes message = make_message(arrival.planned.size_bytes, arrival.planned.seed);
    if (auto checked = arrival.target.expect_message(message); checked.has_error()) {
      return std::move(checked).error().with_context(fmt::format(
          "round {}, connection {}, tag {}", lot.round, arrival.connection, arrival.planned.tag));
    }
    sums.bytes += arrival.planned.size_bytes;
  }
  sums.messages += arrivals.size();
  return ok();
}

Result<std::deque<Worker>> connect_workers(const Fixture& fixture, const Context& context) {
  std::deque<Worker> workers;
  for (uint32_t i = 0; i < kThreads * kConnections; ++i) {
    if (i % kConnections == 0) {
      workers.push_back({.number = i, .sends = {}, .recvs = {}});
    }
    for (uint32_t sender = 0; sender < 2; ++sender) {
      if (fixture.role() == sender) {
        PLEXUS_TRY(send, connect_to_peer(context));
        workers.back().sends.push_back(std::move(send));
      } else {
        PLEXUS_TRY(recv, accept_from_peer(context));
        workers.back().recvs.push_back(std::move(recv));
      }
    }
  }
  return workers;
}

/// Contexts and connections, and messages by all threads at once.
Result<void> run_epoch(Fixture& fixture, const Net& net, uint64_t epoch, Sums& sums) {
  PLEXUS_TRY(context, Context::open(net, epoch));
  PLEXUS_TRY(workers, connect_workers(fixture, context));
  std::mutex mutex;
  std::optional<Error> first;  // guarded by mutex
  std::vector<std::thread> threads;
  for (Worker& worker : workers) {
    threads.emplace_back([&] {
      for (uint32_t round = 0; round < kRounds; ++round) {
        const Lot lot{fixture.subject().seed, epoch, round, 0};
        Result<void> done = run_round(fixture, worker, lot, net.is_native(), sums);
        if (done.has_error()) {
          const std::scoped_lock lock(mutex);
          first = first.has_value() ? std::move(first) : std::move(done).error();
          return;
        }
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  if (first.has_value()) {
    return *std::move(first);
  }
  return fixture.peer().meet();  // before a connection is closed
}

uint64_t count_resident_bytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t all = 0;
  uint64_t resident = 0;
  file >> all >> resident;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// What the process held after the first epochs.
class Baseline {
 public:
  explicit Baseline(Fixture& fixture) : heap_(count_heap_bytes(fixture)) {}
  /// After `epochs` more.
  [[nodiscard]] Result<void> expect_flat(Fixture& fixture, uint64_t epochs) const {
    constexpr uint64_t kCachedBytes = 65536;  // what malloc keeps for threads
    constexpr uint64_t kEachBytes = 256;
    constexpr uint64_t kResidentBytes = 256 << 20;  // what it keeps of freed buffers
    const uint64_t heap = count_heap_bytes(fixture);
    PLEXUS_TRY(expect(heap <= heap_ + kCachedBytes + kEachBytes * epochs,
                      "{} bytes of heap leaked in {} epochs of {} connections", heap - heap_,
                      epochs, 2 * kThreads * kConnections));
    const uint64_t resident = count_resident_bytes();
    PLEXUS_TRY(expect(resident <= resident_ + kResidentBytes,
                      "the process grew from {} to {} bytes in {} epochs", resident_, resident,
                      epochs));
    return holdings_.expect_nothing_more("the connections of an epoch were closed");
  }
  [[nodiscard]] uint64_t resident_bytes() const noexcept { return resident_; }

 private:
  Holdings holdings_;
  uint64_t heap_;
  uint64_t resident_ = count_resident_bytes();
};

/// Process 0 decides when it is over.
Result<bool> goes_on(Fixture& fixture, uint64_t epochs, Clock::time_point end) {
  if (fixture.role() != 0) {
    return fixture.peer().receive<bool>();
  }
  const bool is_on = epochs < kEpochsLeast || Clock::now() < end;
  PLEXUS_TRY(fixture.peer().send(is_on));
  return is_on;
}

Result<void> run(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  const auto end = Clock::now() + fixture.subject().endurance;
  Sums sums;
  std::optional<Baseline> baseline;
  uint64_t epoch = 0;
  for (bool is_on = true; is_on; ++epoch) {
    if (epoch == kWarmEpochs) {
      baseline.emplace(fixture);
    }
    Result<void> done = run_epoch(fixture, net, epoch, sums);
    if (done.has_value() && baseline.has_value()) {
      done = baseline->expect_flat(fixture, epoch + 1 - kWarmEpochs);
    }
    if (done.has_error()) {
      return std::move(done).error().with_context(fmt::format("epoch {}", epoch));
    }
    PLEXUS_TRY(on, goes_on(fixture, epoch + 1, end));
    is_on = on;
  }
  fixture.status().text.set(fmt::format("{} {} {} {} {}", epoch, sums.messages.load(),
                                        sums.bytes.load(), baseline->resident_bytes(),
                                        count_resident_bytes()));
  return ok();
}

}  // namespace

Result<Endurance> endure(const Subject& subject, seconds time, uint64_t seed) {
  constexpr auto kBesides = seconds(120);
  Subject longer = subject;
  longer.endurance = time;
  longer.seed = seed;
  const Check check = {"endure", "", "", &run, {.processes = 2, .limit = time + kBesides}};
  PLEXUS_TRY(verdict, run_alone(longer, check));
  Endurance endurance{.seed = seed, .seconds = verdict.seconds, .failure = {}};
  if (verdict.outcome != Outcome::kPass) {
    endurance.failure = verdict.detail;
    return endurance;
  }
  std::istringstream text(verdict.detail);
  text >> endurance.epochs >> endurance.messages >> endurance.bytes >> endurance.resident_begin >>
      endurance.resident_end;
  return endurance;
}

}  // namespace plexus::conformance
