// SPDX-License-Identifier: Apache-2.0
#include "tests/support/memory_explorer.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <random>
#include <ucontext.h>
#include <unordered_map>
#include <utility>

namespace plexus::test {
namespace {

constexpr size_t kThreadsMax = 16;
constexpr size_t kStackBytes = 256 << 10;
constexpr uint64_t kTurnsMax = 500'000;  // a run that takes more hangs
constexpr const char* kWaits = "wait_until";

/// What of each thread happened before: its epochs up to this one.
class Clock {
 public:
  uint32_t& operator[](size_t thread) { return epochs_[thread]; }
  [[nodiscard]] bool covers(size_t thread, uint32_t epoch) const {
    return epochs_[thread] >= epoch;
  }
  void join(const Clock& other) {
    for (size_t i = 0; i < kThreadsMax; ++i) {
      epochs_[i] = std::max(epochs_[i], other.epochs_[i]);
    }
  }

 private:
  std::array<uint32_t, kThreadsMax> epochs_{};
};

/// What a thread knows. `reads` covers `all`, and what happened before only for reads.
struct Knowledge {
  Clock all;
  Clock reads;
  void join(const Knowledge& other) {
    all.join(other.all);
    reads.join(other.reads);
  }
};

struct Access {
  size_t thread;
  uint32_t epoch;
  uint32_t bytes;  // a bit for each byte of the cell
  bool is_write;
  bool is_atomic;
  const void* at;
};
/// 8 bytes of memory.
using Cell = std::vector<Access>;

/// A value in the history of an atomic word.
struct Stored {
  uint64_t value;
  size_t thread;
  uint32_t epoch;
  Knowledge passed_on;  // to who acquires it
};
struct Seen {
  uint32_t epoch;
  size_t index;
};
struct Word {
  std::vector<Stored> stores;
  std::array<std::vector<Seen>, kThreadsMax> seen;  // by thread
};

struct Fiber {
  std::function<void()> body;
  std::unique_ptr<std::byte[]> stack;
  ucontext_t context{};
  Knowledge knows;
  std::vector<const void*> callers;
  // of watch(): entered and not left yet; nullptr: one that nobody asked for
  std::vector<const std::string*> functions;
  bool polls = false;    // of watch(): is in a wait
  uintptr_t polled = 0;  // there, the word loaded last
  ExploredBlock* waits_in = nullptr;
  bool ended = false;
};

/// The function's name alone: neither its namespaces, nor its types, nor the lambda in it.
std::string function_at(const void* place) {
  Dl_info info{};
  if (dladdr(place, &info) == 0 || info.dli_sname == nullptr) {
    return "?";
  }
  int status = 0;
  char* const demangled = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
  std::string name;
  int depth = 0;
  for (const char* at = status == 0 ? demangled : info.dli_sname; *at != 0 && *at != '('; ++at) {
    depth += *at == '<' ? 1 : 0;
    if (depth == 0) {
      name = *at == ':' || *at == ' ' ? "" : name + *at;
    }
    depth -= *at == '>' ? 1 : 0;
  }
  std::free(demangled);  // NOLINT: allocated by the library
  return name;
}

}  // namespace

struct ExploredBlock {
  uint32_t threads = 0;
  uint32_t arrived = 0;
  bool wanted = false;  // of any(): a thread of this meeting passed true
  bool answer = false;
  Knowledge gathered;   // by those that have arrived
  Knowledge passed_on;  // to all of the last meeting
};

struct MemoryExplorer::State {
  OrderSites* sites = nullptr;
  std::vector<std::unique_ptr<ExploredBlock>> blocks;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::unordered_map<uintptr_t, Cell> cells;
  std::unordered_map<uintptr_t, Word> words;
  std::unordered_map<const void*, bool>
      dependent;                                // whether a place is in a function of LL's words
  std::function<void(const MemoryEvent&)> see;  // empty: explored, not watched
  std::set<std::string> told;                   // functions
  uint64_t events = 0;
  std::unordered_map<const void*, const std::string*> names;
  std::mt19937_64 random;
  ucontext_t main{};
  size_t current = 0;
  uint64_t turns = 0;
  uint64_t turns_left = 0;  // before another thread may run
  uint64_t turn_length = 1;
  std::string fault;

