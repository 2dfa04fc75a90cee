// SPDX-License-Identifier: Apache-2.0
#include "staging.hpp"

#include <algorithm>
#include <c10/util/Exception.h>
#include <cstdint>

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

/// Memory of a tensor that has elements.
struct Extent {
  uintptr_t begin;
  uintptr_t end;
  bool is_written;
};

void add_extents(std::vector<Extent>& extents,
                 const std::vector<at::Tensor>& tensors,
                 bool is_written) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) {
      continue;
    }
    int64_t last = 0;  // element, from the first one
    for (int64_t i = 0; i < tensor.dim(); ++i) {
      last += (tensor.size(i) - 1) * tensor.stride(i);
    }
    const auto begin = reinterpret_cast<uintptr_t>(tensor.data_ptr());
    extents.push_back(
        {begin, begin + static_cast<size_t>(last + 1) * tensor.element_size(), is_written});
  }
}

}  // namespace

bool overlap(const std::vector<at::Tensor>& written, const std::vector<at::Tensor>& read) {
  std::vector<Extent> extents;
  add_extents(extents, written, true);
  add_extents(extents, read, false);
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  uintptr_t end = 0;  // of those before
  uintptr_t written_end = 0;
  for (const Extent& extent : extents) {
    if (extent.begin < (extent.is_written ? end : written_end)) {
      return true;
    }
    end = std::max(end, extent.end);
    written_end = extent.is_written ? std::max(written_end, extent.end) : written_end;
  }
  return false;
}

bool is_row(const at::Tensor& part, const at::Tensor& whole, int rank) {
  return part.is_contiguous() && whole.is_contiguous() &&
         static_cast<const char*>(whole.data_ptr()) + static_cast<size_t>(rank) * part.nbytes() ==
             part.data_ptr();
}

void check_tensor(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK(tensor.layout() == at::kStrided, "plexus: ", call,
              " got a sparse tensor; only all_reduce takes them, in COO layout: call to_dense() "
              "before, or create the layer with sparse=False");
  TORCH_CHECK(tensor.device().is_cpu(), "plexus: ", call, " got a tensor on ", tensor.device(),
              "; the backend is for CPU tensors: call cpu() before, or use the backend nccl");
}

void check_each(const std::vector<at::Tensor>& tensors, const char* call) {
  for (const at::Tensor& tensor : tensors) {
    check_tensor(tensor, call);
  }
}

void check_tensors(const std::vector<at::Tensor>& tensors,
                   const at::Tensor& like,
                   const char* call) {
  check_each(tensors, call);
  for (const at::Tensor& tensor : tensors) {
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

at::Tensor in_one_piece(const at::Tensor& tensor, bool in_place) {
  return in_place ? tensor.detach().contiguous()
                  : tensor.detach().clone(at::MemoryFormat::Contiguous);
}

at::Tensor make_rows(const std::vector<at::Tensor>& tensors, bool in_place) {
  const at::Tensor& first = tensors.front();
  const std::vector<int64_t> shape{static_cast<int64_t>(tensors.size()), first.numel()};
  return in_place && follow_each_other(tensors) ? first.as_strided(shape, {first.numel(), 1})
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
