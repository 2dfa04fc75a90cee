// SPDX-License-Identifier: Apache-2.0
// Types and reductions of PyTorch as those of nccl.h.
#pragma once

#include <ATen/ATen.h>
#include <nccl.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

namespace torch_plexus {

/// How a reduction of a tensor is made of elements that nccl.h knows.
struct Reduction {
  ncclDataType_t type;
  ncclRedOp_t op;
  int64_t parts;        // elements of `type` per element of the tensor; 2: complex
  at::Tensor factor{};  // one element of `type`, of premul sums, which take `op` from it
};
/// Throws for types and operations that cannot be reduced.
Reduction reduction_of(at::ScalarType type, const c10d::ReduceOp& op);

/// A reduction's op of nccl.h for one call, which is issued while it lives.
class ScopedOp {
 public:
  ScopedOp(const Reduction& reduction, ncclComm_t comm);
  ~ScopedOp();
  ScopedOp(const ScopedOp&) = delete;
  ScopedOp& operator=(const ScopedOp&) = delete;
  operator ncclRedOp_t() const noexcept { return op_; }

 private:
  ncclRedOp_t op_;
  ncclComm_t made_for_ = nullptr;
};

/// The type in which elements are reduced: nccl.h has no int16, whose reductions are those of int32
/// cut off.
at::ScalarType reduced_as(at::ScalarType type);

/// Bitwise operations, which nccl.h does not have: all values are gathered, then combined.
bool is_bitwise(const c10d::ReduceOp& op);
/// values: [n][...]; the combination of all n.
at::Tensor combine_bitwise(const at::Tensor& values, const c10d::ReduceOp& op);

}  // namespace torch_plexus
