// SPDX-License-Identifier: Apache-2.0
// Explores the orders of memory that the device executor relies on. The threads of its blocks are
// fibers that run in random turns; a load may return any value that the memory model of C++ allows
// it (a relaxed or late one, too), and two accesses that nothing orders, one of them a plain one,
// are a fault. The compiler's hooks for thread sanitizers (-fsanitize=thread, without its run-time
// library) report every access of the shipped source, which therefore needs no change.
//
//   MemoryExplorer explorer;
//   ExploredBlock& block = explorer.add_block(2);
//   explorer.add_thread([&] { run_block(ExploredThread(block, 0), state, task); });
//   explorer.add_thread([&] { run_block(ExploredThread(block, 1), state, task); });
//   EXPECT_EQ(explorer.run(seed), "");
//
// Store histories and vector clocks: as in Norris and Demsky, "CDSchecker", OOPSLA 2013, but for
// random schedules instead of all. Nothing is read before it is written (load buffering).
// LL's words (store_dependent(), load_dependent()) are relaxed here as on the device: they order
// only what has been *read* before them, for writes after them.
//
// watch() runs the threads once, each until it waits, and tells what they do: to count it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/support/host_block.hpp"

namespace plexus::test {

/// A place in the source that orders memory: an access with acquire or release, or a sync.
struct OrderSite {
  std::string function;  // that contains it
  std::string kind;      // "acquire", "release", "dependent" or "sync"
  uint64_t executed = 0;
};

/// Sites found so far, by address in the program; they stay from run to run. `weakened`: the site
/// that orders nothing in the runs that follow, to see whether anything fails without it.
/// `ahead`: the one whose loads return one more than was stored.
struct OrderSites {
  std::map<const void*, OrderSite> found;
  const void* weakened = nullptr;
  const void* ahead = nullptr;
};

/// Something that a thread does outside of its stack; see MemoryExplorer::watch().
struct MemoryEvent {
  enum class Kind : uint8_t { kLoad, kAcquire, kStore, kRelease, kMeet, kEnter, kLeave };
  Kind kind;
  size_t thread;                          // in the order of add_thread()
  uintptr_t address = 0;                  // of an access
  const std::string* function = nullptr;  // that is entered or left
};

/// Blocks of threads that meet.
struct ExploredBlock;

class MemoryExplorer {
 public:
  explicit MemoryExplorer(OrderSites* sites);
  MemoryExplorer(const MemoryExplorer&) = delete;
  MemoryExplorer& operator=(const MemoryExplorer&) = delete;
  ~MemoryExplorer();

  ExploredBlock& add_block(uint32_t threads);
  void add_thread(std::function<void()> body);

  /// Runs all threads to their ends, once. The first fault in words, empty: there was none.
  std::string run(uint64_t seed);

  /// Runs all threads to their ends, in turns: each until it waits. Every load gives the newest
  /// value, nothing is checked, and `see` gets the events; calls only of `functions`. The polls of
  /// a wait_until() are one load, and changes of a word (fetch_add() and the like) no event. The
  /// first fault in words.
  std::string watch(std::set<std::string> functions, std::function<void(const MemoryEvent&)> see);

  struct State;

 private:
  std::unique_ptr<State> state_;
};

/// What Interpreter wants of a block.
class ExploredThread : public OneLane {
 public:
  ExploredThread(ExploredBlock& block, uint32_t thread) : block_(block), thread_(thread) {}
  [[nodiscard]] uint32_t thread() const { return thread_; }
  [[nodiscard]] uint32_t threads() const;
  void sync() const;
  [[nodiscard]] bool any(bool mine) const;

 private:
  ExploredBlock& block_;
  uint32_t thread_;
};

}  // namespace plexus::test
