// SPDX-License-Identifier: Apache-2.0
// Simulates libibverbs with cards whose queue pairs reach each other in this process. It takes the
// place of verbs.cpp. What a wire can do is done on request: acknowledgements that are lost, ports
// that go down, work that stays under way. Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "plugins/net-ib/verbs.hpp"

namespace plexus::net_ib::test {

struct QueuePair;

/// A card with one RoCE port. Tests set its properties at any time.
struct Card {
  explicit Card(const std::string& name);
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  /// As a cable that is pulled or plugged in; the driver reports it as an event.
  void set_port_up(bool is_up);
  /// What the port has sent and nobody has acknowledged is given up, as when retries run out.
  void exhaust_retries();

  ibv_device device{};
  ibv_context context{};
  bool is_port_up = true;
  bool is_holding = false;              // work stays in the send queues
  bool loses_acknowledgements = false;  // of what it sends
  bool takes_dmabufs = false;
  uint32_t posts_until_refusal = UINT32_MAX;  // then one work request is refused
  uint32_t inline_bytes_max = UINT32_MAX;
  uint32_t unresolved = 0;  // so often it does not find a peer's address
  uint32_t gid_index = 1;
  uint64_t writes = 0;  // carried out for it
  uint64_t reads = 0;
  std::deque<ibv_async_event> events;
  std::vector<QueuePair*> pairs;
};

}  // namespace plexus::net_ib::test
