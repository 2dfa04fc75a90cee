// SPDX-License-Identifier: Apache-2.0
// A communicator of Plexus with a stream of its own. It turns results into exceptions with the
// library's sentence.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <plexus.h>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace torch_plexus {

/// Throws c10::Error (RuntimeError in Python) with the library's sentence. `comm` may be NULL.
void check(ncclResult_t result, const char* what, ncclComm_t comm);

/// A unique id through the store.
void publish_id(c10d::Store& store, const std::string& key, const ncclUniqueId& id);
ncclUniqueId read_id(c10d::Store& store, const std::string& key);

/// Threads: any for revoke(), abort(), stream_failure() and is_own_process(); one at a time for the
/// rest.
class Communicator {
 public:
  /// Collective over `size` ranks that share `store`. Bounded by `timeout`.
  static std::unique_ptr<Communicator> make(c10d::Store& store,
                                            int rank,
                                            int size,
                                            std::chrono::milliseconds timeout);
  /// Takes over `comm`, which is ready. `numbers`: how errors are to number its ranks; empty: as
  /// they are numbered.
  explicit Communicator(ncclComm_t comm, std::vector<int> numbers = {});
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// One of the ranks that are left of a communicator that failed: called by all but `excluded`.
  std::unique_ptr<Communicator> shrink(std::vector<int> excluded);
  /// Ranks that are known to have died or ended.
  [[nodiscard]] std::vector<int> gone_ranks() const;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }
  /// Throws if calls are not possible any more, or in a child made by fork.
  [[nodiscard]] ncclComm_t usable() const;

  /// Until nothing is on the stream: all calls are done, failed since a peer is gone, or ended.
  /// False: there were failures.
  bool wait_stream();
  /// Ends all that waits on it here: those calls fail for `reason`. It can still be shrunk.
  void revoke(const std::string& reason);
  /// The same on all ranks, whose errors name this one; it cannot be shrunk by this rank.
  void abort(const std::string& reason);
  /// Why a call on the stream has failed, asked in its host function; "": it has not.
  [[nodiscard]] std::string stream_failure() const;
  /// `error` of a call without a stream, or why it was ended.
  [[nodiscard]] std::exception_ptr explain(std::exception_ptr error) const;
  /// False in a child made by fork, which has no threads of ours and must not touch locks.
  [[nodiscard]] bool is_own_process() const noexcept;

 private:
  void check_not_aborted() const;
  bool end_for(const std::string& reason);
  [[nodiscard]] std::string ended_for() const;
  [[nodiscard]] std::string renumber(std::string text) const;

  int process_;
  ncclComm_t comm_;
  cudaStream_t stream_ = nullptr;
  std::vector<int> numbers_;
  int rank_ = -1;
  int size_ = 0;
  mutable std::mutex reason_mutex_;  // guards what follows
  std::string ended_for_;            // by revoke() or abort(); "": it goes on
  bool is_aborted_ = false;          // then comm_ is gone
};

std::exception_ptr make_error(const std::string& text);

}  // namespace torch_plexus
