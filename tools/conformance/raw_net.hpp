// SPDX-License-Identifier: Apache-2.0
// A net plugin's table of NCCL's ABI, called with the arguments that NCCL passes and the native
// adapter does not: no place for a device handle, requests and results that are not zeroed, handles
// of a profiler's events. The adapter is what all other checks use (net).
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "core/plugin/nccl_net/net.hpp"
#include "tools/conformance/net.hpp"

namespace plexus::conformance {

struct RawNet {
  /// The table that the subject names, or else the newest.
  [[nodiscard]] static Result<RawNet> choose(Fixture& fixture);

  Fixture* fixture;
  std::unique_ptr<const nccl_net::Net> net;
  int version;
};

/// What NCCL passes; the defaults are those of its data path.
struct RawArguments {
  bool has_offload = true;   // a place for a device handle in connect and accept
  bool has_sizes = true;     // a place for sizes in test
  bool has_profiles = true;  // handles of a profiler's events
  // from v9 on: test may complete a receive before its bytes are there
  bool is_early = false;
};

/// A connection of one process with itself. Everything that it makes ends with it.
class RawPair {
 public:
  [[nodiscard]] static Result<std::unique_ptr<RawPair>> connect(const RawNet& raw,
                                                                const RawArguments& arguments);
  RawPair(const RawPair&) = delete;
  RawPair& operator=(const RawPair&) = delete;
  ~RawPair();

  /// One message; checks what arrives, and what test() writes.
  [[nodiscard]] Result<void> deliver(uint64_t size_bytes);

 private:
  /// Twice its size, so that it shows what is written beyond.
  using Handle = std::array<uint8_t, size_t{2} * PLEXUS_NET_HANDLE_BYTES>;
  struct End {
    void* raw = nullptr;
    void* memory = nullptr;
    void* request = nullptr;
    bool is_done = false;
  };
  RawPair(const RawNet& raw, const RawArguments& arguments)
      : net_(raw.net.get()), fixture_(raw.fixture), arguments_(arguments) {}
  /// Calls the plugin through the monitor.
  template <class Call>
  int32_t call(Place place, const char* name, const Call& made) const;
  [[nodiscard]] Result<void> open();
  [[nodiscard]] Result<bool> advance_connect(Handle& handle);
  [[nodiscard]] Result<void> register_memory(End& end, Place place, std::vector<std::byte>& bytes);
  void deregister(End& end);
  [[nodiscard]] Result<void> post_recv(std::vector<std::byte>& target);
  [[nodiscard]] Result<void> post_send(std::vector<std::byte>& source);
  /// Tests a request that is posted.
  [[nodiscard]] Result<void> test(End& end, uint64_t size_bytes);

  const nccl_net::Net* net_;
  Fixture* fixture_;
  RawArguments arguments_;
  bool is_open_ = false;
  nccl_net::CommState comm_;
  void* listen_ = nullptr;
  End send_;
  End recv_;
};

}  // namespace plexus::conformance