  [[nodiscard]] Fiber& fiber() { return *fibers[current]; }
  uint64_t draw(uint64_t bound) { return random() % bound; }

  // ---- turns ----

  static void start(unsigned low, unsigned high);
  void make_stacks();
  std::string run(uint64_t seed);
  std::string watch();
  /// Goes on with another thread, or with this one.
  void take_turn();
  void leave();
  [[noreturn]] void fail(const std::string& why);

  // ---- accesses ----

  const void* site_of(const char* kind, bool* dependent_out);
  bool is_weakened(const void* site) const { return sites->weakened == site; }
  void note(uintptr_t address, size_t size, bool is_write, bool is_atomic, const void* at);
  void check(const Access& mine, const Access& other, uintptr_t address);
  Word& word_at(uintptr_t address, size_t size);
  uint64_t load(uintptr_t address, size_t size, int order);
  void store(uintptr_t address, size_t size, uint64_t value, int order);
  template <class Change>
  uint64_t change(uintptr_t address, size_t size, Change change);
  void pass_on(Stored& stored, bool releases, bool dependent);
  bool meet(ExploredBlock& block, bool mine, const void* at);
  bool gather(ExploredBlock& block, bool mine);

  // ---- events of watch() ----

  [[nodiscard]] bool is_on_stack(uintptr_t address) {
    return address - reinterpret_cast<uintptr_t>(fiber().stack.get()) < kStackBytes;
  }
  void tell(MemoryEvent::Kind kind, uintptr_t address);
  uint64_t poll(uintptr_t address, size_t size, bool acquires);
  void tell_call(MemoryEvent::Kind kind, const std::string* function);
  void enter_function(const void* function);
  void leave_function();
};

namespace {

/// Where an explored thread runs its own code; nullptr in the explorer's, and outside of runs. (The
/// linker may take the functions of libraries that both use from code with hooks.)
MemoryExplorer::State* active = nullptr;
/// While the explorer works for an explored thread.
class Inside {
 public:
  Inside() : state_(std::exchange(active, nullptr)) {}
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  ~Inside() { active = state_; }
  MemoryExplorer::State* operator->() const { return state_; }
  explicit operator bool() const { return state_ != nullptr; }

 private:
  MemoryExplorer::State* state_;
};

uint64_t read_memory(uintptr_t address, size_t size) {
  uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const void*>(address), size);
  return value;
}

}  // namespace

void MemoryExplorer::State::start(unsigned low, unsigned high) {
  constexpr unsigned kHalf = 32;
  auto* const self = reinterpret_cast<State*>(uintptr_t{high} << kHalf | low);
  active = self;
  self->fiber().body();
  active = nullptr;
  self->fiber().ended = true;
  self->leave();
}

void MemoryExplorer::State::make_stacks() {
  constexpr unsigned kHalf = 32;
  const auto self = reinterpret_cast<uintptr_t>(this);
  for (const auto& fiber : fibers) {
    Fiber& each = *fiber;
    each.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
    getcontext(&each.context);
    each.context.uc_stack.ss_sp = each.stack.get();
    each.context.uc_stack.ss_size = kStackBytes;
    makecontext(&each.context, reinterpret_cast<void (*)()>(&State::start), 2,
                static_cast<unsigned>(self), static_cast<unsigned>(self >> kHalf));
  }
}

