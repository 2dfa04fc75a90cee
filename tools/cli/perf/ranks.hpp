// SPDX-License-Identifier: Apache-2.0
// The ranks that one worker drives: their communicators, streams and buffers, and NCCL's API calls
// on them. Besides start_*.cpp the only file of `plexus perf` that calls the library under test.
#pragma once

#include <cstddef>
#include <memory>
#include <nccl.h>
#include <vector>

#include "core/base/result.hpp"
#include "tools/cli/perf/check.hpp"
#include "tools/cli/perf/options.hpp"

namespace plexus::perf {

/// Success, or an Error with the failed call and the reason. `call`: its name for the message.
[[nodiscard]] Result<void> check_call(const char* call, ncclResult_t result);

/// What the last operation used, as reported by the library.
struct Choice {
  Row::Name algorithm;
  Row::Name protocol;
  int channels;
};

/// One rank. Owns its communicator, stream and buffers.
class Rank {
 public:
  /// Takes over `comm`.
  [[nodiscard]] static Result<std::unique_ptr<Rank>> create(ncclComm_t comm,
                                                            const PerfOptions& options,
                                                            size_t largest_bytes);
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;
  ~Rank();

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] ncclComm_t comm() const noexcept { return comm_; }

  /// Selects the operation that `start` runs from now on.
  [[nodiscard]] Result<void> choose(const Variant& variant, size_t count, bool in_place);
  /// The calls of an operation come in this many steps: what one receives, the next may send.
  [[nodiscard]] int nsteps() const noexcept;
  /// Whether a step is more than one call, so that it needs a group.
  [[nodiscard]] bool is_several_calls() const noexcept;
  [[nodiscard]] bool is_put() const noexcept { return shape_.collective == Collective::kPut; }
  [[nodiscard]] Result<void> start(int step);
  /// Waits until the started operations are complete.
  [[nodiscard]] Result<void> wait();
  [[nodiscard]] CheckInput check_input(uint64_t seed) const noexcept;
  /// Zeroes the chosen operation's buffers, because arithmetic on old contents could be slow or
  /// overflow.
  void clear_buffers() noexcept;
  [[nodiscard]] Choice last_choice() const noexcept;
  /// Destroys the communicator and reports a failure of that. The destructor does the rest.
  [[nodiscard]] Result<void> close();

 private:
  struct Memory {
    std::byte* base = nullptr;      // guard, space for the largest operation, guard
    void* registration = nullptr;   // kRegistered
    ncclWindow_t window = nullptr;  // kWindow
  };
  Rank(ncclComm_t comm, const PerfOptions& options) noexcept;
  [[nodiscard]] Result<void> allocate(Memory* memory, size_t largest_bytes);
  [[nodiscard]] Result<void> make_op(const Variant& variant);
  [[nodiscard]] Result<void> start_send_recv();
  [[nodiscard]] Result<void> start_all_to_all();
  [[nodiscard]] Result<void> start_hypercube(int step);
  [[nodiscard]] Result<void> start_with_counts();
  [[nodiscard]] Result<void> start_put();
  void release_op() noexcept;

  const PerfOptions& options_;
  ncclComm_t comm_;
  int rank_ = 0;
  cudaStream_t stream_ = nullptr;
  Memory first_, second_;
  size_t bytes_ = 0;            // of each of them
  std::vector<size_t> counts_;  // by rank
  std::vector<size_t> places_;
  ncclRedOp_t reduction_ = ncclSum;
  bool owns_reduction_ = false;
  Op op_ = Op::kSum;
  Shape shape_{};
  OpBuffers buffers_{};
};

/// All ranks of one worker. Calls on several ranks are grouped, as required for a single thread.
class RankSet {
 public:
  /// One rank for each of `comms`, which it takes over.
  [[nodiscard]] static Result<RankSet> create(const std::vector<ncclComm_t>& comms,
                                              const PerfOptions& options,
                                              size_t largest_bytes);
  explicit RankSet(std::vector<std::unique_ptr<Rank>> ranks) : ranks_(std::move(ranks)) {}
  [[nodiscard]] const std::vector<std::unique_ptr<Rank>>& ranks() const noexcept { return ranks_; }

  [[nodiscard]] Result<void> choose(const Variant& variant, size_t count, bool in_place);
  /// Starts `aggregate` operations on every rank, in one group where that is possible.
  [[nodiscard]] Result<void> start(int aggregate);
  /// Waits until what was started is complete.
  [[nodiscard]] Result<void> wait();
  /// The time of one operation in us that the library expects; < 0: it expects none.
  [[nodiscard]] Result<double> simulate();
  [[nodiscard]] Result<void> close();

 private:
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace plexus::perf
