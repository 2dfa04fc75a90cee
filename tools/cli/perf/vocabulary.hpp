// SPDX-License-Identifier: Apache-2.0
// The vocabulary of `plexus perf`: collectives, data types and reductions with nccl-tests' names,
// NCCL's numbers, and nccl-tests' formulas for counts and bandwidths. Only tables; independent of
// the library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace plexus::perf {

enum class Collective {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kGather,
  kScatter,
  kSendRecv,
  kAllToAllV,
  kHyperCube,
  // those of plexus.h with counts per rank, here all equal, and ncclPutSignal
  kAllGatherV,
  kReduceScatterV,
  kGatherV,
  kScatterV,
  kPut,
};

/// What moves the same data: the layout is this one's.
constexpr Collective base_of(Collective collective) noexcept {
  switch (collective) {
    case Collective::kAllGatherV:
      return Collective::kAllGather;
    case Collective::kReduceScatterV:
      return Collective::kReduceScatter;
    case Collective::kGatherV:
      return Collective::kGather;
    case Collective::kScatterV:
      return Collective::kScatter;
    case Collective::kPut:
      return Collective::kSendRecv;
    default:
      return collective;
  }
}

/// How the requested size is converted to the call's count.
enum class CountRule {
  kWhole,    // size / element size
  kPerRank,  // size / nranks, rounded down to 16 bytes
};

struct CollectiveInfo {
  Collective collective;
  const char* name;
  CountRule count_rule;
  bool reduces;
  bool rooted;
  bool in_place;  // has an in-place form
  /// Made of messages between pairs of ranks: without algorithms.
  [[nodiscard]] constexpr bool is_point_to_point() const noexcept {
    return collective >= Collective::kSendRecv && collective != Collective::kReduceScatterV;
  }
};

/// The numbers are ncclDataType_t's.
enum class Type {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kHalf = 6,
  kFloat = 7,
  kDouble = 8,
  kBfloat16 = 9,
  kFloat8e4m3 = 10,
  kFloat8e5m2 = 11,
};

struct TypeInfo {
  Type type;
  const char* name;
  size_t size_bytes;
  bool floating;
};

/// The first five numbers are ncclRedOp_t's; kMulSum is a PreMulSum that the run creates.
enum class Op { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kMulSum = 5 };

struct OpInfo {
  Op op;
  const char* name;
};

[[nodiscard]] std::span<const CollectiveInfo> collectives() noexcept;
[[nodiscard]] std::span<const TypeInfo> types() noexcept;
[[nodiscard]] std::span<const OpInfo> ops() noexcept;

[[nodiscard]] const CollectiveInfo& info_of(Collective collective) noexcept;
[[nodiscard]] const TypeInfo& info_of(Type type) noexcept;
[[nodiscard]] const char* name_of(Op op) noexcept;

/// `name` may end as the names of nccl-tests' programs do: all_reduce_perf, all_reduce_perf_mpi.
[[nodiscard]] std::optional<Collective> find_collective(std::string_view name) noexcept;
[[nodiscard]] std::optional<Type> find_type(std::string_view name) noexcept;
[[nodiscard]] std::optional<Op> find_op(std::string_view name) noexcept;

/// The `count` argument of the call for a row of `size_bytes`.
[[nodiscard]] size_t compute_count(Collective collective,
                                   Type type,
                                   int nranks,
                                   size_t size_bytes) noexcept;
/// algbw * time / size: the part of the size that is moved.
[[nodiscard]] double alg_factor(Collective collective, int nranks) noexcept;
/// busbw / algbw.
[[nodiscard]] double bus_factor(Collective collective, int nranks) noexcept;

}  // namespace plexus::perf
