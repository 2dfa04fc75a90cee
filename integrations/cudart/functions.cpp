// SPDX-License-Identifier: Apache-2.0
// Kernels: what nvcc compiled is registered, so that programs with kernels link and start, and a
// launch of one says why it cannot run; what plexus-nvcc compiled is run.
#include <algorithm>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "integrations/cudart/call.hpp"
#include "integrations/cudart/devices.hpp"
#include "integrations/cudart/include/plexus/kernel_calls.h"
#include "integrations/cudart/kernels.hpp"
#include "integrations/cudart/runtime.hpp"

namespace plexus::cudart {
namespace {

constexpr unsigned kVersionAsked = 12000;  // by callers that name none

/// The kernels that were registered, by the address of their functions: names of those that nvcc
/// compiled, entries of those of plexus-nvcc. Threads: any.
class Kernels {
 public:
  static Kernels& instance() { return Immortal<Kernels>::instance(); }
  void add(const void* function, const plexusKernelEntry& entry) {
    const std::lock_guard lock(mutex_);
    entries_[function] = &entry;
  }
  /// nullptr: none of plexus-nvcc's.
  const plexusKernelEntry* find(const void* function) {
    const std::lock_guard lock(mutex_);
    const auto at = entries_.find(function);
    return at == entries_.end() ? nullptr : at->second;
  }
  void add(const void* function, const char* name) {
    const std::lock_guard lock(mutex_);
    names_[function] = name;
  }
  std::string name_of(const void* function) {
    const std::lock_guard lock(mutex_);
    const auto at = names_.find(function);
    return at == names_.end() ? std::string("of an unknown name") : at->second;
  }

 private:
  friend class Immortal<Kernels>;
  Kernels() = default;
  std::mutex mutex_;
  std::map<const void*, std::string> names_;                 // guarded by mutex_
  std::map<const void*, const plexusKernelEntry*> entries_;  // likewise
};

/// What <<<...>>> passes on to the stub of a kernel.
struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  void* stream;
};
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): of a thread
thread_local std::vector<Configuration> configurations;

cudaError_t launch(const void* function, const Grid& grid, void** arguments, cudaStream_t stream) {
  if (const plexusKernelEntry* const entry = Kernels::instance().find(function); entry != nullptr) {
    return launch_grid({entry->run, entry->release, entry->copy(arguments)}, grid, stream);
  }
  return refuse(cudaErrorNoKernelImageForDevice,
                "kernel {} was compiled for a GPU and cannot run over host memory: compile it with "
                "plexus-nvcc",
                Kernels::instance().name_of(function));
}

cudaError_t describe(cudaFuncAttributes* attributes, const void* function) {
  PLEXUS_CUDART_TRY(check_pointer(attributes, "the address of the attributes"));
  PLEXUS_CUDART_TRY(check_pointer(function, "the function"));
  *attributes = {};
  constexpr int kVersion = 10 * kMajor + kMinor;
  attributes->maxThreadsPerBlock = kThreadsPerBlock;
  attributes->maxDynamicSharedSizeBytes = kSharedBytesMost;
  attributes->ptxVersion = kVersion;
  attributes->binaryVersion = kVersion;
  return cudaSuccess;
}

cudaError_t count_blocks(int* blocks, const void* function, int threads) {
  PLEXUS_CUDART_TRY(check_pointer(blocks, "the address of the number"));
  PLEXUS_CUDART_TRY(check_pointer(function, "the function"));
  if (threads < 1 || threads > kThreadsPerBlock) {
    return refuse(cudaErrorInvalidValue, "a block has 1 to {} threads, not {}", kThreadsPerBlock,
                  threads);
  }
  *blocks = std::min(kThreadsPerMultiprocessor / threads, kBlocksPerMultiprocessor);
  return cudaSuccess;
}

/// Looks in libcuda.so.1 beside this library, which puts the driver's names to this one's
/// functions.
void* find_in_driver(const char* symbol, unsigned version) {
  using Find = int (*)(const char*, void**, int, unsigned long long, int*);
  static const auto find = []() -> Find {
    Dl_info own{};
    if (::dladdr(reinterpret_cast<const void*>(&find_in_driver), &own) == 0) {
      return nullptr;
    }
    const std::string file = own.dli_fname;
    void* const driver = ::dlopen((file.substr(0, file.rfind('/') + 1) + "libcuda.so.1").c_str(),
                                  RTLD_NOW | RTLD_LOCAL);  // never closed
    return driver == nullptr ? nullptr
                             : reinterpret_cast<Find>(::dlsym(driver, "cuGetProcAddress_v2"));
  }();
  void* found = nullptr;
  if (find != nullptr) {
    static_cast<void>(find(symbol, &found, static_cast<int>(version), 0, nullptr));
  }
  return found;
}

cudaError_t find_driver_function(const char* symbol,
                                 void** function,
                                 unsigned version,
                                 cudaDriverEntryPointQueryResult* status) {
  PLEXUS_CUDART_TRY(check_pointer(symbol, "the name"));
  PLEXUS_CUDART_TRY(check_pointer(function, "the address of the function"));
  *function = find_in_driver(symbol, version);
  if (status != nullptr) {
    *status =
        *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
  }
  return *function != nullptr
             ? cudaSuccess
             : refuse(cudaErrorSymbolNotFound, "the driver has no function {:.100}", symbol);
}

}  // namespace
}  // namespace plexus::cudart

using namespace plexus::cudart;  // NOLINT(google-build-using-namespace): as all of this file

