// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/algorithms.hpp"

#include <algorithm>

#include "kernels/algorithms/all_pairs_all_reduce.hpp"
#include "kernels/algorithms/chain_broadcast.hpp"
#include "kernels/algorithms/chain_reduce.hpp"
#include "kernels/algorithms/pairwise_all_to_all.hpp"
#include "kernels/algorithms/point_to_point.hpp"
#include "kernels/algorithms/ring_all_gather.hpp"
#include "kernels/algorithms/ring_all_reduce.hpp"
#include "kernels/algorithms/ring_reduce_scatter.hpp"
#include "kernels/program/record.hpp"

namespace plexus {
namespace {

int ranks_of(const RecordInput& input) { return static_cast<int>(input.ring.size()); }

RingView view_of(const RecordInput& input) {
  const auto at = std::find(input.ring.begin(), input.ring.end(), input.rank);
  return {input.ring.data(), ranks_of(input), static_cast<int>(at - input.ring.begin())};
}

/// A communicator of one rank: every collective is a copy (PreMulSum multiplies on the way).
Program record_copy(const RecordInput& input) {
  RecordingPrims prims(input.rank, 1, 1);
  prims.copy(Buffer::kInput, Buffer::kOutput, 0, Complete::kYes);
  return std::move(prims).take();
}

/// Records `body(prims)` for more than one rank, the plain copy for one.
template <class Body>
Program record_with(const RecordInput& input, int chunks, const Body& body) {
  if (ranks_of(input) == 1) {
    return record_copy(input);
  }
  RecordingPrims prims(input.rank, ranks_of(input), chunks);
  body(prims);
  return std::move(prims).take();
}

Program record_ring_all_reduce(const RecordInput& in) {
  return record_with(in, ranks_of(in), [&](auto& prims) { ring_all_reduce(prims, view_of(in)); });
}
Program record_all_pairs_all_reduce(const RecordInput& in) {
  return record_with(in, 1,
                     [&](auto& prims) { all_pairs_all_reduce(prims, in.rank, ranks_of(in)); });
}
Program record_ring_all_gather(const RecordInput& in) {
  return record_with(in, ranks_of(in), [&](auto& prims) { ring_all_gather(prims, view_of(in)); });
}
Program record_ring_reduce_scatter(const RecordInput& in) {
  return record_with(in, ranks_of(in),
                     [&](auto& prims) { ring_reduce_scatter(prims, view_of(in)); });
}
Program record_chain_broadcast(const RecordInput& in) {
  return record_with(in, 1, [&](auto& prims) { chain_broadcast(prims, view_of(in), in.root); });
}
Program record_chain_reduce(const RecordInput& in) {
  return record_with(in, 1, [&](auto& prims) { chain_reduce(prims, view_of(in), in.root); });
}
Program record_pairwise_all_to_all(const RecordInput& in) {
  const int n = ranks_of(in);
  return record_with(in, n, [&](auto& prims) { pairwise_all_to_all(prims, in.rank, n); });
}
Program record_direct_gather(const RecordInput& in) {
  const int n = ranks_of(in);
  return record_with(in, n, [&](auto& prims) { direct_gather(prims, in.rank, n, in.root); });
}
Program record_direct_scatter(const RecordInput& in) {
  const int n = ranks_of(in);
  return record_with(in, n, [&](auto& prims) { direct_scatter(prims, in.rank, n, in.root); });
}
Program record_send(const RecordInput& in) {
  return record_with(in, 1, [&](auto& prims) { point_to_point_send(prims, in.root); });
}
Program record_recv(const RecordInput& in) {
  return record_with(in, 1, [&](auto& prims) { point_to_point_recv(prims, in.root); });
}

constexpr int zero(int /*nranks*/) { return 0; }
constexpr int one(int /*nranks*/) { return 1; }
constexpr int others(int nranks) { return nranks - 1; }
constexpr int twice_others(int nranks) { return 2 * (nranks - 1); }

constexpr Algorithm kAlgorithms[] = {
    // Per collective: the first row is the default, later rows have uses that choose_algorithm
    // knows.
    {"ring_all_reduce", "ring", Collective::kAllReduce, record_ring_all_reduce, twice_others,
     twice_others},
    {"all_pairs_all_reduce", "allpairs", Collective::kAllReduce, record_all_pairs_all_reduce, one,
     others, kOperandsMax},
    {"chain_broadcast", "ring", Collective::kBroadcast, record_chain_broadcast, others, one},
    {"chain_reduce", "ring", Collective::kReduce, record_chain_reduce, others, one},
    {"ring_all_gather", "ring", Collective::kAllGather, record_ring_all_gather, others, others},
    {"ring_reduce_scatter", "ring", Collective::kReduceScatter, record_ring_reduce_scatter, others,
     others},
    {"pairwise_all_to_all", "pairwise", Collective::kAllToAll, record_pairwise_all_to_all, one,
     others},
    {"direct_gather", "pairwise", Collective::kGather, record_direct_gather, one, one},
    {"direct_scatter", "pairwise", Collective::kScatter, record_direct_scatter, one, others},
    {"send", "pairwise", Collective::kSend, record_send, one, one},
    {"recv", "pairwise", Collective::kRecv, record_recv, one, one},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

const Algorithm& local_copy() {
  static constexpr Algorithm kLocalCopy{"copy",      "pairwise", Collective::kSend,
                                        record_copy, zero,       zero};
  return kLocalCopy;
}

const Algorithm* find_algorithm(std::string_view name) {
  const auto* const at = std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms),
                                      [&](const Algorithm& row) { return name == row.name; });
  return at == std::end(kAlgorithms) ? nullptr : at;
}

}  // namespace plexus
