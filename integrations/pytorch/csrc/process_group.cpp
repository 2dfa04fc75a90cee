// SPDX-License-Identifier: Apache-2.0
#include "process_group.hpp"

#include <Python.h>
#include <c10/util/Exception.h>
#include <numeric>
#include <pybind11/pybind11.h>
#include <thread>
#include <utility>

#include "element_types.hpp"
#include "sparse.hpp"
#include "staging.hpp"

namespace torch_plexus {
namespace {

using c10d::OpType;
using std::chrono::milliseconds;

size_t bytes_of(const at::Tensor& tensor) { return tensor.nbytes(); }

/// A reduction's view of `tensor`: in one piece, in a type that nccl.h knows.
at::Tensor make_reducible(const at::Tensor& tensor, bool in_place = true) {
  const at::ScalarType type = reduced_as(tensor.scalar_type());
  return type == tensor.scalar_type() ? in_one_piece(tensor, in_place)
                                      : tensor.detach().to(type).contiguous();
}

/// Whether calls on these pairs, wholes of [nranks][part] and parts, may use their own memory, also
/// as one.
bool may_share(const Tensors& wholes, const Tensors& parts, int rank) {
  Tensors all = wholes;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!is_row(parts[i], wholes[i], rank)) {
      all.push_back(parts[i]);
    }
  }
  return !overlap(all);
}

size_t count_of(const at::Tensor& tensor, const Reduction& reduction) {
  return static_cast<size_t>(tensor.numel() * reduction.parts);
}

/// Offsets of parts that follow each other.
std::vector<size_t> offsets_of(const std::vector<size_t>& counts) {
  std::vector<size_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), size_t{0});
  return offsets;
}

/// `sizes`: rows of `tensor` for each rank; empty: equal parts. The result is in bytes.
std::vector<size_t> split_bytes(const at::Tensor& tensor,
                                const std::vector<int64_t>& sizes,
                                int nranks) {
  const int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (sizes.empty()) {
    TORCH_CHECK(rows % nranks == 0, "plexus: alltoall cannot cut ", rows, " rows into ", nranks,
                " equal parts; give the sizes of the parts");
    return std::vector<size_t>(static_cast<size_t>(nranks),
                               tensor.nbytes() / static_cast<size_t>(nranks));
  }
  TORCH_CHECK(sizes.size() == static_cast<size_t>(nranks) &&
                  std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == rows,
              "plexus: the sizes of alltoall's parts must be ", nranks, " numbers with the sum ",
              rows, ", the tensor's first dimension");
  const size_t row_bytes = rows == 0 ? 0 : tensor.nbytes() / static_cast<size_t>(rows);
  std::vector<size_t> bytes;
  for (const int64_t size : sizes) {
    bytes.push_back(static_cast<size_t>(size) * row_bytes);
  }
  return bytes;
}

void check_count(size_t found, int expected, const char* call) {
  TORCH_CHECK(found == static_cast<size_t>(expected), "plexus: ", call, " got a list of ", found,
              " tensors in place of one per rank, ", expected);
}

/// Between ncclGroupStart and ncclGroupEnd.
template <class Body>
void in_group(ncclComm_t comm, const Body& body) {
  check(ncclGroupStart(), "ncclGroupStart", comm);
  try {
    body();
  } catch (...) {
    (void)ncclGroupEnd();
    throw;
  }
  check(ncclGroupEnd(), "ncclGroupEnd", comm);
}

// ---- calls that are made alone, and several as one ----
// in_place: false where tensors of the calls that are made as one share memory, which each of them
// would change before another one reads it. Then all read copies, and results are copied out in the
// order of the list.

Call all_reduce_of(const at::Tensor& tensor, const c10d::ReduceOp& op, bool in_place = true) {
  const at::Tensor data = make_reducible(tensor, in_place);
  const Reduction reduction = reduction_of(data.scalar_type(), op);
  return {.type = OpType::ALLREDUCE,
          .name = "plexus:all_reduce",
          .issue =
              [data, reduction](ncclComm_t comm, cudaStream_t stream) {
                check(ncclAllReduce(data.data_ptr(), data.data_ptr(), count_of(data, reduction),
                                    reduction.type, ScopedOp(reduction, comm), comm, stream),
                      "allreduce", comm);
              },
          .copy_out = copy_out(data, tensor),
          .inputs = {tensor},
          .outputs = {{tensor}},
          .bytes = bytes_of(data)};
}

