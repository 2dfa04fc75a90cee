// SPDX-License-Identifier: Apache-2.0
// The direct transport: both ranks in one process. Slots in private memory for what has no home in
// a user buffer; everything else the receiver reads in the sender's user buffer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "core/transport/connection.hpp"

namespace plexus {

/// An anonymous mapping that the two ends own together (shared_ptr): freed with the later end.
class LocalFifo {
 public:
  static Result<std::shared_ptr<LocalFifo>> create(size_t slot_stride);
  ~LocalFifo();
  LocalFifo(const LocalFifo&) = delete;
  LocalFifo& operator=(const LocalFifo&) = delete;
  [[nodiscard]] std::byte* memory() const noexcept { return memory_; }

 private:
  LocalFifo(std::byte* memory, size_t size_bytes) : memory_(memory), size_bytes_(size_bytes) {}
  std::byte* memory_;
  size_t size_bytes_;
};

/// Where the ends of a process meet. Threads: any.
class LocalMeetings {
 public:
  struct Key {
    uint64_t group;  // of the communicator
    int source;
    int target;
    int index;
    // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads the comparison with 0
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  /// First comer makes it, second takes it out. Both ends must call exactly once.
  Result<std::shared_ptr<LocalFifo>> meet(const Key& key, size_t slot_stride);
  /// A communicator ends: what was never taken out goes.
  void forget(uint64_t group, int rank);

 private:
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<LocalFifo>> waiting_;
};

class LocalEnd final : public ConnectionEnd {
 public:
  struct Options {
    LocalMeetings* meetings;
    uint64_t group;
    int rank;
    size_t slot_stride;
    bool borrows;  // the receiver may read user buffers
  };
  LocalEnd(const ConnectionKey& key, const Options& options)
      : ConnectionEnd(key), options_(options) {}
  Result<bool> progress_connect() override;

 private:
  Options options_;
  std::shared_ptr<LocalFifo> fifo_;
};

}  // namespace plexus
