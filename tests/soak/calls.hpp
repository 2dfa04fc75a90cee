// SPDX-License-Identifier: Apache-2.0
// One call with its buffers: prepared in advance, issued, and compared with the reference when it
// is complete.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <plexus.h>
#include <string>
#include <vector>

#include "tests/soak/program.hpp"
#include "tests/soak/values.hpp"

namespace plexus::soak {

/// Memory between guard bytes, plain or from ncclMemAlloc.
class Buffer {
 public:
  Buffer(size_t size_bytes, size_t alignment, bool is_registered, uint64_t salt);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  /// NULL: ncclMemAlloc failed.
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] bool are_guards_whole() const;
  /// With the guards and what is before and behind them.
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] size_t whole_bytes() const { return whole_bytes_; }

 private:
  size_t size_bytes_;
  size_t whole_bytes_ = 0;
  std::vector<std::byte> plain_;
  void* registered_ = nullptr;
  std::byte* base_ = nullptr;
  std::byte* data_ = nullptr;
};

class LiveCall {
 public:
  LiveCall(const Job& job, const Call& call, ncclComm_t comm, cudaStream_t stream);
  ~LiveCall();
  LiveCall(const LiveCall&) = delete;
  LiveCall& operator=(const LiveCall&) = delete;

  [[nodiscard]] const Call& call() const { return call_; }
  [[nodiscard]] ncclComm_t comm() const { return comm_; }
  ncclResult_t prepare();
  ncclResult_t issue();
  /// Destroys the user's reduction, and closes windows; allowed once the call is issued.
  ncclResult_t release();
  /// Describes an error in the result; nullopt: the result is right.
  [[nodiscard]] std::optional<std::string> find_wrong() const;
  /// Likewise, but looks only beside the buffers.
  [[nodiscard]] std::optional<std::string> find_wrong_guards() const;

 private:
  ncclResult_t make_buffers();
  ncclResult_t open_windows();
  ncclResult_t issue_variable();
  ncclResult_t issue_with_counts();
  ncclResult_t issue_configured();
  [[nodiscard]] std::optional<std::string> find_difference(const std::vector<Segment>& segments,
                                                           size_t count,
                                                           const std::byte* actual,
                                                           const char* what) const;

  const Call& call_;
  const Operation& operation_;
  ncclComm_t comm_;
  cudaStream_t stream_;
  int nranks_;
  uint64_t salt_;
  bool is_in_place_;
  Buffers layout_;
  Counts send_counts_;
  Counts recv_counts_;
  std::unique_ptr<Buffer> send_buffer_;  // in place: the only one
  std::unique_ptr<Buffer> recv_buffer_;
  std::vector<ncclWindow_t> windows_;
  std::byte* send_ = nullptr;
  std::byte* recv_ = nullptr;
  ncclRedOp_t reduction_ = ncclSum;
  bool has_reduction_ = false;
  std::vector<std::byte> scalar_;
};

}  // namespace plexus::soak
