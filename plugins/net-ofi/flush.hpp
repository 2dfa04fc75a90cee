// SPDX-License-Identifier: Apache-2.0
// Flushing: a message that has arrived in GPU memory may still be on its way behind the card when
// libfabric says that it is there. A small read of that memory through the same card comes back
// only after what the card wrote before, so its end is the end of the flush.
//
// `Flushes` are those of one receiving connection: which reads, on every rail, and which of them
// are started. Threads: one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ofi/channel.hpp"

/// What the host sees of a request.
struct plexus_net_request {
  enum class Kind : uint8_t { kSend, kRecv, kFlush } kind;
};

/// A registered range: one registration per rail.
struct plexus_net_memory {
  const plexus::net_ofi::Channel* channel = nullptr;
  const void* begin = nullptr;
  uint32_t kind = PLEXUS_MEMORY_HOST;
  std::array<fid_mr*, plexus::net_ofi::kRailsMax> registrations{};
};

namespace plexus::net_ofi {

class RecvConnection;

struct FlushRead {
  uint32_t rail = 0;
  Channel::ReadBack from{};
  Operation operation;
};

struct FlushRequest : plexus_net_request {
  FlushRequest();
  RecvConnection* connection = nullptr;
  uint32_t count = 0;       // reads
  uint32_t started = 0;     // of those
  uint32_t unfinished = 0;  // reads that run or are still to start
  std::array<FlushRead, size_t{PLEXUS_NET_RECVS_MAX} * kRailsMax> reads;
};

class Flushes {
 public:
  /// The reads of these buffers. Null: none of them is GPU memory with something in it.
  [[nodiscard]] FlushRequest* plan(std::span<const plexus_net_buffer_t> buffers, uint32_t rails);
  /// Starts what is planned, in order. 0, or libfabric's error; -FI_EAGAIN: some are not started.
  [[nodiscard]] ssize_t start(Channel& channel);
  /// It has ended.
  void release(FlushRequest& request) { free_.push_back(&request); }

 private:
  std::vector<std::unique_ptr<FlushRequest>> requests_;  // made as needed
  std::vector<FlushRequest*> free_;
  std::vector<FlushRequest*> waiting_;  // with a read to start
};

}  // namespace plexus::net_ofi