std::string MemoryExplorer::State::run(uint64_t seed) {
  constexpr uint64_t kTurnLengths[] = {1, 3, 12, 80};
  random.seed(seed);
  turn_length = kTurnLengths[draw(std::size(kTurnLengths))];
  make_stacks();
  for (size_t i = 0; i < fibers.size(); ++i) {
    fibers[i]->knows.all[i] = 1;
    fibers[i]->knows.reads[i] = 1;
  }
  while (fault.empty()) {
    std::vector<size_t> ready;
    bool all_ended = true;
    for (size_t i = 0; i < fibers.size(); ++i) {
      all_ended = all_ended && fibers[i]->ended;
      if (!fibers[i]->ended && fibers[i]->waits_in == nullptr) {
        ready.push_back(i);
      }
    }
    if (ready.empty()) {
      fault = all_ended ? "" : "threads of a block wait for one that has ended";
      break;
    }
    current = ready[draw(ready.size())];
    turns_left = 1 + draw(turn_length);
    swapcontext(&main, &fiber().context);
  }
  return std::exchange(fault, "");
}

std::string MemoryExplorer::State::watch() {
  make_stacks();
  size_t idle = 0;
  for (current = 0; idle < fibers.size(); current = (current + 1) % fibers.size()) {
    const uint64_t before = events;
    if (!fiber().ended && fiber().waits_in == nullptr) {
      swapcontext(&main, &fiber().context);
    }
    idle = events == before ? idle + 1 : 0;
  }
  const bool all_ended =
      std::all_of(fibers.begin(), fibers.end(), [](const auto& each) { return each->ended; });
  return all_ended ? "" : "hang: the threads wait for each other";
}

void MemoryExplorer::State::leave() { swapcontext(&fiber().context, &main); }

void MemoryExplorer::State::fail(const std::string& why) {
  if (fault.empty()) {
    fault = why;
  }
  leave();
  std::abort();  // run() has ended and does not come back
}

void MemoryExplorer::State::take_turn() {
  if (++turns > kTurnsMax) {
    fail("hang: the threads wait for each other");
  }
  if (--turns_left == 0) {
    leave();
  }
}

/// The place outside of kernels/cuda/memory.hpp that makes the access, noted among the sites when
/// `kind` is not null.
const void* MemoryExplorer::State::site_of(const char* kind, bool* dependent_out) {
  const std::vector<const void*>& callers = fiber().callers;
  const void* site = callers.empty() ? nullptr : callers.back();
  auto [found, is_new] = dependent.try_emplace(site, false);
  if (is_new) {
    found->second = function_at(site).find("_dependent") != std::string::npos;
  }
  const bool is_dependent = found->second;
  if (is_dependent && callers.size() > 1) {
    site = callers[callers.size() - 2];
  }
  if (dependent_out != nullptr) {
    *dependent_out = is_dependent;
  }
  if (kind != nullptr) {
    OrderSite& noted = sites->found[site];
    if (noted.executed++ == 0) {
      noted.function = function_at(site);
      noted.kind = is_dependent ? "dependent" : kind;
    }
  }
  return site;
}

void MemoryExplorer::State::check(const Access& mine, const Access& other, uintptr_t address) {
  const bool conflict = (mine.bytes & other.bytes) != 0 && (mine.is_write || other.is_write) &&
                        !(mine.is_atomic && other.is_atomic) && other.thread != mine.thread;
  const Knowledge& knows = fiber().knows;
  const Clock& clock = other.is_write ? knows.all : knows.reads;
  if (!conflict || clock.covers(other.thread, other.epoch)) {
    return;
  }
  const auto verb = [](const Access& access) { return access.is_write ? "writes" : "reads"; };
  fail("race at " + std::to_string(address) + ": thread " + std::to_string(mine.thread) + " " +
       verb(mine) + " in " + function_at(mine.at) + ", and nothing orders it after thread " +
       std::to_string(other.thread) + ", which " + verb(other) + " in " + function_at(other.at));
}

