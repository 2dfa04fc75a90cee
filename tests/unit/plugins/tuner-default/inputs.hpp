// SPDX-License-Identifier: Apache-2.0
// Questions of a host to the tuner, for tests: communicators of one host, all-reduces, candidates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plugin-api/plexus_tuner.h"

namespace plexus::tuner_default {

inline constexpr uint32_t kSlot = 128 * 1024;

/// All ranks joined by links of one class.
inline plexus_tuner_comm_t comm_of(uint32_t nranks, uint32_t cores, uint32_t link_class) {
  plexus_tuner_comm_t comm{};
  comm.struct_size = sizeof(comm);
  comm.nranks = nranks;
  comm.nnodes = 1;
  comm.ndatacenters = 1;
  comm.ranks_per_node_max = nranks;
  comm.cores_per_node_min = cores;
  comm.slot_bytes = kSlot;
  comm.links[link_class].count = nranks * (nranks - 1) / 2;
  return comm;
}

inline plexus_tuner_call_t call_of(uint64_t size_bytes) {
  plexus_tuner_call_t call{};
  call.struct_size = sizeof(call);
  call.collective = "all_reduce";
  call.size_bytes = size_bytes;
  call.element_bytes = 4;
  call.calls_in_group = 1;
  return call;
}

/// As a host of ABI 1.1 describes it.
inline plexus_tuner_candidate_t candidate_of(uint32_t rounds, uint32_t chunks, uint32_t moved) {
  plexus_tuner_candidate_t candidate{};
  candidate.struct_size = offsetof(plexus_tuner_candidate_t, chunks_in_all);
  candidate.rounds = rounds;
  candidate.chunks_per_loop = chunks;
  candidate.chunks_moved = moved;
  candidate.channels = 1;
  candidate.chunk_bytes = kSlot;
  return candidate;
}

/// As a host of ABI 1.3 or later does.
inline plexus_tuner_candidate_t with_totals(plexus_tuner_candidate_t candidate,
                                            uint64_t in_all,
                                            uint32_t reduced) {
  candidate.struct_size = sizeof(candidate);
  candidate.chunks_in_all = in_all;
  candidate.chunks_reduced = reduced;
  return candidate;
}

/// As a host of ABI 1.8 or later does where half of everything goes between hosts.
inline plexus_tuner_candidate_t half_over_net(plexus_tuner_candidate_t candidate) {
  candidate.net_rounds = candidate.rounds / 2;
  candidate.net_chunks = candidate.chunks_moved / 2;
  candidate.net_chunks_in_all = candidate.chunks_in_all / 2;
  return candidate;
}

/// All-reduce by a ring of `n` ranks.
inline plexus_tuner_candidate_t ring(uint32_t n) {
  return candidate_of(2 * (n - 1), n, 2 * (n - 1));
}

}  // namespace plexus::tuner_default
