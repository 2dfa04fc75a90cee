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

#include "core/bootstrap/exchange.hpp"
#include "core/plugin/collnet_plugin.hpp"
#include "core/transport/connection.hpp"
#include "core/transport/direct.hpp"

namespace plexus {

struct CollnetChannelOptions {
  Exchange* exchange;
  CollnetContext* context;
  uint32_t slot_bytes;
  uint32_t device;
  std::vector<int> members;  // ranks, one of each host
  int rank;
  uint64_t tag;                      // of the control messages with handles
  DeviceRuntime* runtime = nullptr;  // of a CUDA rank, whose kernels fill and empty the slots
  int on_device = -1;                // of that rank
};

/// Threads: one at a time (the engine that drives the rank).
class CollnetChannel {
 public:
  explicit CollnetChannel(CollnetChannelOptions options) : options_(std::move(options)) {}

  /// True: connected.
  Result<bool> progress_connect();
  /// Starts what was filled, takes in what is done. True when something moved.
  Result<bool> progress_pump();
  [[nodiscard]] bool drained() noexcept;
  [[nodiscard]] SendConnection send_connection(int peer);
  [[nodiscard]] RecvConnection recv_connection(int peer);
  /// Of a CUDA rank, in place of a connection.
  [[nodiscard]] std::optional<DeviceView> device_view(bool sends) const;

 private:
  Result<void> post_handle();
  Result<bool> take_handles();
  Result<void> make_slots();
  Result<bool> start_filled();
  Result<bool> test_started();
  [[nodiscard]] Fifo& sends() const { return *fifo_at(*sends_); }
  [[nodiscard]] Fifo& recvs() const { return *fifo_at(*recvs_); }
  static Fifo* fifo_at(const LocalFifo& memory);
  [[nodiscard]] static std::byte* slot(const LocalFifo& memory, uint64_t step, size_t stride);
  [[nodiscard]] Error failed(const char* call, NetStatus status) const;

  CollnetChannelOptions options_;
  std::optional<CollnetListen> listen_;
  std::vector<std::optional<plexus_net_handle_t>> handles_;  // [members]
  std::shared_ptr<LocalFifo> sends_;
  std::shared_ptr<LocalFifo> recvs_;
  std::unique_ptr<CollnetGroup> group_;
  std::optional<CollnetMemory> send_memory_;
  std::optional<CollnetMemory> recv_memory_;
  bool connected_ = false;
  std::array<plexus_collnet_request_t*, kSlots> requests_{};
  std::array<CallRecord, kSlots> calls_{};
  uint64_t started_ = 0;  // steps handed to the plugin
  uint64_t done_ = 0;     // steps the plugin is done with
};

/// One direction. The sending end drives the channel.
class CollnetEnd final : public ConnectionEnd {
 public:
  CollnetEnd(const ConnectionKey& key, std::shared_ptr<CollnetChannel> channel)
      : ConnectionEnd(key), channel_(std::move(channel)) {
    has_pump_ = key.sends;
  }
  Result<bool> progress_connect() override;
  Result<bool> progress_pump() override { return channel_->progress_pump(); }
  [[nodiscard]] bool drained() noexcept override { return !key().sends || channel_->drained(); }

 private:
  std::shared_ptr<CollnetChannel> channel_;  // shared by the two directions
};

}  // namespace plexus
