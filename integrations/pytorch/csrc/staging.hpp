// SPDX-License-Identifier: Apache-2.0
// Tensors in the shape that a call needs: dense CPU memory in one piece. Where a tensor, or a list
// of them, already is that, it is used in place; else through staging memory.
#pragma once

#include <ATen/ATen.h>
#include <functional>
#include <vector>

namespace torch_plexus {

/// Throws for what most calls cannot handle: CUDA, sparse.
void check_tensor(const at::Tensor& tensor, const char* call);
void check_each(const std::vector<at::Tensor>& tensors, const char* call);
/// The same, and that they have the type and the number of elements of `like`.
void check_tensors(const std::vector<at::Tensor>& tensors,
                   const at::Tensor& like,
                   const char* call);
/// Takes the only tensor of a list that c10d uses for one tensor per device.
at::Tensor& check_single(std::vector<at::Tensor>& tensors, const char* call);

/// Whether one of `written` shares memory with another one or with one of `read`. A view with gaps
/// counts as all from its first element to its last.
bool overlap(const std::vector<at::Tensor>& written, const std::vector<at::Tensor>& read = {});
/// Whether `part` is row `rank` of `whole`, [nranks][part]: the in-place form of a call.
bool is_row(const at::Tensor& part, const at::Tensor& whole, int rank);

/// `tensor` in one piece: itself, if it is that and `in_place`, else a copy.
at::Tensor in_one_piece(const at::Tensor& tensor, bool in_place = true);
/// The tensors as rows of one, [n][elements]: their own memory if they follow each other in one
/// storage and `in_place`, else new memory.
at::Tensor make_rows(const std::vector<at::Tensor>& tensors, bool in_place = true);
/// Copies them into rows of make_rows() that are not their own memory.
void copy_in(const std::vector<at::Tensor>& tensors, at::Tensor& rows);
/// What brings `staged` to `target`; empty where they share memory.
std::function<void()> copy_out(const at::Tensor& staged, const at::Tensor& target);
std::function<void()> copy_out_rows(const at::Tensor& rows, const std::vector<at::Tensor>& targets);

}  // namespace torch_plexus