/// One output per rank.
Call all_gather_of(
    const Tensors& outputs, const at::Tensor& input, int rank, int nranks, bool in_place = true) {
  check_tensor(input, "allgather");
  check_count(outputs.size(), nranks, "allgather");
  check_tensors(outputs, input, "allgather");
  const at::Tensor rows = make_rows(outputs, in_place);
  const at::Tensor data = in_one_piece(input, in_place && may_share({rows}, {input}, rank));
  return {.type = OpType::ALLGATHER,
          .name = "plexus:all_gather",
          .issue =
              [data, rows](ncclComm_t comm, cudaStream_t stream) {
                check(ncclAllGather(data.data_ptr(), rows.data_ptr(), bytes_of(data), ncclUint8,
                                    comm, stream),
                      "allgather", comm);
              },
          .copy_out = copy_out_rows(rows, outputs),
          .inputs = {input},
          .outputs = {outputs},
          .bytes = bytes_of(rows)};
}

Call all_gather_into(
    const at::Tensor& output, const at::Tensor& input, int rank, int nranks, bool in_place = true) {
  check_tensor(input, "allgather");
  check_tensor(output, "allgather");
  TORCH_CHECK(
      output.scalar_type() == input.scalar_type() && output.numel() == input.numel() * nranks,
      "plexus: allgather's output must have the input's type and ", nranks,
      " times its number of elements");
  const at::Tensor all = in_one_piece(output, in_place);
  const at::Tensor data = in_one_piece(input, in_place && may_share({all}, {input}, rank));
  return {.type = OpType::_ALLGATHER_BASE,
          .name = "plexus:_all_gather_base",
          .issue =
              [data, all](ncclComm_t comm, cudaStream_t stream) {
                check(ncclAllGather(data.data_ptr(), all.data_ptr(), bytes_of(data), ncclUint8,
                                    comm, stream),
                      "allgather", comm);
              },
          .copy_out = copy_out(all, output),
          .inputs = {input},
          .outputs = {{output}},
          .bytes = bytes_of(all)};
}

Call reduce_scatter_of(const at::Tensor& output,
                       const at::Tensor& input,
                       const c10d::ReduceOp& op,
                       int rank,
                       int nranks,
                       bool in_place = true) {
  check_tensor(input, "reduce_scatter");
  check_tensor(output, "reduce_scatter");
  TORCH_CHECK(
      output.scalar_type() == input.scalar_type() && input.numel() == output.numel() * nranks,
      "plexus: reduce_scatter's input must have the output's type and ", nranks,
      " times its number of elements");
  TORCH_CHECK(
      !is_bitwise(op),
      "plexus: reduce_scatter has no BAND, BOR and BXOR; call allreduce and take your part");
  const at::Tensor data = make_reducible(input, in_place);
  const Reduction reduction = reduction_of(data.scalar_type(), op);
  const at::Tensor part = make_reducible(output, in_place && may_share({data}, {output}, rank));
  return {.type = OpType::_REDUCE_SCATTER_BASE,
          .name = "plexus:_reduce_scatter_base",
          .issue =
              [data, part, reduction](ncclComm_t comm, cudaStream_t stream) {
                check(ncclReduceScatter(data.data_ptr(), part.data_ptr(), count_of(part, reduction),
                                        reduction.type, ScopedOp(reduction, comm), comm, stream),
                      "reduce_scatter", comm);
              },
          .copy_out = copy_out(part, output),
          .inputs = {input},
          .outputs = {{output}},
          .bytes = bytes_of(data)};
}

