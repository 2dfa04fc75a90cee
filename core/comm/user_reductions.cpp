// SPDX-License-Identifier: Apache-2.0
#include "core/comm/user_reductions.hpp"

#include <limits>

#include "core/base/hash.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

enum BuiltInOp : int { kSum, kProd, kMax, kMin, kAvg };  // ncclRedOp_t

}  // namespace

int UserReductions::add(DataType type, const void* scalar, bool on_device) {
  Entry entry{.type = type, .op = ReduceOp::premul_sum(0), .scalar = nullptr};
  if (on_device) {
    entry.scalar = scalar;
  } else {
    entry.op.load_scalar(scalar, type);
  }
  constexpr uint64_t kRange = std::numeric_limits<int>::max() - kFirstUserOp;
  Fnv1a hash;
  hash.mix(group_);
  hash.mix(++nmade_);
  uint64_t value = hash.value();
  int op = kFirstUserOp + static_cast<int>(value % kRange);
  while (entries_.count(op) != 0) {
    op = kFirstUserOp + static_cast<int>(++value % kRange);
  }
  PLEXUS_DCHECK(op >= kFirstUserOp, op);
  entries_.emplace(op, entry);
  return op;
}

Result<void> UserReductions::remove(int op) {
  if (entries_.erase(op) == 0) {
    return fail(Code::kInvalidArgument, "{} is not a user-defined reduction of this communicator",
                op);
  }
  return ok();
}

Result<void> UserReductions::resolve(Task* task) const {
  const DataType type = task->shape.datatype();
  switch (task->shape.op) {
    case kSum:
      task->op = ReduceOp::plain(ReduceKind::kSum);
      return ok();
    case kProd:
      task->op = ReduceOp::plain(ReduceKind::kProd);
      return ok();
    case kMax:
      task->op = ReduceOp::plain(ReduceKind::kMax);
      return ok();
    case kMin:
      task->op = ReduceOp::plain(ReduceKind::kMin);
      return ok();
    case kAvg:
      task->op = ReduceOp::average(type, static_cast<uint32_t>(nranks_));
      return ok();
    default:
      break;
  }
  const auto at = entries_.find(task->shape.op);
  if (at == entries_.end()) {
    return fail(Code::kInvalidArgument,
                "op {} is neither a built-in reduction nor one that ncclRedOpCreatePreMulSum "
                "created for this communicator",
                task->shape.op);
  }
  const Entry& entry = at->second;
  if (entry.type != type) {
    return fail(Code::kInvalidArgument, "op {} was created for datatype {}, not for {}",
                task->shape.op, name(entry.type), name(type));
  }
  task->shape.op = kFirstUserOp;  // one plan for all of them: they differ in the scalar alone
  task->op = entry.op;
  task->scalar = entry.scalar;
  return ok();
}

}  // namespace plexus
