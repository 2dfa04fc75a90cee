// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/definition.hpp"

namespace plexus {

bool CollectiveDefinition::has_blocks() const {
  switch (collective) {
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return nranks > 1;
    default:
      return false;
  }
}

bool CollectiveDefinition::is_blocked() const { return divides_buffer || has_blocks(); }

bool CollectiveDefinition::has_input(int rank) const {
  switch (collective) {
    case Collective::kBroadcast:
    case Collective::kScatter:
      return rank == root;
    case Collective::kSend:
    case Collective::kRecv:
      return rank == 0;
    default:
      return true;
  }
}

bool CollectiveDefinition::has_output(int rank) const {
  switch (collective) {
    case Collective::kReduce:
    case Collective::kGather:
      return rank == root;
    case Collective::kSend:
    case Collective::kRecv:
      return rank == nranks - 1;
    default:
      return true;
  }
}

bool CollectiveDefinition::has(int rank, Buffer buffer) const {
  switch (buffer) {
    case Buffer::kInput:
      return has_input(rank);
    case Buffer::kOutput:
      return has_output(rank);
    case Buffer::kScratch:
      return scratch_chunks > 0;
    default:
      return false;
  }
}

bool CollectiveDefinition::is_one_share(Buffer buffer) const {
  if (buffer == Buffer::kInput) {
    return collective == Collective::kAllGather || collective == Collective::kGather;
  }
  return buffer == Buffer::kOutput &&
         (collective == Collective::kReduceScatter || collective == Collective::kScatter);
}

bool CollectiveDefinition::is_one_block(Buffer buffer) const {
  return !divides_buffer && is_one_share(buffer);
}

int CollectiveDefinition::blocks(Buffer buffer) const {
  return is_one_share(buffer) ? share() : chunks;
}

int CollectiveDefinition::cell(int rank, Buffer buffer, int chunk) const {
  const bool shares = in_place && has_input(rank) && has_output(rank);
  const int block = is_one_block(buffer) ? 0 : chunk;
  switch (buffer) {
    case Buffer::kInput:
      // An input of one share is the own share of the output.
      return shares && is_one_share(Buffer::kInput) ? chunks + rank * share() + block : block;
    case Buffer::kOutput:
      if (shares && !is_one_share(Buffer::kInput)) {
        return is_one_share(Buffer::kOutput) ? rank * share() + block : block;
      }
      return chunks + block;
    default:
      return 2 * chunks + chunk;
  }
}

Contribution CollectiveDefinition::expected(int rank, int chunk) const {
  switch (collective) {
    case Collective::kBroadcast:
      return {root, chunk};
    case Collective::kAllGather:
    case Collective::kGather:
      return {chunk / share(), chunk % share()};
    case Collective::kReduceScatter:
      return {rank, rank * share() + chunk};
    case Collective::kScatter:
      return {root, rank * share() + chunk};
    case Collective::kAllToAll:
      return {chunk / share(), rank * share() + chunk % share()};
    default:
      return {0, chunk};
  }
}

}  // namespace plexus
