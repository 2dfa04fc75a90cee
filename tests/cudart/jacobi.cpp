// SPDX-License-Identifier: Apache-2.0
// A Jacobi solver of the shape of NVIDIA's multi-GPU samples, without kernels: the sweep is a host
// function of the stream, halos go by ncclSend and ncclRecv on a second stream, events order the
// two, and the residual is summed by ncclAllReduce. All devices of one process; the result must be
// that of one device. Usage: cudart_jacobi GPUS
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <memory>
#include <nccl.h>
#include <vector>

namespace {

constexpr int kWidth = 64;
constexpr int kRows = 48;  // without the borders; divided among the devices
constexpr int kSweeps = 200;

#define CHECK(call)                               \
  do {                                            \
    if (static_cast<int>(call) != 0) {            \
      std::fprintf(stderr, "%s failed\n", #call); \
      std::exit(1);                               \
    }                                             \
  } while (false)

struct Device {
  int number = 0;
  int rows = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t compute = nullptr;
  cudaStream_t halo = nullptr;
  cudaEvent_t swept = nullptr;
  cudaEvent_t exchanged = nullptr;
  double* grids[2] = {};  // [rows + 2][kWidth]
  double* residual = nullptr;
};

struct Sweep {
  const double* from;
  double* to;
  double* residual;
  int rows;
};

void sweep(void* user) {
  const std::unique_ptr<Sweep> s(static_cast<Sweep*>(user));
  double sum = 0;
  for (int y = 1; y <= s->rows; ++y) {
    for (int x = 1; x + 1 < kWidth; ++x) {
      const int at = y * kWidth + x;
      const double value =
          (s->from[at - 1] + s->from[at + 1] + s->from[at - kWidth] + s->from[at + kWidth]) / 4;
      sum += (value - s->from[at]) * (value - s->from[at]);
      s->to[at] = value;
    }
  }
  *s->residual = sum;
}

void exchange(std::vector<Device>& devices, int grid) {
  const int last = static_cast<int>(devices.size()) - 1;
  CHECK(ncclGroupStart());
  for (Device& d : devices) {
    double* const rows = d.grids[grid];
    if (d.number > 0) {
      CHECK(ncclSend(rows + kWidth, kWidth, ncclDouble, d.number - 1, d.comm, d.halo));
      CHECK(ncclRecv(rows, kWidth, ncclDouble, d.number - 1, d.comm, d.halo));
    }
    if (d.number < last) {
      CHECK(ncclSend(rows + d.rows * kWidth, kWidth, ncclDouble, d.number + 1, d.comm, d.halo));
      CHECK(
          ncclRecv(rows + (d.rows + 1) * kWidth, kWidth, ncclDouble, d.number + 1, d.comm, d.halo));
    }
  }
  CHECK(ncclGroupEnd());
}

double solve(int gpus) {
  std::vector<Device> devices(static_cast<size_t>(gpus));
  std::vector<ncclComm_t> comms(devices.size());
  CHECK(ncclCommInitAll(comms.data(), gpus, nullptr));
  for (int i = 0; i < gpus; ++i) {
    Device& d = devices[static_cast<size_t>(i)];
    d.number = i;
    d.rows = kRows / gpus + (i < kRows % gpus ? 1 : 0);
    d.comm = comms[static_cast<size_t>(i)];
    CHECK(cudaSetDevice(i));
    CHECK(cudaStreamCreate(&d.compute));
    CHECK(cudaStreamCreate(&d.halo));
    CHECK(cudaEventCreateWithFlags(&d.swept, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&d.exchanged, cudaEventDisableTiming));
    CHECK(cudaMalloc(&d.residual, sizeof(double)));
    for (double*& grid : d.grids) {
      const size_t cells = static_cast<size_t>(d.rows + 2) * kWidth;
      CHECK(cudaMalloc(&grid, cells * sizeof(double)));
      CHECK(cudaMemset(grid, 0, cells * sizeof(double)));
      if (i == 0) {
        const std::vector<double> border(kWidth, 1.0);
        CHECK(cudaMemcpy(grid, border.data(), kWidth * sizeof(double), cudaMemcpyHostToDevice));
      }
    }
  }
  double total = 0;
  for (int step = 0; step < kSweeps; ++step) {
    const int from = step % 2;
    for (Device& d : devices) {
      CHECK(cudaSetDevice(d.number));
      CHECK(cudaStreamWaitEvent(d.compute, d.exchanged, 0));
      auto work =
          std::make_unique<Sweep>(Sweep{d.grids[from], d.grids[1 - from], d.residual, d.rows});
      CHECK(cudaLaunchHostFunc(d.compute, sweep, work.release()));
      CHECK(cudaEventRecord(d.swept, d.compute));
      CHECK(cudaStreamWaitEvent(d.halo, d.swept, 0));
    }
    exchange(devices, 1 - from);
    CHECK(ncclGroupStart());
    for (Device& d : devices) {
      CHECK(ncclAllReduce(d.residual, d.residual, 1, ncclDouble, ncclSum, d.comm, d.halo));
    }
    CHECK(ncclGroupEnd());
    for (Device& d : devices) {
      CHECK(cudaSetDevice(d.number));
      CHECK(cudaEventRecord(d.exchanged, d.halo));
    }
  }
  CHECK(cudaSetDevice(0));
  CHECK(cudaMemcpy(&total, devices[0].residual, sizeof(total), cudaMemcpyDeviceToHost));
  for (Device& d : devices) {
    CHECK(cudaSetDevice(d.number));
    CHECK(cudaDeviceSynchronize());
    CHECK(ncclCommDestroy(d.comm));
    CHECK(cudaDeviceReset());
  }
  return total;
}

}  // namespace

int main(int argc, char** argv) {
  const double expected = solve(1);
  const double found = solve(argc > 1 ? std::atoi(argv[1]) : 2);
  std::printf("residual %.17g, of one device %.17g\n", found, expected);
  return expected > 0 && std::fabs(found - expected) <= 1e-12 * expected ? 0 : 1;
}
