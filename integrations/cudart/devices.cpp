// SPDX-License-Identifier: Apache-2.0
// Virtual devices: their number, which is current, what they can do, and who may reach whom.
#include "integrations/cudart/devices.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <set>

#include "core/os/host.hpp"
#include "integrations/cudart/call.hpp"
#include "integrations/cudart/include/cuda_runtime_api.h"
#include "integrations/cudart/runtime.hpp"

namespace plexus::cudart {
namespace {

constexpr int kPciDomain = 0x1000;    // where real devices are not
constexpr size_t kPciTextBytes = 13;  // "1000:00:00.0" and its end

/// The number of a device of this process among all, which CUDA_VISIBLE_DEVICES picks from.
int physical(int device) {
  return Runtime::instance().settings.devices.at(static_cast<size_t>(device));
}

/// Which devices have opened their memory to which others, as the user asked.
class PeerAccess {
 public:
  static PeerAccess& instance() { return Immortal<PeerAccess>::instance(); }
  bool enable(int device, int peer) {
    const std::lock_guard lock(mutex_);
    return enabled_.emplace(device, peer).second;
  }
  bool has(int device, int peer) {
    const std::lock_guard lock(mutex_);
    return enabled_.count({device, peer}) != 0;
  }
  bool disable(int device, int peer) {
    const std::lock_guard lock(mutex_);
    return enabled_.erase({device, peer}) != 0;
  }

 private:
  friend class Immortal<PeerAccess>;
  PeerAccess() = default;
  std::mutex mutex_;
  std::set<std::pair<int, int>> enabled_;  // guarded by mutex_
};

struct AttributeRow {
  cudaDeviceAttr attribute;
  int value;
};
// Attributes that are not here, and not of the device itself, are 0: it cannot do that.
constexpr AttributeRow kAttributes[] = {
    {cudaDevAttrMaxThreadsPerBlock, kThreadsPerBlock},
    {cudaDevAttrMaxBlockDimX, kThreadsPerBlock},
    {cudaDevAttrMaxBlockDimY, kThreadsPerBlock},
    {cudaDevAttrMaxBlockDimZ, kBlockDepth},
    {cudaDevAttrMaxGridDimX, kGridWidth},
    {cudaDevAttrMaxGridDimY, kGridHeight},
    {cudaDevAttrMaxGridDimZ, kGridHeight},
    {cudaDevAttrMaxSharedMemoryPerBlock, kSharedBytes},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, kSharedBytesMost},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, kSharedBytesMost},
    {cudaDevAttrTotalConstantMemory, kConstantBytes},
    {cudaDevAttrWarpSize, kWarp},
    {cudaDevAttrMaxPitch, kPitchMost},
    {cudaDevAttrMaxRegistersPerBlock, kRegisters},
    {cudaDevAttrMaxRegistersPerMultiprocessor, kRegisters},
    {cudaDevAttrClockRate, kClockKilohertz},
    {cudaDevAttrMemoryClockRate, kClockKilohertz},
    {cudaDevAttrGlobalMemoryBusWidth, kBusBits},
    {cudaDevAttrL2CacheSize, kCacheBytes},
    {cudaDevAttrTextureAlignment, kAlignment},
    {cudaDevAttrGpuOverlap, 1},
    {cudaDevAttrAsyncEngineCount, 2},
    {cudaDevAttrConcurrentKernels, 1},
    {cudaDevAttrUnifiedAddressing, 1},
    {cudaDevAttrCanMapHostMemory, 1},
    {cudaDevAttrStreamPrioritiesSupported, 1},
    {cudaDevAttrManagedMemory, 1},
    {cudaDevAttrConcurrentManagedAccess, 1},
    {cudaDevAttrPageableMemoryAccess, 1},
    {cudaDevAttrPageableMemoryAccessUsesHostPageTables, 1},
    {cudaDevAttrDirectManagedMemAccessFromHost, 1},
    {cudaDevAttrHostNativeAtomicSupported, 1},
    {cudaDevAttrCanUseHostPointerForRegisteredMem, 1},
    {cudaDevAttrHostRegisterSupported, 1},
    {cudaDevAttrMemoryPoolsSupported, 1},
    {cudaDevAttrMaxThreadsPerMultiProcessor, kThreadsPerMultiprocessor},
    {cudaDevAttrMaxBlocksPerMultiprocessor, kBlocksPerMultiprocessor},
    {cudaDevAttrComputeCapabilityMajor, kMajor},
    {cudaDevAttrComputeCapabilityMinor, kMinor},
    {cudaDevAttrPciDomainId, kPciDomain},
};

