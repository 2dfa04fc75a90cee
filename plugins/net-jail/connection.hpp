// SPDX-License-Identifier: Apache-2.0
// The two ends of a connection whose plugin runs in the helper. A registered memory has a copy in
// the data segment, in which the plugin's memory is registered: isend() copies a message into it,
// test() copies what was received out of it, and so the plugin never has an address of the host's.
//
// Threads: as plexus_net.h says, one at a time per connection.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-jail/cell.hpp"

namespace plexus::net_jail {
class Connection;
}

struct plexus_net_memory {
  plexus::net_jail::Connection* connection;
  plexus::net_jail::Copy copy;
  const std::byte* begin;
  uint64_t helper_memory;  // 0: not registered
};

struct plexus_net_request {
  plexus::net_jail::Connection* connection;
  uint32_t index;
  uint32_t count;  // of buffers
  std::array<plexus_net_buffer_t, PLEXUS_NET_RECVS_MAX> buffers;
};

namespace plexus::net_jail {

class Connection {
 public:
  Connection(Cell& cell, const Log& log, uint64_t helper_object, bool is_send)
      : cell_(cell), log_(log), object_(helper_object), is_send_(is_send) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  [[nodiscard]] const Log& log() const { return log_; }
  Result<plexus_net_memory_t*> register_memory(const plexus_net_region_t& region);
  int32_t deregister(plexus_net_memory_t* memory);
  int32_t isend(const void* data,
                uint64_t size_bytes,
                int32_t tag,
                plexus_net_memory_t* memory,
                plexus_net_request_t** request);
  int32_t irecv(uint32_t count, const plexus_net_buffer_t* buffers, plexus_net_request_t** request);
  int32_t test(plexus_net_request_t& request, uint64_t* sizes_bytes);

 private:
  /// Where `buffer` is in the copy of its memory; false: it is not in that memory.
  [[nodiscard]] static bool find_part(const plexus_net_buffer_t& buffer, Part& part);
  plexus_net_request_t* begin(uint32_t count, const plexus_net_buffer_t* buffers);
  void give_back(plexus_net_request_t& request);
  int32_t start(Entry entry, plexus_net_request_t& request, plexus_net_request_t** result);
  int32_t take_received(const plexus_net_request_t& request,
                        const Request& done,
                        uint64_t* sizes_bytes);

  Cell& cell_;
  Log log_;
  uint64_t object_;  // of the helper
  bool is_send_;
  std::vector<std::unique_ptr<plexus_net_request_t>> requests_;  // all that were ever made
  std::vector<plexus_net_request_t*> free_;
};

}  // namespace plexus::net_jail
