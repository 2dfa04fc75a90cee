// SPDX-License-Identifier: Apache-2.0
// What a driver and a GPU do that no document says, a row `| question | answer |` for each. run-all
// asks each question in a process of its own; here nothing waits longer than a second, because a
// watchdog opens the gate that the kernels wait at.
//
//   gpu_probe ipc | grids | host-functions | beside | pieces | streams N | rates
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPatience = std::chrono::milliseconds(700);
constexpr int kSkipped = 77;

double us_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

cudaError_t check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) {
    std::printf("| %s failed | %s |\n", call, cudaGetErrorString(code));
    cudaGetLastError();
  }
  return code;
}

void answer(const std::string& question, const std::string& said) {
  std::printf("| %s | %s |\n", question.c_str(), said.c_str());
}

std::string format(const char* with, double number) {
  char text[64];
  std::snprintf(text, sizeof(text), with, number);
  return text;
}

// ---- kernels ----

__global__ void spin(const volatile uint32_t* gate, uint32_t* started) {
  if (threadIdx.x == 0) {
    atomicAdd_system(started, 1U);
    while (*gate == 0) {
      __nanosleep(200);
    }
  }
}
__global__ void open_gate(volatile uint32_t* gate) {
  *gate = 1;
  __threadfence_system();
}
__global__ void meet(uint32_t* mine,
                     const volatile uint32_t* theirs,
                     const volatile uint32_t* gate,
                     uint32_t* met) {
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    atomicExch_system(mine, 1U);
    while (*theirs == 0 && *gate == 0) {
      __nanosleep(200);
    }
    if (*theirs != 0) {
      atomicAdd_system(met, 1U);
    }
  }
}
__global__ void empty() {}
__global__ void never_loaded_before(uint32_t* word) { atomicAdd(word, 1U); }
struct Parameters {
  uint64_t words[4000];
};
__global__ void with_parameters(const __grid_constant__ Parameters parameters, uint64_t* out) {
  if (out != nullptr) {
    *out = parameters.words[threadIdx.x];
  }
}
/// `hops` loads, each at the place that the one before it found.
__global__ void chase(const uint64_t* table, uint32_t hops, uint64_t* out, long long* clocks) {
  uint64_t at = 0;
  const long long begin = clock64();
  for (uint32_t i = 0; i < hops; ++i) {
    at = *reinterpret_cast<const volatile uint64_t*>(table + at);
  }
  *clocks = clock64() - begin;
  *out = at;
}
/// Clocks of 4 stores of each thread and a fence of one.
__global__ void fences(float4* data, long long* clocks, bool system) {
  constexpr int kTimes = 16;
  const long long begin = clock64();
  for (int i = 0; i < kTimes; ++i) {
    for (int k = 0; k < 4; ++k) {
      data[(size_t{blockIdx.x} * blockDim.x + threadIdx.x) * 4 + k] = make_float4(i, k, 0, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      system ? __threadfence_system() : __threadfence();
    }
    __syncthreads();
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) {
    *clocks = (clock64() - begin) / kTimes;
  }
}

// ---- help ----

template <class T>
T* pinned(size_t count) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, count * sizeof(T), cudaHostAllocMapped | cudaHostAllocPortable),
        "cudaHostAlloc");
  std::memset(memory, 0, count * sizeof(T));
  return static_cast<T*>(memory);
}
cudaStream_t make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}
cudaEvent_t make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  return event;
}

/// Opens the gate when it is destroyed, or when the patience is over.
class Watchdog {
 public:
  explicit Watchdog(uint32_t* gate)
      : gate_(gate), thread_([this] {
          const auto end = Clock::now() + kPatience;
          while (!done_ && Clock::now() < end) {
            usleep(1000);
          }
          late_ = !done_;
          __atomic_store_n(gate_, 1U, __ATOMIC_RELEASE);
        }) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  ~Watchdog() { end(); }
  /// Whether what was watched took longer than the patience.
  bool end() {
    done_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
    return late_;
  }

 private:
  uint32_t* gate_;
  std::atomic<bool> done_{false};
  std::atomic<bool> late_{false};
  std::thread thread_;
};

// ---- questions ----

