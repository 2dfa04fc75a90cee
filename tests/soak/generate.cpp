// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/generate.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

namespace plexus::soak {
namespace {

class Generator {
 public:
  Generator(uint64_t seed, const Features& features, const FaultKinds& faults)
      : random_(seed), features_(features), early_percent_(random_.pick(std::vector{0, 40, 100})) {
    job_.seed = seed;
    job_.allows_mixed = features.has(Feature::kMixed);
    if (faults.any()) {
      job_.fault = Fault{.kind = choose_kind(seed, faults)};
    }
  }

  Job generate() {
    choose_layout(job_, random_, features_);
    make_world();
    const int nturns = random_.between(3, 22);
    for (int turn = 0; turn < nturns; ++turn) {
      add_turn();
    }
    leave();
    add_pauses();
    add_forks();
    choose_surroundings(job_, features_);
    Random order(random_.next());
    job_.illegal = judge(model_of(job_)).why;
    if (features_.has(Feature::kReorder) && job_.illegal.empty()) {
      perturb(job_, order);
    }
    if (job_.fault.has_value() && job_.illegal.empty()) {
      add_fault(job_, order);
    }
    return std::move(job_);
  }

 private:
  bool has(Feature feature, int percent) {
    return random_.chance(percent) && features_.has(feature);
  }

  int nranks_of(int comm) const {
    return static_cast<int>(job_.comms[static_cast<size_t>(comm)].members.size());
  }

  // ---- communicators ----

  int add_comm(std::vector<int> members) {
    const int comm = static_cast<int>(job_.comms.size());
    job_.comms.push_back(
        {.making = static_cast<int>(job_.makings.size()), .members = std::move(members)});
    alive_.push_back(comm);
    return comm;
  }

  /// A step in all threads that have one of the ranks (of the world).
  void emit_making(Making making, const std::vector<int>& ranks) {
    const int index = static_cast<int>(job_.makings.size());
    job_.makings.push_back(std::move(making));
    for (Thread& thread : job_.threads) {
      if (std::find_first_of(ranks.begin(), ranks.end(), thread.ranks.begin(),
                             thread.ranks.end()) != ranks.end()) {
        synchronize(thread);
        thread.steps.push_back({.kind = StepKind::kMake, .making = index});
      }
    }
  }

  void make_world() {
    std::vector<int> all(static_cast<size_t>(job_.nranks));
    std::iota(all.begin(), all.end(), 0);
    const int comm = add_comm(all);
    Making making{.comms = {comm}};
    making.process_of_id = job_.threads.front().process;
    for (const Thread& thread : job_.threads) {
      if (thread.ranks.front() == 0) {
        making.process_of_id = thread.process;
      }
    }
    if (random_.chance(20)) {
      making.process_of_id = random_.below(static_cast<int>(job_.processes.size()));
    }
    const bool is_all = random_.chance(50);
    if (random_.chance(10)) {
      making.kind = MakingKind::kScalable;
      making.nids = std::min(random_.between(1, 3), job_.nranks);
    } else if (job_.threads.size() == 1 && is_all && !job_.is_nonblocking) {
      making.kind = MakingKind::kInitAll;
    }
    emit_making(making, all);
  }

