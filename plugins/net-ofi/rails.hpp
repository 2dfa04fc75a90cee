// SPDX-License-Identifier: Apache-2.0
// The rails of one connection: its place on a link, and the operations that it has under way there.
//
//   PLEXUS_TRY(rails.open(link));
//   PLEXUS_TRY(rails.meet(greeting));                // where the peer is
//   rails.send(0, bytes, tag, operation);            // `sink` hears of its end, and says:
//   rails.note_end(operation);
//
// Threads: one at a time, which holds the link's lock.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "guest/assert.hpp"
#include "plugins/net-ofi/link.hpp"
#include "plugins/net-ofi/peer.hpp"
#include "plugins/net-ofi/wire.hpp"

namespace plexus::net_ofi {

inline constexpr uint32_t kControlReceives = 8;  // per rail
inline constexpr uint32_t kControlSends = 8;

/// How long a close may take to send kBye, or to withdraw the operations on a link that another
/// connection uses. The rest of a message that has begun to arrive takes less, if its sender is
/// there. The time is over only after some turns, because a busy host may give the core to others
/// for longer than that.
class ShortWait {
 public:
  /// To be called once in each turn, which drives the link.
  [[nodiscard]] bool is_over() { return ++turns_ > kTurnsLeast && Clock::now() >= deadline_; }

 private:
  static constexpr uint32_t kTurnsLeast = 100;
  Clock::time_point deadline_ = Clock::now() + std::chrono::milliseconds(3);
  uint32_t turns_ = 0;
};

struct ReleaseMemory {
  MemoryCache* cache = nullptr;
  void operator()(fid_mr* registration) const { cache->release(registration); }
};
/// The registration of the plugin's own host memory; null: the domain requires none.
using OwnMemory = std::unique_ptr<fid_mr, ReleaseMemory>;
[[nodiscard]] Result<OwnMemory> register_own(Domain& domain, void* data, size_t size_bytes);
[[nodiscard]] inline void* descriptor_of(const OwnMemory& memory) noexcept {
  return memory == nullptr ? nullptr : ::fi_mr_desc(memory.get());
}

class Rails {
 public:
  /// Memory that libfabric reads and writes for the connection, in one block.
  struct Buffers {
    std::array<WireControl, size_t{kRailsMax} * kControlReceives> incoming{};
    std::array<WireControl, kControlSends> outgoing{};
    WireGreeting greeting_out{};
    WireGreeting greeting_in{};
    std::array<uint64_t, kRailsMax> read_back{};  // target of reads; its contents are not used
  };
  /// Memory of this process that a NIC has written.
  struct ReadBack {
    uint64_t address;  // in the domain's addressing
    uint64_t key;
    uint64_t size_bytes;  // size of the range; its first bytes are read
  };

  /// `sink` hears of all operations that end.
  Rails(const Device& device, uint32_t count, EventSink& sink)
      : device_(device), sink_(sink), buffers_(std::make_unique<Buffers>()), count_(count) {}
  /// On `link`, which the connection has joined.
  [[nodiscard]] Result<void> open(std::shared_ptr<Link> link);
  /// Stores the peer's addresses, and drops rails that it lacks.
  [[nodiscard]] Result<void> meet(const WireGreeting& peer);
  /// Nothing more is started.
  void stop() noexcept { is_open_ = false; }
  [[nodiscard]] bool is_open() const noexcept { return is_open_; }

  [[nodiscard]] uint32_t count() const noexcept { return count_; }
  /// Null: not opened.
  [[nodiscard]] Link* link() const noexcept { return link_.get(); }
  [[nodiscard]] Domain& domain(uint32_t rail) const noexcept { return *device_.rails[rail]; }
  /// Not after the link's close.
  [[nodiscard]] const Endpoint& endpoint(uint32_t rail) const noexcept {
    return link_->endpoint(rail);
  }
  [[nodiscard]] fi_addr_t peer(uint32_t rail) const noexcept { return rails_[rail].peer; }
  [[nodiscard]] Buffers& buffers() const noexcept { return *buffers_; }
  /// A part of buffers().
  template <class T>
  [[nodiscard]] Bytes own(T& part, uint32_t rail) const noexcept {
    return {&part, sizeof part, descriptor_of(rails_[rail].memory)};
  }

  /// These start an operation. 0, or libfabric's error; -FI_EAGAIN: not possible now.
  [[nodiscard]] ssize_t send(uint32_t rail, Bytes bytes, uint64_t tag, Operation& operation) {
    return send_to(peer(rail), rail, bytes, tag, operation);
  }
  [[nodiscard]] ssize_t send_to(
      fi_addr_t to, uint32_t rail, Bytes bytes, uint64_t tag, Operation& operation) {
    return is_open_ ? note(endpoint(rail).send(bytes, to, tag, operation), operation)
                    : -FI_ESHUTDOWN;
  }
  [[nodiscard]] ssize_t send_with_data(
      uint32_t rail, Bytes bytes, uint64_t data, uint64_t tag, Operation& operation) {
    return is_open_ ? note(endpoint(rail).send_with_data(bytes, data, peer(rail), tag, operation),
                           operation)
                    : -FI_ESHUTDOWN;
  }
  [[nodiscard]] ssize_t receive(uint32_t rail, Bytes bytes, uint64_t tag, Operation& operation) {
    return is_open_ ? note(endpoint(rail).receive(bytes, tag, operation), operation)
                    : -FI_ESHUTDOWN;
  }
  /// Reads some of it through the NIC of `rail`, ordered after everything that the NIC has written.
  [[nodiscard]] ssize_t read_back(uint32_t rail, ReadBack read, Operation& operation);

  void note_end(Operation& operation);
  /// All operations have ended.
  [[nodiscard]] bool are_idle() const noexcept { return operations_.empty(); }
  /// Withdraws what has not ended. Some of it may be left, if libfabric is busy with it:
  /// are_idle().
  void withdraw();
  /// The endpoints are closed, so that all have ended.
  void forget() noexcept { operations_.clear(); }

 private:
  struct Rail {
    fi_addr_t peer = FI_ADDR_UNSPEC;
    fi_addr_t self = FI_ADDR_UNSPEC;  // set by the first read_back()
    OwnMemory memory;                 // registers `buffers_`
  };
  /// Notes an operation that has started if `result` is 0, and returns `result`.
  ssize_t note(ssize_t result, Operation& operation) noexcept {
    if (result == 0) {
      PLEXUS_DCHECK(!operation.hook.is_linked(), operation.kind);
      operation.sink = &sink_;
      operations_.push_back(operation);
    }
    return result;
  }

  const Device& device_;
  EventSink& sink_;
  std::unique_ptr<Buffers> buffers_;
  std::vector<Rail> rails_;  // of the link; the first `count_` are used
  uint32_t count_;
  Operations operations_;  // that have not ended
  std::shared_ptr<Link> link_;
  bool is_open_ = true;  // operations may be started
};

}  // namespace plexus::net_ofi