/// Whether a kernel of the last of `count` streams runs while kernels of all others wait for it.
void ask_streams(int count) {
  auto* const words = pinned<uint32_t>(2);  // the gate; kernels that have begun
  std::vector<cudaStream_t> streams;
  for (int i = 0; i < count; ++i) {
    streams.push_back(make_stream());
  }
  empty<<<1, 1, 0, streams[0]>>>();
  open_gate<<<1, 1, 0, streams[0]>>>(words);  // loads it
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  words[0] = 0;
  for (int i = 0; i + 1 < count; ++i) {
    spin<<<1, 32, 0, streams[static_cast<size_t>(i)]>>>(words, words + 1);
    check(cudaEventRecord(make_event(), streams[static_cast<size_t>(i)]), "cudaEventRecord");
  }
  Watchdog watchdog(words);
  open_gate<<<1, 1, 0, streams.back()>>>(words);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  answer(std::to_string(count) + " streams, CUDA_DEVICE_MAX_CONNECTIONS " +
             (queues == nullptr ? "not set" : queues),
         watchdog.end() ? "the last stream's kernel WAITS for those that wait for it"
                        : "the last stream's kernel runs beside the others");
}

void ask_two_grids(bool first_cooperative, bool second_cooperative, int blocks) {
  auto* const words = pinned<uint32_t>(4);  // begun, begun, gate, met
  const cudaStream_t streams[] = {make_stream(), make_stream()};
  Watchdog watchdog(words + 2);
  for (int i = 0; i < 2; ++i) {
    uint32_t* mine = words + i;
    uint32_t* theirs = words + 1 - i;
    uint32_t* gate = words + 2;
    uint32_t* met = words + 3;
    void* arguments[] = {&mine, &theirs, &gate, &met};
    auto* const kernel = reinterpret_cast<void*>(meet);
    const bool cooperative = i == 0 ? first_cooperative : second_cooperative;
    check(cooperative ? cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(512), arguments, 0,
                                                    streams[i])
                      : cudaLaunchKernel(kernel, dim3(blocks), dim3(512), arguments, 0, streams[i]),
          "launch");
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  watchdog.end();
  answer("two grids of " + std::to_string(blocks) + " blocks, " +
             (first_cooperative ? "cooperative" : "plain") + " and " +
             (second_cooperative ? "cooperative" : "plain"),
         words[3] == 2 ? "resident together" : "ONE AFTER THE OTHER");
}

void ask_host_functions() {
  struct Pair {
    std::atomic<bool> opened{false};
    std::atomic<bool> late{false};
  };
  static Pair pair;
  const cudaStream_t first = make_stream();
  const cudaStream_t second = make_stream();
  check(cudaLaunchHostFunc(
            first,
            [](void*) {
              const auto end = Clock::now() + kPatience;
              while (!pair.opened && Clock::now() < end) {
                usleep(1000);
              }
              pair.late = !pair.opened;
            },
            nullptr),
        "cudaLaunchHostFunc");
  check(cudaLaunchHostFunc(
            second, [](void*) { pair.opened = true; }, nullptr),
        "cudaLaunchHostFunc");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  answer("host functions of two streams",
         pair.late ? "ONE THREAD calls them, one after the other" : "do not wait for each other");
}

/// Another process of this program, which opens memory of ours.
struct Opener {
  int to = -1;
  int from = -1;
  pid_t pid = -1;
};
/// To be called before this process's first CUDA call.
Opener start_opener(const char* self) {
  int to[2];
  int from[2];
  if (pipe(to) != 0 || pipe(from) != 0) {
    return {};
  }
  const pid_t child = fork();
  if (child == 0) {
    close(to[1]);
    dup2(to[0], 0);
    dup2(from[1], 1);
    execl(self, self, "opener", nullptr);
    _exit(1);
  }
  close(to[0]);
  close(from[1]);
  return {to[1], from[0], child};
}
void ask_ipc(const Opener& opener) {
  uint32_t* words = nullptr;
  check(cudaMalloc(&words, 2 << 20), "cudaMalloc");
  check(cudaMemset(words, 0, 4096), "cudaMemset");
  cudaIpcMemHandle_t handle{};
  check(cudaIpcGetMemHandle(&handle, words), "cudaIpcGetMemHandle");
  char said = 'n';
  if (write(opener.to, &handle, sizeof(handle)) != sizeof(handle) ||
      read(opener.from, &said, 1) != 1) {
    said = 'n';
  }
  waitpid(opener.pid, nullptr, 0);
  answer("CUDA IPC between processes of one GPU", said == 'y' ? "works" : "REFUSED");
}
int open_memory_of_parent() {
  cudaIpcMemHandle_t handle;
  if (read(0, &handle, sizeof(handle)) != sizeof(handle)) {
    return 1;
  }
  void* memory = nullptr;
  const bool good =
      cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess &&
      cudaMemset(memory, 1, 64) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess;
  return write(1, good ? "y" : "n", 1) == 1 ? 0 : 1;
}