  /// Another communicator with its own id, over some of the ranks.
  void make_second_world() {
    std::vector<int> ranks(static_cast<size_t>(job_.nranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    random_.shuffle(ranks);
    if (random_.chance(50)) {
      ranks.resize(static_cast<size_t>(random_.between(1, job_.nranks)));
    }
    Making making{.comms = {add_comm(ranks)}};
    // The maker must exist until all have joined, which holds for a process with one of the ranks.
    const int maker = random_.pick(ranks);
    for (const Thread& thread : job_.threads) {
      if (std::find(thread.ranks.begin(), thread.ranks.end(), maker) != thread.ranks.end()) {
        making.process_of_id = thread.process;
      }
    }
    emit_making(making, ranks);
  }

  /// Children by color.
  std::vector<int> split(int parent) {
    const std::vector<int> members = job_.comms[static_cast<size_t>(parent)].members;
    const int ncolors = random_.chance(50) ? 1 : random_.between(1, 3);
    const bool leaves_out = random_.chance(20);
    const bool reorders = random_.chance(50);
    Making making{.kind = MakingKind::kSplit, .parent = parent};
    std::map<int, std::vector<int>> of_color;  // ranks of the parent
    for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
      const bool is_out = leaves_out && random_.chance(30);
      making.colors.push_back(is_out ? NCCL_SPLIT_NOCOLOR : random_.below(ncolors));
      making.keys.push_back(reorders ? random_.below(4) : rank);
      if (!is_out) {
        of_color[making.colors.back()].push_back(rank);
      }
    }
    for (auto& [color, ranks] : of_color) {
      std::stable_sort(ranks.begin(), ranks.end(), [&](int left, int right) {
        return making.keys[static_cast<size_t>(left)] < making.keys[static_cast<size_t>(right)];
      });
      std::transform(ranks.begin(), ranks.end(), ranks.begin(),
                     [&](int rank) { return members[static_cast<size_t>(rank)]; });
      making.comms.push_back(add_comm(ranks));
    }
    const std::vector<int> made = making.comms;
    emit_making(std::move(making), members);
    return made;
  }

  void shrink(int parent) {
    const std::vector<int> members = job_.comms[static_cast<size_t>(parent)].members;
    if (members.size() < 2) {
      return;
    }
    Making making{.kind = MakingKind::kShrink, .parent = parent};
    std::vector<int> staying;
    const int nexcluded = random_.between(1, static_cast<int>(members.size()) - 1);
    std::vector<int> ranks(members.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    random_.shuffle(ranks);
    making.excluded.assign(ranks.begin(), ranks.begin() + nexcluded);
    for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
      if (std::find(making.excluded.begin(), making.excluded.end(), rank) ==
          making.excluded.end()) {
        staying.push_back(members[static_cast<size_t>(rank)]);
      }
    }
    making.comms = {add_comm(staying)};
    emit_making(std::move(making), staying);
    if (has(Feature::kSplit, 30)) {
      split(parent);
    }
  }

  /// All ranks of the communicator do it.
  void use_whole(MakingKind kind, int comm) {
    emit_making({.kind = kind, .parent = comm}, job_.comms[static_cast<size_t>(comm)].members);
  }

  /// Children that are used for one or two calls each: other ranks still use what a rank leaves
  /// behind.
  void churn() {
    const int parent = random_.pick(alive_);
    const int nloops = random_.between(3, 25);
    for (int i = 0; i < nloops; ++i) {
      const std::vector<int> made = split(parent);
      for (const int comm : made) {
        const int ncalls = random_.between(1, 2);
        for (int call = 0; call < ncalls; ++call) {
          emit({add_collective(comm)});
        }
        for (Thread& thread : job_.threads) {
          destroy(thread, comm, thread.steps.size());
        }
        std::erase(alive_, comm);
      }
    }
  }

  // ---- operations ----

  /// Whether plexus.h has it with counts per rank.
  static bool has_counts(Op op) {
    return op == Op::kAllGather || op == Op::kReduceScatter || op == Op::kGather ||
           op == Op::kScatter;
  }

  int add_operation(Operation operation) {
    job_.operations.push_back(operation);
    return static_cast<int>(job_.operations.size()) - 1;
  }

  int add_collective(int comm) {
    const int nranks = nranks_of(comm);
    Operation operation{.comm = comm};
    const bool is_variable = has(Feature::kVariable, 12);
    operation.op = static_cast<Op>(random_.below(static_cast<int>(Op::kAllToAllV)));
    if (is_variable) {
      operation.op = random_.chance(50) ? Op::kAllToAllV : Op::kAllGatherV;
    } else if (has_counts(operation.op) && has(Feature::kVariable, 12)) {
      operation.form = Form::kCounts;
    } else if (has(Feature::kConfig, 12)) {
      operation.form = Form::kConfig;
    }
    pick_reduction(random_, operation, nranks);
    operation.count = pick_count(random_, operation.type, nranks);
    operation.root = random_.below(nranks);
    operation.in_windows = !puts_ && has(Feature::kRegistered, 10);
    return add_operation(operation);
  }

  int add_pair(int comm, int source, int target) {
    Operation operation{.op = Op::kPair, .comm = comm, .root = source, .target = target};
    operation.type = static_cast<ncclDataType_t>(random_.below(ncclNumTypes));
    operation.count = pick_count(random_, operation.type, 1);
    return add_operation(operation);
  }

  /// Sends and receives that start together.
  std::vector<int> add_exchange(int comm) {
    const int nranks = nranks_of(comm);
    std::vector<int> operations;
    const int way = random_.below(4);
    const int distance = random_.below(nranks);
    for (int rank = 0; rank < nranks; ++rank) {
      if (way == 0) {  // a ring, or every rank to itself
        operations.push_back(add_pair(comm, rank, (rank + distance) % nranks));
      } else if (way == 1 && (rank ^ 1) < nranks) {
        operations.push_back(add_pair(comm, rank, rank ^ 1));
      } else if (way == 2 && nranks <= 4) {
        for (int peer = 0; peer < nranks; ++peer) {
          operations.push_back(add_pair(comm, rank, peer));
        }
      } else if (way == 3) {
        operations.push_back(add_pair(comm, random_.below(nranks), random_.below(nranks)));
      }
    }
    return operations;
  }

  /// Single sends and receives in sequence.
  void add_pipeline(int comm) {
    const int nranks = nranks_of(comm);
    if (nranks < 2) {
      return;
    }
    const int first = random_.below(nranks);
    const int nhops = random_.between(1, nranks);
    const bool is_chain = random_.chance(60);
    for (int hop = 0; hop < nhops; ++hop) {
      const int source = is_chain ? (first + hop) % nranks : random_.below(nranks);
      const int step = is_chain ? 1 : random_.between(1, nranks - 1);
      emit({add_pair(comm, source, (source + step) % nranks)});
    }
  }

  /// Several operations in one group, on one or several communicators.
  void add_group() {
    std::vector<int> operations;
    const int one = random_.pick(alive_);
    const bool is_one = random_.chance(40);
    const int ncalls = random_.between(2, 5);
    for (int i = 0; i < ncalls; ++i) {
      const int comm = is_one ? one : random_.pick(alive_);
      const bool is_mixed = std::any_of(operations.begin(), operations.end(), [&](int operation) {
        return job_.operations[static_cast<size_t>(operation)].comm == comm;
      });
      if (has(Feature::kPairs, 25) && (job_.allows_mixed || !is_mixed)) {
        if (!job_.allows_mixed) {
          emit(add_exchange(comm));
          continue;
        }
        const std::vector<int> pairs = add_exchange(comm);
        operations.insert(operations.end(), pairs.begin(), pairs.end());
      } else {
        operations.push_back(add_collective(comm));
      }
    }
    emit(operations);
  }

  void add_turn() {
    if (has(Feature::kLate, 1)) {
      pause(kLateUsMin, kLateUsMax);
    }
    const int comm = random_.pick(alive_);
    if (has(Feature::kSuspend, 3)) {
      use_whole(MakingKind::kSuspend, comm);
    }
    if (puts_ && random_.chance(8)) {
      use_whole(MakingKind::kPuts, comm);
    }
    const int way = random_.below(100);
    if (way < 12 && features_.has(Feature::kSplit)) {
      way < 10 || !features_.has(Feature::kDestroy) ? void(split(comm)) : churn();
    } else if (way < 17 && features_.has(Feature::kShrink)) {
      shrink(comm);
    } else if (way < 19) {
      make_second_world();
    } else if (way < 40 && features_.has(Feature::kGroups)) {
      add_group();
    } else if (way < 52 && features_.has(Feature::kPairs)) {
      emit(add_exchange(comm));
    } else if (way < 62 && features_.has(Feature::kPairs)) {
      add_pipeline(comm);
    } else if (way < 68) {  // the same shape repeatedly
      const int operation = add_collective(comm);
      const int ntimes = random_.between(2, 8);
      for (int i = 0; i < ntimes; ++i) {
        emit({i == 0 ? operation : add_operation(job_.operations[static_cast<size_t>(operation)])});
      }
    } else {
      emit({add_collective(comm)});
    }
  }

  // ---- steps ----

  void emit(const std::vector<int>& operations) {
    for (Thread& thread : job_.threads) {
      Step step;
      for (const int operation : operations) {
        add_calls(thread, operation, step.calls);
      }
      if (!step.calls.empty()) {
        choose_streams(thread, step.calls);
        step.is_grouped = has(Feature::kGroups, 15) || step.calls.size() > 1;
        thread.steps.push_back(std::move(step));
        if (thread.nstreams > 0 && random_.chance(30)) {
          synchronize(thread);
        }
      }
    }
  }

  void add_calls(const Thread& thread, int index, std::vector<Call>& calls) {
    const Operation& operation = job_.operations[static_cast<size_t>(index)];
    for (const int world_rank : thread.ranks) {
      const int rank = rank_in(job_.comms[static_cast<size_t>(operation.comm)], world_rank);
      if (rank < 0) {
        continue;
      }
      Call call{.operation = index, .rank = rank};
      call.is_in_place = has(Feature::kInPlace, 20);
      call.is_registered = has(Feature::kRegistered, 15);
      if (operation.op != Op::kPair) {
        calls.push_back(call);
        continue;
      }
      call.is_in_place = false;
      if (rank == operation.root) {
        call.is_send = true;
        calls.push_back(call);
      }
      if (rank == operation.target) {
        call.is_send = false;
        calls.push_back(call);
      }
    }
  }

  void choose_streams(const Thread& thread, std::vector<Call>& calls) {
    if (thread.nstreams == 0 || random_.chance(35)) {
      return;
    }
    const int one = random_.below(thread.nstreams);
    const bool is_one = random_.chance(70);
    for (Call& call : calls) {
      call.stream = is_one ? one : random_.between(kNoStream, thread.nstreams - 1);
    }
  }

  static Step sync_of(const Thread& thread) {
    Step step{.kind = StepKind::kSync};
    step.streams.resize(static_cast<size_t>(thread.nstreams));
    std::iota(step.streams.begin(), step.streams.end(), 0);
    return step;
  }

  static void synchronize(Thread& thread) {
    if (thread.nstreams > 0 && !thread.steps.empty() &&
        thread.steps.back().kind == StepKind::kCalls) {
      thread.steps.push_back(sync_of(thread));
    }
  }

  void destroy(Thread& thread, int comm, size_t at) {
    Step step{.kind = random_.chance(20) ? StepKind::kFinalize : StepKind::kDestroy};
    for (const int world_rank : thread.ranks) {
      const int rank = rank_in(job_.comms[static_cast<size_t>(comm)], world_rank);
      if (rank >= 0) {
        step.places.push_back({.comm = comm, .rank = rank});
      }
    }
    if (step.places.empty()) {
      return;
    }
    const bool is_synchronized = thread.nstreams == 0 || step.kind == StepKind::kFinalize;
    const auto place = thread.steps.begin() + static_cast<std::ptrdiff_t>(at);
    const auto inserted = thread.steps.insert(place, std::move(step));
    if (!is_synchronized) {
      thread.steps.insert(inserted, sync_of(thread));
    }
  }

  bool uses(const Step& step, int comm) const {
    if (step.kind == StepKind::kMake) {
      const Making& making = job_.makings[static_cast<size_t>(step.making)];
      return making.parent == comm || job_.comms[static_cast<size_t>(comm)].making == step.making;
    }
    return std::any_of(step.calls.begin(), step.calls.end(), [&](const Call& call) {
      return job_.operations[static_cast<size_t>(call.operation)].comm == comm;
    });
  }

  /// Each thread destroys its remaining communicators: after its last call on them, or at the end.
  void leave() {
    for (Thread& thread : job_.threads) {
      std::vector<int> comms = alive_;
      random_.shuffle(comms);
      for (const int comm : comms) {
        size_t at = thread.steps.size();
        if (has(Feature::kDestroy, early_percent_)) {
          while (at > 0 && !uses(thread.steps[at - 1], comm)) {
            --at;
          }
        }
        destroy(thread, comm, at);
      }
    }
  }

  void pause(int least_us, int most_us) {
    Thread& thread = job_.threads[random_.next() % job_.threads.size()];
    const int delay_us = random_.between(least_us, most_us);
    insert(thread, {.kind = StepKind::kDelay, .delay_us = delay_us});
  }

  void insert(Thread& thread, Step step) {
    const size_t at = random_.next() % (thread.steps.size() + 1);
    thread.steps.insert(thread.steps.begin() + static_cast<std::ptrdiff_t>(at), std::move(step));
  }

  void add_pauses() {
    const int npauses = random_.below(5 * static_cast<int>(job_.threads.size()) + 1);
    for (int i = 0; i < npauses; ++i) {
      pause(0, random_.chance(20) ? 20'000 : 2000);
    }
  }

  void add_forks() {
    const int nforks = has(Feature::kFork, 12) ? random_.between(1, 3) : 0;
    for (int i = 0; i < nforks; ++i) {
      Step step{.kind = StepKind::kFork};
      step.child = static_cast<ChildLife>(random_.below(3));
      step.delay_us = random_.between(1000, 300'000);
      insert(job_.threads[random_.next() % job_.threads.size()], std::move(step));
    }
    job_.processes[random_.next() % job_.processes.size()].forks_first = has(Feature::kFork, 4);
  }

  Job job_;
  Random random_;
  const Features& features_;
  const int early_percent_;
  // Ranks number windows alike only where all register the same ones: see Operation::in_windows.
  const bool puts_ = has(Feature::kPuts, 30);
  std::vector<int> alive_;
};

}  // namespace

Job generate(uint64_t seed, const Features& features, const FaultKinds& faults) {
  return Generator(seed, features, faults).generate();
}

}  // namespace plexus::soak
