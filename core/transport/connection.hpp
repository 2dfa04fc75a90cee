// SPDX-License-Identifier: Apache-2.0
// One end of a connection, from the wish to have it to the slots it offers. Each transport derives
// its ends from ConnectionEnd; the executor sees only the SendConnection / RecvConnection inside.
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/result.hpp"
#include "kernels/host/connection.hpp"

namespace plexus {

/// What identifies a connection within a communicator: direction and number. Collectives of channel
/// c use index 2c, sends and receives of channel c index 2c+1, so that they never wait in one line.
struct ConnectionKey {
  int peer;
  bool sends;
  int index;
  // NOLINTNEXTLINE(modernize-use-nullptr): clang-tidy 14 misreads the comparison with 0
  friend auto operator<=>(const ConnectionKey&, const ConnectionKey&) = default;
};

/// What happens to the oldest message of a connection that has not got that far yet.
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

/// A connection's memory as kernels of a CUDA rank see it. Of host ranks all is null.
struct DeviceView {
  std::byte* fifo = nullptr;
  std::byte* lines = nullptr;  // nullptr: LL and LL128 are not possible
  std::byte* slots = nullptr;  // data of slot 0
  size_t slot_stride = 0;
  uint32_t inline_bytes_max = kInlineBytes;
  Reach reach = Reach::kNothing;
  std::byte* entry = nullptr;  // what core/schedule made of this, on the device
};

/// Threads: one at a time (the engine that drives the rank).
class ConnectionEnd {
 public:
  explicit ConnectionEnd(const ConnectionKey& key) : key_(key) {}
  virtual ~ConnectionEnd() = default;
  ConnectionEnd(const ConnectionEnd&) = delete;
  ConnectionEnd& operator=(const ConnectionEnd&) = delete;

  /// Goes on connecting, never blocks. True: connected.
  virtual Result<bool> progress_connect() = 0;
  /// Moves slots between Fifo and network; true when something moved. Transports over memory have
  /// nothing to move: `has_pump` is false.
  virtual Result<bool> progress_pump() { return false; }
  /// The connection broke with nothing left to read. An error only for who still waits for it: a
  /// peer that is done may close while we finish with others.
  [[nodiscard]] virtual const Error* broken() const noexcept { return nullptr; }
  /// Has everything handed over so far left user memory and this process's care?
  [[nodiscard]] virtual bool drained() noexcept { return !key_.sends || send.all_taken(); }

  /// Need the messages of calls that are over no more care? Else the end is to be pumped, until it
  /// says so, whatever the rank does next.
  [[nodiscard]] virtual bool settled() const noexcept { return true; }

  /// The call that begins takes so many messages from this end. A transport that has to ask for a
  /// message before it comes asks for these and no more: what is asked for and never comes would
  /// be left over when the connection is closed.
  virtual void expect(uint64_t /*messages*/) noexcept {}

  /// Borrowed; null: nobody listens (the normal case, one branch per message).
  virtual void observe(StepObserver* observer) { observer_ = observer; }

  [[nodiscard]] const ConnectionKey& key() const noexcept { return key_; }
  [[nodiscard]] bool has_pump() const noexcept { return has_pump_; }
  [[nodiscard]] bool connected() const noexcept { return connected_; }
  /// Are both ends in this process? Only then do engine ids mean the same at both.
  [[nodiscard]] bool in_one_process() const noexcept { return in_one_process_; }

  SendConnection send{nullptr, nullptr, {}};  // when key().sends
  RecvConnection recv{nullptr, nullptr, {}};  // otherwise
  /// Of a CUDA rank, in place of `send` or `recv`: kernels fill and empty the slots.
  DeviceView device_view;

 protected:
  bool has_pump_ = false;
  bool connected_ = false;
  bool in_one_process_ = false;
  StepObserver* observer_ = nullptr;

 private:
  ConnectionKey key_;
};

}  // namespace plexus