void MemoryExplorer::State::note(
    uintptr_t address, size_t size, bool is_write, bool is_atomic, const void* at) {
  constexpr uintptr_t kCellBytes = 8;
  if (is_on_stack(address)) {
    return;
  }
  if (see) {
    tell(is_write ? MemoryEvent::Kind::kStore : MemoryEvent::Kind::kLoad, address);
    return;
  }
  for (const uintptr_t end = address + size; address < end;) {
    const uintptr_t first = address % kCellBytes;
    const uintptr_t count = std::min(kCellBytes - first, end - address);
    const Access mine{
        current, fiber().knows.all[current], ((1U << count) - 1) << first, is_write, is_atomic, at};
    Cell& cell = cells[address - first];
    for (const Access& other : cell) {
      check(mine, other, address);
    }
    cell.erase(std::remove_if(cell.begin(), cell.end(),
                              [&](const Access& other) {
                                return other.thread == mine.thread &&
                                       other.is_write == mine.is_write &&
                                       other.is_atomic == mine.is_atomic &&
                                       (other.bytes & ~mine.bytes) == 0;
                              }),
               cell.end());
    cell.push_back(mine);
    address += count;
  }
}

/// The history of the word; what plain stores have put there since is its newest value.
Word& MemoryExplorer::State::word_at(uintptr_t address, size_t size) {
  Word& word = words[address];
  const uint64_t value = read_memory(address, size);
  if (word.stores.empty()) {
    word.stores.push_back({value, current, 0, {}});
  } else if (word.stores.back().value != value) {
    const Cell& cell = cells[address & ~uintptr_t{7}];
    Stored plain{value, current, 0, {}};
    for (const Access& access : cell) {
      if (access.is_write && !access.is_atomic) {
        plain.thread = access.thread;
        plain.epoch = access.epoch;
      }
    }
    word.stores.push_back(plain);
  }
  return word;
}

uint64_t MemoryExplorer::State::load(uintptr_t address, size_t size, int order) {
  const bool acquires = order == __ATOMIC_ACQUIRE || order == __ATOMIC_SEQ_CST;
  if (see) {
    return poll(address, size, acquires);
  }
  take_turn();
  bool is_dependent = false;
  const void* const site = site_of(acquires ? "acquire" : nullptr, &is_dependent);
  note(address, size, false, true, site);
  Word& word = word_at(address, size);
  Knowledge& knows = fiber().knows;
  size_t oldest = 0;
  for (size_t i = word.stores.size(); i-- > 0;) {
    if (knows.all.covers(word.stores[i].thread, word.stores[i].epoch)) {
      oldest = i;
      break;
    }
  }
  for (size_t thread = 0; thread < fibers.size(); ++thread) {
    for (const Seen& seen : word.seen[thread]) {
      if (knows.all.covers(thread, seen.epoch)) {
        oldest = std::max(oldest, seen.index);
      }
    }
  }
  const size_t newest = word.stores.size() - 1;
  const size_t index = draw(2) == 0 ? newest : oldest + draw(newest - oldest + 1);
  std::vector<Seen>& seen = word.seen[current];
  const uint32_t epoch = knows.all[current];
  if (seen.empty() || seen.back().epoch != epoch) {
    seen.push_back({epoch, index});
  }
  seen.back().index = std::max(seen.back().index, index);
  if (acquires && !is_weakened(site)) {
    if (is_dependent) {
      knows.reads.join(word.stores[index].passed_on.reads);
    } else {
      knows.join(word.stores[index].passed_on);
    }
  }
  return word.stores[index].value + (sites->ahead == site ? 1 : 0);
}

/// What the value of this thread tells who acquires it.
void MemoryExplorer::State::pass_on(Stored& stored, bool releases, bool is_dependent) {
  Knowledge& knows = fiber().knows;
  if (releases) {
    stored.passed_on.reads.join(knows.reads);
    if (!is_dependent) {
      stored.passed_on.all.join(knows.all);
    }
  }
  stored.epoch = knows.all[current];
  ++knows.all[current];  // what follows is not passed on
  ++knows.reads[current];
}

