// SPDX-License-Identifier: Apache-2.0
// Kernels, compiled by plexus-nvcc: shared memory, barriers, shuffles, atomics, templates, launches
// by <<<>>> and by cudaLaunchKernel, in the order of a stream, with NCCL's calls and in a graph.
#include <cstdio>
#include <cstdlib>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <nccl.h>
#include <nccl_device.h>
#include <numeric>
#include <vector>

#define EXPECT(condition)                                         \
  do {                                                            \
    if (!(condition)) {                                           \
      fprintf(stderr, "line %d: not %s\n", __LINE__, #condition); \
      exit(1);                                                    \
    }                                                             \
  } while (false)
#define OK(call) EXPECT((call) == cudaSuccess)

template <typename T, int N = 8>
__global__ void __launch_bounds__(256, 1) sum_all(const T* in, T* out, int n) {
  __shared__ T parts[N];
  T sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    sum += in[i];
  }
  for (int delta = warpSize / 2; delta > 0; delta /= 2) {
    sum += __shfl_down_sync(0xffffffffU, sum, delta);
  }
  if (threadIdx.x % warpSize == 0) {
    parts[threadIdx.x / warpSize] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    T all = 0;
    for (int i = 0; i < static_cast<int>(blockDim.x) / warpSize; ++i) {
      all += parts[i];
    }
    atomicAdd(out, all);
  }
}

__global__ void reverse(int* data) {
  extern __shared__ int copy[];
  const int i = threadIdx.x;
  copy[i] = data[i];
  __syncthreads();
  data[i] = copy[blockDim.x - 1 - i];
}

namespace {
template <class... A>
__global__ void add(int* out, A... values) {
  *out += (0 + ... + values);
}
}  // namespace

/// Spins for so many cycles.
__global__ void take_time(long long* taken, long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
  *taken = clock64() - start;
}

__global__ void vote(unsigned* out) {
  const unsigned odd = __ballot_sync(0xffffffffU, threadIdx.x % 2);
  const int neighbour = __shfl_xor_sync(0xffffffffU, static_cast<int>(threadIdx.x), 1);
  const int first = __shfl_sync(0xffffffffU, static_cast<int>(threadIdx.x), 0, 16);
  if (threadIdx.x == 21) {
    out[0] = odd;
    out[1] = neighbour;
    out[2] = first;
    out[3] = __any_sync(1U << 21, 0) + 2 * __all_sync(1U << 21, 1);
  }
}

__global__ void place(dim3* out) {
  if (threadIdx.x == 1 && threadIdx.y == 2 && threadIdx.z == 3 && blockIdx.y == 1) {
    *out = dim3(blockDim.x * 100 + gridDim.y, blockIdx.x, blockDim.z);
  }
}

__global__ void count_ptx(unsigned long long* out, unsigned long long value) {
  asm volatile("red.global.add.u64 [%0],%1;" ::"l"(out), "l"(value) : "memory");
}

__global__ void halve(half* values) {
  values[threadIdx.x] = __hmul(values[threadIdx.x], half(0.5F));
}

/// A kernel and a call of NCCL, ten times.
static void check_graph(int* out, cudaStream_t stream) {
  ncclComm_t comm = nullptr;
  EXPECT(ncclCommInitAll(&comm, 1, nullptr) == ncclSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  *out = 1;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  add<<<1, 1, 0, stream>>>(out, 1);
  EXPECT(ncclAllReduce(out, out + 1, 1, ncclInt, ncclSum, comm, stream) == ncclSuccess);
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 10; ++i) {
    OK(cudaGraphLaunch(exec, stream));
  }
  OK(cudaStreamSynchronize(stream));
  EXPECT(out[0] == 11 && out[1] == 11);
  ncclDevCommRequirements requirements = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
  ncclDevComm device_comm;
  EXPECT(ncclDevCommCreate(comm, &requirements, &device_comm) == ncclInvalidUsage);
  EXPECT(ncclCommDestroy(comm) == ncclSuccess);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
}

int main() {
  constexpr int n = 100003;
  int* data = nullptr;
  int* out = nullptr;
  OK(cudaMallocManaged(&data, n * sizeof(int)));
  OK(cudaMallocManaged(&out, 16 * sizeof(int)));
  std::iota(data, data + n, -5);
  *out = 0;
  const int expected = std::accumulate(data, data + n, 0);
  sum_all<int><<<7, 256>>>(data, out, n);
  OK(cudaDeviceSynchronize());
  EXPECT(*out == expected);

  reverse<<<dim3(1), 100, 100 * sizeof(int)>>>(data);
  OK(cudaDeviceSynchronize());
  EXPECT(data[0] == 94 && data[99] == -5 && data[100] == 95);

  cudaStream_t stream = nullptr;
  OK(cudaStreamCreate(&stream));
  *out = 1;
  add<<<1, 1, 0, stream>>>(out, 2, 3L, 4.0);
  const void* function = reinterpret_cast<const void*>(&add<int, int>);
  int values[2] = {20, 30};
  void* arguments[] = {&out, &values[0], &values[1]};
  OK(cudaLaunchKernel(function, dim3(1), dim3(1), arguments, 0, stream));
  OK(cudaStreamSynchronize(stream));
  EXPECT(*out == 60);

  vote<<<1, 32>>>(reinterpret_cast<unsigned*>(out));
  OK(cudaDeviceSynchronize());
  EXPECT(static_cast<unsigned>(out[0]) == 0xaaaaaaaaU && out[1] == 20 && out[2] == 16 &&
         out[3] == 2);

  place<<<dim3(1, 2), dim3(2, 3, 4)>>>(reinterpret_cast<dim3*>(out));
  OK(cudaDeviceSynchronize());
  EXPECT(out[0] == 202 && out[1] == 0 && out[2] == 4);

  *reinterpret_cast<unsigned long long*>(out) = 0;
  count_ptx<<<5, 100>>>(reinterpret_cast<unsigned long long*>(out), 3);
  OK(cudaDeviceSynchronize());
  EXPECT(*reinterpret_cast<unsigned long long*>(out) == 1500);

  half* halves = reinterpret_cast<half*>(out);
  halves[1] = half(3.0F);
  halve<<<1, 2>>>(halves);
  OK(cudaDeviceSynchronize());
  EXPECT(static_cast<float>(halves[1]) == 1.5F);

  auto* const taken = reinterpret_cast<long long*>(out);
  int kilohertz = 0;
  OK(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0));
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  OK(cudaEventRecord(start, stream));
  take_time<<<1, 1, 0, stream>>>(taken, 5LL * kilohertz);  // 5 ms
  OK(cudaEventRecord(end, stream));
  OK(cudaEventSynchronize(end));
  float milliseconds = 0;
  OK(cudaEventElapsedTime(&milliseconds, start, end));
  EXPECT(*taken >= 5LL * kilohertz && milliseconds >= 5);

  reverse<<<1, 2000>>>(data);
  EXPECT(cudaGetLastError() == cudaErrorInvalidConfiguration);

  check_graph(out, stream);
  OK(cudaStreamDestroy(stream));
  return 0;
}
