// SPDX-License-Identifier: Apache-2.0
#include "staging.hpp"

#include <c10/util/Exception.h>

namespace torch_plexus {
namespace {

bool share_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.data_ptr() == b.data_ptr() && a.numel() > 0;
}

bool follow_each_other(const std::vector<at::Tensor>& tensors) {
  const at::Tensor& first = tensors.front();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].is_contiguous() || !tensors[i].is_alias_of(first) ||
        tensors[i].storage_offset() !=
            first.storage_offset() + static_cast<int64_t>(i) * first.numel()) {
      return false;
    }
  }
  return true;
}

}  // namespace

void check_tensor(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK(tensor.layout() == at::kStrided, "plexus: ", call,
              " got a sparse tensor; call to_dense() "
              "before, or create the layer with sparse=False");
  TORCH_CHECK(tensor.device().is_cpu(), "plexus: ", call, " got a tensor on ", tensor.device(),
              "; the backend is for CPU tensors: call cpu() before, or use the backend nccl");
}

void check_tensors(const std::vector<at::Tensor>& tensors,
                   const at::Tensor& like,
                   const char* call) {
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, call);
    TORCH_CHECK(tensor.scalar_type() == like.scalar_type() && tensor.numel() == like.numel(),
                "plexus: ", call, " got tensors that differ: ", tensor.scalar_type(), " with ",
                tensor.numel(), " elements, and ", like.scalar_type(), " with ", like.numel(),
                "; all must have one type and one number of elements");
  }
}

at::Tensor& check_single(std::vector<at::Tensor>& tensors, const char* call) {
  TORCH_CHECK(tensors.size() == 1, "plexus: ", call, " got ", tensors.size(),
              " tensors; on CPUs a process gives one");
  check_tensor(tensors.front(), call);
  return tensors.front();
}

at::Tensor make_rows(const std::vector<at::Tensor>& tensors) {
  const at::Tensor& first = tensors.front();
  const std::vector<int64_t> shape{static_cast<int64_t>(tensors.size()), first.numel()};
  return follow_each_other(tensors) ? first.as_strided(shape, {first.numel(), 1})
                                    : at::empty(shape, first.options());
}

void copy_in(const std::vector<at::Tensor>& tensors, at::Tensor& rows) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    at::Tensor row = rows[static_cast<int64_t>(i)];
    if (!share_memory(row, tensors[i])) {
      row.view(tensors[i].sizes()).copy_(tensors[i]);
    }
  }
}

std::function<void()> copy_out(const at::Tensor& staged, const at::Tensor& target) {
  if (share_memory(staged, target) && staged.scalar_type() == target.scalar_type()) {
    return {};
  }
  return
      [staged, target = target.detach()]() mutable { target.copy_(staged.view(target.sizes())); };
}

std::function<void()> copy_out_rows(const at::Tensor& rows,
                                    const std::vector<at::Tensor>& targets) {
  if (share_memory(rows[0], targets.front())) {
    return {};
  }
  return [rows, targets]() {
    for (size_t i = 0; i < targets.size(); ++i) {
      at::Tensor target = targets[i].detach();
      target.copy_(rows[static_cast<int64_t>(i)].view(target.sizes()));
    }
  };
}

}  // namespace torch_plexus
