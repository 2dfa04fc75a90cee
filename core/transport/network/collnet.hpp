// SPDX-License-Identifier: Apache-2.0
// The connection to a network that reduces: the peers from nranks on of a program. What this rank
// puts into slot k is combined with what the other members of the group put into theirs, and the
// result is slot k of the receiving direction. Both directions are one `CollnetChannel`.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/control/exchange.hpp"
#include "core/plugin/collnet_plugin.hpp"
#include "core/transport/network/pumped_end.hpp"
#include "core/transport/transport_table.hpp"

namespace plexus {

struct CollnetChannelOptions {
  Exchange* exchange;
  CollnetContext* context;
  uint32_t slot_bytes;
  uint32_t device;
  std::vector<int> members;  // ranks, one of each host
  int rank;
  uint64_t tag;                      // tags the control messages that carry handles
  DeviceRuntime* runtime = nullptr;  // set for a CUDA rank, whose kernels use the slots
  int on_device = -1;                // that rank's device
};

/// Threads: one at a time (the engine that drives the rank).
class CollnetChannel {
 public:
  explicit CollnetChannel(CollnetChannelOptions options) : options_(std::move(options)) {}

  /// True: connected.
  Result<bool> progress_connect();
  /// Starts what was filled, takes in what is done. True when something moved.
  Result<bool> progress_pump();
  [[nodiscard]] bool drained() const noexcept;
  [[nodiscard]] const PumpFifo& fifo(bool sends) const noexcept { return sends ? sends_ : recvs_; }
  /// "collnet/SHARP (3 hosts)", for the log.
  [[nodiscard]] std::string route() const;

 private:
  Result<void> post_handle();
  Result<bool> take_handles();
  Result<void> make_slots();
  Result<bool> start_filled();
  Result<bool> test_started();
  [[nodiscard]] Error failed(const char* call, NetStatus status) const;

  CollnetChannelOptions options_;
  std::optional<CollnetListen> listen_;
  std::vector<std::optional<plexus_net_handle_t>> handles_;  // [members]
  PumpFifo sends_;
  PumpFifo recvs_;
  std::unique_ptr<CollnetGroup> group_;
  std::optional<CollnetMemory> send_memory_;
  std::optional<CollnetMemory> recv_memory_;
  bool connected_ = false;
  std::array<plexus_collnet_request_t*, kSlots> requests_{};
  std::array<CallRecord, kSlots> calls_{};
  uint64_t started_ = 0;  // steps handed to the plugin
  uint64_t done_ = 0;     // steps the plugin is done with
};

/// One direction of a channel, which the sending end drives.
class CollnetPump final : public Pump {
 public:
  using Options = std::shared_ptr<CollnetChannel>;  // the two directions share it
  CollnetPump(const ConnectionKey& key, Options channel)
      : sends_(key.sends), channel_(std::move(channel)) {}
  Result<bool> progress_connect() { return channel_->progress_connect(); }
  Result<bool> progress() { return channel_->progress_pump(); }
  [[nodiscard]] const PumpFifo& fifo() const noexcept { return channel_->fifo(sends_); }
  [[nodiscard]] std::string route() const { return channel_->route(); }
  [[nodiscard]] bool drained() const noexcept { return !sends_ || channel_->drained(); }
  [[nodiscard]] bool is_driven() const noexcept { return sends_; }

 private:
  bool sends_;
  std::shared_ptr<CollnetChannel> channel_;
};

std::unique_ptr<SendEnd> make_collnet_send(EndRequest& request);
std::unique_ptr<RecvEnd> make_collnet_recv(EndRequest& request);
std::unique_ptr<DeviceEnd> make_collnet_on_device(EndRequest& request);

}  // namespace plexus
