// SPDX-License-Identifier: Apache-2.0
// CUDA as used by a program without knowledge of the library: plain cudaMalloc, non-blocking
// streams, captures that forbid unsafe calls in all threads.
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/empty_kernel.hpp"
#include "tests/support/machine.hpp"

namespace plexus::testing_device {
namespace {

void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
  }
}

struct CudaGraph {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;

  CudaGraph() = default;
  ~CudaGraph() {
    static_cast<void>(cudaGraphExecDestroy(executable));
    static_cast<void>(cudaGraphDestroy(graph));
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;
};

void run_job(void* argument) {
  const std::unique_ptr<std::function<void()>> job(static_cast<std::function<void()>*>(argument));
  (*job)();
}

class CudaMachine final : public Machine {
 public:
  CudaMachine(int count, std::string name) : count_(count), name_(std::move(name)) {}

  [[nodiscard]] std::string name() const override { return name_; }
  [[nodiscard]] bool is_software() const noexcept override { return false; }
  [[nodiscard]] bool waits_in_launch() const noexcept override {
    const char* const value = std::getenv("CUDA_LAUNCH_BLOCKING");
    return value != nullptr && std::string(value) != "0";
  }
  [[nodiscard]] int device_count() const noexcept override { return count_; }
  void set_current(int device) override { check(cudaSetDevice(device), "cudaSetDevice"); }

  void* allocate(int device, size_t size_bytes) override {
    const Current current(device);
    void* memory = nullptr;
    check(cudaMalloc(&memory, size_bytes), "cudaMalloc");
    check(cudaMemsetAsync(memory, 0, size_bytes, own_stream(device)), "cudaMemsetAsync");
    check(cudaStreamSynchronize(own_stream(device)), "cudaStreamSynchronize");
    return memory;
  }
  void release(int device, void* memory) override {
    const Current current(device);
    static_cast<void>(cudaFree(memory));
  }
  void copy(int device, void* to, const void* from, size_t size_bytes) override {
    const Current current(device);
    check(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, own_stream(device)),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(own_stream(device)), "cudaStreamSynchronize");
  }
  PointerFacts describe(const void* pointer) override {
    cudaPointerAttributes attributes{};
    check(cudaPointerGetAttributes(&attributes, pointer), "cudaPointerGetAttributes");
    switch (attributes.type) {
      case cudaMemoryTypeDevice:
        return {.place = PointerFacts::Place::kDevice, .device = attributes.device};
      case cudaMemoryTypeManaged:
        return {.place = PointerFacts::Place::kManaged};
      case cudaMemoryTypeHost:
        return {.place = PointerFacts::Place::kPinned};
      default:
        return {};
    }
  }
  /// Allocated device memory in granules of 2 MiB.
  size_t taken() override {
    size_t taken = 0;
    for (int device = 0; device < count_; ++device) {
      const Current current(device);
      size_t free_bytes = 0;
      size_t total_bytes = 0;
      check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
      taken += (total_bytes - free_bytes) / kExportGranule;
    }
    return taken;
  }

  DeviceStream make_stream(int device) override {
    const Current current(device);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return stream;
  }
  void destroy_stream(DeviceStream stream) override {
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
  }
  void synchronize(DeviceStream stream) override {
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  void copy_in_order(DeviceStream stream, void* to, const void* from, size_t size_bytes) override {
    check(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToDevice, stream),
          "cudaMemcpyAsync");
  }
  void enqueue(DeviceStream stream, std::function<void()> job) override {
    auto owned = std::make_unique<std::function<void()>>(std::move(job));
    check(cudaLaunchHostFunc(stream, run_job, owned.get()), "cudaLaunchHostFunc");
    static_cast<void>(owned.release());  // run_job owns it
  }
  void launch_empty(DeviceStream stream, uint32_t blocks, uint32_t threads) override {
    check(static_cast<cudaError_t>(test::launch_empty(blocks, threads, stream)),
          "an empty cooperative kernel");
  }

  void begin_capture(DeviceStream stream) override {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  }
  Graph end_capture(DeviceStream stream) override {
    auto made = std::make_shared<CudaGraph>();
    check(cudaStreamEndCapture(stream, &made->graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&made->executable, made->graph, 0), "cudaGraphInstantiate");
    return made;
  }
  void replay(const Graph& graph, DeviceStream stream) override {
    check(cudaGraphLaunch(static_cast<const CudaGraph*>(graph.get())->executable, stream),
          "cudaGraphLaunch");
  }
  GraphShape shape_of(const Graph& graph) override {
    const cudaGraph_t captured = static_cast<const CudaGraph*>(graph.get())->graph;
    size_t count = 0;
    check(cudaGraphGetNodes(captured, nullptr, &count), "cudaGraphGetNodes");
    std::vector<cudaGraphNode_t> nodes(count);
    check(cudaGraphGetNodes(captured, nodes.data(), &count), "cudaGraphGetNodes");
    GraphShape shape;
    for (const cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type{};
      check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
      if (type == cudaGraphNodeTypeKernel) {
        cudaKernelNodeParams parameters{};
        check(cudaGraphKernelNodeGetParams(node, &parameters), "cudaGraphKernelNodeGetParams");
        shape = {.kernels = shape.kernels + 1,
                 .blocks = parameters.gridDim.x,
                 .threads = parameters.blockDim.x};
      }
    }
    return shape;
  }

 private:
  /// Makes a device current and restores the thread's own.
  class Current {
   public:
    explicit Current(int device) {
      check(cudaGetDevice(&before_), "cudaGetDevice");
      check(cudaSetDevice(device), "cudaSetDevice");
    }
    ~Current() { static_cast<void>(cudaSetDevice(before_)); }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    int before_ = 0;
  };

  cudaStream_t own_stream(int device) {
    const std::lock_guard lock(mutex_);
    cudaStream_t& stream = streams_[device];
    if (stream == nullptr) {
      check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    return stream;
  }

  int count_;
  std::string name_;
  std::mutex mutex_;
  std::map<int, cudaStream_t> streams_;  // guarded by mutex_; as long as the process
};

}  // namespace

std::unique_ptr<Machine> make_cuda_machine(std::string& reason) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    reason = std::string("no usable GPU here (") +
             (code == cudaSuccess ? "no device" : cudaGetErrorString(code)) + ")";
    return nullptr;
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  return std::make_unique<CudaMachine>(count, properties.name);
}

}  // namespace plexus::testing_device
