// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/flush.hpp"

#include "guest/assert.hpp"

namespace plexus::net_ofi {
namespace {

/// The start of `buffer`, in the addressing of the NIC of `rail`.
Rails::ReadBack read_back_of(const plexus_net_buffer_t& buffer, uint32_t rail) {
  const plexus_net_memory& memory = *buffer.memory;
  const auto address = reinterpret_cast<uintptr_t>(buffer.data);
  const bool is_virtual = memory.rails->domain(rail).has_virtual_addresses();
  return {is_virtual ? address : address - reinterpret_cast<uintptr_t>(memory.begin),
          ::fi_mr_key(memory.registrations[rail]), buffer.size_bytes};
}

}  // namespace

FlushRequest::FlushRequest() : plexus_net_request{Kind::kFlush} {
  for (FlushRead& read : reads) {
    read.operation.owner = this;
    read.operation.kind = OperationKind::kFlush;
  }
}

FlushRequest* Flushes::plan(std::span<const plexus_net_buffer_t> buffers, uint32_t rails) {
  FlushRequest* request = nullptr;
  for (const plexus_net_buffer_t& buffer : buffers) {
    const bool is_of_gpu = buffer.memory != nullptr && buffer.memory->kind != PLEXUS_MEMORY_HOST;
    if (!is_of_gpu || buffer.size_bytes == 0) {
      continue;
    }
    if (request == nullptr) {
      if (free_.empty()) {
        requests_.push_back(std::make_unique<FlushRequest>());
        free_.push_back(requests_.back().get());
      }
      request = free_.back();
      request->count = 0;
    }
    for (uint32_t rail = 0; rail < rails; ++rail) {
      PLEXUS_DCHECK(request->count < request->reads.size(), request->count, rails);
      FlushRead& read = request->reads[request->count++];
      read.rail = rail;
      read.from = read_back_of(buffer, rail);
    }
  }
  if (request != nullptr) {
    request->started = 0;
    request->unfinished = request->count;
    free_.pop_back();
    waiting_.push_back(request);
  }
  return request;
}

ssize_t Flushes::start(Rails& rails) {
  while (!waiting_.empty()) {
    FlushRequest& request = *waiting_.front();
    while (request.started < request.count) {
      FlushRead& read = request.reads[request.started];
      const ssize_t result = rails.read_back(read.rail, read.from, read.operation);
      if (result != 0) {
        return result;
      }
      ++request.started;
    }
    waiting_.erase(waiting_.begin());
  }
  return 0;
}

}  // namespace plexus::net_ofi
