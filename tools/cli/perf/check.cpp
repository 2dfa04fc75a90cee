// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/check.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include <fmt/core.h>

namespace plexus::perf {
namespace {

constexpr int kPoisonByte = 0xa5;
constexpr int kGuardByte = 0x6c;
constexpr size_t kBlockBytes = size_t{64} * 1024;  // expected values per step: fits in the cache
static_assert(kBlockBytes % sizeof(uint64_t) == 0);

using Block = std::array<std::byte, kBlockBytes>;

Reduction reduction_of(const CheckInput& input) {
  return {
      .type = input.shape.type, .op = input.op, .nranks = input.shape.nranks, .seed = input.seed};
}

void fill_input(const CheckInput& input, size_t first_index, std::span<std::byte> out) {
  const Shape& shape = input.shape;
  if (info_of(shape.collective).reduces) {
    fill_contribution(reduction_of(input), shape.rank, first_index, out);
  } else {
    fill_stream(shape.type, input.seed, shape.rank, first_index, out);
  }
}

struct Range {
  std::byte* data;
  size_t size_bytes;
};

/// The memory that the operation may access: both buffers, or in place only the larger one.
std::array<Range, 2> ranges_of(const CheckInput& input) {
  const OpBuffers& b = input.buffers;
  const Range send = {b.send, b.send_bytes};
  const Range recv = {b.recv, b.recv_bytes};
  if (!input.shape.in_place) {
    return {send, recv};
  }
  const Range larger = b.recv_bytes >= b.send_bytes ? recv : send;
  return {larger, larger};
}

/// Compares blocks of `got` with what `fill(offset, block)` writes, and adds to the result.
class Comparer {
 public:
  Comparer(const CheckInput& input, CheckResult* result) : input_(input), result_(result) {}

  template <class Fill>
  void compare(const char* what, Range got, int units, Fill&& fill) {
    for (size_t at = 0; at < got.size_bytes; at += kBlockBytes) {
      const size_t size_bytes = std::min(kBlockBytes, got.size_bytes - at);
      const std::span want(block_.data(), size_bytes);
      fill(at, want);
      const std::span<const std::byte> have(got.data + at, size_bytes);
      const uint64_t wrong = count_wrong(input_.shape.type, units, have, want);
      if (wrong != 0 && result_->first.empty()) {
        describe(what, at, have, want);
      }
      result_->wrong += wrong;
    }
  }

  void compare_bytes(const char* what, Range got, int byte) {
    uint64_t wrong = 0;
    for (size_t at = 0; at < got.size_bytes; ++at) {
      wrong += got.data[at] != std::byte(byte);
    }
    if (wrong != 0 && result_->first.empty()) {
      result_->first = fmt::format("{}: {} bytes changed", what, wrong);
    }
    result_->wrong += wrong;
  }

 private:
  void describe(const char* what,
                size_t at,
                std::span<const std::byte> got,
                std::span<const std::byte> want) {
    const size_t element_bytes = info_of(input_.shape.type).size_bytes;
    const size_t byte = static_cast<size_t>(
        std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin());
    const size_t element = byte / element_bytes;
    result_->first =
        fmt::format("{}: element {} is 0x{}, expected 0x{}", what, at / element_bytes + element,
                    hex(got.subspan(element * element_bytes, element_bytes)),
                    hex(want.subspan(element * element_bytes, element_bytes)));
  }
  static std::string hex(std::span<const std::byte> element) {  // little endian: last byte first
    std::string text;
    for (size_t i = element.size(); i-- > 0;) {
      text += fmt::format("{:02x}", std::to_integer<unsigned>(element[i]));
    }
    return text;
  }

  const CheckInput& input_;
  CheckResult* result_;
  Block block_{};
};

void check_part(const CheckInput& input, const Part& part, Comparer* comparer) {
  const Shape& shape = input.shape;
  const size_t element_bytes = info_of(shape.type).size_bytes;
  const Range got = {input.buffers.recv + part.offset * element_bytes, part.count * element_bytes};
  if (part.kind == Part::Kind::kResult) {
    const Reduction reduction = reduction_of(input);
    comparer->compare("result", got, tolerance_units(reduction),
                      [&](size_t at, std::span<std::byte> want) {
                        fill_result(reduction, part.first_index + at / element_bytes, want);
                      });
  } else if (part.kind == Part::Kind::kStream) {
    comparer->compare("data", got, 0, [&](size_t at, std::span<std::byte> want) {
      fill_stream(shape.type, input.seed, part.source, part.first_index + at / element_bytes, want);
    });
  } else if (!shape.in_place) {
    comparer->compare_bytes("ignored receive buffer", got, kPoisonByte);
  } else {  // around the send buffer, which is compared separately
    const OpBuffers& b = input.buffers;
    const auto before = static_cast<size_t>(b.send - b.recv);
    comparer->compare_bytes("ignored receive buffer", {b.recv, before}, kPoisonByte);
    comparer->compare_bytes("ignored receive buffer",
                            {b.send + b.send_bytes, b.recv_bytes - before - b.send_bytes},
                            kPoisonByte);
  }
}

}  // namespace

OpBuffers bind_buffers(const Shape& shape, std::byte* first, std::byte* second) noexcept {
  const Places places = compute_places(shape);
  const size_t element_bytes = info_of(shape.type).size_bytes;
  OpBuffers buffers = {.send = first,
                       .send_bytes = places.send_count * element_bytes,
                       .recv = second,
                       .recv_bytes = places.recv_count * element_bytes};
  if (shape.in_place) {
    std::byte* inner = second + places.inner_offset * element_bytes;
    buffers.send = places.send_count < places.recv_count ? inner : second;
    buffers.recv = places.recv_count < places.send_count ? inner : second;
  }
  return buffers;
}

void prepare_operation(const CheckInput& input) {
  for (const Range& range : ranges_of(input)) {
    std::memset(range.data - kGuardBytes, kGuardByte, kGuardBytes);
    std::memset(range.data + range.size_bytes, kGuardByte, kGuardBytes);
    std::memset(range.data, kPoisonByte, range.size_bytes);
  }
  fill_input(input, 0, {input.buffers.send, input.buffers.send_bytes});
}

CheckResult check_operation(const CheckInput& input) {
  CheckResult result;
  Comparer comparer(input, &result);
  bool writes = false;
  for (const Part& part : compute_expected(input.shape)) {
    check_part(input, part, &comparer);
    writes = writes || part.kind != Part::Kind::kUntouched;
  }
  if (!input.shape.in_place || !writes) {
    const size_t element_bytes = info_of(input.shape.type).size_bytes;
    comparer.compare(
        "input", {input.buffers.send, input.buffers.send_bytes}, 0,
        [&](size_t at, std::span<std::byte> want) { fill_input(input, at / element_bytes, want); });
  }
  const std::array ranges = ranges_of(input);
  for (size_t i = 0; i < (input.shape.in_place ? 1U : 2U); ++i) {
    comparer.compare_bytes("memory before the buffer", {ranges[i].data - kGuardBytes, kGuardBytes},
                           kGuardByte);
    comparer.compare_bytes("memory after the buffer",
                           {ranges[i].data + ranges[i].size_bytes, kGuardBytes}, kGuardByte);
  }
  return result;
}

}  // namespace plexus::perf
