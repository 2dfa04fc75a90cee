// SPDX-License-Identifier: Apache-2.0
#include "kernels/program/algorithms.hpp"

#include <algorithm>
#include <vector>

#include "kernels/algorithms/all_pairs.hpp"
#include "kernels/algorithms/all_pairs_all_reduce.hpp"
#include "kernels/algorithms/bidirectional_ring_all_gather.hpp"
#include "kernels/algorithms/binomial_tree.hpp"
#include "kernels/algorithms/bruck.hpp"
#include "kernels/algorithms/butterfly_all_reduce.hpp"
#include "kernels/algorithms/chain_broadcast.hpp"
#include "kernels/algorithms/chain_reduce.hpp"
#include "kernels/algorithms/collnet_all_reduce.hpp"
#include "kernels/algorithms/dc_pairs_all_reduce.hpp"
#include "kernels/algorithms/hierarchical_all_reduce.hpp"
#include "kernels/algorithms/hierarchical_blocks.hpp"
#include "kernels/algorithms/hierarchical_rooted.hpp"
#include "kernels/algorithms/pairwise_all_to_all.hpp"
#include "kernels/algorithms/pat.hpp"
#include "kernels/algorithms/point_to_point.hpp"
#include "kernels/algorithms/ring_all_gather.hpp"
#include "kernels/algorithms/ring_all_reduce.hpp"
#include "kernels/algorithms/ring_reduce_scatter.hpp"
#include "kernels/algorithms/torus_all_reduce.hpp"
#include "kernels/algorithms/torus_all_to_all.hpp"
#include "kernels/algorithms/tree_all_reduce.hpp"
#include "kernels/algorithms/tree_broadcast.hpp"
#include "kernels/algorithms/two_shot_all_reduce.hpp"
#include "kernels/program/formulas.hpp"
#include "kernels/program/record.hpp"

