// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/vocabulary.hpp"

#include <algorithm>
#include <array>

namespace plexus::perf {
namespace {

constexpr std::array kCollectives = {
    CollectiveInfo{Collective::kAllReduce, "all_reduce", CountRule::kWhole, true, false, true},
    CollectiveInfo{Collective::kBroadcast, "broadcast", CountRule::kWhole, false, true, true},
    CollectiveInfo{Collective::kReduce, "reduce", CountRule::kWhole, true, true, true},
    CollectiveInfo{Collective::kAllGather, "all_gather", CountRule::kPerRank, false, false, true},
    CollectiveInfo{Collective::kReduceScatter, "reduce_scatter", CountRule::kPerRank, true, false,
                   true},
    CollectiveInfo{Collective::kAllToAll, "alltoall", CountRule::kPerRank, false, false, true},
    CollectiveInfo{Collective::kGather, "gather", CountRule::kPerRank, false, true, true},
    CollectiveInfo{Collective::kScatter, "scatter", CountRule::kPerRank, false, true, true},
    CollectiveInfo{Collective::kSendRecv, "sendrecv", CountRule::kWhole, false, false, false},
    CollectiveInfo{Collective::kAllToAllV, "alltoallv", CountRule::kPerRank, false, false, false},
    CollectiveInfo{Collective::kHyperCube, "hypercube", CountRule::kPerRank, false, false, true},
    CollectiveInfo{Collective::kAllGatherV, "allgatherv", CountRule::kPerRank, false, false, true},
    CollectiveInfo{Collective::kReduceScatterV, "reducescatterv", CountRule::kPerRank, true, false,
                   true},
    CollectiveInfo{Collective::kGatherV, "gatherv", CountRule::kPerRank, false, true, true},
    CollectiveInfo{Collective::kScatterV, "scatterv", CountRule::kPerRank, false, true, true},
    CollectiveInfo{Collective::kPut, "put", CountRule::kWhole, false, false, false},
};

constexpr std::array kTypes = {
    TypeInfo{Type::kInt8, "int8", 1, false},        TypeInfo{Type::kUint8, "uint8", 1, false},
    TypeInfo{Type::kInt32, "int32", 4, false},      TypeInfo{Type::kUint32, "uint32", 4, false},
    TypeInfo{Type::kInt64, "int64", 8, false},      TypeInfo{Type::kUint64, "uint64", 8, false},
    TypeInfo{Type::kHalf, "half", 2, true},         TypeInfo{Type::kFloat, "float", 4, true},
    TypeInfo{Type::kDouble, "double", 8, true},     TypeInfo{Type::kBfloat16, "bfloat16", 2, true},
    TypeInfo{Type::kFloat8e4m3, "f8e4m3", 1, true}, TypeInfo{Type::kFloat8e5m2, "f8e5m2", 1, true},
};

constexpr std::array kOps = {
    OpInfo{Op::kSum, "sum"}, OpInfo{Op::kProd, "prod"}, OpInfo{Op::kMax, "max"},
    OpInfo{Op::kMin, "min"}, OpInfo{Op::kAvg, "avg"},   OpInfo{Op::kMulSum, "mulsum"},
};

// as in nccl-tests, each rank's part is rounded down to this
constexpr size_t kPerRankAlignment = 16;

template <class Table>
auto find_named(const Table& table, std::string_view name) noexcept {
  return std::find_if(table.begin(), table.end(),
                      [&](const auto& row) { return row.name == name; });
}

}  // namespace

std::span<const CollectiveInfo> collectives() noexcept { return kCollectives; }
std::span<const TypeInfo> types() noexcept { return kTypes; }
std::span<const OpInfo> ops() noexcept { return kOps; }

const CollectiveInfo& info_of(Collective collective) noexcept {
  return kCollectives[static_cast<size_t>(collective)];
}
const TypeInfo& info_of(Type type) noexcept { return kTypes[static_cast<size_t>(type)]; }
const char* name_of(Op op) noexcept { return kOps[static_cast<size_t>(op)].name; }

std::optional<Collective> find_collective(std::string_view name) noexcept {
  for (const std::string_view ending : {"_mpi", "_perf"}) {
    if (name.ends_with(ending)) {
      name.remove_suffix(ending.size());
    }
  }
  const auto* row = find_named(kCollectives, name);
  return row == kCollectives.end() ? std::nullopt : std::optional(row->collective);
}
std::optional<Type> find_type(std::string_view name) noexcept {
  const auto* row = find_named(kTypes, name);
  return row == kTypes.end() ? std::nullopt : std::optional(row->type);
}
std::optional<Op> find_op(std::string_view name) noexcept {
  const auto* row = find_named(kOps, name);
  return row == kOps.end() ? std::nullopt : std::optional(row->op);
}

size_t compute_count(Collective collective, Type type, int nranks, size_t size_bytes) noexcept {
  const size_t element_size_bytes = info_of(type).size_bytes;
  if (info_of(collective).count_rule == CountRule::kWhole) {
    return size_bytes / element_size_bytes;
  }
  const size_t part_bytes = size_bytes / static_cast<size_t>(nranks);
  return part_bytes / kPerRankAlignment * kPerRankAlignment / element_size_bytes;
}

double alg_factor(Collective collective, int nranks) noexcept {
  return collective == Collective::kHyperCube ? static_cast<double>(nranks - 1) / nranks : 1;
}

double bus_factor(Collective collective, int nranks) noexcept {
  const double others = static_cast<double>(nranks - 1) / nranks;
  if (collective == Collective::kAllReduce) {
    return 2 * others;
  }
  if (collective == Collective::kHyperCube) {
    return 1;  // algbw has the factor
  }
  return info_of(collective).count_rule == CountRule::kPerRank ? others : 1;
}

}  // namespace plexus::perf
