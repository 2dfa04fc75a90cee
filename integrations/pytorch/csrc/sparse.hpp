// SPDX-License-Identifier: Apache-2.0
// Sums of sparse tensors, as gradients of nn.Embedding(sparse=True) are. Ranks have different
// elements, so all are gathered and added: first how many each rank has, then the elements.
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "work.hpp"

namespace torch_plexus {

/// Reduces a tensor in COO layout; the result is coalesced. Throws for other operations than SUM
/// and for CUDA. Ranks whose tensors differ in shape or type all get an error that names one.
Call sparse_all_reduce_of(const at::Tensor& tensor, const c10d::ReduceOp& op, int nranks);

}  // namespace torch_plexus