namespace plexus {
namespace {

using namespace formulas;  // for the formulas in the table below

int ranks_of(const RecordInput& input) { return static_cast<int>(input.ring.size()); }

RingView view_of(const RecordInput& input) {
  const auto at = std::find(input.ring.begin(), input.ring.end(), input.rank);
  return {input.ring.data(), ranks_of(input), static_cast<int>(at - input.ring.begin())};
}

/// In a communicator of one rank every collective is a copy (with PreMulSum, a multiplication).
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
  RecordingPrims prims(input.rank, ranks_of(input), chunks, input.joins, input.sketches);
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
Program record_all_pairs_all_gather(const RecordInput& in) {
  const int n = ranks_of(in);
  return record_with(in, n, [&](auto& prims) { all_pairs_all_gather(prims, in.rank, n); });
}
Program record_all_pairs_reduce_scatter(const RecordInput& in) {
  const int n = ranks_of(in);
  return record_with(in, n, [&](auto& prims) { all_pairs_reduce_scatter(prims, in.rank, n); });
}
Program record_direct_broadcast(const RecordInput& in) {
  const int n = ranks_of(in);
  return record_with(in, 1, [&](auto& prims) { direct_broadcast(prims, in.rank, n, in.root); });
}
Program record_direct_reduce(const RecordInput& in) {
  const int n = ranks_of(in);
  return record_with(in, 1, [&](auto& prims) { direct_reduce(prims, in.rank, n, in.root); });
}
Program record_bidirectional_ring_all_reduce(const RecordInput& in) {
  return record_with(in, 2 * ranks_of(in),
                     [&](auto& prims) { bidirectional_ring_all_reduce(prims, view_of(in)); });
}
std::span<const int> nodes_of(const RecordInput& in) {
  static constexpr int kOneNode[] = {0};
  return in.nodes.empty() ? std::span(kOneNode) : in.nodes;
}
/// The ranks of one datacenter in ring order, and where its hosts begin among them.
struct DatacenterPart {
  std::vector<int> ring;
  std::vector<int> nodes;
};

DatacenterPart part_of(const RecordInput& input, int datacenter) {
  DatacenterPart part;
  bool begins = true;
  for (size_t place = 0; place < input.ring.size(); ++place) {
    begins = begins ||
             std::binary_search(input.nodes.begin(), input.nodes.end(), static_cast<int>(place));
    if (input.datacenters[place] == datacenter) {
      if (begins) {
        part.nodes.push_back(static_cast<int>(part.ring.size()));
      }
      part.ring.push_back(input.ring[place]);
      begins = false;
    } else {
      begins = true;
    }
  }
  return part;
}

/// The root of a host's tree in a datacenter: of the host with the root of the datacenter's tree,
/// or of the one `turn` hosts further.
int rank_at_turn(const DatacenterPart& part, int tree, int turn) {
  const auto nodes = static_cast<int>(part.nodes.size());
  const auto node = static_cast<size_t>((root_place(tree, nodes) + turn) % nodes);
  const int first = part.nodes[node];
  const int end =
      node + 1 < part.nodes.size() ? part.nodes[node + 1] : static_cast<int>(part.ring.size());
  const int place = first + root_place(tree, end - first);
  return part.ring[static_cast<size_t>(place)];
}

/// The datacenters below one in the tree over datacenters.
std::vector<int> datacenters_below(const RecordInput& input, int datacenter) {
  if (input.above.empty()) {  // each is below the one before it
    const int last = *std::max_element(input.datacenters.begin(), input.datacenters.end());
    return datacenter < last ? std::vector{datacenter + 1} : std::vector<int>{};
  }
  std::vector<int> below;
  for (size_t other = 0; other < input.above.size(); ++other) {
    if (input.above[other] == datacenter) {
      below.push_back(static_cast<int>(other));
    }
  }
  return below;
}

/// A tree in every datacenter, whose root hangs below a rank of the datacenter above: the first one
/// there below the root, the next below the root of another host, and so on, so that they cross at
/// different hosts.
Program record_tree_over_datacenters(const RecordInput& in) {
  const auto at = std::find(in.ring.begin(), in.ring.end(), in.rank);
  const int datacenter = in.datacenters[static_cast<size_t>(at - in.ring.begin())];
  const DatacenterPart part = part_of(in, datacenter);
  const auto place = std::find(part.ring.begin(), part.ring.end(), in.rank);
  const RingView view{part.ring.data(), static_cast<int>(part.ring.size()),
                      static_cast<int>(place - part.ring.begin())};
  const int up = in.above.empty() ? datacenter - 1 : in.above[static_cast<size_t>(datacenter)];
  TreeBorder border;
  if (up >= 0) {
    const std::vector<int> beside = datacenters_below(in, up);
    const auto turn = std::find(beside.begin(), beside.end(), datacenter) - beside.begin();
    border.above = rank_at_turn(part_of(in, up), in.variant, static_cast<int>(turn));
  }
  const std::vector<int> others = datacenters_below(in, datacenter);
  for (size_t turn = 0; turn < others.size(); ++turn) {
    if (rank_at_turn(part, in.variant, static_cast<int>(turn)) == in.rank) {
      border.below.add(rank_at_turn(part_of(in, others[turn]), in.variant, 0));
    }
  }
  return record_with(in, 1, [&](auto& prims) {
    tree_all_reduce(prims, view, in.variant, part.nodes.data(), static_cast<int>(part.nodes.size()),
                    border);
  });
}

Program record_tree_all_reduce(const RecordInput& in) {
  if (!in.datacenters.empty()) {
    return record_tree_over_datacenters(in);
  }
  const std::span<const int> nodes = nodes_of(in);
  return record_with(in, 1, [&](auto& prims) {
    tree_all_reduce(prims, view_of(in), in.variant, nodes.data(), static_cast<int>(nodes.size()));
  });
}
HostView host_of(const RecordInput& in) {
  const std::span<const int> nodes = nodes_of(in);
  return HostView::of(view_of(in), nodes.data(), static_cast<int>(nodes.size()));
}
Program record_collnet_direct_all_reduce(const RecordInput& in) {
  return record_with(in, kCollnetDepth * in.heads,
                     [&](auto& prims) { collnet_direct_all_reduce(prims, host_of(in), in.heads); });
}
Program record_collnet_chain_all_reduce(const RecordInput& in) {
  return record_with(in, 1, [&](auto& prims) { collnet_chain_all_reduce(prims, host_of(in)); });
}
Program record_recursive_doubling_all_reduce(const RecordInput& in) {
  return record_with(in, 1,
                     [&](auto& prims) { recursive_doubling_all_reduce(prims, view_of(in)); });
}
Program record_recursive_quadrupling_all_reduce(const RecordInput& in) {
  return record_with(in, 1,
                     [&](auto& prims) { recursive_quadrupling_all_reduce(prims, view_of(in)); });
}
template <class Peers>
Program record_butterfly_all_reduce(const RecordInput& in) {
  return record_with(in, Butterfly::of(ranks_of(in)).p,
                     [&](auto& prims) { butterfly_all_reduce<Peers>(prims, view_of(in)); });
}
Program record_two_shot_all_reduce(const RecordInput& in) {
  const int n = ranks_of(in);
  return record_with(in, n, [&](auto& prims) { two_shot_all_reduce(prims, in.rank, n); });
}
Program record_torus_all_reduce(const RecordInput& in) {
  return record_with(in, ranks_of(in), [&](auto& prims) { torus_all_reduce(prims, view_of(in)); });
}
Program record_bidirectional_ring_all_gather(const RecordInput& in) {
  return record_with(in, ranks_of(in),
                     [&](auto& prims) { bidirectional_ring_all_gather(prims, view_of(in)); });
}
Program record_bruck_all_gather(const RecordInput& in) {
  return record_with(in, ranks_of(in), [&](auto& prims) { bruck_all_gather(prims, view_of(in)); });
}
Program record_pat_all_gather(const RecordInput& in) {
  return record_with(in, ranks_of(in), [&](auto& prims) { pat_all_gather(prims, view_of(in)); });
}
Program record_pat_reduce_scatter(const RecordInput& in) {
  return record_with(in, ranks_of(in),
                     [&](auto& prims) { pat_reduce_scatter(prims, view_of(in)); });
}
Program record_bruck_all_to_all(const RecordInput& in) {
  return record_with(in, ranks_of(in), [&](auto& prims) { bruck_all_to_all(prims, view_of(in)); });
}
Program record_binomial_broadcast(const RecordInput& in) {
  return record_with(in, 1, [&](auto& prims) { binomial_broadcast(prims, view_of(in), in.root); });
}
Program record_tree_broadcast(const RecordInput& in) {
  return record_with(in, 1, [&](auto& prims) { tree_broadcast(prims, view_of(in), in.root); });
}
Program record_binomial_reduce(const RecordInput& in) {
  return record_with(in, 1, [&](auto& prims) { binomial_reduce(prims, view_of(in), in.root); });
}
/// All ranks divide a call alike, whatever of the scratch memory of others each needs.
Program with_scratch(Program program, int chunks) {
  program.scratch_chunks = chunks;
  return program;
}
Program record_torus_all_to_all(const RecordInput& in) {
  const int n = ranks_of(in);
  return with_scratch(
      record_with(in, n, [&](auto& prims) { torus_all_to_all(prims, view_of(in)); }),
      n == 1 ? 0 : n);
}
int binomial_scratch(const RecordInput& in) {
  return in.joins ? largest_subtree(ranks_of(in)) - 1 : 0;
}
Program record_binomial_gather(const RecordInput& in) {
  return with_scratch(
      record_with(in, ranks_of(in),
                  [&](auto& prims) { binomial_gather(prims, view_of(in), in.root); }),
      binomial_scratch(in));
}
Program record_binomial_scatter(const RecordInput& in) {
  return with_scratch(
      record_with(in, ranks_of(in),
                  [&](auto& prims) { binomial_scatter(prims, view_of(in), in.root); }),
      binomial_scratch(in));
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

// ---- algorithms over datacenters ----

/// The ranks by datacenter, which a `Hierarchy` borrows. Without datacenters the two halves of the
/// ring are used as datacenters.
class HierarchyMemory {
 public:
  explicit HierarchyMemory(const RecordInput& input) {
    const int nranks = ranks_of(input);
    const auto datacenter_at = [&](int place) {
      return input.datacenters.empty() ? 2 * place / nranks
                                       : input.datacenters[static_cast<size_t>(place)];
    };
    int datacenters = 0;
    for (int place = 0; place < nranks; ++place) {
      datacenters = std::max(datacenters, datacenter_at(place) + 1);
    }
    std::vector<std::vector<int>> groups(static_cast<size_t>(datacenters));
    for (int place = 0; place < nranks; ++place) {
      const int datacenter = datacenter_at(place);
      std::vector<int>& group = groups[static_cast<size_t>(datacenter)];
      const int rank = input.ring[static_cast<size_t>(place)];
      if (rank == input.rank) {
        datacenter_ = datacenter;
        index_ = static_cast<int>(group.size());
      }
      group.push_back(rank);
    }
    for (const std::vector<int>& group : groups) {
      starts_.push_back(static_cast<int>(members_.size()));
      members_.insert(members_.end(), group.begin(), group.end());
    }
    starts_.push_back(nranks);
  }

  [[nodiscard]] Hierarchy view() const {
    return {members_.data(), starts_.data(), static_cast<int>(starts_.size()) - 1, datacenter_,
            index_};
  }

 private:
  std::vector<int> members_;
  std::vector<int> starts_;
  int datacenter_ = 0;
  int index_ = 0;
};

Program record_hierarchical_all_reduce(const RecordInput& in) {
  const HierarchyMemory memory(in);
  return record_with(in, hierarchical_all_reduce_chunks(memory.view()),
                     [&](auto& prims) { hierarchical_all_reduce(prims, memory.view()); });
}
Program record_dc_pairs_all_reduce(const RecordInput& in) {
  const HierarchyMemory memory(in);
  return record_with(in, 1, [&](auto& prims) { dc_pairs_all_reduce(prims, memory.view()); });
}
Program record_hierarchical_all_gather(const RecordInput& in) {
  const HierarchyMemory memory(in);
  return record_with(in, ranks_of(in),
                     [&](auto& prims) { hierarchical_all_gather(prims, memory.view()); });
}
Program record_hierarchical_reduce_scatter(const RecordInput& in) {
  const HierarchyMemory memory(in);
  return record_with(in, ranks_of(in),
                     [&](auto& prims) { hierarchical_reduce_scatter(prims, memory.view()); });
}
Program record_hierarchical_all_to_all(const RecordInput& in) {
  const HierarchyMemory memory(in);
  return record_with(in, ranks_of(in),
                     [&](auto& prims) { hierarchical_all_to_all(prims, memory.view()); });
}
Program record_hierarchical_broadcast(const RecordInput& in) {
  const HierarchyMemory memory(in);
  return record_with(in, hierarchical_rooted_chunks(memory.view()),
                     [&](auto& prims) { hierarchical_broadcast(prims, memory.view(), in.root); });
}
Program record_hierarchical_reduce(const RecordInput& in) {
  const HierarchyMemory memory(in);
  return record_with(in, hierarchical_rooted_chunks(memory.view()),
                     [&](auto& prims) { hierarchical_reduce(prims, memory.view(), in.root); });
}

/// A row for a hierarchical algorithm, whose costs depend on the datacenters.
constexpr Algorithm hierarchical(const char* name,
                                 Collective collective,
                                 Program (*record)(const RecordInput&),
                                 const char* family = "hierarchical",
                                 int nranks_max = kProgramRanksMax) {
  Algorithm row;
  row.name = name;
  row.family = family;
  row.nranks_max = nranks_max;
  row.collective = collective;
  row.record = record;
  row.for_datacenters = true;
  row.lanes = 4;
  return row;
}

constexpr Algorithm with_one_lane(Algorithm row) {
  row.lanes = 1;
  return row;
}

constexpr Algorithm joined(Algorithm row, JoinedForm form) {
  row.joined = form;
  return row;
}

/// A row for an all-reduce in which the network sums between hosts.
constexpr Algorithm in_network(const char* name,
                               const char* family,
                               Program (*record)(const RecordInput&),
                               Cost (*cost)(const RankPlacement&)) {
  Algorithm row;
  row.name = name;
  row.family = family;
  row.collective = Collective::kAllReduce;
  row.record = record;
  row.network_cost = cost;
  return row;
}

constexpr Algorithm kAlgorithms[] = {
    // For each collective the first row is the default; choose_algorithm knows when to use the
    // later ones.
    with_one_lane({"ring_all_reduce", "ring", Collective::kAllReduce, record_ring_all_reduce,
                   twice_others, twice_others, all_twice_others, others, all}),
    {"bidirectional_ring_all_reduce", "biring", Collective::kAllReduce,
     record_bidirectional_ring_all_reduce, bidirectional_rounds, bidirectional_chunks,
     bidirectional_in_all, twice_others, twice},
    {"tree_all_reduce", "tree", Collective::kAllReduce, record_tree_all_reduce, tree_rounds,
     tree_chunks, twice_others_in_all, tree_children, one, kProgramRanksMax, 2},
    with_one_lane({"recursive_doubling_all_reduce", "doubling", Collective::kAllReduce,
                   record_recursive_doubling_all_reduce, doubling_rounds, doubling_chunks,
                   doubling_in_all, doubling_chunks, one}),
    joined({"halving_doubling_all_reduce", "halving", Collective::kAllReduce,
            record_butterfly_all_reduce<HalvingPeers>, butterfly_rounds, butterfly_chunks,
            butterfly_in_all, butterfly_reduced, butterfly_width},
           {butterfly_rounds, butterfly_message}),
    joined({"near_halving_all_reduce", "nearhalving", Collective::kAllReduce,
            record_butterfly_all_reduce<NearHalvingPeers>, butterfly_rounds, butterfly_chunks,
            butterfly_in_all, butterfly_reduced, butterfly_width},
           {butterfly_rounds, butterfly_message}),
    joined({"swing_all_reduce", "swing", Collective::kAllReduce,
            record_butterfly_all_reduce<SwingPeers>, butterfly_rounds, butterfly_chunks,
            butterfly_in_all, butterfly_reduced, butterfly_width},
           {butterfly_rounds, butterfly_message}),
    joined({"torus_all_reduce", "torus", Collective::kAllReduce, record_torus_all_reduce,
            torus_rounds, twice_others, all_twice_others, others, all},
           {torus_joined_rounds, torus_message}),
    with_one_lane({"two_shot_all_reduce", "twoshot", Collective::kAllReduce,
                   record_two_shot_all_reduce, two, twice_others, all_twice_others, others, all,
                   kOperandsMax, 1, true}),
    with_one_lane({"all_pairs_all_reduce", "allpairs", Collective::kAllReduce,
                   record_all_pairs_all_reduce, one, others, all_others, others, one, kOperandsMax,
                   1, true}),
    // behind allpairs, whose exchange it is on 4 ranks, but whose messages may go by address
    with_one_lane({"recursive_quadrupling_all_reduce", "quadrupling", Collective::kAllReduce,
                   record_recursive_quadrupling_all_reduce, quadrupling_rounds, quadrupling_chunks,
                   quadrupling_in_all, quadrupling_chunks, one}),
    in_network("collnet_direct_all_reduce",
               "collnetdirect",
               record_collnet_direct_all_reduce,
               collnet_direct_cost),
    in_network("collnet_chain_all_reduce",
               "collnetchain",
               record_collnet_chain_all_reduce,
               collnet_chain_cost),
    {"chain_broadcast", "ring", Collective::kBroadcast, record_chain_broadcast, others, one,
     others_in_all, zero, one},
    {"binomial_broadcast", "binomial", Collective::kBroadcast, record_binomial_broadcast,
     binomial_rounds, log2_up, others_in_all, zero, one},
    {"tree_broadcast", "tree", Collective::kBroadcast, record_tree_broadcast, tree_broadcast_rounds,
     tree_broadcast_chunks, others_in_all, zero, one},
    {"direct_broadcast", "allpairs", Collective::kBroadcast, record_direct_broadcast, one, others,
     others_in_all, zero, one, kOperandsMax},
    {"chain_reduce", "ring", Collective::kReduce, record_chain_reduce, others, one, others_in_all,
     one, one},
    {"binomial_reduce", "binomial", Collective::kReduce, record_binomial_reduce, binomial_rounds,
     log2_up, others_in_all, log2_up, one},
    {"direct_reduce", "allpairs", Collective::kReduce, record_direct_reduce, one, others,
     others_in_all, others, one, kOperandsMax, 1, true},
    {"ring_all_gather", "ring", Collective::kAllGather, record_ring_all_gather, others, others,
     all_others, zero, all},
    {"bidirectional_ring_all_gather", "biring", Collective::kAllGather,
     record_bidirectional_ring_all_gather, half, others, all_others, zero, all},
    joined({"bruck_all_gather", "bruck", Collective::kAllGather, record_bruck_all_gather,
            bruck_all_gather_rounds, others, all_others, zero, all},
           {bruck_all_gather_rounds, bruck_all_gather_message}),
    joined({"pat_all_gather", "pat", Collective::kAllGather, record_pat_all_gather,
            pat_all_gather_rounds, others, all_others, zero, all},
           {pat_all_gather_rounds, half}),
    {"all_pairs_all_gather", "allpairs", Collective::kAllGather, record_all_pairs_all_gather, one,
     others, all_others, zero, all, kOperandsMax},
    {"ring_reduce_scatter", "ring", Collective::kReduceScatter, record_ring_reduce_scatter, others,
     others, all_others, others, all},
    joined({"pat_reduce_scatter", "pat", Collective::kReduceScatter, record_pat_reduce_scatter,
            pat_reduce_scatter_rounds, others, all_others, others, all},
           {log2_up, half}),
    {"all_pairs_reduce_scatter", "allpairs", Collective::kReduceScatter,
     record_all_pairs_reduce_scatter, one, others, all_others, others, all, kOperandsMax, 1, true},
    {"pairwise_all_to_all", "pairwise", Collective::kAllToAll, record_pairwise_all_to_all, one,
     others, all_others, zero, all},
    joined({"bruck_all_to_all", "bruck", Collective::kAllToAll, record_bruck_all_to_all,
            bruck_all_to_all_rounds, bruck_all_to_all_chunks, bruck_all_to_all_in_all, zero, all},
           {log2_up, bruck_all_to_all_message}),
    joined({"torus_all_to_all", "torus", Collective::kAllToAll, record_torus_all_to_all,
            torus_all_to_all_rounds, torus_all_to_all_chunks, torus_all_to_all_in_all, zero, all},
           {torus_all_to_all_joined_rounds, torus_message}),
    {"direct_gather", "pairwise", Collective::kGather, record_direct_gather, one, others,
     others_in_all, zero, all},
    joined({"binomial_gather", "binomial", Collective::kGather, record_binomial_gather,
            binomial_rounds, others, binomial_hops, zero, all},
           {binomial_rounds, largest_subtree}),
    {"direct_scatter", "pairwise", Collective::kScatter, record_direct_scatter, one, others,
     others_in_all, zero, all},
    joined({"binomial_scatter", "binomial", Collective::kScatter, record_binomial_scatter,
            binomial_rounds, others, binomial_hops, zero, all},
           {binomial_rounds, largest_subtree}),
    hierarchical("hierarchical_all_reduce", Collective::kAllReduce, record_hierarchical_all_reduce),
    hierarchical("dc_pairs_all_reduce",
                 Collective::kAllReduce,
                 record_dc_pairs_all_reduce,
                 "dcpairs",
                 kOperandsMax),
    hierarchical("hierarchical_broadcast", Collective::kBroadcast, record_hierarchical_broadcast),
    hierarchical("hierarchical_reduce", Collective::kReduce, record_hierarchical_reduce),
    hierarchical("hierarchical_all_gather", Collective::kAllGather, record_hierarchical_all_gather),
    hierarchical("hierarchical_reduce_scatter",
                 Collective::kReduceScatter,
                 record_hierarchical_reduce_scatter),
    hierarchical("hierarchical_all_to_all", Collective::kAllToAll, record_hierarchical_all_to_all),
    {"send", "pairwise", Collective::kSend, record_send, one, one, one_in_all, zero, one},
    {"recv", "pairwise", Collective::kRecv, record_recv, one, one, one_in_all, zero, one},
};

}  // namespace

std::span<const Algorithm> algorithms() { return kAlgorithms; }

Program program_of(const Algorithm& algorithm, const RecordInput& input) {
  if (algorithm.recorded == nullptr) {
    return algorithm.record(input);
  }
  const RecordedAlgorithm& recorded = *algorithm.recorded;
  return (input.joins || recorded.apart.empty() ? recorded.programs
                                                : recorded.apart)[static_cast<size_t>(input.rank)];
}

int chunks_of_message(const Algorithm& algorithm, int nranks) {
  if (algorithm.recorded != nullptr) {
    return algorithm.recorded->message_chunks;
  }
  return algorithm.joined.rounds == nullptr ? 1 : algorithm.joined.chunks_of_message(nranks);
}

Cost cost_of(const Algorithm& algorithm, const RankPlacement& placement, bool joins) {
  if (algorithm.recorded != nullptr) {
    return algorithm.recorded->cost;
  }
  if (algorithm.network_cost != nullptr) {
    return algorithm.network_cost(placement);
  }
  return {.rounds = (joins ? algorithm.joined.rounds : algorithm.rounds)(placement.nranks),
          .chunks_moved = algorithm.chunks_moved(placement.nranks),
          .chunks_in_all = algorithm.chunks_in_all(placement.nranks),
          .chunks_reduced = algorithm.chunks_reduced(placement.nranks),
          .chunks = algorithm.chunks(placement.nranks)};
}

const Algorithm& local_copy() {
  static constexpr Algorithm kLocalCopy{
      "copy", "pairwise", Collective::kSend, record_copy, zero, zero, zero_in_all, zero, one};
  return kLocalCopy;
}

const Algorithm* find_algorithm(std::string_view name) {
  const auto* const at = std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms),
                                      [&](const Algorithm& row) { return name == row.name; });
  return at == std::end(kAlgorithms) ? nullptr : at;
}

}  // namespace plexus
