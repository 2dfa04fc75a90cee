// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/network_peer.hpp"

#include <algorithm>

namespace plexus {
namespace {

/// The chunks that a rank sends to `peer`, in order; empty: none.
std::vector<int> list_chunks_to(const Program& program, int peer) {
  std::vector<int> chunks;
  for (const Lane& lane : program.lanes) {
    for (const Step& step : lane.steps) {
      const auto peers = program.send_peers(step);
      if (std::find(peers.begin(), peers.end(), peer) != peers.end()) {
        chunks.push_back(step.source != Buffer::kNone ? step.source_chunk : step.target_chunk);
      }
    }
  }
  return chunks;
}

}  // namespace

int count_networks(std::span<const Program> programs) {
  int count = 0;
  for (const Program& program : programs) {
    for (const int peer : program.peers) {
      count = std::max(count, peer - program.nranks + 1);
    }
  }
  return count;
}

Program network_program(std::span<const Program> programs, int number) {
  const auto nranks = static_cast<int>(programs.size());
  Program network;
  network.rank = nranks + number;
  network.nranks = nranks;
  network.chunks = programs[0].chunks;
  network.scratch_chunks = programs[0].scratch_chunks;
  network.lanes.resize(1);
  std::vector<int> chunks;  // the first member's
  std::vector<int> members;
  for (const Program& program : programs) {
    std::vector<int> sent = list_chunks_to(program, network.rank);
    if (sent.empty()) {
      continue;
    }
    if (members.empty()) {
      chunks = std::move(sent);
    }
    members.push_back(program.rank);
  }
  for (const int chunk : chunks) {
    Step step;
    step.target_chunk = chunk;  // without a buffer it only gives the length
    step.peers_first = static_cast<int>(network.peers.size());
    step.receives = static_cast<int>(members.size());
    step.sends = step.receives;
    network.peers.insert(network.peers.end(), members.begin(), members.end());
    network.peers.insert(network.peers.end(), members.begin(), members.end());
    network.lanes[0].steps.push_back(step);
  }
  return network;
}

}  // namespace plexus
