// SPDX-License-Identifier: Apache-2.0
// The process group of backend "plexus": c10d's collectives and messages on CPU tensors as calls of
// nccl.h. It checks arguments, brings tensors into the shape that a call needs, and hands the call
// to the queue (work.hpp).
//
// PyTorch 1.13 and 2.6 are what is tested. From 2.0 on the interface is called Backend.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/version.h>
#include <vector>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif

#include "work.hpp"

namespace torch_plexus {

#if TORCH_VERSION_MAJOR >= 2
using GroupBase = c10d::Backend;
#else
using GroupBase = c10d::ProcessGroup;
#endif
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
using WorkHandle = c10::intrusive_ptr<c10d::Work>;

class ProcessGroup : public GroupBase {
 public:
  ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store,
               int rank,
               int size,
               std::chrono::milliseconds timeout);
  /// Without a store until use_store().
  ProcessGroup(std::unique_ptr<Communicator> comm, std::chrono::milliseconds timeout);
  ~ProcessGroup() override;

  const std::string getBackendName() const override { return "plexus"; }

  WorkHandle broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkHandle allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkHandle allreduce_coalesced(Tensors& tensors,
                                 const c10d::AllreduceCoalescedOptions& options) override;
  WorkHandle reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkHandle allgather(TensorLists& outputs,
                       Tensors& inputs,
                       const c10d::AllgatherOptions& options) override;
  WorkHandle _allgather_base(at::Tensor& output,
                             at::Tensor& input,
                             const c10d::AllgatherOptions& options) override;
  WorkHandle allgather_coalesced(TensorLists& outputs,
                                 Tensors& inputs,
                                 const c10d::AllgatherOptions& options) override;
  WorkHandle gather(TensorLists& outputs,
                    Tensors& inputs,
                    const c10d::GatherOptions& options) override;
  WorkHandle scatter(Tensors& outputs,
                     TensorLists& inputs,
                     const c10d::ScatterOptions& options) override;
  WorkHandle reduce_scatter(Tensors& outputs,
                            TensorLists& inputs,
                            const c10d::ReduceScatterOptions& options) override;
  WorkHandle _reduce_scatter_base(at::Tensor& output,
                                  at::Tensor& input,
                                  const c10d::ReduceScatterOptions& options) override;
#if TORCH_VERSION_MAJOR >= 2
  WorkHandle allgather_into_tensor_coalesced(Tensors& outputs,
                                             Tensors& inputs,
                                             const c10d::AllgatherOptions& options) override;
  WorkHandle reduce_scatter_tensor_coalesced(Tensors& outputs,
                                             Tensors& inputs,
                                             const c10d::ReduceScatterOptions& options) override;
#endif
  WorkHandle alltoall_base(at::Tensor& output,
                           at::Tensor& input,
                           std::vector<int64_t>& output_sizes,
                           std::vector<int64_t>& input_sizes,
                           const c10d::AllToAllOptions& options) override;
  WorkHandle alltoall(Tensors& outputs,
                      Tensors& inputs,
                      const c10d::AllToAllOptions& options) override;
  WorkHandle send(Tensors& tensors, int peer, int tag) override;
  WorkHandle recv(Tensors& tensors, int peer, int tag) override;
  WorkHandle recvAnysource(Tensors& tensors, int tag) override;
  WorkHandle barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return queue_->count(); }

  // What this backend adds.
  /// A group of the ranks that are left of one that failed. use_store() completes it.
  c10::intrusive_ptr<ProcessGroup> shrink(const std::vector<int>& excluded);
  [[nodiscard]] std::vector<int> gone_ranks() const { return queue_->gone_ranks(); }
  void use_store(const c10::intrusive_ptr<c10d::Store>& store) { store_ = store; }
  /// Ends all calls, on this rank and on the others, for `reason`.
  void abort(const std::string& reason) { queue_->abort(reason); }

 private:
  WorkHandle all_gather_and_combine(const at::Tensor& tensor, const c10d::ReduceOp& op, int root);
  WorkHandle message(Tensors& tensors, int peer, bool sends);
  void check_root(int64_t root) const;

  c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<CallQueue> queue_;
  uint64_t monitored_barriers_ = 0;
};

}  // namespace torch_plexus
