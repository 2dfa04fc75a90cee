// SPDX-License-Identifier: Apache-2.0
// The processes of a family, and the control tree over them. Every process has the same table, so
// all compute the same trees from it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/os/socket.hpp"
#include "guest/assert.hpp"

namespace plexus {

/// Of a family; a message that says more is refused.
inline constexpr uint32_t kFamilyRanksMax = 1U << 20;

/// 0, 1, ..., nranks - 1.
std::vector<uint32_t> all_ranks(size_t nranks);

/// One process, as it describes itself to the introducer.
struct ProcessEntry {
  uint64_t process = 0;   // process_id()
  uint64_t host_key = 0;  // equal for the processes of a host
  int32_t pid = 0;
  std::string host = {};                                       // for messages
  std::array<uint8_t, SocketAddress::kPackedBytes> address{};  // where its agent listens
  std::vector<uint32_t> ranks = {};
};

/// Immutable. Threads: any. Processes are numbered from 0, those of a host in sequence; hosts, and
/// the processes of a host, are in the order of their lowest ranks.
class ProcessTable {
 public:
  /// `entries` have all ranks 0..n-1 once.
  static Result<ProcessTable> make(std::vector<ProcessEntry> entries);
  [[nodiscard]] std::string encode() const;
  /// The table comes from a socket: everything is checked.
  static Result<ProcessTable> decode(std::string_view bytes);

  [[nodiscard]] size_t nranks() const noexcept { return process_of_.size(); }
  [[nodiscard]] size_t nprocesses() const noexcept { return rows_.size(); }
  [[nodiscard]] uint32_t process_of(uint32_t rank) const {
    PLEXUS_DCHECK(rank < nranks(), rank, nranks());
    return process_of_[rank];
  }
  [[nodiscard]] std::span<const uint32_t> ranks_of(uint32_t process) const;
  /// Number of the host of a process; hosts are numbered from 0 in the order of the processes.
  [[nodiscard]] uint32_t host_of(uint32_t process) const { return rows_[process].host; }
  [[nodiscard]] std::optional<uint32_t> find(uint64_t process_id) const;
  [[nodiscard]] uint64_t id_of(uint32_t process) const {
    PLEXUS_DCHECK(process < nprocesses(), process, nprocesses());
    return rows_[process].id;
  }
  [[nodiscard]] int32_t pid_of(uint32_t process) const {
    PLEXUS_DCHECK(process < nprocesses(), process, nprocesses());
    return rows_[process].pid;
  }
  [[nodiscard]] Result<SocketAddress> address_of(uint32_t process) const;
  [[nodiscard]] const std::string& host_name_of(uint32_t rank) const {
    return hosts_[rows_[process_of(rank)].host];
  }
  /// "rank 3 (node:1234)".
  [[nodiscard]] std::string name_of(uint32_t rank) const;
  /// "host:pid"
  [[nodiscard]] std::string process_name_of(uint32_t rank) const;

 private:
  struct Row {
    uint64_t id;
    int32_t pid;
    uint32_t host;
    uint32_t first_rank;  // in ranks_
    std::array<uint8_t, SocketAddress::kPackedBytes> address;
  };
  std::vector<std::string> hosts_;
  std::vector<Row> rows_;
  std::vector<uint32_t> ranks_;       // of process 0, 1, ..., each ascending
  std::vector<uint32_t> process_of_;  // by rank
};

/// A tree over some processes: over the lowest process of each host a tree of `kFanOut` children
/// each, and below it one of the same kind over the other processes of the host. A message thus
/// crosses the network once for each host. Positions are indices into `processes`.
class ControlTree {
 public:
  static constexpr uint32_t kFanOut = 16;
  /// `processes`: ascending.
  ControlTree(const ProcessTable& table, std::vector<uint32_t> processes);

  [[nodiscard]] uint32_t size() const noexcept { return static_cast<uint32_t>(processes_.size()); }
  [[nodiscard]] uint32_t process_at(uint32_t position) const {
    PLEXUS_DCHECK(position < size(), position, size());
    return processes_[position];
  }
  [[nodiscard]] std::optional<uint32_t> position_of(uint32_t process) const;
  /// nullopt: the root.
  [[nodiscard]] std::optional<uint32_t> parent(uint32_t position) const;
  [[nodiscard]] std::vector<uint32_t> children(uint32_t position) const;
  /// The position and everything below it.
  [[nodiscard]] std::vector<uint32_t> subtree(uint32_t position) const;

 private:
  [[nodiscard]] uint32_t host_of(uint32_t position) const;  // number of its host in this tree

  std::vector<uint32_t> processes_;
  std::vector<uint32_t> leaders_;  // position of the first process of each host
};

}  // namespace plexus
