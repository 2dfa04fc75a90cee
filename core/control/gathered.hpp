// SPDX-License-Identifier: Apache-2.0
// The contributions to a gather: on their way up the tree, and as the result. Much of what ranks
// say is the same on many of them, so every distinct blob travels once.
//
//   Contributions below;
//   below.add(0, "host a");
//   below.add(1, "host a");  // travels once
//   const std::array<uint32_t, 2> members = {0, 1};
//   return below.encode_result(members);
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/result.hpp"
#include "guest/assert.hpp"

namespace plexus {

/// What one process and those below it have contributed so far.
class Contributions {
 public:
  void add(uint32_t rank, std::string_view blob);
  /// Takes over what encode() gave in another process: it comes from a socket and is checked. The
  /// ranks whose contributions it has are appended to `ranks`.
  Result<void> merge(std::string_view payload, std::vector<uint32_t>& ranks);
  [[nodiscard]] size_t size() const noexcept { return entries_.size(); }
  /// For the parent.
  [[nodiscard]] std::string encode() const;
  /// The result, by the order of `members`. An Error: not every member contributed once.
  [[nodiscard]] Result<std::string> encode_result(std::span<const uint32_t> members) const;

 private:
  uint32_t index_of(std::string_view blob);

  std::vector<std::string> blobs_;                      // distinct
  std::unordered_map<std::string, uint32_t> index_;     // blob -> its place in blobs_
  std::vector<std::pair<uint32_t, uint32_t>> entries_;  // rank, place of its blob
};

/// The result of a gather: one blob per rank. Cheap to copy; the ranks of a process share one.
class Gathered {
 public:
  Gathered() = default;
  explicit Gathered(std::span<const std::string> blobs);
  /// `payload`: of Contributions::encode_result; it comes from a socket.
  static Result<Gathered> decode(std::string payload);

  [[nodiscard]] size_t size() const noexcept { return data_ == nullptr ? 0 : data_->index.size(); }
  [[nodiscard]] std::string_view operator[](size_t rank) const {
    PLEXUS_DCHECK(rank < size(), rank, size());
    return data_->blobs[data_->index[rank]];
  }
  /// Ranks with equal blobs are of one kind; kinds are numbered from 0.
  [[nodiscard]] size_t kinds() const noexcept { return data_ == nullptr ? 0 : data_->blobs.size(); }
  [[nodiscard]] uint32_t kind_of(size_t rank) const {
    PLEXUS_DCHECK(rank < size(), rank, size());
    return data_->index[rank];
  }
  [[nodiscard]] std::string_view blob_of_kind(size_t kind) const {
    PLEXUS_DCHECK(kind < kinds(), kind, kinds());
    return data_->blobs[kind];
  }
  /// As sent, with every distinct blob once.
  [[nodiscard]] size_t size_bytes() const noexcept {
    return data_ == nullptr ? 0 : data_->payload.size();
  }
  [[nodiscard]] std::string_view back() const { return (*this)[size() - 1]; }
  [[nodiscard]] std::string_view front() const { return (*this)[0]; }

 private:
  struct Data {
    std::string payload;
    std::vector<std::string_view> blobs;  // distinct, in `payload`
    std::vector<uint32_t> index;          // by rank
  };
  std::shared_ptr<const Data> data_;
};

}  // namespace plexus