/// Issued as one group, ended together. `outputs`: what its future has.
Call as_one(OpType type, const char* name, const std::vector<Call>& calls, TensorLists outputs) {
  TORCH_CHECK(!calls.empty(), name, " got no tensors");
  Call one{.type = type,
           .name = name,
           .issue =
               [calls](ncclComm_t comm, cudaStream_t stream) {
                 in_group(comm, [&] {
                   for (const Call& call : calls) {
                     call.issue(comm, stream);
                   }
                 });
               },
           .copy_out =
               [calls] {
                 for (const Call& call : calls) {
                   if (call.copy_out) {
                     call.copy_out();
                   }
                 }
               },
           .outputs = std::move(outputs)};
  for (const Call& call : calls) {
    one.inputs.insert(one.inputs.end(), call.inputs.begin(), call.inputs.end());
    one.bytes += call.bytes;
  }
  return one;
}

}  // namespace

// ---- life ----

ProcessGroup::ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store,
                           int rank,
                           int size,
                           milliseconds timeout)
    : GroupBase(rank, size),
      store_(store),
      queue_(
          std::make_unique<CallQueue>(Communicator::make(*store, rank, size, timeout), timeout)) {}

ProcessGroup::ProcessGroup(std::unique_ptr<Communicator> comm, milliseconds timeout)
    : GroupBase(comm->rank(), comm->size()),
      queue_(std::make_unique<CallQueue>(std::move(comm), timeout)) {}

/// Waits for calls, whose futures may have callbacks in Python.
ProcessGroup::~ProcessGroup() {
  std::optional<pybind11::gil_scoped_release> without_gil;
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
    without_gil.emplace();
  }
  CallQueue::close(std::move(queue_), store_);
}

c10::intrusive_ptr<ProcessGroup> ProcessGroup::shrink(const std::vector<int>& excluded) {
  return c10::make_intrusive<ProcessGroup>(queue_->shrink(excluded), queue_->timeout());
}

void ProcessGroup::check_root(int64_t root) const {
  TORCH_CHECK(root >= 0 && root < getSize(), "plexus: rank ", root, " is not in the group of ",
              getSize(), " ranks");
}

// ---- one to all, all to one ----

WorkHandle ProcessGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  at::Tensor& tensor = check_single(tensors, "broadcast");
  const int root = static_cast<int>(options.rootRank);
  check_root(root);
  const at::Tensor data = in_one_piece(tensor);
  return queue_->add({.type = OpType::BROADCAST,
                      .name = "plexus:broadcast",
                      .issue =
                          [data, root](ncclComm_t comm, cudaStream_t stream) {
                            check(ncclBroadcast(data.data_ptr(), data.data_ptr(), bytes_of(data),
                                                ncclUint8, root, comm, stream),
                                  "broadcast", comm);
                          },
                      .copy_out = copy_out(data, tensor),
                      .inputs = {tensor},
                      .outputs = {{tensor}},
                      .bytes = bytes_of(data)});
}

WorkHandle ProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  at::Tensor& tensor = check_single(tensors, "reduce");
  const int root = static_cast<int>(options.rootRank);
  check_root(root);
  if (is_bitwise(options.reduceOp)) {
    return all_gather_and_combine(tensor, options.reduceOp, root);
  }
  const at::Tensor data = make_reducible(tensor);
  const Reduction reduction = reduction_of(data.scalar_type(), options.reduceOp);
  return queue_->add(
      {.type = OpType::REDUCE,
       .name = "plexus:reduce",
       .issue =
           [data, root, reduction](ncclComm_t comm, cudaStream_t stream) {
             check(ncclReduce(data.data_ptr(), data.data_ptr(), count_of(data, reduction),
                              reduction.type, ScopedOp(reduction, comm), root, comm, stream),
                   "reduce", comm);
           },
       .copy_out = getRank() == root ? copy_out(data, tensor) : std::function<void()>{},
       .inputs = {tensor},
       .outputs = {{tensor}},
       .bytes = bytes_of(data)});
}

