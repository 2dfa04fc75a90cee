// SPDX-License-Identifier: Apache-2.0
// All that reduces makes the same of the same: host ranks, device ranks and the aggregator, for
// every type and operation, with NaN, infinities, zeros of both signs and subnormal numbers.
#include "plugins/collnet-aggregator/arithmetic.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/elements.hpp"
#include "kernels/host/reduce.hpp"
#include "tests/support/all_types.hpp"

namespace plexus {
namespace {

template <DataType type>
using BitsOf = typename Element<type>::Bits;

template <DataType type>
double value_of(BitsOf<type> bits) {
  if constexpr (!is_floating(type)) {
    return static_cast<double>(bits);
  } else if constexpr (type == DataType::kFloat64) {
    return std::bit_cast<double>(bits);
  } else if constexpr (type == DataType::kFloat32) {
    return std::bit_cast<float>(bits);
  } else if constexpr (type == DataType::kBfloat16) {
    return widen_bfloat16(bits);
  } else if constexpr (type == DataType::kFloat16) {
    return widen(kHalf, bits);
  } else {
    return widen(type == DataType::kFloat8e4m3 ? kE4m3 : kE5m2, bits);
  }
}

/// Values of each magnitude, with both signs: zero, the least, the middle, the largest numbers, and
/// what lies above them, which are infinities and NaN in floats.
template <DataType type>
std::vector<BitsOf<type>> special_values() {
  using Bits = std::make_unsigned_t<BitsOf<type>>;
  constexpr auto kSign = static_cast<Bits>(Bits{1} << (sizeof(Bits) * 8 - 1));
  std::vector<BitsOf<type>> values;
  const auto add = [&](Bits magnitude) {
    values.push_back(static_cast<BitsOf<type>>(magnitude));
    values.push_back(static_cast<BitsOf<type>>(magnitude | kSign));
  };
  for (const int low : {0, 1, 3}) {
    add(static_cast<Bits>(low));
  }
  for (size_t bit = 2; bit + 1 < sizeof(Bits) * 8; ++bit) {  // all exponents end with ones
    const auto top = static_cast<Bits>(kSign - (Bits{1} << bit));
    add(top);
    add(static_cast<Bits>(top - 1));
    add(static_cast<Bits>(top + 1));
  }
  add(static_cast<Bits>(kSign - 1));
  return values;
}

template <DataType type>
BitsOf<type> on_host(ReduceKind kind, BitsOf<type> a, BitsOf<type> b) {
  // Enough elements that vectors are used.
  constexpr size_t kCount = 67;
  const std::vector<BitsOf<type>> left(kCount, a);
  const std::vector<BitsOf<type>> right(kCount, b);
  std::vector<BitsOf<type>> made(kCount);
  find_reduce_pair(type, kind)(made.data(), left.data(), right.data(), kCount);
  for (const BitsOf<type> each : made) {
    EXPECT_TRUE(each == made.front() || std::isnan(value_of<type>(each)));
  }
  return made.front();
}

template <DataType type, ReduceKind kind>
BitsOf<type> on_device(BitsOf<type> a, BitsOf<type> b) {
  uint64_t left = 0;
  uint64_t right = 0;
  std::memcpy(&left, &a, sizeof(a));
  std::memcpy(&right, &b, sizeof(b));
  const uint64_t made = Combining<type, kind>::combine(left, right);
  BitsOf<type> first;
  std::memcpy(&first, &made, sizeof(first));
  return first;
}

template <DataType type>
BitsOf<type> in_network(int32_t op, BitsOf<type> a, BitsOf<type> b) {
  aggregator::combine(static_cast<int32_t>(type), op, std::as_writable_bytes(std::span(&a, 1)),
                      std::as_bytes(std::span(&b, 1)));
  return a;
}

template <DataType type>
void expect_same(BitsOf<type> made, BitsOf<type> wanted, const char* where) {
  if (!std::isnan(value_of<type>(wanted)) || !std::isnan(value_of<type>(made))) {
    EXPECT_EQ(+made, +wanted) << where;  // any NaN is as good as another
  }
}

/// The rule itself. C's functions keep a NaN that signals.
double extremum_of(ReduceKind kind, double x, double y) {
  if (std::isnan(x) || std::isnan(y)) {
    return std::isnan(x) ? y : x;
  }
  return kind == ReduceKind::kMax ? std::max(x, y) : std::min(x, y);
}

template <DataType type>
void expect_rule(ReduceKind kind, BitsOf<type> a, BitsOf<type> b, BitsOf<type> made) {
  if (!is_floating(type) || (kind != ReduceKind::kMax && kind != ReduceKind::kMin)) {
    return;
  }
  const double x = value_of<type>(a);
  const double y = value_of<type>(b);
  const double wanted = extremum_of(kind, x, y);
  const bool saturates = type == DataType::kFloat8e5m2 && std::isinf(wanted);
  if (!saturates) {
    const double got = value_of<type>(made);
    EXPECT_TRUE(std::isnan(wanted) ? std::isnan(got) : got == wanted) << x << " " << y;
  }
}

template <DataType type, ReduceKind kind>
void expect_agreement(int32_t op) {
  SCOPED_TRACE(testing::Message() << name(type) << ", operation " << op);
  const bool has_aggregator = aggregator::can_reduce(static_cast<int32_t>(type), op);
  EXPECT_EQ(has_aggregator, type != DataType::kFloat8e4m3 && type != DataType::kFloat8e5m2);
  for (const BitsOf<type> a : special_values<type>()) {
    for (const BitsOf<type> b : special_values<type>()) {
      const BitsOf<type> wanted = on_host<type>(kind, a, b);
      expect_rule<type>(kind, a, b, wanted);
      expect_same<type>(on_device<type, kind>(a, b), wanted, "device");
      if (has_aggregator) {
        expect_same<type>(in_network<type>(op, a, b), wanted, "aggregator");
      }
      if (testing::Test::HasFailure()) {
        FAIL() << "bits " << +a << " and " << +b;
      }
    }
  }
}

template <class Type>
struct Reductions : testing::Test {};
TYPED_TEST_SUITE(Reductions, AllTypes, TypeNames);

TYPED_TEST(Reductions, AreTheSameEverywhere) {
  constexpr DataType kType = TypeParam::value;
  expect_agreement<kType, ReduceKind::kSum>(0);
  expect_agreement<kType, ReduceKind::kProd>(1);
  expect_agreement<kType, ReduceKind::kMax>(2);
  expect_agreement<kType, ReduceKind::kMin>(3);
}

}  // namespace
}  // namespace plexus
