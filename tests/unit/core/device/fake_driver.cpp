// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/core/device/fake_driver.hpp"

#include <algorithm>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <iterator>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace plexus {
namespace {

using Handle = CUmemGenericAllocationHandle;

FakeDriver& driver() { return FakeDriver::instance(); }

bool fails_now() {
  int& left = driver().calls_until_failure;
  return left >= 0 && left-- == 0;
}

CUresult misused() {
  driver().was_misused = true;
  return CUDA_ERROR_INVALID_VALUE;
}

void* pointer_of(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

void drop_unused(Handle handle) {
  const auto at = driver().memories.find(handle);
  if (at->second.handles == 0 && at->second.mappings == 0) {
    close(at->second.fd);
    driver().memories.erase(at);
  }
}

CUresult add(Handle* handle, int fd, size_t size_bytes, const CUmemAllocationProp& facts) {
  // A number that nobody has any more is given again.
  for (*handle = 1; driver().memories.count(*handle) != 0; ++*handle) {
  }
  driver().memories.emplace(*handle, FakeDriver::Memory{fd, size_bytes, facts});
  return CUDA_SUCCESS;
}

CUresult create(Handle* handle, size_t size, const CUmemAllocationProp* wish, unsigned long long) {
  if (fails_now()) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (size == 0 || size % FakeDriver::kGranule != 0) {
    return misused();
  }
  const int fd = memfd_create("fake-driver", MFD_CLOEXEC);
  return ftruncate(fd, static_cast<off_t>(size)) == 0 ? add(handle, fd, size, *wish)
                                                      : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult release(Handle handle) {
  const auto at = driver().memories.find(handle);
  if (at == driver().memories.end() || at->second.handles == 0) {
    return misused();
  }
  --at->second.handles;
  drop_unused(handle);
  return CUDA_SUCCESS;
}

CUresult reserve(CUdeviceptr* to, size_t size, size_t, CUdeviceptr, unsigned long long) {
  if (fails_now()) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  void* const range = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *to = reinterpret_cast<CUdeviceptr>(range);
  driver().reserved.emplace(*to, size);
  return CUDA_SUCCESS;
}

/// Mappings in [first, first + size); end: there is none, or one is not whole, or something
/// between.
std::map<CUdeviceptr, FakeDriver::Mapping>::iterator whole_mappings(CUdeviceptr first,
                                                                    size_t size) {
  auto& all = driver().mappings;
  const auto begin = all.find(first);
  CUdeviceptr next = first;
  for (auto at = begin; at != all.end() && at->first == next && next < first + size; ++at) {
    next += at->second.size_bytes;
  }
  return next == first + size ? begin : all.end();
}

CUresult free_addresses(CUdeviceptr first, size_t size) {
  const auto at = driver().reserved.find(first);
  const auto inside = driver().mappings.lower_bound(first);
  if (at == driver().reserved.end() || at->second != size ||
      (inside != driver().mappings.end() && inside->first < first + size)) {
    return misused();
  }
  munmap(pointer_of(first), size);
  driver().reserved.erase(at);
  return CUDA_SUCCESS;
}

CUresult map(CUdeviceptr to, size_t size, size_t offset, Handle handle, unsigned long long) {
  if (fails_now()) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto at = driver().memories.find(handle);
  const auto after = driver().reserved.upper_bound(to);
  if (offset != 0 || at == driver().memories.end() || at->second.size_bytes < size ||
      after == driver().reserved.begin() ||
      to + size > std::prev(after)->first + std::prev(after)->second ||
      driver().mappings.count(to) != 0) {
    return misused();
  }
  mmap(pointer_of(to), size, PROT_NONE, MAP_SHARED | MAP_FIXED, at->second.fd, 0);
  ++at->second.mappings;
  driver().mappings.emplace(to, FakeDriver::Mapping{size, handle});
  return CUDA_SUCCESS;
}

CUresult unmap(CUdeviceptr first, size_t size) {
  auto at = whole_mappings(first, size);
  if (at == driver().mappings.end()) {
    return misused();
  }
  mmap(pointer_of(first), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  while (at != driver().mappings.end() && at->first < first + size) {
    --driver().memories.at(at->second.memory).mappings;
    drop_unused(at->second.memory);
    at = driver().mappings.erase(at);
  }
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr first, size_t size, const CUmemAccessDesc* access, size_t count) {
  if (fails_now()) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  auto at = whole_mappings(first, size);
  if (at == driver().mappings.end()) {
    return misused();
  }
  mprotect(pointer_of(first), size, PROT_READ | PROT_WRITE);
  for (; at != driver().mappings.end() && at->first < first + size; ++at) {
    for (size_t i = 0; i < count; ++i) {
      at->second.readers[access[i].location.id] = true;
    }
  }
  return CUDA_SUCCESS;
}

auto mapping_at(CUdeviceptr address) {
  const auto after = driver().mappings.upper_bound(address);
  return after != driver().mappings.begin() &&
                 address < std::prev(after)->first + std::prev(after)->second.size_bytes
             ? std::prev(after)
             : driver().mappings.end();
}

CUresult retain(Handle* handle, void* address) {
  const auto at = mapping_at(reinterpret_cast<CUdeviceptr>(address));
  if (at == driver().mappings.end() || fails_now()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *handle = at->second.memory;
  ++driver().memories.at(*handle).handles;
  return CUDA_SUCCESS;
}

CUresult get_range(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  const auto at = mapping_at(address);
  if (at == driver().mappings.end() || fails_now()) {
    return CUDA_ERROR_NOT_FOUND;
  }
  *base = at->first;
  *size = at->second.size_bytes;
  return CUDA_SUCCESS;
}

CUresult export_handle(void* to,
                       Handle handle,
                       CUmemAllocationHandleType type,
                       unsigned long long) {
  const auto& memory = driver().memories.at(handle);
  if ((memory.facts.requestedHandleTypes & type) == 0) {
    return misused();
  }
  if (fails_now()) {
    return CUDA_ERROR_NOT_PERMITTED;
  }
  *static_cast<int*>(to) = dup(memory.fd);
  return CUDA_SUCCESS;
}

CUresult import_handle(Handle* handle, void* from, CUmemAllocationHandleType type) {
  const int fd = dup(static_cast<int>(reinterpret_cast<intptr_t>(from)));
  struct stat status {};
  if (fails_now() || fstat(fd, &status) != 0) {
    close(fd);
    return CUDA_ERROR_INVALID_VALUE;
  }
  CUmemAllocationProp facts = {};
  facts.requestedHandleTypes = type;
  return add(handle, fd, static_cast<size_t>(status.st_size), facts);
}

CUresult get_facts(CUmemAllocationProp* facts, Handle handle) {
  *facts = driver().memories.at(handle).facts;
  return fails_now() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult get_granule(size_t* granule,
                     const CUmemAllocationProp* /*facts*/,
                     CUmemAllocationGranularity_flags /*option*/) {
  *granule = FakeDriver::kGranule;
  return fails_now() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult get_attribute(int* value, CUdevice_attribute /*attribute*/, CUdevice /*device*/) {
  *value = 1;
  return fails_now() ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

template <class Function>
void* as(Function function) {
  return reinterpret_cast<void*>(function);
}

void* find_function(std::string_view name) {
  const std::map<std::string_view, void*> functions = {
      {"cuMemCreate", as<decltype(&cuMemCreate)>(create)},
      {"cuMemRelease", as<decltype(&cuMemRelease)>(release)},
      {"cuMemAddressReserve", as<decltype(&cuMemAddressReserve)>(reserve)},
      {"cuMemAddressFree", as<decltype(&cuMemAddressFree)>(free_addresses)},
      {"cuMemMap", as<decltype(&cuMemMap)>(map)},
      {"cuMemUnmap", as<decltype(&cuMemUnmap)>(unmap)},
      {"cuMemSetAccess", as<decltype(&cuMemSetAccess)>(set_access)},
      {"cuMemRetainAllocationHandle", as<decltype(&cuMemRetainAllocationHandle)>(retain)},
      {"cuMemGetAddressRange", as<decltype(&cuMemGetAddressRange)>(get_range)},
      {"cuMemExportToShareableHandle", as<decltype(&cuMemExportToShareableHandle)>(export_handle)},
      {"cuMemImportFromShareableHandle",
       as<decltype(&cuMemImportFromShareableHandle)>(import_handle)},
      {"cuMemGetAllocationPropertiesFromHandle",
       as<decltype(&cuMemGetAllocationPropertiesFromHandle)>(get_facts)},
      {"cuMemGetAllocationGranularity", as<decltype(&cuMemGetAllocationGranularity)>(get_granule)},
      {"cuDeviceGetAttribute", as<decltype(&cuDeviceGetAttribute)>(get_attribute)}};
  const auto at = functions.find(name);
  return at == functions.end() ? nullptr : at->second;
}

}  // namespace

void* FakeDriver::map_pieces(size_t count, CUmemAllocationHandleType type, void* base) {
  auto first = reinterpret_cast<CUdeviceptr>(base);
  if (first == 0) {
    reserve(&first, count * kGranule, 0, 0, 0);
  }
  CUmemAllocationProp wish = {};
  wish.requestedHandleTypes = type;
  for (size_t i = 0; i < count; ++i) {
    Handle handle = 0;
    create(&handle, kGranule, &wish, 0);
    map(first + i * kGranule, kGranule, 0, handle, 0);
    release(handle);
  }
  const CUmemAccessDesc access = {};
  set_access(first, count * kGranule, &access, 1);
  return pointer_of(first);
}

void FakeDriver::unmap_pieces(void* base, size_t count) {
  unmap(reinterpret_cast<CUdeviceptr>(base), count * kGranule);
}

void FakeDriver::free_range(void* base, size_t count) {
  free_addresses(reinterpret_cast<CUdeviceptr>(base), count * kGranule);
}

FakeDriver& FakeDriver::instance() {
  static FakeDriver driver;
  return driver;
}

}  // namespace plexus

extern "C" {

#if CUDART_VERSION >= 12050
cudaError_t cudaGetDriverEntryPointByVersion(const char* name,
                                             void** found,
                                             unsigned /*version*/,
                                             unsigned long long /*flags*/,
                                             cudaDriverEntryPointQueryResult* status) {
#else
cudaError_t cudaGetDriverEntryPoint(const char* name,
                                    void** found,
                                    unsigned long long /*flags*/,
                                    cudaDriverEntryPointQueryResult* status) {
#endif
  *found = plexus::find_function(name);
  *status = *found == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return cudaSuccess; }
}
