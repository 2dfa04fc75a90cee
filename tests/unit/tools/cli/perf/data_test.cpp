// SPDX-License-Identifier: Apache-2.0
// Method: reduce the contributions in the type's own arithmetic, rounding after each step, in
// several orders and groupings, and compare with the generator's expected result.
#include "tools/cli/perf/data.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tools/cli/perf/elements.hpp"

namespace plexus::perf {
namespace {

using Bytes = std::vector<std::byte>;
constexpr size_t kElements = 96;

template <class E>
typename E::Bits load(const Bytes& bytes, size_t index) {
  typename E::Bits bits;
  std::memcpy(&bits, bytes.data() + index * sizeof bits, sizeof bits);
  return bits;
}

/// The rank's contribution as it enters the sum.
template <class E>
typename E::Bits weigh(const Reduction& reduction, int rank, typename E::Bits bits) {
  using Bits = typename E::Bits;
  const int twice = reduction.op == Op::kMulSum && rank % 2 == 1 ? 2 : 1;
  if constexpr (E::kFloating) {
    double value = E::decode(bits) * twice;
    if (reduction.op == Op::kAvg) {
      value *= E::decode(E::encode(1.0 / reduction.nranks));
    }
    return E::encode(value);
  } else {
    return static_cast<Bits>(static_cast<uint64_t>(bits) * static_cast<uint64_t>(twice));
  }
}

template <class E>
typename E::Bits combine(Op op, typename E::Bits a, typename E::Bits b) {
  using Bits = typename E::Bits;
  if constexpr (E::kFloating) {
    const double x = E::decode(a);
    const double y = E::decode(b);
    return E::encode(op == Op::kProd  ? x * y
                     : op == Op::kMax ? std::max(x, y)
                     : op == Op::kMin ? std::min(x, y)
                                      : x + y);
  } else {
    using Value = typename E::Value;
    switch (op) {
      case Op::kProd:
        return static_cast<Bits>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      case Op::kMax:
        return static_cast<Value>(a) > static_cast<Value>(b) ? a : b;
      case Op::kMin:
        return static_cast<Value>(a) < static_cast<Value>(b) ? a : b;
      default:
        return static_cast<Bits>(a + b);
    }
  }
}

template <class E>
typename E::Bits finish(const Reduction& reduction, typename E::Bits bits) {
  if constexpr (!E::kFloating) {
    if (reduction.op == Op::kAvg) {
      using Value = typename E::Value;
      using Wide = std::conditional_t<std::is_signed_v<Value>, int64_t, uint64_t>;
      return static_cast<typename E::Bits>(static_cast<Wide>(static_cast<Value>(bits)) /
                                           static_cast<Wide>(reduction.nranks));
    }
  }
  return bits;
}

/// Reduces the ranks in `order`, one after the other, or in pairs of pairs.
template <class E>
typename E::Bits reduce(Op op, std::vector<typename E::Bits> values, bool pairwise) {
  while (values.size() > 1) {
    if (!pairwise) {
      values[1] = combine<E>(op, values[0], values[1]);
      values.erase(values.begin());
      continue;
    }
    std::vector<typename E::Bits> halved;
    for (size_t i = 0; i + 1 < values.size(); i += 2) {
      halved.push_back(combine<E>(op, values[i], values[i + 1]));
    }
    if (values.size() % 2 == 1) {
      halved.push_back(values.back());
    }
    values = std::move(halved);
  }
  return values.front();
}

struct Inputs {
  std::vector<Bytes> of_rank;
  Bytes result;
};

Inputs make_inputs(const Reduction& reduction) {
  const size_t size_bytes = kElements * info_of(reduction.type).size_bytes;
  Inputs inputs{std::vector<Bytes>(static_cast<size_t>(reduction.nranks), Bytes(size_bytes)),
                Bytes(size_bytes)};
  for (int rank = 0; rank < reduction.nranks; ++rank) {
    fill_contribution(reduction, rank, 0, inputs.of_rank[static_cast<size_t>(rank)]);
  }
  fill_result(reduction, 0, inputs.result);
  return inputs;
}

/// Number of elements whose result in this order is not the expected one; `order` lists the ranks.
template <class E>
uint64_t count_wrong_in_order(const Reduction& reduction,
                              const Inputs& inputs,
                              const std::vector<int>& order,
                              bool pairwise) {
  Bytes got(inputs.result.size());
  for (size_t i = 0; i < kElements; ++i) {
    std::vector<typename E::Bits> values;
    values.reserve(order.size());
    for (const int rank : order) {
      values.push_back(
          weigh<E>(reduction, rank, load<E>(inputs.of_rank[static_cast<size_t>(rank)], i)));
    }
    const auto bits = finish<E>(reduction, reduce<E>(reduction.op, std::move(values), pairwise));
    std::memcpy(got.data() + i * sizeof bits, &bits, sizeof bits);
  }
  return count_wrong(reduction.type, tolerance_units(reduction), got, inputs.result);
}

class ReductionData : public ::testing::TestWithParam<std::tuple<TypeInfo, OpInfo>> {
 protected:
  [[nodiscard]] static Reduction make(int nranks) {
    return {.type = std::get<0>(GetParam()).type,
            .op = std::get<1>(GetParam()).op,
            .nranks = nranks,
            .seed = 41};
  }
};

TEST_P(ReductionData, IsExactInAnyOrder) {
  for (const int nranks : {1, 2, 3, 4, 7, 33}) {
    const Reduction reduction = make(nranks);
    const Inputs inputs = make_inputs(reduction);
    std::vector<int> order(static_cast<size_t>(nranks));
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(nranks);
    for (int round = 0; round < 4; ++round) {
      with_element(reduction.type, [&]<class E>() {
        EXPECT_EQ(count_wrong_in_order<E>(reduction, inputs, order, round % 2 == 1), 0U)
            << nranks << " ranks";
      });
      std::shuffle(order.begin(), order.end(), random);
    }
  }
}

TEST_P(ReductionData, NoticesAMissingRank) {
  const Reduction reduction = make(3);
  const Inputs inputs = make_inputs(reduction);
  for (const auto& order : {std::vector<int>{1, 2}, {0, 2}, {0, 1}}) {
    with_element(reduction.type, [&]<class E>() {
      EXPECT_GT(count_wrong_in_order<E>(reduction, inputs, order, false), kElements / 8);
    });
  }
}

TEST_P(ReductionData, DependsOnTheIndexAndNotOnTheBlock) {
  const Reduction reduction = make(5);
  const size_t element_bytes = info_of(reduction.type).size_bytes;
  Bytes whole(kElements * element_bytes);
  fill_contribution(reduction, 2, 100, whole);
  Bytes part(10 * element_bytes);
  fill_contribution(reduction, 2, 150, part);
  EXPECT_TRUE(std::equal(part.begin(), part.end(),
                         whole.begin() + static_cast<ptrdiff_t>(50 * element_bytes)));
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<TypeInfo, OpInfo>>& test_case) {
  return std::string(std::get<0>(test_case.param).name) + "_" + std::get<1>(test_case.param).name;
}
INSTANTIATE_TEST_SUITE_P(AllTypesAndOps,
                         ReductionData,
                         ::testing::Combine(::testing::ValuesIn(types().begin(), types().end()),
                                            ::testing::ValuesIn(ops().begin(), ops().end())),
                         name_of_case);

TEST(StreamData, DiffersBetweenSourcesAndSeeds) {
  Bytes a(4096);
  Bytes b(4096);
  fill_stream(Type::kFloat, 1, 0, 0, a);
  fill_stream(Type::kFloat, 1, 1, 0, b);
  EXPECT_GT(count_wrong(Type::kFloat, 0, a, b), 1000U);
  fill_stream(Type::kFloat, 2, 0, 0, b);
  EXPECT_GT(count_wrong(Type::kFloat, 0, a, b), 1000U);
  fill_stream(Type::kFloat, 1, 0, 0, b);
  EXPECT_EQ(count_wrong(Type::kFloat, 0, a, b), 0U);
}

TEST(CountWrong, CountsElementsAndNotBytes) {
  Bytes a(64);
  Bytes b = a;
  b[4] = b[5] = b[63] = std::byte{1};
  EXPECT_EQ(count_wrong(Type::kInt32, 0, a, b), 2U);
  EXPECT_EQ(count_wrong(Type::kInt8, 0, a, b), 3U);
  EXPECT_EQ(count_wrong(Type::kInt64, 0, Bytes(), Bytes()), 0U);
}

TEST(CountWrong, ToleratesSoManyUnitsAndNoMore) {
  const float one = 1.0F;
  Bytes want(sizeof one);
  std::memcpy(want.data(), &one, sizeof one);
  Bytes got = want;
  got[0] = std::byte{2};  // two units up
  EXPECT_EQ(count_wrong(Type::kFloat, 2, got, want), 0U);
  EXPECT_EQ(count_wrong(Type::kFloat, 1, got, want), 1U);
  EXPECT_EQ(count_wrong(Type::kFloat, 0, got, want), 1U);
}

TEST(ToleranceUnits, IsZeroButForFloatingAverages) {
  EXPECT_EQ(tolerance_units({.type = Type::kFloat, .op = Op::kSum, .nranks = 3, .seed = 0}), 0);
  EXPECT_EQ(tolerance_units({.type = Type::kInt32, .op = Op::kAvg, .nranks = 3, .seed = 0}), 0);
  EXPECT_EQ(tolerance_units({.type = Type::kFloat, .op = Op::kAvg, .nranks = 3, .seed = 0}), 2);
  EXPECT_EQ(tolerance_units({.type = Type::kHalf, .op = Op::kAvg, .nranks = 64, .seed = 0}), 2);
}

}  // namespace

void PrintTo(const TypeInfo& type, std::ostream* out) { *out << type.name; }
void PrintTo(const OpInfo& op, std::ostream* out) { *out << op.name; }

}  // namespace plexus::perf
