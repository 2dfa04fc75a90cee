// SPDX-License-Identifier: Apache-2.0
// Messages and bytes of the control plane for more ranks than one machine can run: real agents over
// simulated links. Passes the table on, then gathers what ncclCommInitRank gathers: what is a
// rank's own (44 bytes), and four times what is mostly the same on all (1,200 bytes). One process
// per rank. Memory is what stays: each process's table and trees, and the state of its agent.
//
//   control_plane_simulation PROCESSES PROCESSES_PER_HOST
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <string>
#include <sys/resource.h>
#include <vector>

#include <fmt/core.h>

#include "core/base/clock.hpp"
#include "tests/unit/core/control/simulation.hpp"

namespace {

size_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

/// Memory of what each process makes of the table for itself.
size_t bytes_of_map(const plexus::ProcessTable& table) {
  const std::string text = table.encode();
  const size_t before = heap_bytes();
  const auto map = plexus::FamilyMap::decode(text);
  return map.has_value() ? heap_bytes() - before : 0;
}

}  // namespace

int main(int argc, char** argv) {
  using plexus::Simulation;
  if (argc != 3) {
    fmt::print(stderr, "usage: control_plane_simulation PROCESSES PROCESSES_PER_HOST\n");
    return 2;
  }
  const auto nprocesses = static_cast<uint32_t>(std::atoi(argv[1]));
  constexpr uint64_t kGathers = 5;
  constexpr uint64_t kLinkUs = 1000;
  constexpr uint64_t kLimitUs = 600'000'000;
  size_t results = 0;
  uint64_t table_bytes = 0;
  Simulation* running = nullptr;
  const size_t heap_before = heap_bytes();
  const auto gather = [&](uint32_t rank, uint64_t number) {
    std::string blob = number == 0 ? std::string(44, '\0') : std::string(1200, 'x');
    if (number == 0) {
      blob.replace(0, 4, reinterpret_cast<const char*>(&rank), 4);
    }
    (void)running->agent_of(rank).take(rank, {.type = plexus::MessageType::kGather,
                                              .group = Simulation::kWorld,
                                              .tag = number,
                                              .payload = std::move(blob)});
  };
  Simulation simulation(
      {.processes = nprocesses, .processes_per_host = static_cast<uint32_t>(std::atoi(argv[2]))},
      [&](uint32_t rank, const plexus::Message& message) {
        if (message.type != plexus::MessageType::kGathered) {
          return;
        }
        ++results;
        if (message.tag + 1 < kGathers) {
          simulation.at(0, [&gather, rank, next = message.tag + 1] { gather(rank, next); });
        }
      });
  running = &simulation;
  simulation.set_delay_us(kLinkUs);
  const auto began = plexus::Clock::now();
  simulation.start();
  for (uint32_t rank = 0; rank < nprocesses; ++rank) {
    gather(rank, 0);
  }
  const bool ended = simulation.run(kLimitUs, [&] { return results == kGathers * nprocesses; });
  const double cpu_s = std::chrono::duration<double>(plexus::Clock::now() - began).count();
  uint64_t most = 0;
  for (uint32_t process = 0; process < nprocesses; ++process) {
    most = std::max(most, simulation.messages_of(process));
  }
  const size_t map_bytes = bytes_of_map(simulation.table());
  // The simulation's own state is in it, too.
  const size_t agent_bytes = (heap_bytes() - heap_before - map_bytes) / nprocesses;
  table_bytes = simulation.table().encode().size();
  fmt::print(
      "{:>7} processes, {} a host: {:.1f} messages and {:.0f} bytes sent per rank, at most {} "
      "messages by one, table {} bytes, {} bytes per process kept of it and {} of its agent, "
      "{:.0f} ms simulated (links of 1 to 4 ms), {:.1f} s of "
      "CPU for all{}\n",
      nprocesses, argv[2], static_cast<double>(simulation.messages()) / nprocesses,
      static_cast<double>(simulation.bytes()) / nprocesses, most, table_bytes, map_bytes,
      agent_bytes, static_cast<double>(simulation.now_us()) / 1000, cpu_s,
      ended ? "" : " NOT ENDED");
  return ended ? 0 : 1;
}
