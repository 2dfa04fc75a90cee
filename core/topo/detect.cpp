// SPDX-License-Identifier: Apache-2.0
#include "core/topo/detect.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sys/utsname.h>

#include <fmt/format.h>
#include <hwloc.h>

#include "core/topo/bandwidth.hpp"
#include "core/topo/system.hpp"

namespace plexus {
namespace {

namespace fs = std::filesystem;

std::string read_line(const fs::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

XmlElement element(std::string_view tag) {
  return {.tag = std::string(tag), .attributes = {}, .children = {}, .line = 0};
}

/// Formats a CPU set as the kernel formats masks: 32-bit words, the most significant first.
std::string affinity_text(hwloc_const_cpuset_t set) {
  constexpr int kBitsPerWord = 32;
  const int last = hwloc_bitmap_last(set);
  std::string text;
  for (int word = std::max(0, last) / kBitsPerWord; word >= 0; --word) {
    uint32_t bits = 0;
    for (int bit = 0; bit < kBitsPerWord; ++bit) {
      const auto index = static_cast<unsigned>(word * kBitsPerWord + bit);
      bits |= hwloc_bitmap_isset(set, index) != 0 ? uint32_t{1} << bit : 0;
    }
    text += fmt::format("{}{:08x}", text.empty() ? "" : ",", bits);
  }
  return text;
}

std::string arch_text() {
  utsname names{};
  uname(&names);
  const std::string machine = names.machine;
  if (machine == "aarch64") {
    return "arm64";
  }
  return machine.starts_with("ppc64") ? "ppc64" : machine;
}

class Detector {
 public:
  Detector(const DetectRequest& request, hwloc_topology* topology)
      : request_(request), topology_(topology) {}

  XmlElement run() {
    XmlElement system = element("system");
    system.set("version", "1");
    const int numas = std::max(1, hwloc_get_nbobjs_by_type(topology_, HWLOC_OBJ_NUMANODE));
    for (int i = 0; i < numas; ++i) {
      system.children.push_back(describe_cpu(
          hwloc_get_obj_by_type(topology_, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i))));
    }
    for (const Gpu& gpu : request_.gpus.gpus) {
      add_gpu(system, gpu);
    }
    for (size_t i = 0; i < request_.nets.size(); ++i) {
      add_net(system, i);
    }
    for (const HostRank& rank : request_.ranks) {
      add_rank(system, rank);
    }
    return system;
  }

 private:
  [[nodiscard]] XmlElement describe_cpu(hwloc_obj* numa) const {
    XmlElement cpu = element("cpu");
    const hwloc_const_cpuset_t set =
        numa != nullptr ? numa->cpuset : hwloc_topology_get_topology_cpuset(topology_);
    cpu.set("numaid", fmt::format("{}", numa != nullptr ? static_cast<int>(numa->os_index) : -1));
    cpu.set("affinity", affinity_text(set));
    cpu.set("arch", arch_text());
    hwloc_obj* const package =
        hwloc_get_next_obj_covering_cpuset_by_type(topology_, set, HWLOC_OBJ_PACKAGE, nullptr);
    hwloc_obj* const known =
        package != nullptr ? package : hwloc_get_obj_by_type(topology_, HWLOC_OBJ_PACKAGE, 0);
    const auto info = [&](const char* key) -> std::string {
      const char* const value = known != nullptr ? hwloc_obj_get_info_by_name(known, key) : nullptr;
      return value != nullptr ? value : "";
    };
    if (!info("CPUVendor").empty()) {
      cpu.set("vendor", info("CPUVendor"));
    }
    if (!info("CPUFamilyNumber").empty()) {
      cpu.set("familyid", info("CPUFamilyNumber"));
      cpu.set("modelid", info("CPUModelNumber"));
    }
    return cpu;
  }

  XmlElement& cpu_of(XmlElement& system, hwloc_obj* device) {
    hwloc_obj* const near = hwloc_get_non_io_ancestor_obj(topology_, device);
    for (XmlElement& cpu : system.children) {
      const Result<int64_t> numa = cpu.integer("numaid");
      if (near != nullptr && near->nodeset != nullptr && numa && numa.value() >= 0 &&
          hwloc_bitmap_isset(near->nodeset, static_cast<unsigned>(numa.value())) != 0) {
        return cpu;
      }
    }
    return system.children.front();
  }

  /// The element of a PCI device. Adds the element, and those of the bridges above it, when
  /// missing.
  XmlElement& pci_element(XmlElement& system, hwloc_obj* device) {
    hwloc_obj* const above = device->parent;  // the host bridge is represented by the <cpu>
    const bool bridged = above != nullptr && above->type == HWLOC_OBJ_BRIDGE &&
                         above->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
    XmlElement& parent = bridged ? pci_element(system, above) : cpu_of(system, device);
    const auto& [domain, bus, slot, function, class_id, vendor, device_id, subvendor, subdevice,
                 revision, speed] =
        device->type == HWLOC_OBJ_BRIDGE ? device->attr->bridge.upstream.pci : device->attr->pcidev;
    const std::string bus_id =
        fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, slot, function);
    for (XmlElement& child : parent.children) {
      if (child.find("busid") != nullptr && *child.find("busid") == bus_id) {
        return child;
      }
    }
    XmlElement made = element("pci");
    made.set("busid", bus_id);
    // base class and subclass; the interface byte is 0
    made.set("class", fmt::format("{:#06x}00", class_id));
    made.set("vendor", fmt::format("{:#06x}", vendor));
    made.set("device", fmt::format("{:#06x}", device_id));
    made.set("subsystem_vendor", fmt::format("{:#06x}", subvendor));
    made.set("subsystem_device", fmt::format("{:#06x}", subdevice));
    set_link(made, bus_id);
    parent.children.push_back(std::move(made));
    return parent.children.back();
  }

