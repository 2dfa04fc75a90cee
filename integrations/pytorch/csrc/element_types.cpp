// SPDX-License-Identifier: Apache-2.0
#include "element_types.hpp"

#include <c10/util/Exception.h>
#include <torch/version.h>

#include "communicator.hpp"

namespace torch_plexus {
namespace {

using c10d::ReduceOp;

ncclDataType_t type_of(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return ncclInt8;
    case at::kByte:
    case at::kBool:
      return ncclUint8;
    case at::kInt:
      return ncclInt32;
    case at::kLong:
      return ncclInt64;
    case at::kHalf:
      return ncclFloat16;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kFloat:
    case at::kComplexFloat:
      return ncclFloat32;
    case at::kDouble:
    case at::kComplexDouble:
      return ncclFloat64;
    default:
      TORCH_CHECK(false, "plexus: tensors of type ", toString(type),
                  " cannot be reduced; convert them to a float, integer, bool or complex type");
  }
}

/// The operation on numbers.
ncclRedOp_t op_of(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
      return ncclSum;
    case ReduceOp::AVG:
      return ncclAvg;
    case ReduceOp::PRODUCT:
      return ncclProd;
    case ReduceOp::MIN:
      return ncclMin;
    case ReduceOp::MAX:
      return ncclMax;
    default:
      TORCH_CHECK(
          false,
          "plexus: this reduction is not supported for the tensor's type; SUM, AVG, PRODUCT, "
          "MIN and MAX are, BAND, BOR and BXOR for integers and bool, and premul sums for floats");
  }
}

/// The operation on truth values, 0 or 1: a sum is an "or", as in arithmetic of bool tensors.
ncclRedOp_t bool_op_of(ReduceOp::RedOpType op) {
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::MAX:
      return ncclMax;
    case ReduceOp::PRODUCT:
    case ReduceOp::MIN:
      return ncclMin;
    default:
      TORCH_CHECK(false,
                  "plexus: bool tensors are reduced by SUM, MAX, PRODUCT, MIN, BAND, BOR or BXOR; "
                  "convert them to a number for others");
  }
}

/// The factor of a premul sum, as PyTorch's users give it: a number, or a tensor with one.
at::Tensor factor_of(at::ScalarType type, const ReduceOp& op) {
  const auto* given = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(given != nullptr,
              "plexus: a premul sum needs its factor: make the op by "
              "torch.distributed._make_nccl_premul_sum(factor)");
#if TORCH_VERSION_MAJOR >= 2
  const at::Tensor tensor = given->tensor_factor;
#else
  TORCH_CHECK(given->tensor_factors.size() <= 1, "plexus: a premul sum got ",
              given->tensor_factors.size(), " factors; on CPUs a process gives one");
  const at::Tensor tensor =
      given->tensor_factors.empty() ? at::Tensor() : given->tensor_factors.front();
#endif
  TORCH_CHECK(!tensor.defined() || tensor.numel() == 1, "plexus: the factor of a premul sum has ",
              tensor.numel(), " elements in place of 1");
  const auto options = at::TensorOptions(at::kCPU).dtype(type);
  return tensor.defined() ? tensor.detach().to(options, false, true).reshape({1})
                          : at::full({1}, given->double_factor, options);
}

}  // namespace

Reduction reduction_of(at::ScalarType type, const ReduceOp& op) {
  const auto kind = static_cast<ReduceOp::RedOpType>(op);
  const bool is_complex = at::isComplexType(type);
  if (kind == ReduceOp::PREMUL_SUM && (is_complex || at::isFloatingType(type))) {
    const at::ScalarType real = c10::toRealValueType(type);
    return {.type = type_of(type),
            .op = ncclSum,
            .parts = is_complex ? 2 : 1,
            .factor = factor_of(real, op)};
  }
  TORCH_CHECK(!is_complex || kind == ReduceOp::SUM || kind == ReduceOp::AVG,
              "plexus: complex tensors are reduced by SUM, AVG or a premul sum only");
  return {.type = type_of(type),
          .op = type == at::kBool ? bool_op_of(kind) : op_of(kind),
          .parts = is_complex ? 2 : 1};
}

ScopedOp::ScopedOp(const Reduction& reduction, ncclComm_t comm) : op_(reduction.op) {
  if (reduction.factor.defined()) {
    check(ncclRedOpCreatePreMulSum(&op_, reduction.factor.data_ptr(), reduction.type,
                                   ncclScalarHostImmediate, comm),
          "ncclRedOpCreatePreMulSum", comm);
    made_for_ = comm;
  }
}

ScopedOp::~ScopedOp() {
  if (made_for_ != nullptr) {
    (void)ncclRedOpDestroy(op_, made_for_);
  }
}

at::ScalarType reduced_as(at::ScalarType type) { return type == at::kShort ? at::kInt : type; }

bool is_bitwise(const ReduceOp& op) {
  const auto kind = static_cast<ReduceOp::RedOpType>(op);
  return kind == ReduceOp::BAND || kind == ReduceOp::BOR || kind == ReduceOp::BXOR;
}

at::Tensor combine_bitwise(const at::Tensor& values, const ReduceOp& op) {
  at::Tensor result = values[0].clone();
  for (int64_t i = 1; i < values.size(0); ++i) {
    switch (static_cast<ReduceOp::RedOpType>(op)) {
      case ReduceOp::BAND:
        result.bitwise_and_(values[i]);
        break;
      case ReduceOp::BOR:
        result.bitwise_or_(values[i]);
        break;
      default:
        result.bitwise_xor_(values[i]);
        break;
    }
  }
  return result;
}

}  // namespace torch_plexus
