// SPDX-License-Identifier: Apache-2.0
// Flushing: when libfabric reports a message in GPU memory, its data may still be on its way behind
// the NIC. A small read of that memory through the same NIC returns only after the NIC's earlier
// writes, so that the end of the read is the end of the flush.
//
// `Flushes` belong to one receiving connection: the reads on every rail, and which of them have
// started. Threads: one at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "guest/assert.hpp"
#include "plugins/net-ofi/rails.hpp"

/// A request as the host sees it.
struct plexus_net_request {
  enum class Kind : uint8_t { kSend, kRecv, kFlush } kind;
};

/// A registered range: one registration per rail.
struct plexus_net_memory {
  const plexus::net_ofi::Rails* rails = nullptr;
  const void* begin = nullptr;
  uint32_t kind = PLEXUS_MEMORY_HOST;
  std::array<fid_mr*, plexus::net_ofi::kRailsMax> registrations{};
};

namespace plexus::net_ofi {

class RecvConnection;

struct FlushRead {
  uint32_t rail = 0;
  Rails::ReadBack from{};
  Operation operation;
};

struct FlushRequest : plexus_net_request {
  FlushRequest();
  RecvConnection* connection = nullptr;
  uint32_t count = 0;       // number of reads
  uint32_t started = 0;     // number of reads started
  uint32_t unfinished = 0;  // number of reads that are running or not started yet
  std::array<FlushRead, size_t{PLEXUS_NET_RECVS_MAX} * kRailsMax> reads;
};

class Flushes {
 public:
  /// Plans the reads for these buffers. Null: none of them is non-empty GPU memory.
  [[nodiscard]] FlushRequest* plan(std::span<const plexus_net_buffer_t> buffers, uint32_t rails);
  /// Starts planned reads in order. 0, or libfabric's error; -FI_EAGAIN: some are not started.
  [[nodiscard]] ssize_t start(Rails& rails);
  /// The request has ended.
  void release(FlushRequest& request) {
    PLEXUS_DCHECK(request.unfinished == 0 && free_.size() < requests_.size(), free_.size());
    free_.push_back(&request);
  }

 private:
  std::vector<std::unique_ptr<FlushRequest>> requests_;  // made on demand
  std::vector<FlushRequest*> free_;
  std::vector<FlushRequest*> waiting_;  // with reads that are not started
};

}  // namespace plexus::net_ofi
