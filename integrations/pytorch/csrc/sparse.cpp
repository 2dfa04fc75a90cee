// SPDX-License-Identifier: Apache-2.0
#include "sparse.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <numeric>
#include <utility>

namespace torch_plexus {
namespace {

/// One all-reduce: what this rank has, and what it gathers.
class SparseSum {
 public:
  SparseSum(const at::Tensor& tensor, int nranks) : sizes_(tensor.sizes().vec()), nranks_(nranks) {
    const c10::NoGradGuard no_grad;
    const at::Tensor own = tensor.coalesce();
    indices_ = own.indices().t().contiguous();
    values_ = own.values().contiguous();
    std::vector<int64_t> header{indices_.size(0), static_cast<int64_t>(values_.scalar_type()),
                                indices_.size(1)};
    header.insert(header.end(), sizes_.begin(), sizes_.end());
    header_ = at::tensor(header, at::kLong);
    headers_ = at::empty({nranks, header_.numel()}, at::kLong);
  }

  [[nodiscard]] size_t nbytes() const { return indices_.nbytes() + values_.nbytes(); }

  void gather_headers(ncclComm_t comm, cudaStream_t stream) const {
    check(ncclAllGather(header_.data_ptr(), headers_.data_ptr(),
                        static_cast<size_t>(header_.numel()), ncclInt64, comm, stream),
          "allreduce", comm);
  }

  /// After the headers.
  void gather_elements(ncclComm_t comm, cudaStream_t stream) {
    check_headers();
    const at::Tensor counts = headers_.select(1, 0);
    all_indices_ = gather(indices_, counts, comm, stream);
    all_values_ = gather(values_, counts, comm, stream);
  }

  void add_to(const at::Tensor& target) const {
    const c10::NoGradGuard no_grad;
    target.copy_(at::sparse_coo_tensor(all_indices_.t(), all_values_, sizes_,
                                       all_values_.options().layout(at::kSparse))
                     .coalesce());
  }

 private:
  /// All but the number of elements is the same.
  void check_headers() const {
    for (int rank = 0; rank < nranks_; ++rank) {
      TORCH_CHECK(headers_[rank].slice(0, 1).equal(header_.slice(0, 1)),
                  "plexus: all_reduce of a sparse ", values_.scalar_type(),
                  " tensor with the sizes ", at::IntArrayRef(sizes_), ", ", indices_.size(1),
                  " of them sparse, but rank ", rank,
                  " has another type, other sizes or other sparse dimensions; all ranks must have "
                  "the same");
    }
  }

  /// Rows of all ranks below each other; `counts`: how many of each.
  [[nodiscard]] at::Tensor gather(const at::Tensor& rows,
                                  const at::Tensor& counts,
                                  ncclComm_t comm,
                                  cudaStream_t stream) const {
    std::vector<int64_t> shape = rows.sizes().vec();
    shape[0] = 1;
    const auto row_bytes = static_cast<size_t>(c10::multiply_integers(shape)) * rows.element_size();
    std::vector<size_t> bytes;
    bytes.reserve(static_cast<size_t>(nranks_));
    for (int rank = 0; rank < nranks_; ++rank) {
      bytes.push_back(static_cast<size_t>(counts[rank].item<int64_t>()) * row_bytes);
    }
    std::vector<size_t> offsets(bytes.size());
    std::exclusive_scan(bytes.begin(), bytes.end(), offsets.begin(), size_t{0});
    shape[0] = counts.sum().item<int64_t>();
    at::Tensor all = at::empty(shape, rows.options());
    check(plexusAllGatherV(rows.data_ptr(), rows.nbytes(), all.data_ptr(), bytes.data(),
                           offsets.data(), ncclUint8, comm, stream),
          "allreduce", comm);
    return all;
  }

  std::vector<int64_t> sizes_;
  int nranks_;
  at::Tensor indices_;  // [elements][sparse dimensions]
  at::Tensor values_;   // [elements][dense dimensions...]
  at::Tensor header_;   // elements, type, number of sparse dimensions, sizes
  at::Tensor headers_;  // [nranks][header]
  at::Tensor all_indices_;
  at::Tensor all_values_;
};

}  // namespace

Call sparse_all_reduce_of(const at::Tensor& tensor, const c10d::ReduceOp& op, int nranks) {
  TORCH_CHECK(tensor.device().is_cpu(), "plexus: all_reduce got a sparse tensor on ",
              tensor.device(), "; the backend is for CPU tensors: call cpu() before");
  TORCH_CHECK(static_cast<c10d::ReduceOp::RedOpType>(op) == c10d::ReduceOp::SUM,
              "plexus: sparse tensors are reduced by SUM only; call to_dense() before");
  const auto sum = std::make_shared<SparseSum>(tensor, nranks);
  return {
      .type = c10d::OpType::ALLREDUCE,
      .name = "plexus:all_reduce_sparse",
      .issue = [sum](ncclComm_t comm, cudaStream_t stream) { sum->gather_headers(comm, stream); },
      .issue_rest = [sum](ncclComm_t comm,
                          cudaStream_t stream) { sum->gather_elements(comm, stream); },
      .copy_out = [sum, tensor] { sum->add_to(tensor); },
      .inputs = {tensor},
      .outputs = {{tensor}},
      .bytes = sum->nbytes()};
}

}  // namespace torch_plexus
