// SPDX-License-Identifier: Apache-2.0
// Speed of the element-wise work of a host rank: reductions compared with memcpy of the same size,
// and the cost of a call on two elements. GB/s counts the size of one operand: `a += b` on 512 KiB
// at 44 GB/s reads 88 GB/s and writes 44 GB/s.
#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/host/reduce.hpp"

namespace plexus {
namespace {

constexpr size_t kCached = size_t{512} << 10;  // stays in L2
constexpr size_t kHuge = size_t{256} << 20;    // larger than every cache

/// `size_bytes` of ones of the type: their sums, products and averages stay normal numbers.
std::vector<std::byte> make_ones(DataType type, size_t size_bytes) {
  const uint64_t one = is_floating(type) ? ReduceOp::scalar_bits_of(type, 1.0) : 1;
  std::vector<std::byte> bytes(size_bytes);
  for (size_t offset = 0; offset < size_bytes; offset += element_size(type)) {
    std::memcpy(bytes.data() + offset, &one, element_size(type));
  }
  return bytes;
}

void report_operand_rate(benchmark::State& state, size_t size_bytes) {
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * size_bytes));
}

void measure_memcpy(benchmark::State& state, size_t size_bytes) {
  const auto source = make_ones(DataType::kUint8, size_bytes);
  auto target = source;
  for (auto _ : state) {
    copy(target.data(), source.data(), size_bytes);
    benchmark::ClobberMemory();
  }
  report_operand_rate(state, size_bytes);
}

void measure_copy_streaming(benchmark::State& state, size_t size_bytes) {
  const auto source = make_ones(DataType::kUint8, size_bytes);
  auto target = source;
  for (auto _ : state) {
    copy_streaming(target.data(), source.data(), size_bytes);
    benchmark::ClobberMemory();
  }
  report_operand_rate(state, size_bytes);
}

/// a op= b.
void measure_in_place(benchmark::State& state, DataType type, ReduceKind kind, size_t size_bytes) {
  auto a = make_ones(type, size_bytes);
  const auto b = make_ones(type, size_bytes);
  const ReducePair reduce = find_reduce_pair(type, kind);
  for (auto _ : state) {
    reduce(a.data(), a.data(), b.data(), size_bytes / element_size(type));
    benchmark::ClobberMemory();
  }
  report_operand_rate(state, size_bytes);
}

void measure_two_floats(benchmark::State& state) {
  float target[2] = {};
  const float a[2] = {1, 2};
  const float b[2] = {3, 4};
  const ReducePair reduce = find_reduce_pair(DataType::kFloat32, ReduceKind::kSum);
  for (auto _ : state) {
    reduce(target, a, b, 2);
    benchmark::ClobberMemory();
  }
}

void measure_scale(benchmark::State& state, DataType type) {
  const auto source = make_ones(type, kCached);
  auto target = source;
  const uint64_t scalar = is_floating(type) ? ReduceOp::scalar_bits_of(type, 0.5) : 3;
  for (auto _ : state) {
    scale(target.data(), source.data(), kCached / element_size(type), type, scalar);
    benchmark::ClobberMemory();
  }
  report_operand_rate(state, kCached);
}

void measure_divide(benchmark::State& state, DataType type) {
  const auto source = make_ones(type, kCached);
  auto target = source;
  for (auto _ : state) {
    divide(target.data(), source.data(), kCached / element_size(type), type, 3);
    benchmark::ClobberMemory();
  }
  report_operand_rate(state, kCached);
}

void register_all() {
  constexpr const char* kKinds[] = {"sum", "prod", "max", "min"};
  benchmark::RegisterBenchmark("memcpy/512KiB", measure_memcpy, kCached);
  benchmark::RegisterBenchmark("memcpy/256MiB", measure_memcpy, kHuge);
  benchmark::RegisterBenchmark("copy_streaming/256MiB", measure_copy_streaming, kHuge);
  benchmark::RegisterBenchmark("float/sum/2 elements", measure_two_floats);
  for (int i = 0; i < kDataTypeCount; ++i) {
    const auto type = static_cast<DataType>(i);
    const std::string prefix = std::string(name(type)) + "/";
    for (int kind = 0; kind < 4; ++kind) {
      benchmark::RegisterBenchmark((prefix + kKinds[kind] + "/512KiB").c_str(), measure_in_place,
                                   type, static_cast<ReduceKind>(kind), kCached);
    }
    benchmark::RegisterBenchmark((prefix + "scale/512KiB").c_str(), measure_scale, type);
    if (!is_floating(type)) {
      benchmark::RegisterBenchmark((prefix + "divide/512KiB").c_str(), measure_divide, type);
    }
  }
  for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
    const std::string prefix = std::string(name(type)) + "/sum/256MiB";
    benchmark::RegisterBenchmark(prefix.c_str(), measure_in_place, type, ReduceKind::kSum, kHuge);
  }
}

}  // namespace
}  // namespace plexus

int main(int argc, char** argv) {
  plexus::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