cudaError_t get_attribute(int* value, cudaDeviceAttr attribute, int device) {
  PLEXUS_CUDART_TRY(check_pointer(value, "the address of the value"));
  PLEXUS_CUDART_TRY(check_device(device));
  if (attribute < cudaDevAttrMaxThreadsPerBlock || attribute >= cudaDevAttrMax) {
    return refuse(cudaErrorInvalidValue, "there is no attribute {}", static_cast<int>(attribute));
  }
  if (attribute == cudaDevAttrMultiProcessorCount) {
    *value = std::max(1, cores_available());
  } else if (attribute == cudaDevAttrPciBusId) {
    *value = physical(device);
  } else if (attribute == cudaDevAttrNumaId || attribute == cudaDevAttrHostNumaId) {
    *value = -1;
  } else {
    const auto* const row =
        std::find_if(std::begin(kAttributes), std::end(kAttributes),
                     [attribute](const AttributeRow& each) { return each.attribute == attribute; });
    *value = row != std::end(kAttributes) ? row->value : 0;
  }
  return cudaSuccess;
}

std::array<char, kPciTextBytes> pci_text(int device) {
  std::array<char, kPciTextBytes> text{};
  const auto end = fmt::format_to_n(text.data(), text.size() - 1, "{:04X}:{:02X}:00.0", kPciDomain,
                                    physical(device));
  *end.out = '\0';
  return text;
}

cudaError_t find_by_pci(int* device, const char* id) {
  PLEXUS_CUDART_TRY(check_pointer(device, "the address of the device"));
  PLEXUS_CUDART_TRY(check_pointer(id, "the bus id"));
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  // NOLINTNEXTLINE(cert-err34-c): the count of fields is checked, and the numbers are compared
  if (std::sscanf(id, "%x:%x:%x", &domain, &bus, &slot) == 3 && domain == kPciDomain && slot == 0) {
    for (int each = 0; each < Runtime::instance().device_count(); ++each) {
      if (physical(each) == static_cast<int>(bus)) {
        *device = each;
        return cudaSuccess;
      }
    }
  }
  return refuse(cudaErrorInvalidValue, "no device has the bus id {:.32}", id);
}

cudaError_t check_pair(int device, int peer) {
  PLEXUS_CUDART_TRY(check_device(device));
  return check_device(peer);
}

cudaError_t enable_peer(int peer, unsigned flags) {
  PLEXUS_CUDART_TRY(check_pair(current_device(), peer));
  if (flags != 0 || peer == current_device()) {
    return refuse(peer == current_device() ? cudaErrorInvalidDevice : cudaErrorInvalidValue,
                  "peer {} with flags {:#x} on device {}", peer, flags, current_device());
  }
  return PeerAccess::instance().enable(current_device(), peer)
             ? cudaSuccess
             : refuse(cudaErrorPeerAccessAlreadyEnabled, "device {} reaches {} already",
                      current_device(), peer);
}

cudaError_t get_p2p(int* value, cudaDeviceP2PAttr attribute, int source, int target) {
  PLEXUS_CUDART_TRY(check_pointer(value, "the address of the value"));
  PLEXUS_CUDART_TRY(check_pair(source, target));
  if (source == target) {
    return refuse(cudaErrorInvalidDevice, "source and target are device {}", source);
  }
  *value =
      attribute == cudaDevP2PAttrAccessSupported || attribute == cudaDevP2PAttrNativeAtomicSupported
          ? 1
          : 0;
  return cudaSuccess;
}

cudaError_t reset() {
  PLEXUS_CUDART_TRY(check_device(current_device()));
  Runtime& runtime = Runtime::instance();
  runtime.streams.wait_device(current_device());
  runtime.streams.destroy_all(current_device());
  runtime.memory.reset(current_device());
  return cudaSuccess;
}

}  // namespace

PciPlace pci_place(int device) { return {.domain = kPciDomain, .bus = physical(device)}; }

bool has_opened_peer(int device, int peer) { return PeerAccess::instance().has(device, peer); }

cudaUUID_t uuid_of(int device) {
  cudaUUID_t uuid{};
  const uint64_t host = host_identity("").hash;
  const auto number = static_cast<uint64_t>(physical(device));
  std::memcpy(uuid.bytes, &host, sizeof(host));
  std::memcpy(uuid.bytes + sizeof(host), &number, sizeof(number));
  return uuid;
}

}  // namespace plexus::cudart

using namespace plexus::cudart;  // NOLINT(google-build-using-namespace): as all of this file