WorkHandle ProcessGroup::gather(TensorLists& outputs,
                                Tensors& inputs,
                                const c10d::GatherOptions& options) {
  at::Tensor& input = check_single(inputs, "gather");
  const int root = static_cast<int>(options.rootRank);
  check_root(root);
  at::Tensor rows;
  if (getRank() == root) {
    TORCH_CHECK(outputs.size() == 1, "plexus: gather needs a list of output tensors on its root");
    check_count(outputs.front().size(), getSize(), "gather");
    check_tensors(outputs.front(), input, "gather");
    rows = make_rows(outputs.front());
  } else {
    TORCH_CHECK(outputs.empty(), "plexus: gather takes output tensors on its root, rank ", root,
                ", only");
  }
  const at::Tensor data = in_one_piece(input, !rows.defined() || may_share({rows}, {input}, root));
  return queue_->add(
      {.type = OpType::GATHER,
       .name = "plexus:gather",
       .issue =
           [data, rows, root](ncclComm_t comm, cudaStream_t stream) {
             check(ncclGather(data.data_ptr(), rows.defined() ? rows.data_ptr() : nullptr,
                              bytes_of(data), ncclUint8, root, comm, stream),
                   "gather", comm);
           },
       .copy_out = rows.defined() ? copy_out_rows(rows, outputs.front()) : std::function<void()>{},
       .inputs = {input},
       .outputs = outputs,
       .bytes = bytes_of(data)});
}

WorkHandle ProcessGroup::scatter(Tensors& outputs,
                                 TensorLists& inputs,
                                 const c10d::ScatterOptions& options) {
  at::Tensor& output = check_single(outputs, "scatter");
  const int root = static_cast<int>(options.rootRank);
  check_root(root);
  at::Tensor rows;
  if (getRank() == root) {
    TORCH_CHECK(inputs.size() == 1, "plexus: scatter needs a list of input tensors on its root");
    check_count(inputs.front().size(), getSize(), "scatter");
    check_tensors(inputs.front(), output, "scatter");
    rows = make_rows(inputs.front());
    copy_in(inputs.front(), rows);
  } else {
    TORCH_CHECK(inputs.empty(), "plexus: scatter takes input tensors on its root, rank ", root,
                ", only");
  }
  const at::Tensor data =
      in_one_piece(output, !rows.defined() || may_share({rows}, {output}, root));
  return queue_->add({.type = OpType::SCATTER,
                      .name = "plexus:scatter",
                      .issue =
                          [data, rows, root](ncclComm_t comm, cudaStream_t stream) {
                            check(ncclScatter(rows.defined() ? rows.data_ptr() : nullptr,
                                              data.data_ptr(), bytes_of(data), ncclUint8, root,
                                              comm, stream),
                                  "scatter", comm);
                          },
                      .copy_out = copy_out(data, output),
                      .inputs = inputs.empty() ? Tensors{} : inputs.front(),
                      .outputs = {{output}},
                      .bytes = bytes_of(data)});
}

// ---- all to all ----

WorkHandle ProcessGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors.front().layout() == at::kSparse) {
    return queue_->add(sparse_all_reduce_of(tensors.front(), options.reduceOp, getSize()));
  }
  at::Tensor& tensor = check_single(tensors, "allreduce");
  if (is_bitwise(options.reduceOp)) {
    return all_gather_and_combine(tensor, options.reduceOp, -1);
  }
  return queue_->add(all_reduce_of(tensor, options.reduceOp));
}

WorkHandle ProcessGroup::allreduce_coalesced(Tensors& tensors,
                                             const c10d::AllreduceCoalescedOptions& options) {
  TORCH_CHECK(
      !is_bitwise(options.reduceOp),
      "plexus: allreduce_coalesced has no BAND, BOR and BXOR; call allreduce for each tensor");
  check_each(tensors, "allreduce_coalesced");
  const bool in_place = !overlap(tensors);
  std::vector<Call> calls;
  for (const at::Tensor& tensor : tensors) {
    calls.push_back(all_reduce_of(tensor, options.reduceOp, in_place));
  }
  return queue_->add(
      as_one(OpType::ALLREDUCE_COALESCED, "plexus:all_reduce_coalesced", calls, {tensors}));
}