/// Which calls wait for a kernel that runs.
class BesideAKernel {
 public:
  void ask(const char* question, const std::function<void()>& call) {
    gate_[0] = gate_[1] = 0;
    spin<<<1, 32, 0, on_>>>(gate_, gate_ + 1);
    check(cudaEventRecord(event_, on_), "cudaEventRecord");
    const auto limit = Clock::now() + kPatience;
    while (__atomic_load_n(gate_ + 1, __ATOMIC_ACQUIRE) == 0 && Clock::now() < limit) {
      usleep(100);
    }
    Watchdog watchdog(gate_);
    const auto begin = Clock::now();
    call();
    const double us = us_since(begin);
    const bool waits = watchdog.end();
    check(cudaStreamSynchronize(on_), "cudaStreamSynchronize");
    answer(std::string(question) + " beside a kernel that spins",
           waits ? "WAITS for it" : format("does not wait (%.0f us)", us));
  }

 private:
  uint32_t* gate_ = pinned<uint32_t>(2);
  cudaStream_t on_ = make_stream();
  cudaEvent_t event_ = make_event();
};

template <class Function>
Function driver(const char* name) {
  constexpr unsigned int kVersion = 12000;
  void* found = nullptr;
  cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &status);
#else
  cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status);
#endif
  return reinterpret_cast<Function>(found);
}
#define DRIVER(name) driver<decltype(&name)>(#name)

