// SPDX-License-Identifier: Apache-2.0
#include "core/topo/gpus.hpp"

#include <algorithm>
#include <array>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/topo/system.hpp"

namespace plexus {
namespace {

// ---- the part of NVML's binary interface that is used ----

using NvmlDevice = void*;
struct NvmlPciInfo {
  std::array<char, 16> bus_id_legacy;
  uint32_t domain;
  uint32_t bus;
  uint32_t device;
  uint32_t pci_device_id;
  uint32_t pci_subsystem_id;
  std::array<char, 32> bus_id;
};
static_assert(sizeof(NvmlPciInfo) == 68);

constexpr int kNvmlSuccess = 0;
constexpr uint32_t kNvmlLinksMax = 18;
constexpr uint32_t kNvmlDevicesMax = 4096;
constexpr uint32_t kNvmlP2pRead = 0;
constexpr uint32_t kNvmlP2pWrite = 1;
constexpr uint32_t kNvmlP2pOk = 0;

struct Nvml {
  int (*init)();
  int (*shutdown)();
  int (*count)(uint32_t* count);
  int (*by_index)(uint32_t index, NvmlDevice* device);
  int (*pci_info)(NvmlDevice device, NvmlPciInfo* info);
  int (*capability)(NvmlDevice device, int* major, int* minor);
  // Null in drivers without NVLink support.
  int (*link_state)(NvmlDevice device, uint32_t link, uint32_t* active);
  int (*link_target)(NvmlDevice device, uint32_t link, NvmlPciInfo* info);
  int (*p2p_status)(NvmlDevice from, NvmlDevice to, uint32_t what, uint32_t* status);
};

template <class Function>
bool find(void* library, const char* name, Function** function) {
  void* const symbol = dlsym(library, name);
  *function = reinterpret_cast<Function*>(symbol);
  return symbol != nullptr;
}

/// Stays loaded until the process exits, because unloading a driver's libraries is unsafe.
Result<Nvml> load(void* library) {
  Nvml nvml{};
  const char* missing = nullptr;
  const auto need = [&](const char* name, auto** function) {
    missing = find(library, name, function) ? missing : name;
  };
  need("nvmlInit_v2", &nvml.init);
  need("nvmlShutdown", &nvml.shutdown);
  need("nvmlDeviceGetCount_v2", &nvml.count);
  need("nvmlDeviceGetHandleByIndex_v2", &nvml.by_index);
  need("nvmlDeviceGetPciInfo_v3", &nvml.pci_info);
  need("nvmlDeviceGetCudaComputeCapability", &nvml.capability);
  if (missing != nullptr) {
    return fail(Code::kSystemError, "NVML has no {}: update the driver", missing);
  }
  find(library, "nvmlDeviceGetNvLinkState", &nvml.link_state);
  find(library, "nvmlDeviceGetNvLinkRemotePciInfo_v2", &nvml.link_target);
  find(library, "nvmlDeviceGetP2PStatus", &nvml.p2p_status);
  return nvml;
}

/// The bus id "dddddddd:bb:dd.f" in sysfs's notation: lower case, the domain with at least four
/// digits.
std::string sysfs_bus_id(const NvmlPciInfo& info) {
  const auto* const end = std::find(info.bus_id.begin(), info.bus_id.end(), '\0');
  std::string text = lower({info.bus_id.begin(), end});
  constexpr size_t kDomainDigits = 4;
  while (text.find(':') != std::string::npos && text.find(':') > kDomainDigits && text[0] == '0') {
    text.erase(0, 1);
  }
  return text;
}

class GpuReader {
 public:
  explicit GpuReader(const Nvml& nvml) : nvml_(nvml) {}

  Result<GpuList> read() {
    uint32_t count = 0;
    PLEXUS_TRY(check(nvml_.count(&count), "nvmlDeviceGetCount_v2"));
    GpuList list;
    for (uint32_t index = 0; index < std::min(count, kNvmlDevicesMax); ++index) {
      NvmlDevice handle = nullptr;
      if (nvml_.by_index(index, &handle) != kNvmlSuccess) {
        continue;  // this process may not use the GPU
      }
      PLEXUS_TRY(gpu, read_gpu(handle, index));
      list.gpus.push_back(std::move(gpu));
      handles_.push_back(handle);
    }
    for (size_t from = 0; from < handles_.size(); ++from) {
      for (size_t to = 0; to < handles_.size(); ++to) {
        if (from != to && !has_p2p(handles_[from], handles_[to])) {
          list.without_p2p.insert(std::minmax(list.gpus[from].device, list.gpus[to].device));
        }
      }
    }
    return list;
  }