  /// The maximum link speed and width that both ends support.
  void set_link(XmlElement& pci, const std::string& bus_id) const {
    std::error_code error;
    const fs::path here =
        fs::canonical(fs::path(request_.sysfs) / "bus/pci/devices" / bus_id, error);
    const std::string speed = error ? "" : read_line(here / "max_link_speed");
    const std::string width = error ? "" : read_line(here / "max_link_width");
    const std::string up_speed = error ? "" : read_line(here.parent_path() / "max_link_speed");
    const std::string up_width = error ? "" : read_line(here.parent_path() / "max_link_width");
    const bool up_is_slower =
        !up_speed.empty() && !speed.empty() && pci_gb_per_s(up_speed, 1) < pci_gb_per_s(speed, 1);
    pci.set("link_speed", up_is_slower ? up_speed : speed);
    const auto lanes = [](const std::string& text) {
      XmlElement holder = element("pci");
      holder.set("lanes", text);
      const Result<int64_t> number = holder.integer("lanes");
      constexpr int64_t kUnknown = 255;  // the kernel's value for "unknown"
      return number && number.value() > 0 && number.value() < kUnknown ? number.value() : 0;
    };
    const int64_t own = lanes(width);
    const int64_t upper = lanes(up_width);
    pci.set("link_width",
            fmt::format("{}", own > 0 && upper > 0 ? std::min(own, upper) : std::max(own, upper)));
  }

  /// The lowest PCI device on the path: a virtio NIC has a folder of its own below its PCI device.
  hwloc_obj* pci_device(fs::path path) {
    for (; path.has_relative_path(); path = path.parent_path()) {
      hwloc_obj* const device =
          hwloc_get_pcidev_by_busidstring(topology_, path.filename().string().c_str());
      if (device != nullptr) {
        return device;
      }
    }
    return nullptr;
  }

