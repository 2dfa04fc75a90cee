// SPDX-License-Identifier: Apache-2.0
// A port's part of a connection: its queue pairs (some for data, one for control, so that a posted
// receive is not queued behind bulk data), their completion queue, and the registration of the
// end's Area. A rail that was lost and comes back gets new ones.
//
// Threads: one at a time. Nothing blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "guest/assert.hpp"
#include "plugins/net-ib/queue_pair.hpp"

namespace plexus::net_ib {

enum class Role : uint8_t { kSender, kReceiver };

/// What a completion belongs to; the upper byte of a wr_id.
enum class WorkKind : uint8_t { kData = 1, kArrival, kControl, kProbe };

struct WorkId {
  static constexpr unsigned kKindShift = 56;
  WorkKind kind = WorkKind::kData;
  uint32_t index = 0;   // kData: the request; kArrival: the queue pair
  uint32_t detail = 0;  // kData: the part

  [[nodiscard]] uint64_t pack() const noexcept {
    return uint64_t{static_cast<uint8_t>(kind)} << kKindShift | uint64_t{index} << 16 | detail;
  }
  [[nodiscard]] static WorkId unpack(uint64_t bits) noexcept {
    return {static_cast<WorkKind>(bits >> kKindShift), static_cast<uint32_t>(bits >> 16),
            static_cast<uint32_t>(bits & UINT16_MAX)};
  }
};

/// Work requests that a queue pair for data takes: at the sender, and at the receiver, where each
/// takes one immediate. A posted buffer gets at most one per queue pair.
inline constexpr uint32_t kSendDepth = 256;
inline constexpr uint32_t kArrivalBatch = 16;  // reposted together
inline constexpr uint32_t kArrivalDepth = kSendRequests + kArrivalBatch;
inline constexpr uint32_t kControlDepth = 128;

[[nodiscard]] constexpr unsigned flag_if(bool condition, ibv_send_flags flag) noexcept {
  return condition ? static_cast<unsigned>(flag) : 0U;
}

/// Where a write goes.
struct RemotePlace {
  uint64_t address = 0;
  uint32_t rkey = 0;
};
struct LocalPlace {
  const void* data = nullptr;
  uint64_t size_bytes = 0;
  uint32_t lkey = 0;
};

class Rail {
 public:
  struct Options {
    const Port* port;
    const Settings* settings;
    Role role;
    uint32_t qps;
    Area* area;
  };
  /// Makes the queue pairs; connect() makes them work.
  [[nodiscard]] static Result<std::unique_ptr<Rail>> create(const Options& options);

  [[nodiscard]] const Port& port() const noexcept { return *options_.port; }
  [[nodiscard]] uint32_t area_lkey() const noexcept { return area_->lkey; }
  [[nodiscard]] const WireRail& peer() const noexcept { return peer_; }
  [[nodiscard]] uint32_t qps() const noexcept { return static_cast<uint32_t>(data_.size()); }

  [[nodiscard]] WireRail describe() const;
  /// Connects all queue pairs with those of `peer`, and posts what arrivals need. kPending: the
  /// network does not know the peer's address yet; call again.
  [[nodiscard]] Result<Progress> connect(const WireRail& peer);
  /// Queue pairs are of no more use: what arrives is refused, what is under way ends.
  void stop() noexcept;
  /// After stop(): poll() has returned all that arrived before.
  [[nodiscard]] bool is_drained() const noexcept { return arrivals_expected_ == 0; }
  /// Ends all access to the peer's memory, and of the peer to ours.
  void destroy() noexcept;
  /// New queue pairs and completion queue, after destroy(); connect() makes them work.
  [[nodiscard]] Result<void> renew();

  /// Completions, up to the room; 0 when there is nothing. False: the queue itself failed.
  [[nodiscard]] bool poll(std::span<ibv_wc> room, size_t& count) noexcept;

  /// Free places of a data queue pair's send queue. done() gives back what completions free.
  [[nodiscard]] uint32_t room(uint32_t qp) const noexcept { return data_[qp].room; }
  void give_back(uint32_t qp, uint32_t places) noexcept {
    PLEXUS_DCHECK(data_[qp].room + places <= kSendDepth, qp, data_[qp].room, places);
    data_[qp].room += places;
  }
  /// Each posts a chain; the last is signalled. 0, or errno.
  [[nodiscard]] int post_data(uint32_t qp, ibv_send_wr& first, uint32_t places) noexcept;
  /// Writes from the Area over the control queue pair; in order with other such writes.
  [[nodiscard]] int post_control(const LocalPlace& from, const RemotePlace& to) noexcept;
  /// A write without data whose completion says that the rail works.
  [[nodiscard]] int post_probe(const RemotePlace& to) noexcept;
  /// Reads one byte of our own memory through the card, which orders it behind earlier writes.
  /// Works whether the rail is up or not: what came over it before it was lost is flushed too.
  [[nodiscard]] int post_flush(const LocalPlace& to,
                               const RemotePlace& from,
                               uint32_t request) noexcept;
  [[nodiscard]] bool can_flush() const noexcept { return flush_.qp != nullptr; }
  /// Completions of flushes, whose wr_id is `request`; as poll().
  [[nodiscard]] bool poll_flushes(std::span<ibv_wc> room, size_t& count) noexcept;
  /// An arrival was taken from `qp`.
  [[nodiscard]] int replace_arrival(uint32_t qp) noexcept;

  /// Messages of host memory up to this size go with their work request.
  [[nodiscard]] uint32_t inline_bytes_max() const noexcept {
    return data_.front().inline_bytes_max;
  }
  /// A message for a completion or a port that says bad news: device, port, words, likely cause.
  [[nodiscard]] std::string explain(const ibv_wc& completion) const;

 private:
  explicit Rail(const Options& options) : options_(options) {}
  [[nodiscard]] Result<CqPtr> make_completion_queue(uint32_t entries) const;
  [[nodiscard]] Result<void> make_queues();
  [[nodiscard]] Result<void> make_flush_queue();
  [[nodiscard]] Result<void> post_arrivals(uint32_t qp);
  [[nodiscard]] LocalEnd place(uint8_t traffic_class) const noexcept {
    return {&port(), options_.settings, &gid_, traffic_class};
  }

  Options options_;
  MrPtr area_;
  Gid gid_;  // of the port, where it is now
  CqPtr cq_;
  QueuePair control_;
  std::vector<QueuePair> data_;
  uint32_t controls_ = 0;           // posted, to signal some
  uint32_t arrivals_expected_ = 0;  // posted, and poll() has not returned them
  bool is_stopped_ = false;
  Retries retries_;  // of connect()
  WireRail peer_{};
  // Connected with itself, for the life of the rail; only where the card accesses GPU memory.
  CqPtr flush_cq_;
  QueuePair flush_;
};

}  // namespace plexus::net_ib
