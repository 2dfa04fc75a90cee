// SPDX-License-Identifier: Apache-2.0
// Tensors in the shape that a call needs: dense CPU memory in one piece. Where a tensor, or a list
// of them, already is that, it is used in place; else through staging memory.
#pragma once

#include <ATen/ATen.h>
#include <functional>
#include <vector>

namespace torch_plexus {

/// Throws for what the backend cannot handle: CUDA, sparse.
void check_tensor(const at::Tensor& tensor, const char* call);
/// The same for each; `like`: and that they have its type and number of elements.
void check_tensors(const std::vector<at::Tensor>& tensors,
                   const at::Tensor& like,
                   const char* call);
/// Of a list that c10d uses for one tensor per device.
at::Tensor& check_single(std::vector<at::Tensor>& tensors, const char* call);

/// The tensors as rows of one, [n][elements]: their own memory if they follow each other in one
/// storage, else new memory.
at::Tensor make_rows(const std::vector<at::Tensor>& tensors);
/// Copies them into rows of make_rows() that are not their own memory.
void copy_in(const std::vector<at::Tensor>& tensors, at::Tensor& rows);
/// What brings `staged` to `target`; empty where they share memory.
std::function<void()> copy_out(const at::Tensor& staged, const at::Tensor& target);
std::function<void()> copy_out_rows(const at::Tensor& rows, const std::vector<at::Tensor>& targets);

}  // namespace torch_plexus