void MemoryExplorer::State::store(uintptr_t address, size_t size, uint64_t value, int order) {
  bool is_dependent = false;
  const bool orders = order == __ATOMIC_RELEASE || order == __ATOMIC_SEQ_CST;
  if (see) {
    site_of(nullptr, &is_dependent);
    tell(orders && !is_dependent ? MemoryEvent::Kind::kRelease : MemoryEvent::Kind::kStore,
         address);
    std::memcpy(reinterpret_cast<void*>(address), &value, size);
    return;
  }
  take_turn();
  const void* const site = site_of(orders ? "release" : nullptr, &is_dependent);
  note(address, size, true, true, site);
  Word& word = word_at(address, size);
  Stored stored{value, current, 0, {}};
  pass_on(stored, orders && !is_weakened(site), is_dependent);
  word.stores.push_back(stored);
  std::memcpy(reinterpret_cast<void*>(address), &value, size);
}

template <class Change>
uint64_t MemoryExplorer::State::change(uintptr_t address, size_t size, Change change) {
  if (see) {
    const uint64_t before = read_memory(address, size);
    const uint64_t after = change(before);
    std::memcpy(reinterpret_cast<void*>(address), &after, size);
    return before;
  }
  take_turn();
  const void* const site = site_of("acquire and release", nullptr);
  note(address, size, true, true, site);
  Word& word = word_at(address, size);
  const Stored before = word.stores.back();
  const bool orders = !is_weakened(site);
  if (orders) {
    fiber().knows.join(before.passed_on);
  }
  Stored stored{change(before.value), current, 0, before.passed_on};
  pass_on(stored, orders, false);
  word.stores.push_back(stored);
  std::memcpy(reinterpret_cast<void*>(address), &stored.value, size);
  return before.value;
}

/// All threads of the block meet; whether one of them passed true.
bool MemoryExplorer::State::meet(ExploredBlock& block, bool mine, const void* at) {
  if (see) {
    tell(MemoryEvent::Kind::kMeet, 0);
    return gather(block, mine);
  }
  take_turn();
  OrderSite& noted = sites->found[at];
  if (noted.executed++ == 0) {
    noted.function = function_at(at);
    noted.kind = "sync";
  }
  const bool orders = !is_weakened(at);
  Knowledge& knows = fiber().knows;
  if (orders) {
    block.gathered.join(knows);
  }
  ++knows.all[current];
  ++knows.reads[current];
  const bool answer = gather(block, mine);
  if (orders) {
    knows.join(block.passed_on);
  }
  return answer;
}

/// Waits for all threads of the block; whether one of them passed true.
bool MemoryExplorer::State::gather(ExploredBlock& block, bool mine) {
  block.wanted = block.wanted || mine;
  if (++block.arrived == block.threads) {
    block.arrived = 0;
    block.answer = block.wanted;
    block.wanted = false;
    block.passed_on = std::exchange(block.gathered, {});
    for (const auto& each : fibers) {
      if (each->waits_in == &block) {
        each->waits_in = nullptr;
      }
    }
  } else {
    fiber().waits_in = &block;
    leave();
  }
  return block.answer;
}

void MemoryExplorer::State::tell(MemoryEvent::Kind kind, uintptr_t address) {
  ++events;
  see({.kind = kind, .thread = current, .address = address});
}

/// Loads an atomic word. What loads the same one again in a wait gets the next value of it.
uint64_t MemoryExplorer::State::poll(uintptr_t address, size_t size, bool acquires) {
  bool is_dependent = false;
  site_of(nullptr, &is_dependent);
  const uint64_t before = read_memory(address, size);
  if (!fiber().polls || std::exchange(fiber().polled, address) != address) {
    tell(acquires && !is_dependent ? MemoryEvent::Kind::kAcquire : MemoryEvent::Kind::kLoad,
         address);
    return before;
  }
  while (read_memory(address, size) == before) {
    leave();
  }
  return read_memory(address, size);
}