  /// Where sysfs does not show the GPU's PCI device, as in some containers, it is placed on the
  /// first CPU.
  void add_gpu(XmlElement& system, const Gpu& gpu) {
    hwloc_obj* const device = hwloc_get_pcidev_by_busidstring(topology_, gpu.bus_id.c_str());
    XmlElement* parent = device != nullptr ? &pci_element(system, device) : nullptr;
    if (parent == nullptr) {
      XmlElement pci = element("pci");
      pci.set("busid", gpu.bus_id);
      pci.set("class", "0x030200");
      set_link(pci, gpu.bus_id);
      system.children.front().children.push_back(std::move(pci));
      parent = &system.children.front().children.back();
    }
    parent->children.push_back(describe_gpu(gpu, request_.gpus, request_.sysfs));
  }

  void add_net(XmlElement& system, size_t number) {
    const NetPort& port = request_.nets[number];
    hwloc_obj* const device = pci_device(port.pci_path);
    XmlElement& parent = device != nullptr ? pci_element(system, device) : system.children.front();
    XmlElement net = element("net");
    describe_port(net, port, static_cast<int>(number));
    for (XmlElement& child : parent.children) {
      if (child.tag == "nic") {
        child.children.push_back(std::move(net));
        return;
      }
    }
    XmlElement nic = element("nic");
    nic.children.push_back(std::move(net));
    parent.children.push_back(std::move(nic));
  }

  const DetectRequest& request_;
  hwloc_topology* topology_;
};

/// Gives the rank to the GPU's element; if that has a rank already, adds a second <gpu> beside it.
void add_gpu_rank(XmlElement& system, XmlElement& cpu, const HostRank& rank) {
  XmlElement* pci = find_pci(system, bus_id_number(rank.bus_id));
  if (pci == nullptr) {
    XmlElement made = element("pci");
    made.set("busid", rank.bus_id);
    made.set("class", "0x030200");
    cpu.children.push_back(std::move(made));
    pci = &cpu.children.back();
  }
  const auto is_gpu = [](const XmlElement& child) { return child.tag == "gpu"; };
  auto gpu = std::find_if(pci->children.begin(), pci->children.end(), is_gpu);
  if (gpu == pci->children.end()) {
    XmlElement made = element("gpu");
    made.set("dev", fmt::format("{}", rank.device));
    made.set("sm", fmt::format("{}", rank.sm));
    made.set("gdr", "0");
    pci->children.push_back(std::move(made));
    gpu = std::prev(pci->children.end());
  } else if (gpu->find("rank") != nullptr) {
    pci->children.push_back(XmlElement(*gpu));
    gpu = std::prev(pci->children.end());
  }
  gpu->set("rank", fmt::format("{}", rank.rank));
}

std::optional<NetPort> describe_interface(const fs::path& folder) {
  constexpr int kSpeedDefault = 10'000;
  constexpr int kConnectionsMax = 65'536;
  std::error_code error;
  NetPort port;
  port.name = folder.filename().string();
  const fs::path device = fs::canonical(folder / "device", error);
  port.pci_path = error ? "" : device.string();
  if (read_line(folder / "operstate") == "down") {
    return std::nullopt;
  }
  const std::string speed = read_line(folder / "speed");
  int mbit_per_s = 0;
  for (const char digit : speed) {
    constexpr int kTen = 10;
    constexpr int kMax = 100'000'000;
    if (digit < '0' || digit > '9' || mbit_per_s > kMax) {
      mbit_per_s = 0;  // "-1": unknown
      break;
    }
    mbit_per_s = mbit_per_s * kTen + (digit - '0');
  }
  port.speed_mbit_per_s = mbit_per_s > 0 ? mbit_per_s : kSpeedDefault;
  port.connections_max = kConnectionsMax;
  return port;
}

}  // namespace

