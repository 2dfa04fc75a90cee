// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/values.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/soak/random.hpp"

namespace plexus::soak {
namespace {

// A prime, so that misplaced blocks are detected.
constexpr size_t kValuePeriod = 61;
constexpr size_t kBytesPeriod = 251;

struct MiniFloat {
  int exponent_bits;
  int mantissa_bits;
};

/// The bits of zero or of a normal number that the format represents exactly.
uint32_t mini_float_bits(MiniFloat format, double value) {
  if (value == 0) {
    return 0;
  }
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const auto mantissa = static_cast<uint32_t>(std::ldexp(fraction * 2 - 1, format.mantissa_bits));
  const auto sign = static_cast<uint32_t>(std::signbit(value) ? 1 : 0);
  return sign << (format.exponent_bits + format.mantissa_bits) |
         static_cast<uint32_t>(exponent - 1 + bias) << format.mantissa_bits | mantissa;
}

template <class T>
void store(T value, std::byte* to) {
  std::memcpy(to, &value, sizeof(T));
}

bool is_float8(ncclDataType_t type) { return type == ncclFloat8e4m3 || type == ncclFloat8e5m2; }

bool is_signed(ncclDataType_t type) {
  return type != ncclUint8 && type != ncclUint32 && type != ncclUint64;
}

int modulus(ncclDataType_t type) {
  if (size_of(type) == 1) {
    return 4;
  }
  return size_of(type) == 2 ? 8 : 1000;
}

/// The operand of `rank` at element `index`. Partial results of 16 ranks are exact: 8-bit floats
/// sum at most six ones, products have at most four factors of two.
double operand(const Operation& operation, uint64_t salt, int rank, size_t index) {
  const size_t at = index % kValuePeriod;
  const size_t turn = at + static_cast<size_t>(rank) + salt % 7;
  const uint64_t noise = mix(salt * 1000 + static_cast<uint64_t>(rank), at);
  switch (operation.reduction) {
    case Reduction::kProd:
      return turn % 4 == 0 ? 2 : 1;
    case Reduction::kMax:
    case Reduction::kMin:
      return static_cast<double>(noise % 8) - (is_signed(operation.type) ? 4 : 0);
    default:
      return is_float8(operation.type)
                 ? (turn % 3 == 0 ? 1 : 0)
                 : static_cast<double>(noise % static_cast<uint64_t>(modulus(operation.type)));
  }
}

double reduced(const Operation& operation, uint64_t salt, int nranks, size_t index) {
  double result = 0;
  for (int rank = 0; rank < nranks; ++rank) {
    const double value = operand(operation, salt, rank, index);
    if (rank == 0 && operation.reduction != Reduction::kPreMulSum) {
      result = value;
      continue;
    }
    switch (operation.reduction) {
      case Reduction::kProd:
        result *= value;
        break;
      case Reduction::kMax:
        result = std::max(result, value);
        break;
      case Reduction::kMin:
        result = std::min(result, value);
        break;
      case Reduction::kPreMulSum:
        result += value * scalar_of(operation, rank);
        break;
      default:
        result += value;
    }
  }
  if (operation.reduction == Reduction::kAvg) {
    result /= nranks;
    result = is_integer(operation.type) ? std::trunc(result) : result;
  }
  return result;
}

bool reduces(Op op) {
  return op == Op::kAllReduce || op == Op::kReduce || op == Op::kReduceScatter;
}

/// One period of a segment's pattern, encoded.
std::vector<std::byte> pattern(const Operation& operation,
                               const Segment& segment,
                               uint64_t salt,
                               int nranks) {
  const size_t size = size_of(operation.type);
  const size_t period = reduces(operation.op) ? kValuePeriod : kBytesPeriod;
  std::vector<std::byte> bytes(period * size);
  for (size_t i = 0; i < period; ++i) {
    std::byte* const to = bytes.data() + i * size;
    if (!reduces(operation.op)) {
      const uint64_t noise = mix(salt * 65536 + static_cast<uint64_t>(segment.source) * 256 +
                                     static_cast<uint64_t>(segment.target),
                                 i);
      std::memcpy(to, &noise, size);
    } else if (segment.source == kReduced) {
      encode(operation.type, reduced(operation, salt, nranks, i), to);
    } else {
      encode(operation.type, operand(operation, salt, segment.source, i), to);
    }
  }
  return bytes;
}

size_t variable_count(const Operation& operation, int source, int target) {
  const uint64_t noise =
      mix(operation.count * 31 + static_cast<uint64_t>(source) * 64, static_cast<uint64_t>(target));
  return noise % 4 == 0 ? 0 : noise / 4 % (operation.count + 1);
}

Counts lay_out(const Operation& operation, std::vector<size_t> counts) {
  Counts result{.counts = std::move(counts)};
  for (const size_t count : result.counts) {
    result.displacements.push_back(result.total);
    result.total += count + (operation.count + result.total) % 3;  // a gap that must stay unchanged
  }
  return result;
}

std::vector<Segment> blocks(size_t count, int nranks, int source, int target) {
  std::vector<Segment> segments;
  for (int rank = 0; rank < nranks; ++rank) {
    segments.push_back({.at = static_cast<size_t>(rank) * count,
                        .count = count,
                        .source = source < 0 ? rank : source,
                        .target = target < 0 ? rank : target});
  }
  return segments;
}

void lay_out_reducing(const Operation& operation, int rank, int nranks, Buffers& buffers) {
  const size_t count = operation.count;
  const bool scatters = operation.op == Op::kReduceScatter;
  buffers.send_count = scatters ? count * static_cast<size_t>(nranks) : count;
  buffers.send = {{.count = buffers.send_count, .source = rank}};
  if (operation.op != Op::kReduce || rank == operation.root) {
    buffers.recv_count = count;
    const size_t first = scatters ? count * static_cast<size_t>(rank) : 0;
    buffers.recv = {{.count = count, .first = first, .source = kReduced}};
    buffers.recv_at = first;
    buffers.can_be_in_place = true;
  }
}

void lay_out_rooted(const Operation& operation, int rank, int nranks, Buffers& buffers) {
  const size_t count = operation.count;
  const size_t all = count * static_cast<size_t>(nranks);
  const bool is_root = rank == operation.root;
  buffers.can_be_in_place = is_root || operation.op == Op::kBroadcast;
  if (operation.op == Op::kGather) {
    buffers.send_count = count;
    buffers.send = {{.count = count, .source = rank}};
    buffers.recv_count = is_root ? all : 0;
    buffers.recv = is_root ? blocks(count, nranks, -1, 0) : std::vector<Segment>{};
    buffers.send_at = count * static_cast<size_t>(rank);
    return;
  }
  const bool scatters = operation.op == Op::kScatter;
  if (is_root) {
    buffers.send_count = scatters ? all : count;
    buffers.send = scatters ? blocks(count, nranks, rank, -1)
                            : std::vector<Segment>{{.count = count, .source = rank}};
    buffers.recv_at = scatters ? count * static_cast<size_t>(rank) : 0;
  }
  buffers.recv_count = count;
  buffers.recv = {{.count = count, .source = operation.root, .target = scatters ? rank : 0}};
}

void lay_out_variable(const Operation& operation, int rank, int nranks, Buffers& buffers) {
  const Counts recv = recv_counts(operation, rank, nranks);
  const bool gathers = operation.op == Op::kAllGatherV;
  buffers.recv_count = recv.total;
  for (int from = 0; from < nranks; ++from) {
    const auto at = static_cast<size_t>(from);
    buffers.recv.push_back({.at = recv.displacements[at],
                            .count = recv.counts[at],
                            .source = from,
                            .target = gathers ? 0 : rank});
  }
  if (gathers) {
    buffers.send_count = recv.counts[static_cast<size_t>(rank)];
    buffers.send = {{.count = buffers.send_count, .source = rank}};
    buffers.send_at = recv.displacements[static_cast<size_t>(rank)];
    buffers.can_be_in_place = true;
    return;
  }
  const Counts send = send_counts(operation, rank, nranks);
  buffers.send_count = send.total;
  for (int to = 0; to < nranks; ++to) {
    const auto at = static_cast<size_t>(to);
    buffers.send.push_back(
        {.at = send.displacements[at], .count = send.counts[at], .source = rank, .target = to});
  }
}

}  // namespace

size_t size_of(ncclDataType_t type) {
  constexpr size_t kSizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return kSizes[type];
}

bool is_integer(ncclDataType_t type) { return type <= ncclUint64; }

void encode(ncclDataType_t type, double value, std::byte* to) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return store(static_cast<uint8_t>(static_cast<int64_t>(value)), to);
    case ncclInt32:
    case ncclUint32:
      return store(static_cast<uint32_t>(static_cast<int64_t>(value)), to);
    case ncclInt64:
    case ncclUint64:
      return store(static_cast<int64_t>(value), to);
    case ncclFloat32:
      return store(static_cast<float>(value), to);
    case ncclFloat64:
      return store(value, to);
    case ncclFloat16:
      return store(static_cast<uint16_t>(mini_float_bits({5, 10}, value)), to);
    case ncclBfloat16:
      return store(static_cast<uint16_t>(mini_float_bits({8, 7}, value)), to);
    case ncclFloat8e4m3:
      return store(static_cast<uint8_t>(mini_float_bits({4, 3}, value)), to);
    default:
      return store(static_cast<uint8_t>(mini_float_bits({5, 2}, value)), to);
  }
}

