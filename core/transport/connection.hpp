// SPDX-License-Identifier: Apache-2.0
// One end of a connection, from the wish to have it to the slots it offers. There are three kinds:
// the sending and the receiving end of a host rank, whose slots the executor fills and empties, and
// the end of a CUDA rank, whose slots kernels use. Each transport derives its ends from these.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/base/result.hpp"
#include "kernels/host/connection.hpp"

namespace plexus {

/// What identifies a connection within a communicator: direction and number. Collectives of channel
/// c use index 2c, sends and receives of channel c index 2c+1, so that they never wait in one line.
/// Further connections of a channel between the same ranks (Lane::connection, and messages of
/// collectives with counts per rank) follow kIndexStride apart.
struct ConnectionKey {
  int peer;
  bool sends;
  int index;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads the comparison with 0
  friend auto operator<=>(const ConnectionKey&, const ConnectionKey&) = default;
};
inline constexpr int kIndexStride = 128;  // of up to 64 channels

/// Which end of which connection.
struct EndId {
  ConnectionKey key;
  uint64_t group = 0;          // the communicator
  int rank = 0;                // whose end it is
  std::string peer_name = {};  // "rank 4", for the log
};

/// The progress of a message through a connection with a pump. Messages reach each state in order,
/// so that every report is about the oldest message that has not reached it yet.
enum class StepChange : uint8_t {
  kFilled,   // is handed to the network now; told again when the network had no room for it
  kSent,     // the network has taken it
  kArrived,  // lies in its slot
  kDone,     // left this process, or was taken out of its slot
};

/// Hears of each message of a connection with a pump, for profilers.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  virtual void on_step(StepChange change, uint64_t bytes) = 0;
};

/// What keeps a connection from going on in its network's plugin.
struct HeldUp {
  std::string what;         // entry, plugin, device, peer and numbers, for people
  bool is_refusal = false;  // the plugin takes no message or buffer; else it does not finish one
  uint64_t messages = 0;    // that wait to be taken
};

/// A connection's memory as kernels of a CUDA rank see it.
struct DeviceView {
  std::byte* fifo = nullptr;
  std::byte* lines = nullptr;  // nullptr: LL and LL128 are not possible
  std::byte* slots = nullptr;  // data of slot 0; nullptr: see provide_slots()
  size_t slot_stride = 0;
  uint32_t inline_bytes_max = kInlineBytes;
  Reach reach = Reach::kNothing;
  std::byte* entry = nullptr;  // what core/schedule made of this, on the device
};

/// What the three kinds have in common, which is all that connecting and pumping need.
/// Threads: one at a time (the engine that drives the rank).
class ConnectionEnd {
 public:
  explicit ConnectionEnd(EndId id) : id_(std::move(id)) {}
  virtual ~ConnectionEnd() = default;
  ConnectionEnd(const ConnectionEnd&) = delete;
  ConnectionEnd& operator=(const ConnectionEnd&) = delete;

  /// Goes on connecting, never blocks. True: connected. Sending ends log it.
  Result<bool> progress_connect();
  /// Moves slots between Fifo and network; true when something moved. Transports over memory have
  /// nothing to move: `has_pump` is false.
  virtual Result<bool> progress_pump() { return false; }
  /// Why the connection broke, with nothing left to read; nullptr: it did not. This is an error
  /// only for who still waits for it: a peer that is done may close while we finish with others.
  [[nodiscard]] virtual const Error* broken() const noexcept { return nullptr; }
  /// True when all that was handed over has left user memory and this process's care.
  [[nodiscard]] virtual bool drained() noexcept { return true; }
  /// The call that used it has failed: what it handed over by address must not be used any more,
  /// nor what it lets the peer write to.
  virtual void revoke() noexcept {}
  /// True when the messages of earlier calls need no more care. Until then the end is pumped,
  /// whatever the rank does next.
  [[nodiscard]] virtual bool settled() const noexcept { return true; }
  /// True while it goes by a route that stands in for another one and looks for that. Until then it
  /// is likewise pumped in all calls, but nobody waits for it.
  [[nodiscard]] virtual bool seeks() const noexcept { return false; }