/// For operations that nccl.h does not have. root -1: all ranks get the result.
WorkHandle ProcessGroup::all_gather_and_combine(const at::Tensor& tensor,
                                                const c10d::ReduceOp& op,
                                                int root) {
  TORCH_CHECK(at::isIntegralType(tensor.scalar_type(), true),
              "plexus: BAND, BOR and BXOR are for integers and bool, not ", tensor.scalar_type());
  const at::Tensor data = in_one_piece(tensor);
  at::Tensor rows = at::empty({getSize(), data.numel()}, data.options());
  std::function<void()> combine = [rows, op, target = tensor.detach()]() mutable {
    target.copy_(combine_bitwise(rows, op).view(target.sizes()));
  };
  return queue_->add({.type = root < 0 ? OpType::ALLREDUCE : OpType::REDUCE,
                      .name = root < 0 ? "plexus:all_reduce" : "plexus:reduce",
                      .issue =
                          [data, rows](ncclComm_t comm, cudaStream_t stream) {
                            check(ncclAllGather(data.data_ptr(), rows.data_ptr(), bytes_of(data),
                                                ncclUint8, comm, stream),
                                  "allreduce", comm);
                          },
                      .copy_out = root < 0 || root == getRank() ? combine : std::function<void()>{},
                      .inputs = {tensor},
                      .outputs = {{tensor}},
                      .bytes = bytes_of(rows)});
}

WorkHandle ProcessGroup::allgather(TensorLists& outputs,
                                   Tensors& inputs,
                                   const c10d::AllgatherOptions& /*options*/) {
  at::Tensor& input = check_single(inputs, "allgather");
  TORCH_CHECK(outputs.size() == 1, "plexus: allgather needs one list of output tensors");
  return queue_->add(all_gather_of(outputs.front(), input, getRank(), getSize()));
}

WorkHandle ProcessGroup::_allgather_base(at::Tensor& output,
                                         at::Tensor& input,
                                         const c10d::AllgatherOptions& /*options*/) {
  return queue_->add(all_gather_into(output, input, getRank(), getSize()));
}

/// outputs: [rank][tensor]; the tensors may differ in type and size.
WorkHandle ProcessGroup::allgather_coalesced(TensorLists& outputs,
                                             Tensors& inputs,
                                             const c10d::AllgatherOptions& /*options*/) {
  check_count(outputs.size(), getSize(), "allgather_coalesced");
  Tensors all;
  for (const Tensors& of_rank : outputs) {
    check_count(of_rank.size(), static_cast<int>(inputs.size()), "allgather_coalesced");
    all.insert(all.end(), of_rank.begin(), of_rank.end());
  }
  check_each(all, "allgather_coalesced");
  check_each(inputs, "allgather_coalesced");
  const bool in_place = !overlap(all, inputs);
  std::vector<Call> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    Tensors targets;
    for (const Tensors& of_rank : outputs) {
      targets.push_back(of_rank[i]);
    }
    calls.push_back(all_gather_of(targets, inputs[i], getRank(), getSize(), in_place));
  }
  return queue_->add(
      as_one(OpType::ALLGATHER_COALESCED, "plexus:all_gather_coalesced", calls, outputs));
}

WorkHandle ProcessGroup::reduce_scatter(Tensors& outputs,
                                        TensorLists& inputs,
                                        const c10d::ReduceScatterOptions& options) {
  at::Tensor& output = check_single(outputs, "reduce_scatter");
  TORCH_CHECK(inputs.size() == 1, "plexus: reduce_scatter needs one list of input tensors");
  check_count(inputs.front().size(), getSize(), "reduce_scatter");
  check_tensors(inputs.front(), output, "reduce_scatter");
  at::Tensor rows = make_rows(inputs.front());
  copy_in(inputs.front(), rows);
  return _reduce_scatter_base(output, rows, options);
}

WorkHandle ProcessGroup::_reduce_scatter_base(at::Tensor& output,
                                              at::Tensor& input,
                                              const c10d::ReduceScatterOptions& options) {
  return queue_->add(reduce_scatter_of(output, input, options.reduceOp, getRank(), getSize()));
}

WorkHandle ProcessGroup::alltoall_base(at::Tensor& output,
                                       at::Tensor& input,
                                       std::vector<int64_t>& output_sizes,
                                       std::vector<int64_t>& input_sizes,
                                       const c10d::AllToAllOptions& /*options*/) {
  check_tensor(input, "alltoall");
  check_tensor(output, "alltoall");
  TORCH_CHECK(output.scalar_type() == input.scalar_type(),
              "plexus: alltoall's input and output must have one type");
  const at::Tensor data = in_one_piece(input, !overlap({output}, {input}));
  const at::Tensor result = in_one_piece(output);
  const auto sent = split_bytes(data, input_sizes, getSize());
  const auto received = split_bytes(result, output_sizes, getSize());
  return queue_->add({.type = OpType::ALLTOALL_BASE,
                      .name = "plexus:all_to_all",
                      .issue =
                          [data, result, sent, received](ncclComm_t comm, cudaStream_t stream) {
                            check(plexusAllToAllV(data.data_ptr(), sent.data(),
                                                  offsets_of(sent).data(), result.data_ptr(),
                                                  received.data(), offsets_of(received).data(),
                                                  ncclUint8, comm, stream),
                                  "alltoall", comm);
                          },
                      .copy_out = copy_out(result, output),
                      .inputs = {input},
                      .outputs = {{output}},
                      .bytes = bytes_of(data)});
}

