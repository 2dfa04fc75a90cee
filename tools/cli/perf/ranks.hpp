// SPDX-License-Identifier: Apache-2.0
// The ranks that one worker drives: their communicators, streams and buffers, and the calls of
// NCCL's API on them. The only file of `plexus perf`, with start_*.cpp, that calls the library
// under test.
#pragma once

#include <cstddef>
#include <memory>
#include <nccl.h>
#include <vector>

#include "core/base/result.hpp"
#include "tools/cli/perf/check.hpp"
#include "tools/cli/perf/options.hpp"

namespace plexus::perf {

/// Success, or an Error that says which call failed, how and why. `call` for messages.
[[nodiscard]] Result<void> check_call(const char* call, ncclResult_t result);

/// What the last operation used, as far as the library says.
struct Choice {
  Row::Name algorithm;
  Row::Name protocol;
  int channels;
};

/// One rank. Owns its communicator and everything that hangs off it.
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

  /// Chooses the operation that `start` runs from now on.
  [[nodiscard]] Result<void> choose(const Variant& variant, size_t count, bool in_place);
  [[nodiscard]] Result<void> start();
  /// Waits until what was started is complete.
  [[nodiscard]] Result<void> wait();
  [[nodiscard]] CheckInput check_input(uint64_t seed) const noexcept;
  /// Zeroes the chosen operation's buffers: arithmetic on what is left there could be slow or
  /// overflow.
  void clear_buffers() noexcept;
  [[nodiscard]] Choice last_choice() const noexcept;
  /// Ends the communicator, and says when that failed. The destructor does the rest.
  [[nodiscard]] Result<void> close();

 private:
  struct Memory {
    std::byte* base = nullptr;  // guard, room for the largest operation, guard
    void* registration = nullptr;
  };
  Rank(ncclComm_t comm, const PerfOptions& options) noexcept;
  [[nodiscard]] Result<void> allocate(Memory* memory, size_t largest_bytes);
  [[nodiscard]] Result<void> make_op(const Variant& variant);
  [[nodiscard]] Result<void> start_send_recv();
  void release_op() noexcept;

  const PerfOptions& options_;
  ncclComm_t comm_;
  int rank_ = 0;
  cudaStream_t stream_ = nullptr;
  Memory first_, second_;
  ncclRedOp_t reduction_ = ncclSum;
  bool owns_reduction_ = false;
  Op op_ = Op::kSum;
  Shape shape_{};
  OpBuffers buffers_{};
};

/// All ranks of one worker. Calls on several ranks are grouped, as one thread must.
class RankSet {
 public:
  explicit RankSet(std::vector<std::unique_ptr<Rank>> ranks) : ranks_(std::move(ranks)) {}
  [[nodiscard]] const std::vector<std::unique_ptr<Rank>>& ranks() const noexcept { return ranks_; }

  [[nodiscard]] Result<void> choose(const Variant& variant, size_t count, bool in_place);
  /// `batch` operations on every rank, one after the other, complete on return.
  [[nodiscard]] Result<void> run(int batch, bool wait_each);
  [[nodiscard]] Result<void> close();

 private:
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace plexus::perf
