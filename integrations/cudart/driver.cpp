// SPDX-License-Identifier: Apache-2.0
// Start, devices, contexts and the lookup of functions by name.
#include "integrations/cudart/driver.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <string_view>
#include <vector>

namespace plexus::cuda {
namespace {

constexpr int kDevicesMax = 64;
constexpr int kVersion = 13000;

/// The folder that this library is in.
std::string own_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0 ||
      info.dli_fname == nullptr) {
    return {};
  }
  const std::string file = info.dli_fname;
  return file.substr(0, file.rfind('/') + 1);
}

/// Never closed. A libcudart of NVIDIA's, which would call this library, is none.
void* open_runtime() {
  for (const char* const name : {"libcudart.so.13", "libcudart.so.12"}) {
    void* const file = ::dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (file != nullptr && ::dlsym(file, "plexusCudartFindMemory") != nullptr) {
      return file;
    }
  }
  return ::dlopen((own_folder() + "libcudart.so.13").c_str(), RTLD_NOW | RTLD_LOCAL);
}

/// The one context of a device.
struct Context {
  int device;
};

std::array<Context, kDevicesMax>& contexts() {
  static std::array<Context, kDevicesMax> all = [] {
    std::array<Context, kDevicesMax> made{};
    for (int device = 0; device < kDevicesMax; ++device) {
      made.at(static_cast<size_t>(device)).device = device;
    }
    return made;
  }();
  return all;
}

CUcontext context_of(int device) {
  return reinterpret_cast<CUcontext>(&contexts().at(static_cast<size_t>(device)));
}

bool find_device(CUcontext context, int* device) {
  for (const Context& each : contexts()) {
    if (reinterpret_cast<const void*>(&each) == static_cast<const void*>(context)) {
      *device = each.device;
      return true;
    }
  }
  return false;
}

// The driver's interface keeps this for each thread: the devices of contexts below the current one.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local std::vector<int> below;

int current_device() {
  int device = 0;
  return PLEXUS_RUNTIME(cudaGetDevice)(&device) == cudaSuccess ? device : -1;
}

CUresult check_device(CUdevice device) {
  int count = 0;
  const CUresult result = result_of(PLEXUS_RUNTIME(cudaGetDeviceCount)(&count));
  return result != CUDA_SUCCESS          ? result
         : device < 0 || device >= count ? CUDA_ERROR_INVALID_DEVICE
                                         : CUDA_SUCCESS;
}

/// Calls `body` for a device that there is, with an address for its answer.
template <class Out, class Body>
CUresult answer(Out* out, CUdevice device, const Body& body) {
  if (out == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult result = check_device(device);
  return result != CUDA_SUCCESS ? result : body();
}

/// A function of this library: the newest of its forms that programs of `version` know.
void* find_function(std::string_view name, int version) {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a handle
  static void* const own =
      ::dlopen((own_folder() + "libcuda.so.1").c_str(), RTLD_NOW | RTLD_NOLOAD);
  if (own == nullptr || !name.starts_with("cu")) {
    return nullptr;
  }
  if (name == "cuCtxCreate") {  // whose forms differ in their arguments
    constexpr int kThird = 11040;
    constexpr int kFourth = 12050;
    const char* const form = version >= kFourth ? "_v4" : version >= kThird ? "_v3" : "_v2";
    return ::dlsym(own, (std::string(name) + form).c_str());
  }
  for (const char* const form : {"_v2", ""}) {
    if (void* const found = ::dlsym(own, (std::string(name) + form).c_str()); found != nullptr) {
      return found;
    }
  }
  return nullptr;
}

}  // namespace

void* find_in_runtime(const char* name) noexcept {
  // NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables): a handle
  static void* const runtime = open_runtime();
  void* const found = runtime == nullptr ? nullptr : ::dlsym(runtime, name);
  if (found == nullptr) {
    std::fprintf(stderr, "plexus: libcuda.so.1 needs %s of the libcudart.so.13 beside it: %s\n",
                 name,
                 ::dlerror());  // NOLINT(concurrency-mt-unsafe): of this thread
    std::abort();
  }
  return found;
}

