// SPDX-License-Identifier: Apache-2.0
// A job that becomes smaller and larger again and again: 8 ranks, then 5, 9, 3, and 8 again, each a
// process. In each round every communicator sums and suspends itself once; sums, what
// ncclCommMemStats says, and the memory and descriptors of the processes that stay are checked.
// With `kills` the ranks of a shrink leave by SIGKILL, some or all, and fresh processes take their
// places.
//   elastic ROUNDS [kills SEED]
#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/support/process_shared.hpp"
#include "tests/support/require.hpp"

namespace {

using plexus::testing_process::ProcessBarrier;

constexpr size_t kCount = 50'000;
constexpr int kSlots = 9;  // processes; a rank of each communicator has its slot's number
constexpr int kRoundsMax = 1000;
// A round's sizes, each a shrink or a grow of the one before; the last is the next round's first.
constexpr std::array<int, 5> kSizes{8, 5, 9, 3, 8};
constexpr int kSteps = static_cast<int>(kSizes.size()) - 1;

struct Shared {
  ncclUniqueId first;
  ProcessBarrier has_first;
  std::array<ncclUniqueId, kRoundsMax * kSteps> ids;        // of grows
  std::array<ProcessBarrier, kRoundsMax * kSteps> has_ids;  // the new ranks and rank 0
  std::array<ProcessBarrier, kRoundsMax * kSteps> may_die;  // all ranks before a shrink with deaths
  std::array<std::atomic<uint64_t>, kSteps + 1> held{};     // of all ranks of that size
};

struct Options {
  int rounds = 0;
  bool kills = false;
  uint64_t seed = 0;
};

/// When a process takes part first: with the step that makes communicators of `kSizes[step + 1]`.
struct Place {
  int round = 0;
  int step = -1;  // -1: of round 0, with the first communicator
};

bool is_shrink(int step) {
  return kSizes[static_cast<size_t>(step) + 1] < kSizes[static_cast<size_t>(step)];
}

/// Whether `slot` leaves by SIGKILL there. The same in all processes.
bool is_victim(const Options& options, int round, int step, int slot) {
  const auto size = kSizes[static_cast<size_t>(step) + 1];
  if (!options.kills || slot < size || slot >= kSizes[static_cast<size_t>(step)]) {
    return false;
  }
  uint64_t hash = options.seed * 1'000'003 + static_cast<uint64_t>(round) * 64 +
                  static_cast<uint64_t>(step) * 16 + static_cast<uint64_t>(slot);
  hash = (hash ^ hash >> 31) * 0x9e3779b97f4a7c15;
  return (hash >> 60) % 2 == 0;
}

bool has_victims(const Options& options, int round, int step) {
  for (int slot = 0; slot < kSlots; ++slot) {
    if (is_victim(options, round, step, slot)) {
      return true;
    }
  }
  return false;
}

/// The next grow, from there on, that brings `slot` in; round == rounds: none.
Place next_join(const Options& options, int slot, Place from) {
  while (from.round < options.rounds) {
    if (++from.step == kSteps) {
      from = {.round = from.round + 1, .step = 0};
    }
    const auto step = static_cast<size_t>(from.step);
    if (from.round < options.rounds && slot >= kSizes[step] && slot < kSizes[step + 1]) {
      return from;
    }
  }
  return from;
}

size_t resident_bytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  size_t total = 0;
  size_t resident = 0;
  const bool is_read = file != nullptr && std::fscanf(file, "%zu %zu", &total, &resident) == 2;
  REQUIRE(is_read);
  std::fclose(file);
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

int count_descriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  REQUIRE(folder != nullptr);
  int count = 0;
  while (readdir(folder) != nullptr) {
    ++count;
  }
  closedir(folder);
  return count;
}

ncclResult_t sum(ncclComm_t comm, int slot, int nranks) {
  std::vector<float> data(kCount, static_cast<float>(slot + 1));
  const ncclResult_t result =
      ncclAllReduce(data.data(), data.data(), kCount, ncclFloat, ncclSum, comm, nullptr);
  const auto expected = static_cast<float>(nranks * (nranks + 1) / 2);
  if (result == ncclSuccess) {
    REQUIRE(std::all_of(data.begin(), data.end(), [&](float x) { return x == expected; }));
  }
  return result;
}

class Member {
 public:
  Member(Shared& shared, const Options& options, int slot)
      : shared_(shared), options_(options), slot_(slot) {}

  /// Takes part from `place` on, until the rounds are over.
  void run(Place place) {
    if (place.step < 0) {
      shared_.has_first.wait();
      REQUIRE(ncclCommInitRank(&comm_, kSizes[0], shared_.first, slot_) == ncclSuccess);
      use(0);
      place = {.round = 0, .step = 0};
    }
    for (; place.round < options_.rounds; place = {.round = place.round + 1, .step = 0}) {
      for (; place.step < kSteps; ++place.step) {
        take_step(place);
      }
      note_memory(place.round);
    }
    if (comm_ != nullptr) {
      REQUIRE(ncclCommDestroy(comm_) == ncclSuccess);
    }
  }