/// Memory of cuMemCreate: two pieces side by side, as core/device/cuda_pieces.cpp uses them.
void ask_pieces() {
  BesideAKernel beside;
  constexpr size_t kPiece = 32 << 20;
  constexpr auto kByDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  if (DRIVER(cuMemRetainAllocationHandle) == nullptr) {
    answer("memory of cuMemCreate", "the driver has none");
    return;
  }
  CUmemAllocationProp wish = {};
  wish.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wish.requestedHandleTypes = kByDescriptor;
  wish.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccessDesc access = {wish.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle pieces[2] = {};
  CUmemGenericAllocationHandle retained = 0;
  CUmemGenericAllocationHandle imported = 0;
  CUdeviceptr base = 0;
  int fd = -1;
  int failed = 0;
  const auto ask = [&](const char* question, const std::function<CUresult()>& call) {
    beside.ask(question, [&] { failed += call() == CUDA_SUCCESS ? 0 : 1; });
  };
  ask("cuMemCreate of 32 MiB", [&] { return DRIVER(cuMemCreate)(&pieces[0], kPiece, &wish, 0); });
  failed += DRIVER(cuMemCreate)(&pieces[1], kPiece, &wish, 0) == CUDA_SUCCESS ? 0 : 1;
  ask("cuMemAddressReserve",
      [&] { return DRIVER(cuMemAddressReserve)(&base, 2 * kPiece, 0, 0, 0); });
  ask("cuMemMap", [&] { return DRIVER(cuMemMap)(base, kPiece, 0, pieces[0], 0); });
  failed += DRIVER(cuMemMap)(base + kPiece, kPiece, 0, pieces[1], 0) == CUDA_SUCCESS ? 0 : 1;
  ask("cuMemSetAccess", [&] { return DRIVER(cuMemSetAccess)(base, 2 * kPiece, &access, 1); });
  ask("cuMemRetainAllocationHandle", [&] {
    return DRIVER(cuMemRetainAllocationHandle)(&retained,
                                               reinterpret_cast<void*>(base + kPiece + kPiece / 2));
  });
  ask("cuMemExportToShareableHandle",
      [&] { return DRIVER(cuMemExportToShareableHandle)(&fd, pieces[0], kByDescriptor, 0); });
  ask("cuMemImportFromShareableHandle", [&] {
    return DRIVER(cuMemImportFromShareableHandle)(
        &imported, reinterpret_cast<void*>(static_cast<uintptr_t>(fd)), kByDescriptor);
  });
  CUdeviceptr first = 0;
  size_t size_bytes = 0;
  int is_plain = 1;
  DRIVER(cuMemGetAddressRange)(&first, &size_bytes, base + kPiece + 1);
  DRIVER(cuPointerGetAttribute)(&is_plain, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, base);
  answer("cuMemGetAddressRange of the second of two pieces side by side",
         first == base + kPiece && size_bytes == kPiece ? "that piece" : "SOMETHING ELSE");
  answer("the retained handle", retained == pieces[1] ? "that of cuMemCreate" : "ANOTHER");
  answer("such memory", is_plain == 0 ? "has no handle of CUDA IPC" : "HAS A HANDLE OF CUDA IPC");
  ask("cuMemUnmap", [&] { return DRIVER(cuMemUnmap)(base, 2 * kPiece); });
  ask("cuMemRelease of the last handle", [&] { return DRIVER(cuMemRelease)(pieces[0]); });
  answer("memory of cuMemCreate and its descriptors",
         failed == 0 ? "work" : format("%.0f calls FAILED", failed));
}
#undef DRIVER

void ask_beside() {
  BesideAKernel beside;
  uint32_t* memory = nullptr;
  check(cudaMalloc(&memory, 64 << 20), "cudaMalloc");
  const cudaStream_t other = make_stream();
  const cudaEvent_t event = make_event();
  check(cudaEventRecord(event, other), "cudaEventRecord");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  void* small = nullptr;
  void* large = nullptr;
  void* spare = nullptr;
  void* host = nullptr;
  void* pages = std::aligned_alloc(4096, 1 << 20);
  std::memset(pages, 0, 1 << 20);
  check(cudaMalloc(&spare, 4 << 20), "cudaMalloc");
  cudaStream_t made_stream = nullptr;
  cudaEvent_t made_event = nullptr;
  beside.ask("cudaEventQuery", [&] { cudaEventQuery(event); });
  beside.ask("cudaMalloc of 2 MiB", [&] { cudaMalloc(&small, 2 << 20); });
  beside.ask("cudaMalloc of 256 MiB", [&] { cudaMalloc(&large, 256 << 20); });
  beside.ask("cudaHostAlloc of 64 KiB",
             [&] { cudaHostAlloc(&host, 65536, cudaHostAllocMapped | cudaHostAllocPortable); });
  beside.ask("cudaHostRegister of 1 MiB",
             [&] { cudaHostRegister(pages, 1 << 20, cudaHostRegisterMapped); });
  beside.ask("cudaHostUnregister", [&] { cudaHostUnregister(pages); });
  beside.ask("cudaMemsetAsync and cudaStreamSynchronize", [&] {
    cudaMemsetAsync(memory, 0, 1 << 20, other);
    cudaStreamSynchronize(other);
  });
  beside.ask("cudaMemcpyAsync from pageable memory and cudaStreamSynchronize", [&] {
    static char bytes[8192];
    cudaMemcpyAsync(memory, bytes, sizeof(bytes), cudaMemcpyDefault, other);
    cudaStreamSynchronize(other);
  });
  beside.ask("cudaStreamCreateWithFlags",
             [&] { cudaStreamCreateWithFlags(&made_stream, cudaStreamNonBlocking); });
  beside.ask("cudaEventCreateWithFlags",
             [&] { cudaEventCreateWithFlags(&made_event, cudaEventDisableTiming); });
  beside.ask("the first launch of a kernel (lazy loading)",
             [&] { never_loaded_before<<<1, 1, 0, other>>>(memory); });
  beside.ask("cudaIpcGetMemHandle", [&] {
    cudaIpcMemHandle_t handle;
    cudaIpcGetMemHandle(&handle, spare);
  });
  beside.ask("cudaFreeHost", [&] { cudaFreeHost(host); });
  beside.ask("cudaEventDestroy", [&] { cudaEventDestroy(made_event); });
  beside.ask("cudaStreamDestroy", [&] { cudaStreamDestroy(made_stream); });
  beside.ask("cudaFree of 2 MiB", [&] { cudaFree(small); });
  beside.ask("cudaFree of 256 MiB", [&] { cudaFree(large); });
  beside.ask("cudaEventQuery during another thread's cudaFree,", [&] {
    std::thread freeing([&] { cudaFree(spare); });
    usleep(50'000);
    const auto begin = Clock::now();
    cudaEventQuery(event);
    const double us = us_since(begin);
    freeing.join();
    answer("the query alone", format("%.0f us", us));
  });
}

double us_per_call(const std::function<void()>& call) {
  constexpr int kCalls = 200;
  call();
  cudaDeviceSynchronize();
  const auto begin = Clock::now();
  for (int i = 0; i < kCalls; ++i) {
    call();
    cudaStreamSynchronize(nullptr);
  }
  return us_since(begin) / kCalls;
}

double copy_gb_per_s() {
  constexpr size_t kBytes = size_t{2} << 30;
  constexpr int kCopies = 10;
  char* from = nullptr;
  char* to = nullptr;
  check(cudaMalloc(&from, kBytes), "cudaMalloc");
  check(cudaMalloc(&to, kBytes), "cudaMalloc");
  check(cudaMemset(from, 1, kBytes), "cudaMemset");
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, nullptr);
  cudaEventRecord(begin);
  for (int i = 0; i < kCopies; ++i) {
    cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice, nullptr);
  }
  cudaEventRecord(end);
  cudaDeviceSynchronize();
  float ms = 0;
  cudaEventElapsedTime(&ms, begin, end);
  return 2.0 * kCopies * kBytes / ms / 1e6;
}