PLEXUS_CUDART cudaError_t cudaLaunchKernel(const void* function,
                                           dim3 grid,
                                           dim3 block,
                                           void** arguments,
                                           size_t shared_bytes,
                                           cudaStream_t stream) {
  return call("cudaLaunchKernel", [&] {
    return launch(function, {grid, block, shared_bytes}, arguments, stream);
  });
}
PLEXUS_CUDART cudaError_t cudaLaunchCooperativeKernel(const void* function,
                                                      dim3 /*grid*/,
                                                      dim3 /*block*/,
                                                      void** /*arguments*/,
                                                      size_t /*shared_bytes*/,
                                                      cudaStream_t /*stream*/) {
  return call("cudaLaunchCooperativeKernel", [&] {
    return refuse(
        cudaErrorNotSupported,
        "blocks run one after the other, so kernel {} cannot have them wait for each other",
        Kernels::instance().name_of(function));
  });
}
PLEXUS_CUDART cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config,
                                              const void* function,
                                              void** arguments) {
  return call("cudaLaunchKernelExC", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(config, "the configuration"));
    return launch(function, {config->gridDim, config->blockDim, config->dynamicSmemBytes},
                  arguments, config->stream);
  });
}
PLEXUS_CUDART void plexusKernelRegister(const void* function, const plexusKernelEntry* entry) {
  Kernels::instance().add(function, *entry);
}
PLEXUS_CUDART cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                                const void* function) {
  return call("cudaFuncGetAttributes", [&] { return describe(attributes, function); });
}
PLEXUS_CUDART cudaError_t cudaFuncSetAttribute(const void* function,
                                               cudaFuncAttribute /*attribute*/,
                                               int /*value*/) {
  return call("cudaFuncSetAttribute", [&] { return check_pointer(function, "the function"); });
}
PLEXUS_CUDART cudaError_t cudaFuncSetCacheConfig(const void* function, cudaFuncCache /*config*/) {
  return call("cudaFuncSetCacheConfig", [&] { return check_pointer(function, "the function"); });
}
PLEXUS_CUDART cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                        const void* function,
                                                                        int threads,
                                                                        size_t /*shared_bytes*/) {
  return call("cudaOccupancyMaxActiveBlocksPerMultiprocessor",
              [&] { return count_blocks(blocks, function, threads); });
}
PLEXUS_CUDART cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void* function, int threads, size_t /*shared_bytes*/, unsigned /*flags*/) {
  return call("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
              [&] { return count_blocks(blocks, function, threads); });
}

PLEXUS_CUDART cudaError_t cudaGetDriverEntryPoint(const char* symbol,
                                                  void** function,
                                                  unsigned long long /*flags*/,
                                                  cudaDriverEntryPointQueryResult* status) {
  return call("cudaGetDriverEntryPoint",
              [&] { return find_driver_function(symbol, function, kVersionAsked, status); });
}
PLEXUS_CUDART cudaError_t
cudaGetDriverEntryPointByVersion(const char* symbol,
                                 void** function,
                                 unsigned version,
                                 unsigned long long /*flags*/,
                                 cudaDriverEntryPointQueryResult* status) {
  return call("cudaGetDriverEntryPointByVersion",
              [&] { return find_driver_function(symbol, function, version, status); });
}

// ---- what nvcc's code calls by itself ----

// NOLINTBEGIN(readability-identifier-naming): nvcc's names

PLEXUS_CUDART void** __cudaRegisterFatBinary(void* image) {
  return std::make_unique<void*>(image).release();  // __cudaUnregisterFatBinary frees it
}
PLEXUS_CUDART void __cudaRegisterFatBinaryEnd(void** /*handle*/) {}
PLEXUS_CUDART void __cudaUnregisterFatBinary(void** handle) {
  const std::unique_ptr<void*> owner(handle);
}
PLEXUS_CUDART char __cudaInitModule(void** /*handle*/) { return 1; }
// NOLINTBEGIN(readability-function-size): the numbers of parameters are nvcc's
PLEXUS_CUDART void __cudaRegisterFunction(void** /*handle*/,
                                          const char* function,
                                          char* /*device_function*/,
                                          const char* name,
                                          int /*threads*/,
                                          uint3* /*thread*/,
                                          uint3* /*block*/,
                                          dim3* /*block_size*/,
                                          dim3* /*grid_size*/,
                                          int* /*warp*/) {
  Kernels::instance().add(function, name);
}
PLEXUS_CUDART void __cudaRegisterVar(void** /*handle*/,
                                     char* /*variable*/,
                                     char* /*device_address*/,
                                     const char* /*name*/,
                                     int /*is_extern*/,
                                     size_t /*bytes*/,
                                     int /*is_constant*/,
                                     int /*is_global*/) {}
// NOLINTEND(readability-function-size)
PLEXUS_CUDART unsigned __cudaPushCallConfiguration(dim3 grid,
                                                   dim3 block,
                                                   size_t shared_bytes,
                                                   void* stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}
PLEXUS_CUDART cudaError_t __cudaPopCallConfiguration(dim3* grid,
                                                     dim3* block,
                                                     size_t* shared_bytes,
                                                     void* stream) {
  if (configurations.empty()) {
    return cudaErrorMissingConfiguration;
  }
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared_bytes = last.shared_bytes;
  *static_cast<void**>(stream) = last.stream;
  return cudaSuccess;
}
// NOLINTEND(readability-identifier-naming)