 private:
  void take_step(const Place& place) {
    const auto step = static_cast<size_t>(place.step);
    const int before = kSizes[step];
    const int size = kSizes[step + 1];
    if (slot_ < before && has_victims(options_, place.round, place.step)) {
      shared_.may_die[static_cast<size_t>(place.round * kSteps + place.step)].wait();
    }
    if (is_shrink(place.step)) {
      if (slot_ < size) {
        shrink(place, before, size);
      } else if (slot_ < before) {
        leave(place, before);
      }
    } else if (slot_ < size) {
      grow(place, before, size);
    }
    if (slot_ < size) {
      use(place.step + 1);
    }
  }

  void leave(const Place& place, int before) {
    if (is_victim(options_, place.round, place.step, slot_)) {
      raise(SIGKILL);
    }
    if (has_victims(options_, place.round, place.step)) {  // as those who stay do
      while (sum(comm_, slot_, before) == ncclSuccess) {
      }
      REQUIRE(ncclCommAbort(comm_) == ncclSuccess);
    } else {
      REQUIRE(ncclCommDestroy(comm_) == ncclSuccess);
    }
    comm_ = nullptr;
  }

  void shrink(const Place& place, int before, int size) {
    const bool after_deaths = has_victims(options_, place.round, place.step);
    while (after_deaths && sum(comm_, slot_, before) == ncclSuccess) {
    }
    std::vector<int> excluded;
    for (int rank = size; rank < before; ++rank) {
      excluded.push_back(rank);
    }
    ncclComm_t smaller = nullptr;
    REQUIRE(ncclCommShrink(comm_, excluded.data(), before - size, &smaller, nullptr,
                           after_deaths ? NCCL_SHRINK_ABORT : NCCL_SHRINK_DEFAULT) == ncclSuccess);
    replace(smaller);
  }

  void grow(const Place& place, int before, int size) {
    const auto at = static_cast<size_t>(place.round * kSteps + place.step);
    ncclUniqueId& id = shared_.ids[at];
    ncclComm_t larger = nullptr;
    if (slot_ == 0) {
      REQUIRE(ncclCommGetUniqueId(comm_, &id) == ncclSuccess);
    }
    if (slot_ == 0 || slot_ >= before) {
      shared_.has_ids[at].wait();
    }
    const bool is_new = slot_ >= before;
    REQUIRE(ncclCommGrow(comm_, size, is_new ? &id : nullptr, is_new ? slot_ : -1, &larger,
                         nullptr) == ncclSuccess);
    replace(larger);
  }

  void replace(ncclComm_t next) {
    if (comm_ != nullptr) {
      REQUIRE(ncclCommDestroy(comm_) == ncclSuccess);
    }
    comm_ = next;
  }

  /// The memory that communicators of a size hold is the same in all rounds.
  void use(int size_index) {
    const int nranks = kSizes[static_cast<size_t>(size_index)];
    REQUIRE(sum(comm_, slot_, nranks) == ncclSuccess);
    const uint64_t held = stat(ncclStatGpuMemSuspend);
    REQUIRE(held > 0);
    REQUIRE(ncclCommSuspend(comm_, NCCL_SUSPEND_MEM) == ncclSuccess);
    REQUIRE(stat(ncclStatGpuMemSuspend) == 0);
    REQUIRE(ncclCommResume(comm_) == ncclSuccess);
    REQUIRE(sum(comm_, slot_, nranks) == ncclSuccess);
    REQUIRE(stat(ncclStatGpuMemSuspend) == held);
    if (slot_ == 0) {
      uint64_t seen = 0;
      if (!shared_.held[static_cast<size_t>(size_index)].compare_exchange_strong(seen, held)) {
        REQUIRE(seen == held);
      }
    }
  }

  uint64_t stat(ncclCommMemStat_t which) {
    uint64_t value = 0;
    REQUIRE(ncclCommMemStats(comm_, which, &value) == ncclSuccess);
    return value;
  }