void MemoryExplorer::State::enter_function(const void* function) {
  const auto [found, is_new] = names.try_emplace(function, nullptr);
  if (is_new) {
    const auto asked = told.find(function_at(function));
    found->second = asked == told.end() ? nullptr : &*asked;
  }
  fiber().functions.push_back(found->second);
  tell_call(MemoryEvent::Kind::kEnter, found->second);
}
void MemoryExplorer::State::leave_function() {
  tell_call(MemoryEvent::Kind::kLeave, fiber().functions.back());
  fiber().functions.pop_back();
}
void MemoryExplorer::State::tell_call(MemoryEvent::Kind kind, const std::string* function) {
  if (function == nullptr) {
    return;
  }
  if (*function == kWaits) {
    fiber().polls = kind == MemoryEvent::Kind::kEnter;
    fiber().polled = 0;
  }
  ++events;
  see({.kind = kind, .thread = current, .function = function});
}

MemoryExplorer::MemoryExplorer(OrderSites* sites) : state_(std::make_unique<State>()) {
  state_->sites = sites;
}
MemoryExplorer::~MemoryExplorer() = default;

ExploredBlock& MemoryExplorer::add_block(uint32_t threads) {
  ExploredBlock& block = *state_->blocks.emplace_back(std::make_unique<ExploredBlock>());
  block.threads = threads;
  return block;
}
void MemoryExplorer::add_thread(std::function<void()> body) {
  Fiber& fiber = *state_->fibers.emplace_back(std::make_unique<Fiber>());
  fiber.body = std::move(body);
}
std::string MemoryExplorer::run(uint64_t seed) { return state_->run(seed); }
std::string MemoryExplorer::watch(std::set<std::string> functions,
                                  std::function<void(const MemoryEvent&)> see) {
  state_->told = std::move(functions);
  state_->told.insert(kWaits);
  state_->see = std::move(see);
  return state_->watch();
}

uint32_t ExploredThread::threads() const { return block_.threads; }
void ExploredThread::sync() const {
  static_cast<void>(Inside()->meet(block_, false, __builtin_return_address(0)));
}
bool ExploredThread::any(bool mine) const {
  return Inside()->meet(block_, mine, __builtin_return_address(0));
}

namespace {

void plain(const volatile void* address, size_t size, bool is_write, const void* at) {
  if (const Inside explorer; explorer) {
    explorer->note(reinterpret_cast<uintptr_t>(address), size, is_write, false, at);
  }
}

}  // namespace
}  // namespace plexus::test

// What the compiler calls (the interface of its thread sanitizer). Threads that are not explored
// access memory as ever.
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming,cppcoreguidelines-macro-usage)
using plexus::test::Inside;
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(const void* from) {
  if (const Inside explorer; explorer) {
    explorer->fiber().callers.push_back(from);
    if (explorer->see) {
      explorer->enter_function(__builtin_return_address(0));
    }
  }
}
void __tsan_func_exit() {
  if (const Inside explorer; explorer && !explorer->fiber().callers.empty()) {
    explorer->fiber().callers.pop_back();
    if (explorer->see) {
      explorer->leave_function();
    }
  }
}
void __tsan_vptr_update(void** /*place*/, void* /*value*/) {}
void __tsan_vptr_read(void** /*place*/) {}
void __tsan_read_range(const void* place, size_t size) {
  plexus::test::plain(place, size, false, __builtin_return_address(0));
}
void __tsan_write_range(const void* place, size_t size) {
  plexus::test::plain(place, size, true, __builtin_return_address(0));
}

#define PLEXUS_PLAIN(size)                                                \
  void __tsan_read##size(const void* place) {                             \
    plexus::test::plain(place, size, false, __builtin_return_address(0)); \
  }                                                                       \
  void __tsan_write##size(const void* place) {                            \
    plexus::test::plain(place, size, true, __builtin_return_address(0));  \
  }                                                                       \
  void __tsan_unaligned_read##size(const void* place) {                   \
    plexus::test::plain(place, size, false, __builtin_return_address(0)); \
  }                                                                       \
  void __tsan_unaligned_write##size(const void* place) {                  \
    plexus::test::plain(place, size, true, __builtin_return_address(0));  \
  }
