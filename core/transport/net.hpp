// SPDX-License-Identifier: Apache-2.0
// The net transport: a connection through a net plugin. The executor fills and empties the slots of
// a private Fifo; the pump, called by the same thread between its turns, sends and receives them.
//
// A message is a 64-byte NetHeader (the slot header's news) and the payload, contiguous in
// registered memory, so that a slot costs one isend and one irecv.
//
// The receiver listens and posts a letter: the plugin's handle, then the route as it sees it (net,
// devices). The sender compares the route with its own before it connects.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "core/bootstrap/exchange.hpp"
#include "core/plugin/net_plugin.hpp"
#include "core/transport/connection.hpp"
#include "core/transport/local.hpp"
#include "core/transport/net_set.hpp"

namespace plexus {

struct NetEndOptions {
  Exchange* exchange;
  NetSet::Way way;
  uint32_t slot_bytes;
  std::string peer_name;             // for messages
  DeviceRuntime* runtime = nullptr;  // of a CUDA rank, whose kernels fill and empty the slots
  int device = -1;                   // of that rank
};

/// An end that no network can connect: connecting says why.
class UnreachableEnd final : public ConnectionEnd {
 public:
  UnreachableEnd(const ConnectionKey& key, Error why) : ConnectionEnd(key), why_(std::move(why)) {}
  Result<bool> progress_connect() override { return why_.clone(); }

 private:
  Error why_;
};

/// What both directions share: slots in registered memory.
class NetEnd : public ConnectionEnd {
 protected:
  NetEnd(const ConnectionKey& key, NetEndOptions options);
  Result<void> make_slots();
  [[nodiscard]] plexus_net_region_t region() const;
  [[nodiscard]] std::byte* slot(uint64_t step) const;
  [[nodiscard]] size_t slot_stride() const;
  [[nodiscard]] Fifo& fifo() const;
  [[nodiscard]] Error failed(Error error) const;
  [[nodiscard]] DeviceView view() const;

  NetEndOptions options_;
  std::shared_ptr<LocalFifo> memory_;
  std::array<NetRequest*, kSlots> requests_{};
};

class NetSendEnd final : public NetEnd {
 public:
  NetSendEnd(const ConnectionKey& key, NetEndOptions options) : NetEnd(key, std::move(options)) {}
  Result<bool> progress_connect() override;
  Result<bool> progress_pump() override;
  [[nodiscard]] bool drained() noexcept override;

 private:
  Result<bool> send_filled();
  Result<bool> test_sent();

  std::optional<NetSend> net_;
  std::optional<NetMemory> registration_;
  uint64_t sent_ = 0;  // steps handed to the plugin
  uint64_t done_ = 0;  // steps the plugin is done with
};

class NetRecvEnd final : public NetEnd {
 public:
  NetRecvEnd(const ConnectionKey& key, NetEndOptions options) : NetEnd(key, std::move(options)) {}
  Result<bool> progress_connect() override;
  Result<bool> progress_pump() override;
  void observe(StepObserver* observer) override;
  [[nodiscard]] const Error* broken() const noexcept override {
    return broken_ ? &*broken_ : nullptr;
  }

 private:
  Result<bool> post_free();
  Result<bool> test_posted();
  Result<void> take_in(uint64_t size_bytes);
  void tell_taken();

  std::optional<NetListen> listen_;
  std::optional<NetRecv> net_;
  std::optional<NetMemory> registration_;
  uint64_t posted_ = 0;               // steps whose slot waits for a message
  uint64_t arrived_ = 0;              // steps that arrived
  uint64_t told_ = 0;                 // steps of which the observer knows that they were taken
  std::optional<Error> cannot_post_;  // what is posted already may still hold messages
  std::optional<Error> broken_;
};

}  // namespace plexus
