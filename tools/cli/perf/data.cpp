// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/data.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tools/cli/perf/elements.hpp"

namespace plexus::perf {
namespace {

// NOLINTBEGIN(readability-magic-numbers): the constants are the functions
/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
constexpr uint64_t mix(uint64_t x) noexcept {
  x ^= x >> 30U;
  x *= 0xbf58476d1ce4e5b9U;
  x ^= x >> 27U;
  x *= 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

/// hash(seed, element, position); the factors are odd, so that no element or position is lost.
constexpr uint64_t hash(uint64_t seed, uint64_t index, uint64_t position) noexcept {
  return mix(seed + index * 0x9e3779b97f4a7c15U + position * 0xd1342543de82ef95U);
}

// NOLINTEND(readability-magic-numbers)

/// A position that no rank has, for values that depend on the element only.
constexpr uint64_t kElement = uint64_t{1} << 40U;

/// A number in 0 .. n-1 from the upper half of a hash.
constexpr uint64_t below(uint64_t hashed, uint64_t n) noexcept {
  return ((hashed >> 32U) * n) >> 32U;
}

constexpr double power_of_two(int exponent) noexcept {
  constexpr int kBias = 1023;
  constexpr unsigned kMantissaBits = 52;
  return std::bit_cast<double>(static_cast<uint64_t>(exponent + kBias) << kMantissaBits);
}

/// Inverse of an odd number modulo 2^64: each Newton step doubles the right bits, from 5 to 80.
constexpr uint64_t inverse(uint64_t odd) noexcept {
  uint64_t x = (3 * odd) ^ 2U;
  for (int step = 0; step < 4; ++step) {
    x *= 2 - odd * x;
  }
  return x;
}
static_assert(inverse(~uint64_t{4}) * ~uint64_t{4} == 1);

/// Places the ranks in an order that differs per element.
struct Rotation {
  uint64_t nranks;
  [[nodiscard]] uint64_t position(uint64_t shape, uint64_t rank) const noexcept {
    const uint64_t at = rank + below(shape, nranks);
    return at >= nranks ? at - nranks : at;
  }
};

// Each rule below has contribution(index, rank) and result(index); both return the element's bits.

template <class E>
class IntSumRule {
 public:
  explicit IntSumRule(const Reduction& r)
      : seed_(r.seed),
        nranks_(static_cast<uint64_t>(r.nranks)),
        op_(r.op),
        mask_(r.op == Op::kMulSum ? ~uint64_t{1} : ~uint64_t{0}) {}
  [[nodiscard]] auto contribution(uint64_t index, uint64_t rank) const noexcept {
    const uint64_t share = edge(index, rank + 1) - edge(index, rank);
    const bool halved = op_ == Op::kMulSum && rank % 2 == 1;  // even, so its half times 2 is exact
    return static_cast<typename E::Bits>(halved ? share >> 1U : share);
  }
  [[nodiscard]] auto result(uint64_t index) const noexcept {
    using Bits = typename E::Bits;
    const auto sum = static_cast<Bits>(edge(index, nranks_) - edge(index, 0));
    if (op_ != Op::kAvg) {
      return sum;
    }
    using Value = typename E::Value;
    using Wide = std::conditional_t<std::is_signed_v<Value>, int64_t, uint64_t>;
    return static_cast<Bits>(static_cast<Wide>(static_cast<Value>(sum)) /
                             static_cast<Wide>(nranks_));
  }

 private:
  [[nodiscard]] uint64_t edge(uint64_t index, uint64_t position) const noexcept {
    return hash(seed_, index, position) & mask_;
  }
  uint64_t seed_, nranks_;
  Op op_;
  uint64_t mask_;
};

template <class E>
class IntProdRule {
 public:
  explicit IntProdRule(const Reduction& r)
      : seed_(r.seed), nranks_(static_cast<uint64_t>(r.nranks)) {}
  [[nodiscard]] auto contribution(uint64_t index, uint64_t rank) const noexcept {
    const uint64_t shape = hash(seed_, index, kElement);
    const uint64_t factor = edge(index, rank + 1) * inverse(edge(index, rank));
    return static_cast<typename E::Bits>(below(shape, nranks_) == rank ? factor * shape : factor);
  }
  [[nodiscard]] auto result(uint64_t index) const noexcept {
    const uint64_t shape = hash(seed_, index, kElement);
    return static_cast<typename E::Bits>(edge(index, nranks_) * inverse(edge(index, 0)) * shape);
  }

 private:
  [[nodiscard]] uint64_t edge(uint64_t index, uint64_t position) const noexcept {
    return hash(seed_, index, position) | 1U;
  }
  uint64_t seed_, nranks_;
};

template <class E>
class FloatSumRule {
 public:
  explicit FloatSumRule(const Reduction& r)
      : seed_(r.seed), rotation_{static_cast<uint64_t>(r.nranks)}, halves_(r.op == Op::kMulSum) {
    constexpr uint64_t kExact = uint64_t{1} << static_cast<unsigned>(E::kPrecision);
    constexpr uint64_t kEnough = 1U << 20U;
    window_ = std::min(rotation_.nranks, kExact);
    largest_ = std::min(kExact / window_, kEnough);
  }
  [[nodiscard]] auto contribution(uint64_t index, uint64_t rank) const noexcept {
    const uint64_t shape = hash(seed_, index, kElement);
    const uint64_t at = rotation_.position(shape, rank);
    const double share = at < window_ ? edge(index, at + 1) - edge(index, at) : 0;
    return E::encode(share * unit(shape) * (halves_ && rank % 2 == 1 ? 0.5 : 1));
  }
  [[nodiscard]] auto result(uint64_t index) const noexcept {
    const double sum = edge(index, window_) - edge(index, 0);
    return E::encode(sum * unit(hash(seed_, index, kElement)));
  }

 private:
  [[nodiscard]] double edge(uint64_t index, uint64_t position) const noexcept {
    return static_cast<double>(below(hash(seed_, index, position), largest_ + 1));
  }
  /// 2^-4 .. 2^3: in the range of every type, also after the sum and the halving.
  static double unit(uint64_t shape) noexcept {
    return power_of_two(static_cast<int>(shape & 7U) - 4);
  }
  uint64_t seed_;
  Rotation rotation_;
  bool halves_;
  uint64_t window_, largest_;  // window_ * largest_ <= 2^precision: no partial sum is ever rounded
};

template <class E>
class FloatProdRule {
 public:
  explicit FloatProdRule(const Reduction& r)
      : seed_(r.seed), rotation_{static_cast<uint64_t>(r.nranks)} {
    constexpr uint64_t kSpan = E::kSpan;
    window_ = std::min(rotation_.nranks, kSpan);
    largest_ = kSpan / window_;
  }
  [[nodiscard]] auto contribution(uint64_t index, uint64_t rank) const noexcept {
    const uint64_t shape = hash(seed_, index, kElement);
    const uint64_t at = rotation_.position(shape, rank);
    const int power = at < window_ ? edge(index, at + 1) - edge(index, at) : 0;
    const double factor = sign(index, at + 1) * sign(index, at) * power_of_two(power);
    return E::encode(at == 0 ? factor * mantissa(shape) : factor);
  }
  [[nodiscard]] auto result(uint64_t index) const noexcept {
    const double signs = sign(index, rotation_.nranks) * sign(index, 0);
    return E::encode(signs * mantissa(hash(seed_, index, kElement)) *
                     power_of_two(edge(index, window_) - edge(index, 0)));
  }

 private:
  [[nodiscard]] int edge(uint64_t index, uint64_t position) const noexcept {
    return static_cast<int>(below(hash(seed_, index, position), largest_ + 1));
  }
  [[nodiscard]] double sign(uint64_t index, uint64_t position) const noexcept {
    return (hash(seed_, index, position) & 1U) != 0 ? -1 : 1;
  }
  static double mantissa(uint64_t shape) noexcept {
    constexpr unsigned kBits = E::kPrecision - 1;
    return 1 + static_cast<double>(shape & ((uint64_t{1} << kBits) - 1)) /
                   static_cast<double>(uint64_t{1} << kBits);
  }
  uint64_t seed_;
  Rotation rotation_;
  uint64_t window_, largest_;  // window_ * largest_ <= span: no partial product leaves the range
};

template <class E>
class FloatAvgRule {
 public:
  explicit FloatAvgRule(const Reduction& r)
      : seed_(r.seed), rotation_{static_cast<uint64_t>(r.nranks)} {}
  [[nodiscard]] auto contribution(uint64_t index, uint64_t rank) const noexcept {
    const uint64_t shape = hash(seed_, index, kElement);
    const uint64_t at = rotation_.position(shape, rank);
    return E::encode(at < kContributors ? value(index, at, shape) : 0);
  }
  [[nodiscard]] auto result(uint64_t index) const noexcept {
    const uint64_t shape = hash(seed_, index, kElement);
    double sum = value(index, 0, shape);
    if (rotation_.nranks > 1) {
      sum += value(index, 1, shape);
    }
    return E::encode(sum / static_cast<double>(rotation_.nranks));
  }

 private:
  static constexpr uint64_t kContributors = 2;
  /// The same sign for both contributors, so that nothing cancels and the tolerance only covers
  /// rounding.
  [[nodiscard]] double value(uint64_t index, uint64_t position, uint64_t shape) const noexcept {
    constexpr uint64_t kSteps = uint64_t{1} << static_cast<unsigned>(E::kPrecision - 1);
    const uint64_t hashed = hash(seed_, index, position);
    const double mantissa =
        1 + static_cast<double>(hashed & (kSteps - 1)) / static_cast<double>(kSteps);
    const double sign = (shape & 8U) != 0 ? -1 : 1;
    return sign * mantissa * power_of_two(static_cast<int>(shape & 3U));
  }
  uint64_t seed_;
  Rotation rotation_;
};

template <class E>
class ExtremeRule {
 public:
  explicit ExtremeRule(const Reduction& r)
      : seed_(r.seed), nranks_(static_cast<uint64_t>(r.nranks)), mirrored_(r.op == Op::kMin) {}
  [[nodiscard]] auto contribution(uint64_t index, uint64_t rank) const noexcept {
    const uint64_t shape = hash(seed_, index, kElement);
    const uint64_t winner = top(shape);
    // A bitwise "and" with anything is a smaller or equal number.
    return bits(below(shape, nranks_) == rank ? winner : winner & hash(seed_, index, rank));
  }
  [[nodiscard]] auto result(uint64_t index) const noexcept {
    return bits(top(hash(seed_, index, kElement)));
  }

 private:
  static uint64_t top(uint64_t shape) noexcept {
    constexpr uint64_t kLast = E::last_ordinal();
    const uint64_t drawn = mix(shape);
    if constexpr (kLast == ~uint64_t{0}) {
      return drawn;
    } else {
      return drawn % (kLast + 1);
    }
  }
  [[nodiscard]] auto bits(uint64_t ordinal) const noexcept {
    return E::of_ordinal(mirrored_ ? E::last_ordinal() - ordinal : ordinal);
  }
  uint64_t seed_, nranks_;
  bool mirrored_;
};

template <class Bits, class Value>
void fill(std::span<std::byte> out, size_t first_index, Value&& value) {
  const size_t count = out.size() / sizeof(Bits);
  std::byte* place = out.data();
  for (size_t i = 0; i < count; ++i, place += sizeof(Bits)) {
    const Bits bits = value(first_index + i);
    std::memcpy(place, &bits, sizeof bits);
  }
}

/// Calls `function(rule)` with the reduction's rule.
template <class E, class Function>
void with_rule(const Reduction& reduction, Function&& function) {
  switch (reduction.op) {
    case Op::kMax:
    case Op::kMin:
      return function(ExtremeRule<E>(reduction));
    case Op::kProd:
      if constexpr (E::kFloating) {
        return function(FloatProdRule<E>(reduction));
      } else {
        return function(IntProdRule<E>(reduction));
      }
    case Op::kAvg:
      if constexpr (E::kFloating) {
        return function(FloatAvgRule<E>(reduction));
      }
      [[fallthrough]];
    case Op::kSum:
    case Op::kMulSum:
      break;
  }
  if constexpr (E::kFloating) {
    function(FloatSumRule<E>(reduction));
  } else {
    function(IntSumRule<E>(reduction));
  }
}

}  // namespace

void fill_stream(
    Type type, uint64_t seed, int source, size_t first_index, std::span<std::byte> out) {
  with_element(type, [&]<class E>() {
    fill<typename E::Bits>(out, first_index, [&](uint64_t index) {
      return static_cast<typename E::Bits>(hash(seed, index, static_cast<uint64_t>(source)));
    });
  });
}

void fill_contribution(const Reduction& reduction,
                       int rank,
                       size_t first_index,
                       std::span<std::byte> out) {
  with_element(reduction.type, [&]<class E>() {
    with_rule<E>(reduction, [&](const auto& rule) {
      fill<typename E::Bits>(out, first_index, [&](uint64_t index) {
        return rule.contribution(index, static_cast<uint64_t>(rank));
      });
    });
  });
}

void fill_result(const Reduction& reduction, size_t first_index, std::span<std::byte> out) {
  with_element(reduction.type, [&]<class E>() {
    with_rule<E>(reduction, [&](const auto& rule) {
      fill<typename E::Bits>(out, first_index, [&](uint64_t index) { return rule.result(index); });
    });
  });
}

int tolerance_units(const Reduction& reduction) noexcept {
  constexpr int kAverageUnits = 2;  // roundings of 1/n, of two products, and of the sum
  if (reduction.op != Op::kAvg || !info_of(reduction.type).floating) {
    return 0;
  }
  // If 1/n is not a normal number of the type, its rounding error exceeds one unit in the last
  // place.
  return with_element(reduction.type, [&]<class E>() {
    if constexpr (E::kFloating) {
      const double error =
          std::abs(E::decode(E::encode(1.0 / reduction.nranks)) * reduction.nranks - 1);
      const double units = std::ldexp(error, E::kPrecision);
      return kAverageUnits + (units > 1 ? static_cast<int>(std::ceil(units)) : 0);
    } else {
      return 0;
    }
  });
}

uint64_t count_wrong(Type type,
                     int units,
                     std::span<const std::byte> got,
                     std::span<const std::byte> want) noexcept {
  if (got.empty() || std::memcmp(got.data(), want.data(), got.size()) == 0) {
    return 0;
  }
  return with_element(type, [&]<class E>() {
    using Bits = typename E::Bits;
    uint64_t wrong = 0;
    for (size_t at = 0; at + sizeof(Bits) <= got.size(); at += sizeof(Bits)) {
      Bits a = 0;
      Bits b = 0;
      std::memcpy(&a, got.data() + at, sizeof a);
      std::memcpy(&b, want.data() + at, sizeof b);
      if constexpr (E::kFloating) {
        wrong += units == 0 ? a != b : E::distance(a, b) > static_cast<uint64_t>(units);
      } else {
        wrong += a != b;
      }
    }
    return wrong;
  });
}

Scalar premul_scalar(Type type, int rank) noexcept {
  Scalar scalar{};
  with_element(type, [&]<class E>() {
    using Bits = typename E::Bits;
    Bits bits;
    if constexpr (E::kFloating) {
      bits = E::encode(rank % 2 == 1 ? 2 : 1);
    } else {
      bits = E::one_or_two(rank % 2 == 1);
    }
    std::memcpy(scalar.bytes, &bits, sizeof bits);
  });
  return scalar;
}

}  // namespace plexus::perf