WorkHandle ProcessGroup::alltoall(Tensors& outputs,
                                  Tensors& inputs,
                                  const c10d::AllToAllOptions& /*options*/) {
  check_count(inputs.size(), getSize(), "alltoall");
  check_count(outputs.size(), getSize(), "alltoall");
  check_each(inputs, "alltoall");
  check_each(outputs, "alltoall");
  const bool in_place = !overlap(outputs, inputs);
  Tensors sent;
  Tensors received;
  std::vector<std::function<void()>> copies;
  size_t bytes = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    sent.push_back(in_one_piece(inputs[i], in_place));
    received.push_back(in_one_piece(outputs[i], in_place));
    copies.push_back(copy_out(received.back(), outputs[i]));
    bytes += bytes_of(inputs[i]);
  }
  return queue_->add({.type = OpType::ALLTOALL,
                      .name = "plexus:all_to_all",
                      .issue =
                          [sent, received](ncclComm_t comm, cudaStream_t stream) {
                            in_group(comm, [&] {
                              for (size_t i = 0; i < sent.size(); ++i) {
                                const int peer = static_cast<int>(i);
                                check(ncclSend(sent[i].data_ptr(), bytes_of(sent[i]), ncclUint8,
                                               peer, comm, stream),
                                      "alltoall", comm);
                                check(ncclRecv(received[i].data_ptr(), bytes_of(received[i]),
                                               ncclUint8, peer, comm, stream),
                                      "alltoall", comm);
                              }
                            });
                          },
                      .copy_out =
                          [copies] {
                            for (const auto& copy : copies) {
                              if (copy) {
                                copy();
                              }
                            }
                          },
                      .inputs = inputs,
                      .outputs = {outputs},
                      .bytes = bytes});
}

#if TORCH_VERSION_MAJOR >= 2  // what PyTorch 1.13 does not call

namespace {

void check_pairs(const Tensors& outputs, const Tensors& inputs, const char* call) {
  TORCH_CHECK(outputs.size() == inputs.size(), "plexus: ", call, " got ", outputs.size(),
              " outputs and ", inputs.size(), " inputs");
  check_each(outputs, call);
  check_each(inputs, call);
}

}  // namespace

WorkHandle ProcessGroup::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& /*options*/) {
  check_pairs(outputs, inputs, "allgather_into_tensor_coalesced");
  const bool in_place = may_share(outputs, inputs, getRank());
  std::vector<Call> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back(all_gather_into(outputs[i], inputs[i], getRank(), getSize(), in_place));
  }
  return queue_->add(as_one(OpType::COALESCED, "plexus:all_gather_coalesced", calls, {outputs}));
}

WorkHandle ProcessGroup::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  check_pairs(outputs, inputs, "reduce_scatter_tensor_coalesced");
  const bool in_place = may_share(inputs, outputs, getRank());
  std::vector<Call> calls;
  for (size_t i = 0; i < inputs.size(); ++i) {
    calls.push_back(
        reduce_scatter_of(outputs[i], inputs[i], options.reduceOp, getRank(), getSize(), in_place));
  }
  return queue_->add(
      as_one(OpType::COALESCED, "plexus:reduce_scatter_coalesced", calls, {outputs}));
}

#endif

// ---- messages ----

