// SPDX-License-Identifier: Apache-2.0
// Memory pools. Each device has one, and programs may make others; memory of all of them is the
// device's, so a pool keeps the settings that it is given and counts what it has handed out.
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "integrations/cudart/call.hpp"
#include "integrations/cudart/include/cuda_runtime_api.h"
#include "integrations/cudart/runtime.hpp"

namespace plexus::cudart {
namespace {

struct Pool {
  int device = 0;
  bool is_default = false;
  // Guarded by the mutex of Pools:
  std::array<int, 4> reuse{0, 1, 1, 1};  // by cudaMemPoolReuse...; [0] is not used
  uint64_t release_threshold = 0;
};

/// Threads: any.
class Pools {
 public:
  static Pools& instance() { return Immortal<Pools>::instance(); }

  cudaError_t find_default(int device, cudaMemPool_t* pool) {
    PLEXUS_CUDART_TRY(check_pointer(pool, "the address of the pool"));
    PLEXUS_CUDART_TRY(check_device(device));
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(known_.begin(), known_.end(), [device](const auto& each) {
      return each.second->is_default && each.second->device == device;
    });
    *pool = at != known_.end() ? at->first : add(device, true);
    return cudaSuccess;
  }
  cudaError_t create(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
    PLEXUS_CUDART_TRY(check_pointer(pool, "the address of the pool"));
    PLEXUS_CUDART_TRY(check_pointer(properties, "the properties"));
    if (properties->allocType != cudaMemAllocationTypePinned ||
        properties->location.type != cudaMemLocationTypeDevice ||
        properties->handleTypes != cudaMemHandleTypeNone) {
      return refuse(cudaErrorNotSupported,
                    "a pool is of pinned memory of a device and is not shared with processes");
    }
    PLEXUS_CUDART_TRY(check_device(properties->location.id));
    const std::lock_guard lock(mutex_);
    *pool = add(properties->location.id, false);
    return cudaSuccess;
  }
  cudaError_t destroy(cudaMemPool_t pool) {
    std::shared_ptr<Pool> found;
    PLEXUS_CUDART_TRY(find(pool, &found));
    if (found->is_default) {
      return refuse(cudaErrorInvalidValue, "the pool of a device is not destroyed");
    }
    const std::lock_guard lock(mutex_);
    known_.erase(pool);
    return cudaSuccess;
  }
  cudaError_t find(cudaMemPool_t pool, std::shared_ptr<Pool>* found) {
    const std::lock_guard lock(mutex_);
    const auto at = known_.find(pool);
    if (at == known_.end()) {
      return refuse(cudaErrorInvalidValue, "{} is no pool, or was destroyed", fmt::ptr(pool));
    }
    *found = at->second;
    return cudaSuccess;
  }
  cudaError_t set(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);
  cudaError_t get(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value);

 private:
  friend class Immortal<Pools>;
  Pools() = default;
  cudaMemPool_t add(int device, bool is_default) {
    auto made = std::make_shared<Pool>();
    made->device = device;
    made->is_default = is_default;
    const auto handle = reinterpret_cast<cudaMemPool_t>(made.get());
    known_.emplace(handle, std::move(made));
    return handle;
  }