CUresult refuse(const char* name) noexcept {
  PLEXUS_RUNTIME(plexusCudartRefuse)(name);
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace plexus::cuda

using namespace plexus::cuda;  // NOLINT(google-build-using-namespace): as all of this file

// NOLINTBEGIN(readability-identifier-naming): CUDA's names

// ---- start, errors, names ----

/// Loads no libcudart: see cuGetExportTable. Whether there are devices, the first question for them
/// tells.
PLEXUS_CUDA CUresult cuInit(unsigned flags) {
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
PLEXUS_CUDA CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *version = kVersion;
  return CUDA_SUCCESS;
}
PLEXUS_CUDA CUresult cuGetErrorString(CUresult error, const char** text) {
  if (text == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const auto code = static_cast<cudaError_t>(error);
  const bool is_known =
      std::strcmp(PLEXUS_RUNTIME(cudaGetErrorName)(code), "unrecognized error code") != 0;
  *text = is_known ? PLEXUS_RUNTIME(cudaGetErrorString)(code) : nullptr;
  return is_known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
PLEXUS_CUDA CUresult cuGetErrorName(CUresult error, const char** name) {
  struct Row {
    CUresult code;
    const char* name;
  };
#define PLEXUS_ROW(code) \
  Row { code, #code }
  static constexpr Row kRows[] = {PLEXUS_ROW(CUDA_SUCCESS),
                                  PLEXUS_ROW(CUDA_ERROR_INVALID_VALUE),
                                  PLEXUS_ROW(CUDA_ERROR_OUT_OF_MEMORY),
                                  PLEXUS_ROW(CUDA_ERROR_NOT_INITIALIZED),
                                  PLEXUS_ROW(CUDA_ERROR_DEINITIALIZED),
                                  PLEXUS_ROW(CUDA_ERROR_STUB_LIBRARY),
                                  PLEXUS_ROW(CUDA_ERROR_NO_DEVICE),
                                  PLEXUS_ROW(CUDA_ERROR_INVALID_DEVICE),
                                  PLEXUS_ROW(CUDA_ERROR_INVALID_IMAGE),
                                  PLEXUS_ROW(CUDA_ERROR_INVALID_CONTEXT),
                                  PLEXUS_ROW(CUDA_ERROR_MAP_FAILED),
                                  PLEXUS_ROW(CUDA_ERROR_NO_BINARY_FOR_GPU),
                                  PLEXUS_ROW(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED),
                                  PLEXUS_ROW(CUDA_ERROR_INVALID_HANDLE),
                                  PLEXUS_ROW(CUDA_ERROR_ILLEGAL_STATE),
                                  PLEXUS_ROW(CUDA_ERROR_NOT_FOUND),
                                  PLEXUS_ROW(CUDA_ERROR_NOT_READY),
                                  PLEXUS_ROW(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
                                  PLEXUS_ROW(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED),
                                  PLEXUS_ROW(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
                                  PLEXUS_ROW(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
                                  PLEXUS_ROW(CUDA_ERROR_NOT_PERMITTED),
                                  PLEXUS_ROW(CUDA_ERROR_NOT_SUPPORTED),
                                  PLEXUS_ROW(CUDA_ERROR_UNKNOWN)};
#undef PLEXUS_ROW
  if (name == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *name = nullptr;
  for (const Row& row : kRows) {
    if (row.code == error) {
      *name = row.name;
    }
  }
  return *name != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
PLEXUS_CUDA CUresult cuGetProcAddress_v2(const char* name,
                                         void** function,
                                         int version,
                                         cuuint64_t /*flags*/,
                                         CUdriverProcAddressQueryResult* status) {
  if (name == nullptr || function == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *function = find_function(name, version);
  if (status != nullptr) {
    *status =
        *function != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  }
  return *function != nullptr || status != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
#undef cuGetProcAddress
#undef cuDeviceGetUuid
#undef cuDevicePrimaryCtxRelease
#undef cuCtxDestroy
#undef cuCtxPopCurrent
#undef cuCtxPushCurrent
PLEXUS_CUDA CUresult cuGetProcAddress(const char* name,
                                      void** function,
                                      int version,
                                      cuuint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

/// Asked by NVIDIA's libcudart alone, as programs have it that were linked with the static one:
/// they see that there is no GPU. Nothing is loaded for that, because libplexus, where it has been
/// built for CUDA, is such a program, too.
PLEXUS_CUDA CUresult cuGetExportTable(const void** /*table*/, const CUuuid* /*id*/) {
  return CUDA_ERROR_STUB_LIBRARY;
}
/// libplexus recognises the library by this name.
PLEXUS_CUDA int plexusVirtualDriver(void) { return 1; }

// ---- devices ----

PLEXUS_CUDA CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return answer(device, ordinal, [&] {
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}
PLEXUS_CUDA CUresult cuDeviceGetCount(int* count) {
  return result_of(PLEXUS_RUNTIME(cudaGetDeviceCount)(count));
}
PLEXUS_CUDA CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  return answer(name, device, [&] {
    if (bytes <= 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::snprintf(name, static_cast<size_t>(bytes), "%s", "Plexus virtual device over host memory");
    return CUDA_SUCCESS;
  });
}
PLEXUS_CUDA CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return answer(uuid, device, [&] {
    PLEXUS_RUNTIME(plexusCudartUuid)(uuid, device);
    return CUDA_SUCCESS;
  });
}
PLEXUS_CUDA CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return answer(bytes, device, [&] {
    size_t free = 0;
    return result_of(PLEXUS_RUNTIME(cudaMemGetInfo)(&free, bytes));  // all have the same
  });
}
PLEXUS_CUDA CUresult cuDeviceGetAttribute(int* value,
                                          CUdevice_attribute attribute,
                                          CUdevice device) {
  return result_of(PLEXUS_RUNTIME(cudaDeviceGetAttribute)(
      value, static_cast<cudaDeviceAttr>(attribute), device));
}
PLEXUS_CUDA CUresult cuDeviceGetPCIBusId(char* id, int bytes, CUdevice device) {
  return result_of(PLEXUS_RUNTIME(cudaDeviceGetPCIBusId)(id, bytes, device));
}
PLEXUS_CUDA CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  return result_of(PLEXUS_RUNTIME(cudaDeviceGetByPCIBusId)(device, id));
}
PLEXUS_CUDA CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return result_of(PLEXUS_RUNTIME(cudaDeviceCanAccessPeer)(can, device, peer));
}
PLEXUS_CUDA CUresult cuDeviceGetP2PAttribute(int* value,
                                             cudaDeviceP2PAttr attribute,
                                             CUdevice source,
                                             CUdevice target) {
  return result_of(PLEXUS_RUNTIME(cudaDeviceGetP2PAttribute)(value, attribute, source, target));
}
PLEXUS_CUDA CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return result_of(PLEXUS_RUNTIME(cudaDeviceGetDefaultMemPool)(pool, device));
}

// ---- contexts ----

PLEXUS_CUDA CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return answer(context, device, [&] {
    *context = context_of(device);
    return CUDA_SUCCESS;
  });
}
PLEXUS_CUDA CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return check_device(device); }
PLEXUS_CUDA CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  const int before = current_device();
  CUresult result = result_of(PLEXUS_RUNTIME(cudaSetDevice)(device));
  if (result == CUDA_SUCCESS) {
    result = result_of(PLEXUS_RUNTIME(cudaDeviceReset)());
    static_cast<void>(PLEXUS_RUNTIME(cudaSetDevice)(before));
  }
  return result;
}
PLEXUS_CUDA CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned /*flags*/) {
  return check_device(device);
}
PLEXUS_CUDA CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return answer(active, device, [&] {
    *active = 1;
    if (flags != nullptr) {
      *flags = CU_CTX_SCHED_AUTO;
    }
    return CUDA_SUCCESS;
  });
}
PLEXUS_CUDA CUresult cuCtxGetCurrent(CUcontext* context) {
  const int device = current_device();
  if (context == nullptr || device < 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *context = context_of(device);
  return CUDA_SUCCESS;
}
PLEXUS_CUDA CUresult cuCtxSetCurrent(CUcontext context) {
  int device = 0;
  if (context == nullptr) {  // the runtime always has one
    return CUDA_SUCCESS;
  }
  return find_device(context, &device) ? result_of(PLEXUS_RUNTIME(cudaSetDevice)(device))
                                       : CUDA_ERROR_INVALID_CONTEXT;
}
PLEXUS_CUDA CUresult cuCtxPushCurrent_v2(CUcontext context) {
  const int before = current_device();
  const CUresult result =
      context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : cuCtxSetCurrent(context);
  if (result == CUDA_SUCCESS) {
    below.push_back(before);
  }
  return result;
}
PLEXUS_CUDA CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (below.empty()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  if (context != nullptr) {
    *context = context_of(current_device());
  }
  const int device = below.back();
  below.pop_back();
  return result_of(PLEXUS_RUNTIME(cudaSetDevice)(device));
}
/// A device has one context, whoever asks for another; as CUDA, it becomes the current one.
static CUresult create_context(CUcontext* context, CUdevice device) {
  const CUresult result = cuDevicePrimaryCtxRetain(context, device);
  return result == CUDA_SUCCESS ? cuCtxPushCurrent_v2(*context) : result;
}
PLEXUS_CUDA CUresult cuCtxCreate_v2(CUcontext* context, unsigned /*flags*/, CUdevice device) {
  return create_context(context, device);
}
PLEXUS_CUDA CUresult
cuCtxCreate_v3(CUcontext* context, void* /*affinity*/, int /*count*/, unsigned, CUdevice device) {
  return create_context(context, device);
}
PLEXUS_CUDA CUresult cuCtxCreate_v4(CUcontext* context,
                                    void* /*parameters*/,
                                    unsigned /*flags*/,
                                    CUdevice device) {
  return create_context(context, device);
}
PLEXUS_CUDA CUresult cuCtxDestroy_v2(CUcontext context) {
  int device = 0;
  if (!find_device(context, &device)) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  return device == current_device() && !below.empty() ? cuCtxPopCurrent_v2(nullptr) : CUDA_SUCCESS;
}
PLEXUS_CUDA CUresult cuCtxGetDevice(CUdevice* device) {
  return result_of(PLEXUS_RUNTIME(cudaGetDevice)(device));
}
PLEXUS_CUDA CUresult cuCtxGetFlags(unsigned* flags) {
  return result_of(PLEXUS_RUNTIME(cudaGetDeviceFlags)(flags));
}
PLEXUS_CUDA CUresult cuCtxGetApiVersion(CUcontext context, unsigned* version) {
  int device = 0;
  if (version == nullptr || (context != nullptr && !find_device(context, &device))) {
    return version == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
  }
  *version = kVersion;
  return CUDA_SUCCESS;
}
PLEXUS_CUDA CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return result_of(PLEXUS_RUNTIME(cudaDeviceGetStreamPriorityRange)(least, greatest));
}
PLEXUS_CUDA CUresult cuCtxGetLimit(size_t* value, cudaLimit limit) {
  return result_of(PLEXUS_RUNTIME(cudaDeviceGetLimit)(value, limit));
}
PLEXUS_CUDA CUresult cuCtxSetLimit(cudaLimit limit, size_t value) {
  return result_of(PLEXUS_RUNTIME(cudaDeviceSetLimit)(limit, value));
}
PLEXUS_CUDA CUresult cuCtxSynchronize(void) {
  return result_of(PLEXUS_RUNTIME(cudaDeviceSynchronize)());
}
PLEXUS_CUDA CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  int device = 0;
  return find_device(peer, &device)
             ? result_of(PLEXUS_RUNTIME(cudaDeviceEnablePeerAccess)(device, flags))
             : CUDA_ERROR_INVALID_CONTEXT;
}
PLEXUS_CUDA CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  int device = 0;
  return find_device(peer, &device) ? result_of(PLEXUS_RUNTIME(cudaDeviceDisablePeerAccess)(device))
                                    : CUDA_ERROR_INVALID_CONTEXT;
}
PLEXUS_CUDA CUresult cuStreamGetCtx(CUstream stream, CUcontext* context) {
  int device = 0;
  const CUresult result = context == nullptr
                              ? CUDA_ERROR_INVALID_VALUE
                              : result_of(PLEXUS_RUNTIME(cudaStreamGetDevice)(stream, &device));
  if (result == CUDA_SUCCESS) {
    *context = context_of(device);
  }
  return result;
}

// The names of the first forms, which programs look up, too.
PLEXUS_CUDA CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  return cuDeviceGetUuid_v2(uuid, device);
}
PLEXUS_CUDA CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return check_device(device); }
PLEXUS_CUDA CUresult cuCtxDestroy(CUcontext context) { return cuCtxDestroy_v2(context); }
PLEXUS_CUDA CUresult cuCtxPopCurrent(CUcontext* context) { return cuCtxPopCurrent_v2(context); }
PLEXUS_CUDA CUresult cuCtxPushCurrent(CUcontext context) { return cuCtxPushCurrent_v2(context); }

// NOLINTEND(readability-identifier-naming)

namespace plexus::cuda {

void* context_of_device(int device) { return context_of(device); }

}  // namespace plexus::cuda