  /// The most in the last rounds is hardly more than the most in some early ones. What is held
  /// changes from round to round: connections of the control plane end when a rank's peer notices.
  void note_memory(int round) {
    constexpr int kWarmUp = 4;
    constexpr int kWindow = 4;
    constexpr size_t kSlackBytes = size_t{2} << 20;
    constexpr int kSlackDescriptors = 12;
    if (round >= kWarmUp && round < kWarmUp + kWindow) {
      early_.note();
    }
    if (round >= options_.rounds - kWindow) {
      late_.note();
    }
    if (round < options_.rounds - 1 || early_.descriptors == 0) {
      return;
    }
    if (slot_ == 0) {
      std::printf(
          "rank 0: %zu KiB and %d descriptors at most in rounds %d to %d, %zu KiB and %d in the "
          "last\n",
          early_.resident >> 10, early_.descriptors, kWarmUp, kWarmUp + kWindow - 1,
          late_.resident >> 10, late_.descriptors);
      std::fflush(stdout);
    }
    REQUIRE(late_.resident <= early_.resident + kSlackBytes);
    REQUIRE(late_.descriptors <= early_.descriptors + kSlackDescriptors);
  }

  struct Peak {
    size_t resident = 0;
    int descriptors = 0;
    void note() {
      resident = std::max(resident, resident_bytes());
      descriptors = std::max(descriptors, count_descriptors());
    }
  };
  Shared& shared_;
  const Options& options_;
  const int slot_;
  ncclComm_t comm_ = nullptr;
  Peak early_;
  Peak late_;
};

pid_t start(Shared& shared, const Options& options, int slot, const Place& place) {
  const pid_t child = fork();
  if (child == 0) {
    Member(shared, options, slot).run(place);
    _exit(0);
  }
  return child;
}

void open_barriers(Shared& shared) {
  shared.has_first.open(kSizes[0] + 1);
  for (size_t at = 0; at < shared.has_ids.size(); ++at) {
    const int step = static_cast<int>(at) % kSteps;
    const auto grown = kSizes[static_cast<size_t>(step) + 1] - kSizes[static_cast<size_t>(step)];
    if (grown > 0) {
      shared.has_ids[at].open(static_cast<size_t>(grown) + 1);
    } else {
      shared.may_die[at].open(static_cast<size_t>(kSizes[static_cast<size_t>(step)]));
    }
  }
}

/// Where `slot`, which has died, did: the first place from `from` on where it is a victim.
Place place_of_death(const Options& options, int slot, Place from) {
  for (; from.round < options.rounds; from = {.round = from.round + 1, .step = 0}) {
    for (from.step = std::max(from.step, 0); from.step < kSteps; ++from.step) {
      if (is_victim(options, from.round, from.step, slot)) {
        return from;
      }
    }
  }
  return from;
}

/// Replaces who was killed as it should; the number of processes that ended otherwise.
int keep_going(Shared& shared, const Options& options, std::array<pid_t, kSlots>& processes) {
  std::array<Place, kSlots> places{};
  int failed = 0;
  int deaths = 0;
  for (int left = kSlots; left > 0; --left) {
    int status = 0;
    const pid_t ended = wait(&status);
    const auto at = std::find(processes.begin(), processes.end(), ended);
    if (at == processes.end()) {  // who made the first id
      ++left;
      continue;
    }
    const auto slot = static_cast<int>(at - processes.begin());
    Place& place = places[static_cast<size_t>(slot)];
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && options.kills) {
      const Place next = next_join(options, slot, place_of_death(options, slot, place));
      ++deaths;
      if (next.round < options.rounds) {
        place = next;
        *at = start(shared, options, slot, next);
        ++left;
      }
    } else if (status != 0) {
      ++failed;
      for (const pid_t each : processes) {  // they would wait for it
        kill(each, SIGTERM);
      }
    }
  }
  std::printf("%d rounds, %d processes killed%s\n", options.rounds, deaths,
              failed == 0 ? "" : ", and some ended that should not");
  return failed;
}

}  // namespace

int main(int argc, char** argv) {
  Options options{.rounds = argc > 1 ? std::atoi(argv[1]) : 0};
  options.kills = argc > 3 && std::strcmp(argv[2], "kills") == 0;
  options.seed = options.kills ? std::strtoull(argv[3], nullptr, 10) : 0;
  if (options.rounds < 1 || options.rounds > kRoundsMax || (argc > 2 && !options.kills)) {
    std::fputs("usage: elastic ROUNDS [kills SEED]\n", stderr);
    return 2;
  }
  auto& shared = plexus::testing_process::make_shared_object<Shared>();
  open_barriers(shared);
  const pid_t maker = fork();
  if (maker == 0) {  // whose death no rank notices
    REQUIRE(ncclGetUniqueId(&shared.first) == ncclSuccess);
    shared.has_first.wait();
    pause();
  }
  std::array<pid_t, kSlots> processes{};
  for (int slot = 0; slot < kSlots; ++slot) {
    const bool is_first = slot < kSizes[0];
    const Place place = is_first ? Place{} : next_join(options, slot, {.round = 0, .step = -1});
    processes[static_cast<size_t>(slot)] = start(shared, options, slot, place);
  }
  const int failed = keep_going(shared, options, processes);
  kill(maker, SIGKILL);
  waitpid(maker, nullptr, 0);
  return failed == 0 ? 0 : 1;
}