  /// The call that begins takes this many messages from this end. A transport that posts a receive
  /// before its message comes posts these and no more: a receive that is never filled would be left
  /// over when the connection is closed.
  virtual void expect(uint64_t /*messages*/) noexcept {}

  /// nullopt: nothing is known to, or no plugin serves this end.
  [[nodiscard]] virtual std::optional<HeldUp> held_up() const { return std::nullopt; }

  /// Borrowed; null: nobody listens (the normal case, one branch per message).
  virtual void observe(StepObserver* /*observer*/) {}

  /// Size of the slots that this end made. Threads: any.
  [[nodiscard]] size_t held_bytes() const noexcept {
    return held_bytes_.load(std::memory_order_relaxed);
  }

  [[nodiscard]] const ConnectionKey& key() const noexcept { return id_.key; }
  /// For error messages: the transport and its route; "a connection that is being made".
  [[nodiscard]] std::string describe_route() const {
    return connected_ ? route() : "a connection that is being made";
  }
  [[nodiscard]] bool has_pump() const noexcept { return has_pump_; }
  [[nodiscard]] bool connected() const noexcept { return connected_; }
  /// The Fifo that executors of this process use at both ends; nullptr: there is none. Only in such
  /// a Fifo engine ids mean the same at both ends.
  [[nodiscard]] Fifo* fifo_in_process() const noexcept { return fifo_in_process_; }

 protected:
  /// As progress_connect(). Before it says true, the end has offered its slots.
  virtual Result<bool> try_connect() = 0;
  /// The transport and its route, for the log: "shm", "net/Socket 0 (eth0) > 0 (eth0)".
  [[nodiscard]] virtual std::string route() const = 0;

  void hold(size_t size_bytes) noexcept {
    held_bytes_.store(size_bytes, std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t group() const noexcept { return id_.group; }
  [[nodiscard]] int rank() const noexcept { return id_.rank; }

  bool has_pump_ = false;
  Fifo* fifo_in_process_ = nullptr;

 private:
  bool connected_ = false;
  std::atomic<size_t> held_bytes_{0};
  EndId id_;
};

/// The sending end of a host rank.
class SendEnd : public ConnectionEnd {
 public:
  using ConnectionEnd::ConnectionEnd;
  /// For the executor, at one address for the life of the end; usable when connected.
  [[nodiscard]] SendConnection& connection() noexcept { return connection_; }
  [[nodiscard]] bool drained() noexcept override { return connection_.all_taken(); }
  void revoke() noexcept override { connection_.revoke(); }

 protected:
  void offer(const SendConnection& connection) { connection_ = connection; }

 private:
  SendConnection connection_{nullptr, nullptr, {}};
};

/// The receiving end of a host rank.
class RecvEnd : public ConnectionEnd {
 public:
  using ConnectionEnd::ConnectionEnd;
  /// For the executor, at one address for the life of the end; usable when connected.
  [[nodiscard]] RecvConnection& connection() noexcept { return connection_; }
  /// Waits until the peer does not write to the call's output any more, which it does for a slice.
  void revoke() noexcept override;

 protected:
  void offer(const RecvConnection& connection) { connection_ = connection; }

 private:
  RecvConnection connection_{nullptr, nullptr, {}};
};

/// Either end of a CUDA rank; `key().sends` says which. Kernels fill and empty the slots.
class DeviceEnd : public ConnectionEnd {
 public:
  using ConnectionEnd::ConnectionEnd;
  /// Complete when connected.
  [[nodiscard]] DeviceView& view() noexcept { return view_; }
  [[nodiscard]] const DeviceView& view() const noexcept { return view_; }
  /// Makes the slots of a connected sending end, for messages that do not go by address.
  Result<void> provide_slots() {
    if (view_.slots == nullptr) {
      PLEXUS_TRY(slots, add_slots());
      view_.slots = slots;
    }
    return ok();
  }

 protected:
  void offer(const DeviceView& view) { view_ = view; }
  /// For ends that do not offer slots at once.
  virtual Result<std::byte*> add_slots() { return view_.slots; }

 private:
  DeviceView view_;
};

}  // namespace plexus