PLEXUS_CUDART cudaError_t cudaGetDeviceCount(int* count) {
  return call("cudaGetDeviceCount", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(count, "the address of the count"));
    *count = 0;
    PLEXUS_CUDART_TRY(check_device(0));
    *count = Runtime::instance().device_count();
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaGetDevice(int* device) {
  return call("cudaGetDevice", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(device, "the address of the device"));
    PLEXUS_CUDART_TRY(check_device(current_device()));
    *device = current_device();
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_device(device));
    set_current_device(device);
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaInitDevice(int device,
                                         unsigned /*device_flags*/,
                                         unsigned /*flags*/) {
  return call("cudaInitDevice", [&] { return check_device(device); });
}
PLEXUS_CUDART cudaError_t cudaSetValidDevices(int* devices, int count) {
  return call("cudaSetValidDevices", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(devices, "the list of devices"));
    for (int i = 0; i < count; ++i) {
      PLEXUS_CUDART_TRY(check_device(devices[i]));
    }
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* /*wish*/) {
  return call("cudaChooseDevice", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(device, "the address of the device"));
    PLEXUS_CUDART_TRY(check_device(0));
    *device = 0;
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaSetDeviceFlags(unsigned flags) {
  return call("cudaSetDeviceFlags", [&] {
    return (flags & ~static_cast<unsigned>(cudaDeviceMask)) == 0
               ? cudaSuccess
               : refuse(cudaErrorInvalidValue, "the flags are {:#x}", flags);
  });
}
PLEXUS_CUDART cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  return call("cudaGetDeviceFlags", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(flags, "the address of the flags"));
    *flags = cudaDeviceScheduleAuto | cudaDeviceMapHost;
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call("cudaDeviceGetAttribute", [&] { return get_attribute(value, attribute, device); });
}
PLEXUS_CUDART cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int device) {
  return call("cudaDeviceGetPCIBusId", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(id, "the address of the bus id"));
    PLEXUS_CUDART_TRY(check_device(device));
    if (size < static_cast<int>(kPciTextBytes)) {
      return refuse(cudaErrorInvalidValue, "a bus id needs {} bytes, not {}", kPciTextBytes, size);
    }
    const auto text = pci_text(device);
    std::copy(text.begin(), text.end(), id);
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  return call("cudaDeviceGetByPCIBusId", [&] { return find_by_pci(device, id); });
}
PLEXUS_CUDART cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  return call("cudaDeviceGetLimit", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(value, "the address of the value"));
    if (limit < cudaLimitStackSize || limit > cudaLimitPersistingL2CacheSize) {
      return refuse(cudaErrorUnsupportedLimit, "there is no limit {}", static_cast<int>(limit));
    }
    *value = 0;
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaDeviceSetLimit(cudaLimit limit, size_t /*value*/) {
  return call("cudaDeviceSetLimit", [&] {
    return limit >= cudaLimitStackSize && limit <= cudaLimitPersistingL2CacheSize
               ? cudaSuccess
               : refuse(cudaErrorUnsupportedLimit, "there is no limit {}", static_cast<int>(limit));
  });
}
PLEXUS_CUDART cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  return call("cudaDeviceGetCacheConfig", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(config, "the address of the setting"));
    *config = cudaFuncCachePreferNone;
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache /*config*/) {
  return call("cudaDeviceSetCacheConfig", [] { return cudaSuccess; });
}
PLEXUS_CUDART cudaError_t cudaDeviceSynchronize(void) {
  return call("cudaDeviceSynchronize", []() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_device(current_device()));
    Runtime::instance().streams.wait_device(current_device());
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaDeviceReset(void) { return call("cudaDeviceReset", reset); }
PLEXUS_CUDART cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call("cudaDeviceCanAccessPeer", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pointer(can, "the address of the answer"));
    PLEXUS_CUDART_TRY(check_pair(device, peer));
    *can = device == peer ? 0 : 1;
    return cudaSuccess;
  });
}
PLEXUS_CUDART cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return call("cudaDeviceEnablePeerAccess", [&] { return enable_peer(peer, flags); });
}
PLEXUS_CUDART cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return call("cudaDeviceDisablePeerAccess", [&]() -> cudaError_t {
    PLEXUS_CUDART_TRY(check_pair(current_device(), peer));
    return PeerAccess::instance().disable(current_device(), peer)
               ? cudaSuccess
               : refuse(cudaErrorPeerAccessNotEnabled, "device {} does not reach {}",
                        current_device(), peer);
  });
}
PLEXUS_CUDART cudaError_t cudaDeviceGetP2PAttribute(int* value,
                                                    cudaDeviceP2PAttr attribute,
                                                    int source,
                                                    int target) {
  return call("cudaDeviceGetP2PAttribute",
              [&] { return get_p2p(value, attribute, source, target); });
}
PLEXUS_CUDART cudaError_t cudaProfilerStart(void) {
  return call("cudaProfilerStart", [] { return cudaSuccess; });
}
PLEXUS_CUDART cudaError_t cudaProfilerStop(void) {
  return call("cudaProfilerStop", [] { return cudaSuccess; });
}
