// SPDX-License-Identifier: Apache-2.0
// Host memory that networks send from without a copy: what the user registered with a communicator
// (ncclCommRegister, windows), and memory from ncclMemAlloc. A connection registers a range with
// its network when the first message leaves from it. That registration ends with the range, or,
// when messages from it are still under way, with the last of them.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/plugin/net_plugin.hpp"
#include "core/transport/memory/user_memory.hpp"

namespace plexus {

/// Registrations of one communicator. Threads: any.
class RegisteredMemory {
 public:
  /// What a connection has registered of a range. Whoever sends from it holds it meanwhile.
  using Held = std::shared_ptr<NetMemory>;
  using Register = std::function<Result<NetMemory>(const plexus_net_region_t&)>;

  /// `allocated`: memory from ncclMemAlloc, of which each segment is a range. Borrowed.
  explicit RegisteredMemory(const UserMemory* allocated) : allocated_(allocated) {}

  /// Messages may leave from there, until remove() with the same address.
  void add(const void* address, size_t size_bytes);
  /// All ranges that begin there. Memory that no message uses is registered nowhere afterwards.
  void remove(const void* address);

  /// The registration, with the connection that `owner` stands for, of a range that has all of
  /// [address, address + size). `add` makes it when it is needed first. nullptr: there is no such
  /// range, or the network refused it, which is logged and not tried again.
  [[nodiscard]] Held find(const void* owner,
                          const std::byte* address,
                          size_t size_bytes,
                          const Register& add);
  /// Ends all registrations of a connection that is about to be closed; it holds none itself.
  void forget(const void* owner);

 private:
  struct Range {
    const std::byte* begin = nullptr;
    size_t size_bytes = 0;
    std::map<const void*, Held> held;  // by owner; nullptr: refused
  };
  [[nodiscard]] Range* find_range(const std::byte* address, size_t size_bytes);

  const UserMemory* allocated_;
  std::mutex mutex_;
  std::vector<Range> ranges_;  // guarded by mutex_
};

}  // namespace plexus