 private:
  static Result<void> check(int status, const char* function) {
    if (status != kNvmlSuccess) {
      return fail(Code::kSystemError, "NVML's {} failed with {}", function, status);
    }
    return ok();
  }

  Result<Gpu> read_gpu(NvmlDevice handle, uint32_t index) const {
    constexpr int kTen = 10;
    Gpu gpu;
    gpu.device = static_cast<int>(index);
    NvmlPciInfo info{};
    PLEXUS_TRY(check(nvml_.pci_info(handle, &info), "nvmlDeviceGetPciInfo_v3"));
    gpu.bus_id = sysfs_bus_id(info);
    int major = 0;
    int minor = 0;
    PLEXUS_TRY(
        check(nvml_.capability(handle, &major, &minor), "nvmlDeviceGetCudaComputeCapability"));
    gpu.sm = major * kTen + minor;
    for (uint32_t link = 0; link < kNvmlLinksMax; ++link) {
      add_link(handle, link, gpu);
    }
    return gpu;
  }

  void add_link(NvmlDevice handle, uint32_t link, Gpu& gpu) const {
    uint32_t active = 0;
    NvmlPciInfo info{};
    if (nvml_.link_state == nullptr || nvml_.link_target == nullptr ||
        nvml_.link_state(handle, link, &active) != kNvmlSuccess || active != 1 ||
        nvml_.link_target(handle, link, &info) != kNvmlSuccess) {
      return;
    }
    const std::string target = sysfs_bus_id(info);
    auto at = std::find_if(gpu.links.begin(), gpu.links.end(),
                           [&](const GpuLink& known) { return known.target == target; });
    if (at == gpu.links.end()) {
      at = gpu.links.insert(gpu.links.end(), {.target = target, .count = 0});
    }
    ++at->count;
  }

  [[nodiscard]] bool has_p2p(NvmlDevice from, NvmlDevice to) const {
    for (const uint32_t what : {kNvmlP2pRead, kNvmlP2pWrite}) {
      uint32_t status = kNvmlP2pOk;
      if (nvml_.p2p_status != nullptr &&
          (nvml_.p2p_status(from, to, what, &status) != kNvmlSuccess || status != kNvmlP2pOk)) {
        return false;
      }
    }
    return true;
  }

  const Nvml& nvml_;
  std::vector<NvmlDevice> handles_;
};

std::string class_in_sysfs(const std::string& sysfs, const std::string& bus_id) {
  std::string text;
  std::getline(std::ifstream(std::filesystem::path(sysfs) / "bus/pci/devices" / bus_id / "class"),
               text);
  return text;
}

}  // namespace

Result<GpuList> find_gpus(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return GpuList{};
  }
  PLEXUS_TRY(nvml, load(handle));
  if (const int status = nvml.init(); status != kNvmlSuccess) {
    return fail(Code::kSystemError, "NVML cannot start ({}): is the driver loaded?", status);
  }
  Result<GpuList> list = GpuReader(nvml).read();
  nvml.shutdown();
  return list;
}

XmlElement describe_gpu(const Gpu& gpu, const GpuList& all, const std::string& sysfs) {
  constexpr const char* kClassGpu = "0x030200";
  constexpr const char* kClassSwitch = "0x068000";
  std::error_code error;
  const bool gdr =
      std::filesystem::exists(std::filesystem::path(sysfs) / "module/nvidia_peermem", error);
  XmlElement element{.tag = "gpu", .attributes = {}, .children = {}, .line = 0};
  element.set("dev", fmt::format("{}", gpu.device));
  element.set("sm", fmt::format("{}", gpu.sm));
  element.set("gdr", gdr ? "1" : "0");
  for (const GpuLink& link : gpu.links) {
    const bool is_gpu = std::any_of(all.gpus.begin(), all.gpus.end(), [&](const Gpu& other) {
      return bus_id_number(other.bus_id) == bus_id_number(link.target);
    });
    const std::string known = is_gpu ? kClassGpu : class_in_sysfs(sysfs, link.target);
    XmlElement nvlink{.tag = "nvlink", .attributes = {}, .children = {}, .line = 0};
    nvlink.set("target", link.target);
    nvlink.set("count", fmt::format("{}", link.count));
    nvlink.set("tclass", known.empty() ? kClassSwitch : known);
    element.children.push_back(std::move(nvlink));
  }
  return element;
}

}  // namespace plexus
