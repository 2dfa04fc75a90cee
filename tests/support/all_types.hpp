// SPDX-License-Identifier: Apache-2.0
// Every data type, for typed tests: TYPED_TEST_SUITE(Suite, AllTypes, TypeNames); TypeParam::value.
#pragma once

#include <string>
#include <type_traits>

#include <gtest/gtest.h>

#include "kernels/layout/types.hpp"

namespace plexus {

template <DataType type>
using TypeConstant = std::integral_constant<DataType, type>;
using AllTypes = testing::Types<TypeConstant<DataType::kInt8>,
                                TypeConstant<DataType::kUint8>,
                                TypeConstant<DataType::kInt32>,
                                TypeConstant<DataType::kUint32>,
                                TypeConstant<DataType::kInt64>,
                                TypeConstant<DataType::kUint64>,
                                TypeConstant<DataType::kFloat16>,
                                TypeConstant<DataType::kFloat32>,
                                TypeConstant<DataType::kFloat64>,
                                TypeConstant<DataType::kBfloat16>,
                                TypeConstant<DataType::kFloat8e4m3>,
                                TypeConstant<DataType::kFloat8e5m2>>;
struct TypeNames {
  template <class Type>
  static std::string GetName(int /*index*/) {
    return name(Type::value);
  }
};

}  // namespace plexus