PLEXUS_PLAIN(1)
PLEXUS_PLAIN(2)
PLEXUS_PLAIN(4)
PLEXUS_PLAIN(8)
PLEXUS_PLAIN(16)

#define PLEXUS_ATOMIC(bits)                                                                     \
  uint##bits##_t __tsan_atomic##bits##_load(const uint##bits##_t* place, int order) {           \
    const Inside explorer;                                                                      \
    return !explorer ? __atomic_load_n(place, __ATOMIC_SEQ_CST)                                 \
                     : static_cast<uint##bits##_t>(explorer->load(                              \
                           reinterpret_cast<uintptr_t>(place), sizeof(*place), order));         \
  }                                                                                             \
  void __tsan_atomic##bits##_store(uint##bits##_t* place, uint##bits##_t value, int order) {    \
    if (const Inside explorer; explorer) {                                                      \
      explorer->store(reinterpret_cast<uintptr_t>(place), sizeof(*place), value, order);        \
    } else {                                                                                    \
      __atomic_store_n(place, value, __ATOMIC_SEQ_CST);                                         \
    }                                                                                           \
  }                                                                                             \
  uint##bits##_t __tsan_atomic##bits##_exchange(uint##bits##_t* place, uint##bits##_t value,    \
                                                int /*order*/) {                                \
    const Inside explorer;                                                                      \
    return !explorer ? __atomic_exchange_n(place, value, __ATOMIC_SEQ_CST)                      \
                     : static_cast<uint##bits##_t>(                                             \
                           explorer->change(reinterpret_cast<uintptr_t>(place), sizeof(*place), \
                                            [&](uint64_t) { return uint64_t{value}; }));        \
  }                                                                                             \
  uint##bits##_t __tsan_atomic##bits##_fetch_add(uint##bits##_t* place, uint##bits##_t amount,  \
                                                 int /*order*/) {                               \
    const Inside explorer;                                                                      \
    return !explorer                                                                            \
               ? __atomic_fetch_add(place, amount, __ATOMIC_SEQ_CST)                            \
               : static_cast<uint##bits##_t>(explorer->change(                                  \
                     reinterpret_cast<uintptr_t>(place), sizeof(*place), [&](uint64_t before) { \
                       return uint64_t{static_cast<uint##bits##_t>(before + amount)};           \
                     }));                                                                       \
  }
PLEXUS_ATOMIC(8)
PLEXUS_ATOMIC(32)
PLEXUS_ATOMIC(64)

// clang's form of memcpy and the like.
void* __tsan_memcpy(void* to, const void* from, size_t size) {
  plexus::test::plain(from, size, false, __builtin_return_address(0));
  plexus::test::plain(to, size, true, __builtin_return_address(0));
  return std::memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, size_t size) {
  plexus::test::plain(from, size, false, __builtin_return_address(0));
  plexus::test::plain(to, size, true, __builtin_return_address(0));
  return std::memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, size_t size) {
  plexus::test::plain(to, size, true, __builtin_return_address(0));
  return std::memset(to, value, size);
}

// Of the standard library; the device executor has none of these.
uint32_t __tsan_atomic32_fetch_sub(uint32_t* place, uint32_t amount, int /*order*/) {
  return __atomic_fetch_sub(place, amount, __ATOMIC_SEQ_CST);
}
bool __tsan_atomic8_compare_exchange_strong(
    uint8_t* place, uint8_t* expected, uint8_t wanted, int /*order*/, int /*otherwise*/) {
  return __atomic_compare_exchange_n(place, expected, wanted, false, __ATOMIC_SEQ_CST,
                                     __ATOMIC_SEQ_CST);
}
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming,cppcoreguidelines-macro-usage)