WorkHandle ProcessGroup::message(Tensors& tensors, int peer, bool sends) {
  at::Tensor& tensor = check_single(tensors, sends ? "send" : "recv");
  check_root(peer);
  TORCH_CHECK(peer != getRank(), "plexus: rank ", peer, " cannot ",
              sends ? "send to" : "receive from", " itself; copy the tensor");
  TORCH_CHECK(store_ != nullptr, "plexus: the group has no store yet");
  const at::Tensor data = in_one_piece(tensor);
  const int other = sends ? 1 : 0;  // the peer in the communicator of the two
  Call call{.type = sends ? OpType::SEND : OpType::RECV,
            .name = sends ? "plexus:send" : "plexus:recv",
            .issue =
                [data, other, sends](ncclComm_t comm, cudaStream_t stream) {
                  const auto move = [&](auto function) {
                    return function(data.data_ptr(), bytes_of(data), ncclUint8, other, comm,
                                    stream);
                  };
                  check(sends ? move(ncclSend) : move(ncclRecv), sends ? "send" : "recv", comm);
                },
            .copy_out = sends ? std::function<void()>{} : copy_out(data, tensor),
            .inputs = {tensor},
            .outputs = {{tensor}},
            .bytes = bytes_of(data)};
  return queue_->add_message(std::move(call), *store_, sends ? getRank() : peer,
                             sends ? peer : getRank());
}

WorkHandle ProcessGroup::send(Tensors& tensors, int peer, int /*tag*/) {
  return message(tensors, peer, true);
}

WorkHandle ProcessGroup::recv(Tensors& tensors, int peer, int /*tag*/) {
  return message(tensors, peer, false);
}

WorkHandle ProcessGroup::recvAnysource(Tensors& /*tensors*/, int /*tag*/) {
  TORCH_CHECK(
      false,
      "plexus: a message is received from a rank that is named; give recv its src, or use the "
      "backend gloo or mpi for messages from any rank");
}

// ---- barriers ----

WorkHandle ProcessGroup::barrier(const c10d::BarrierOptions& /*options*/) {
  const at::Tensor token = at::zeros({1}, at::kByte);
  return queue_->add({.type = OpType::BARRIER,
                      .name = "plexus:barrier",
                      .issue = [token](ncclComm_t comm, cudaStream_t stream) {
                        check(ncclAllReduce(token.data_ptr(), token.data_ptr(), 1, ncclUint8,
                                            ncclMax, comm, stream),
                              "barrier", comm);
                      }});
}

/// Through the store, so that it also works where a collective hangs.
void ProcessGroup::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  TORCH_CHECK(store_ != nullptr, "plexus: the group has no store yet");
  const milliseconds timeout =
      options.timeout == c10d::kUnsetTimeout ? queue_->timeout() : options.timeout;
  const std::string prefix = c10::str("monitored_barrier/", monitored_barriers_++, "/");
  const auto wait_for = [&](const std::string& key, std::chrono::steady_clock::time_point until) {
    constexpr auto kPollStore = milliseconds(2);
    while (!store_->check({prefix + key})) {
      if (std::chrono::steady_clock::now() > until) {
        return false;
      }
      std::this_thread::sleep_for(kPollStore);
    }
    return true;
  };
  auto until = std::chrono::steady_clock::now() + timeout;
  if (getRank() != 0) {
    constexpr auto kForTheVerdict = milliseconds(5000);  // rank 0 waits for `timeout` itself
    store_->set(prefix + std::to_string(getRank()), std::vector<uint8_t>{1});
    TORCH_CHECK(wait_for("verdict", until + kForTheVerdict),
                "plexus: rank 0 did not come to monitored_barrier within ", timeout.count(), " ms");
    const auto verdict = store_->get(prefix + "verdict");
    TORCH_CHECK(verdict.size() == 1, std::string(verdict.begin(), verdict.end()));
    return;
  }
  std::string missing;
  for (int rank = 1; rank < getSize() && (missing.empty() || wait_all_ranks); ++rank) {
    if (!wait_for(std::to_string(rank), until)) {
      missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  const std::string text =
      c10::str("plexus: rank ", missing, " did not come to monitored_barrier within ",
               timeout.count(), " ms");
  store_->set(prefix + "verdict", missing.empty() ? std::vector<uint8_t>{1}
                                                  : std::vector<uint8_t>(text.begin(), text.end()));
  TORCH_CHECK(missing.empty(), text);
}

}  // namespace torch_plexus