void ask_rates() {
  int processors = 0;
  int khz = 0;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
  cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0);
  const double ns_per_clock = 1e6 / khz;
  static Parameters parameters{};
  void* none[1] = {};
  answer("an empty launch of 512 threads a multiprocessor, to its end",
         format("%.1f us", us_per_call([&] { empty<<<processors, 512>>>(); })));
  answer("the same, cooperative", format("%.1f us", us_per_call([&] {
                                           cudaLaunchCooperativeKernel(
                                               reinterpret_cast<void*>(empty), dim3(processors),
                                               dim3(512), none, 0, nullptr);
                                         })));
  answer("the same, with 32,000 bytes of parameters",
         format("%.1f us",
                us_per_call([&] { with_parameters<<<processors, 512>>>(parameters, nullptr); })));
  constexpr uint32_t kHops = 256;
  constexpr size_t kWords = 1 << 16;
  auto* const out = pinned<uint64_t>(1);
  auto* const clocks = pinned<long long>(1);
  auto* const on_host = pinned<uint64_t>(kWords);
  for (uint64_t i = 0; i < kWords; ++i) {
    on_host[i] = (i * 4099 + 64) & (kWords - 1);
  }
  uint64_t* on_device = nullptr;
  check(cudaMalloc(&on_device, kWords * sizeof(uint64_t)), "cudaMalloc");
  check(cudaMemcpy(on_device, on_host, kWords * sizeof(uint64_t), cudaMemcpyDefault), "cudaMemcpy");
  for (const auto& [name, table] :
       {std::pair{"device memory", on_device}, std::pair{"pinned memory", on_host},
        std::pair{"pinned memory, again", on_host}}) {
    chase<<<1, 1>>>(table, kHops, out, clocks);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    answer(std::string("a load that depends on the one before it, ") + name,
           format("%.0f ns", static_cast<double>(*clocks) / kHops * ns_per_clock));
  }
  float4* data = nullptr;
  check(cudaMalloc(&data, static_cast<size_t>(processors) * 512 * 64), "cudaMalloc");
  for (const int blocks : {1, processors}) {
    for (const bool system : {false, true}) {
      fences<<<blocks, 512>>>(data, clocks, system);
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      answer("32 KiB of stores, sync, a " + std::string(system ? "system" : "device") +
                 " fence, sync in " + std::to_string(blocks) + " blocks",
             format("%.0f ns", static_cast<double>(*clocks) * ns_per_clock));
    }
  }
  answer("a copy on the device, read and written", format("%.0f GB/s", copy_gb_per_s()));
  constexpr auto kMulticast = static_cast<cudaDeviceAttr>(132);
  int multicast = 0;
  int cooperative = 0;
  cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, 0);
  check(cudaDeviceGetAttribute(&multicast, kMulticast, 0), "cudaDeviceGetAttribute");
  answer("cooperative launch; multicast",
         std::to_string(cooperative) + "; " + std::to_string(multicast));
}

}  // namespace

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string question = argc > 1 ? argv[1] : "";
  if (question == "opener") {
    return open_memory_of_parent();
  }
  const Opener opener = question == "ipc" ? start_opener(argv[0]) : Opener{};
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("SKIPPED: no usable GPU here\n");
    return kSkipped;
  }
  if (question == "ipc") {
    ask_ipc(opener);
  } else if (question == "streams" && argc == 3) {
    ask_streams(std::atoi(argv[2]));
  } else if (question == "grids") {
    for (const int blocks : {8, 60}) {
      ask_two_grids(true, true, blocks);
      ask_two_grids(true, false, blocks);
      ask_two_grids(false, false, blocks);
    }
  } else if (question == "host-functions") {
    ask_host_functions();
  } else if (question == "beside") {
    ask_beside();
  } else if (question == "pieces") {
    ask_pieces();
  } else if (question == "rates") {
    ask_rates();
  } else {
    std::fprintf(stderr,
                 "usage: gpu_probe ipc|grids|host-functions|beside|pieces|streams N|rates\n");
    return 2;
  }
  _exit(0);  // what still waits does not hold the end up
}