XmlElement* find_pci(XmlElement& element, uint64_t bus_id) {
  for (XmlElement& child : element.children) {
    const std::string* const its_id = child.find("busid");
    if (child.tag == "pci" && its_id != nullptr && bus_id_number(*its_id) == bus_id) {
      return &child;
    }
    if (XmlElement* const below = find_pci(child, bus_id)) {
      return below;
    }
  }
  return nullptr;
}

void add_rank(XmlElement& system, const HostRank& rank) {
  XmlElement* cpu = &system.children.front();
  for (XmlElement& candidate : system.children) {
    const Result<int64_t> numa = candidate.integer("numaid", -1);
    if (rank.numa >= 0 && candidate.tag == "cpu" && numa && numa.value() == rank.numa) {
      cpu = &candidate;
    }
  }
  if (!rank.bus_id.empty()) {
    add_gpu_rank(system, *cpu, rank);
    return;
  }
  XmlElement host = element("host");
  host.set("rank", fmt::format("{}", rank.rank));
  cpu->children.push_back(std::move(host));
}

void describe_port(XmlElement& net, const NetPort& port, int number) {
  net.set("name", port.name);
  net.set("dev", fmt::format("{}", number));
  net.set("speed", fmt::format("{}", port.speed_mbit_per_s));
  net.set("port", fmt::format("{}", port.port));
  net.set("latency", fmt::format("{:.6f}", port.latency_us));
  if (port.guid != 0) {
    net.set("guid", fmt::format("{:#x}", port.guid));
  }
  net.set("maxconn", fmt::format("{}", port.connections_max));
  net.set("gdr", port.gdr ? "1" : "0");
  if (port.rail >= 0) {
    net.set("rail", fmt::format("{}", port.rail));
  }
  if (port.plane >= 0) {
    net.set("plane", fmt::format("{}", port.plane));
  }
}

void Machine::Close::operator()(hwloc_topology* topology) const {
  hwloc_topology_destroy(topology);
}

Result<Machine> Machine::load() {
  hwloc_topology* raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) {
    return fail(Code::kSystemError, "hwloc cannot start");
  }
  Machine machine(raw);
  // sysfs provides all that is needed; these components would load accelerator drivers or leak
  // memory.
  for (const char* const component : {"pci", "opencl", "gl", "cuda", "nvml", "rsmi", "levelzero"}) {
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, component);
  }
  // Include resources outside this container's cpuset, because other ranks of this host may use
  // them.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(raw) != 0) {
    return fail(Code::kSystemError, "hwloc cannot read the machine's topology");
  }
  return machine;
}

std::vector<int> Machine::numa_nodes() const {
  std::vector<int> numbers;
  const int count = hwloc_get_nbobjs_by_type(topology_.get(), HWLOC_OBJ_NUMANODE);
  for (int i = 0; i < count; ++i) {
    const hwloc_obj* const node =
        hwloc_get_obj_by_type(topology_.get(), HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
    numbers.push_back(static_cast<int>(node->os_index));
  }
  return numbers.empty() ? std::vector<int>{-1} : numbers;
}

XmlElement Machine::describe(const DetectRequest& request) const {
  return Detector(request, topology_.get()).run();
}

Result<XmlElement> detect_machine(const DetectRequest& request) {
  PLEXUS_TRY(machine, Machine::load());
  return machine.describe(request);
}

std::vector<NetPort> network_interfaces(const std::string& sysfs) {
  std::error_code error;
  std::vector<NetPort> physical;
  std::vector<NetPort> others;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(fs::path(sysfs) / "class/net", error)) {
    if (entry.path().filename() == "lo") {
      continue;
    }
    if (std::optional<NetPort> port = describe_interface(entry.path())) {
      (port->pci_path.empty() ? others : physical).push_back(*std::move(port));
    }
  }
  std::vector<NetPort>& chosen = physical.empty() ? others : physical;
  std::sort(chosen.begin(), chosen.end(),
            [](const NetPort& left, const NetPort& right) { return left.name < right.name; });
  return std::move(chosen);
}

}  // namespace plexus