  std::mutex mutex_;
  std::unordered_map<cudaMemPool_t, std::shared_ptr<Pool>> known_;  // guarded by mutex_
};

bool is_reuse(cudaMemPoolAttr attribute) {
  return attribute >= cudaMemPoolReuseFollowEventDependencies &&
         attribute <= cudaMemPoolReuseAllowInternalDependencies;
}

cudaError_t Pools::set(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  std::shared_ptr<Pool> found;
  PLEXUS_CUDART_TRY(find(pool, &found));
  PLEXUS_CUDART_TRY(check_pointer(value, "the value"));
  const std::lock_guard lock(mutex_);
  if (is_reuse(attribute)) {
    found->reuse.at(attribute) = *static_cast<const int*>(value);
  } else if (attribute == cudaMemPoolAttrReleaseThreshold) {
    found->release_threshold = *static_cast<const uint64_t*>(value);
  } else if (attribute != cudaMemPoolAttrReservedMemHigh &&
             attribute != cudaMemPoolAttrUsedMemHigh) {
    return refuse(cudaErrorInvalidValue, "attribute {} is not set", static_cast<int>(attribute));
  }
  return cudaSuccess;
}

/// What is used of a device counts for each of its pools.
cudaError_t Pools::get(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  std::shared_ptr<Pool> found;
  PLEXUS_CUDART_TRY(find(pool, &found));
  PLEXUS_CUDART_TRY(check_pointer(value, "the value"));
  const Memory& memory = Runtime::instance().memory;
  const uint64_t used = memory.total_bytes() - memory.free_bytes(found->device);
  const std::lock_guard lock(mutex_);
  if (is_reuse(attribute)) {
    *static_cast<int*>(value) = found->reuse.at(attribute);
  } else if (attribute == cudaMemPoolAttrReleaseThreshold) {
    *static_cast<uint64_t*>(value) = found->release_threshold;
  } else if (attribute == cudaMemPoolAttrReservedMemCurrent ||
             attribute == cudaMemPoolAttrUsedMemCurrent) {
    *static_cast<uint64_t*>(value) = used;
  } else if (attribute == cudaMemPoolAttrReservedMemHigh ||
             attribute == cudaMemPoolAttrUsedMemHigh) {
    *static_cast<uint64_t*>(value) = memory.peak_bytes();
  } else {
    return refuse(cudaErrorInvalidValue, "there is no attribute {}", static_cast<int>(attribute));
  }
  return cudaSuccess;
}

cudaError_t allocate_from(void** memory, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  PLEXUS_CUDART_TRY(check_pointer(memory, "the address of the pointer"));
  std::shared_ptr<Pool> found;
  PLEXUS_CUDART_TRY(Pools::instance().find(pool, &found));
  PLEXUS_CUDART_TRY(Runtime::instance().streams.check(stream));
  return Runtime::instance().memory.allocate({.size_bytes = bytes, .device = found->device},
                                             memory);
}

cudaError_t check_pool(cudaMemPool_t pool) {
  std::shared_ptr<Pool> found;
  return Pools::instance().find(pool, &found);
}

}  // namespace
}  // namespace plexus::cudart

using namespace plexus::cudart;  // NOLINT(google-build-using-namespace): as all of this file

PLEXUS_CUDART cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return call("cudaDeviceGetDefaultMemPool",
              [&] { return Pools::instance().find_default(device, pool); });
}
PLEXUS_CUDART cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return call("cudaDeviceGetMemPool", [&] { return Pools::instance().find_default(device, pool); });
}
PLEXUS_CUDART cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool,
                                            const cudaMemPoolProps* properties) {
  return call("cudaMemPoolCreate", [&] { return Pools::instance().create(pool, properties); });
}
PLEXUS_CUDART cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return call("cudaMemPoolDestroy", [&] { return Pools::instance().destroy(pool); });
}
PLEXUS_CUDART cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t /*keep*/) {
  return call("cudaMemPoolTrimTo", [&] { return check_pool(pool); });  // a pool keeps nothing
}
PLEXUS_CUDART cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool,
                                                  cudaMemPoolAttr attribute,
                                                  void* value) {
  return call("cudaMemPoolSetAttribute",
              [&] { return Pools::instance().set(pool, attribute, value); });
}
PLEXUS_CUDART cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool,
                                                  cudaMemPoolAttr attribute,
                                                  void* value) {
  return call("cudaMemPoolGetAttribute",
              [&] { return Pools::instance().get(pool, attribute, value); });
}
PLEXUS_CUDART cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
                                               const cudaMemAccessDesc* list,
                                               size_t count) {
  return call("cudaMemPoolSetAccess", [&]() -> cudaError_t {  // all devices reach all memory
    PLEXUS_CUDART_TRY(check_pool(pool));
    return count == 0 ? cudaSuccess : check_pointer(list, "the list");
  });
}
PLEXUS_CUDART cudaError_t cudaMallocFromPoolAsync(void** memory,
                                                  size_t bytes,
                                                  cudaMemPool_t pool,
                                                  cudaStream_t stream) {
  return call("cudaMallocFromPoolAsync",
              [&] { return allocate_from(memory, bytes, pool, stream); });
}
