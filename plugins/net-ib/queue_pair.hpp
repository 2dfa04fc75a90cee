// SPDX-License-Identifier: Apache-2.0
// A queue pair of a rail: made on a port, then connected with one of the peer's. The rail posts to
// it.
#pragma once

#include <chrono>
#include <cstdint>

#include "plugins/net-ib/device.hpp"
#include "plugins/net-ib/verbs.hpp"
#include "plugins/net-ib/wire.hpp"

namespace plexus::net_ib {

using Clock = std::chrono::steady_clock;

/// Attempts to connect: a network may not know the peer's address yet.
class Retries {
 public:
  [[nodiscard]] bool is_due() const { return Clock::now() >= time_; }
  /// Counts one more, after `error`.
  [[nodiscard]] bool may_retry(int error, const Settings& settings);

 private:
  uint32_t count_ = 0;
  Clock::time_point time_;
};

/// This side of a queue pair.
struct LocalEnd {
  const Port* port;
  const Settings* settings;
  const Gid* gid;  // of the port, where it is now
  uint8_t traffic_class;
};

struct QueuePair {
  struct Options {
    const Port* port;
    const Settings* settings;
    ibv_cq* cq;
    uint32_t sends;  // depth of the queue
    uint32_t arrivals;
    uint32_t inline_bytes;  // wanted at most
  };
  [[nodiscard]] static Result<QueuePair> create(Options options);
  [[nodiscard]] WireQp describe() const noexcept;
  /// kPending: the network does not know the peer's address yet; call again when `retries` are due.
  [[nodiscard]] Result<Progress> connect(const LocalEnd& here,
                                         const WireRail& peer,
                                         const WireQp& peer_qp,
                                         Retries& retries);

  QpPtr qp;
  uint32_t sequence = 0;
  uint32_t room = 0;      // of the send queue
  uint32_t arrivals = 0;  // taken and not posted again
  uint32_t inline_bytes_max = 0;
  ibv_ece ece{};
  bool has_ece = false;
  bool is_ready = false;  // connected
};

/// `error`: an errno.
[[nodiscard]] Failure cannot(const Port& port, const char* what, int error);

}  // namespace plexus::net_ib