double scalar_of(const Operation& operation, int rank) {
  return is_float8(operation.type) ? 2 : 1 + rank % 2;  // sums of e5m2 stay even
}

Counts send_counts(const Operation& operation, int rank, int nranks) {
  std::vector<size_t> counts;
  for (int to = 0; to < nranks; ++to) {
    counts.push_back(variable_count(operation, rank, to));
  }
  return lay_out(operation, std::move(counts));
}

Counts recv_counts(const Operation& operation, int rank, int nranks) {
  std::vector<size_t> counts;
  for (int from = 0; from < nranks; ++from) {
    counts.push_back(
        variable_count(operation, from, operation.op == Op::kAllGatherV ? from : rank));
  }
  return lay_out(operation, std::move(counts));
}

Buffers buffers_of(const Operation& operation, const Call& call, int nranks) {
  Buffers buffers;
  const size_t count = operation.count;
  const size_t all = count * static_cast<size_t>(nranks);
  switch (operation.op) {
    case Op::kAllReduce:
    case Op::kReduce:
    case Op::kReduceScatter:
      lay_out_reducing(operation, call.rank, nranks, buffers);
      break;
    case Op::kBroadcast:
    case Op::kGather:
    case Op::kScatter:
      lay_out_rooted(operation, call.rank, nranks, buffers);
      break;
    case Op::kAllGather:
      buffers = {.send_count = count,
                 .recv_count = all,
                 .send = {{.count = count, .source = call.rank}},
                 .recv = blocks(count, nranks, -1, 0),
                 .send_at = count * static_cast<size_t>(call.rank),
                 .can_be_in_place = true};
      break;
    case Op::kAllToAll:
      buffers = {.send_count = all,
                 .recv_count = all,
                 .send = blocks(count, nranks, call.rank, -1),
                 .recv = blocks(count, nranks, -1, call.rank),
                 .can_be_in_place = true};
      break;
    case Op::kAllToAllV:
    case Op::kAllGatherV:
      lay_out_variable(operation, call.rank, nranks, buffers);
      break;
    case Op::kPair: {
      const std::vector<Segment> all_of_it = {
          {.count = count, .source = operation.root, .target = operation.target}};
      (call.is_send ? buffers.send_count : buffers.recv_count) = count;
      (call.is_send ? buffers.send : buffers.recv) = all_of_it;
      break;
    }
  }
  return buffers;
}

void write(const Operation& operation,
           const std::vector<Segment>& segments,
           uint64_t salt,
           int nranks,
           std::byte* buffer) {
  const size_t size = size_of(operation.type);
  for (const Segment& segment : segments) {
    const std::vector<std::byte> period = pattern(operation, segment, salt, nranks);
    std::byte* to = buffer + segment.at * size;
    size_t left = segment.count * size;
    size_t from = segment.first * size % period.size();
    while (left > 0) {
      const size_t part = std::min(left, period.size() - from);
      std::memcpy(to, period.data() + from, part);
      to += part;
      left -= part;
      from = 0;
    }
  }
}

}  // namespace plexus::soak
