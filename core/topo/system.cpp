// SPDX-License-Identifier: Apache-2.0
#include "core/topo/system.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/topo/broadcom.hpp"
#include "core/topo/system_links.hpp"

namespace plexus {
namespace {

constexpr int kNodesPerTypeMax = 640;
constexpr int kLinksMax = 576;
constexpr std::string_view kClassNvSwitch = "0x068000";
constexpr std::string_view kClassNvlinkBridge = "0x068001";
constexpr std::string_view kClassDisplay = "0x03";  // GPUs, of any subclass

class Builder {
 public:
  Result<System> build(const XmlElement& machine) {
    if (const std::string* const name = machine.find("name"); name != nullptr) {
      system_.name = *name;
    }
    for (const XmlElement& child : machine.children) {
      PLEXUS_TRY(add_cpu(child));
    }
    for (const XmlElement& child : machine.children) {
      PLEXUS_TRY(add_peer_links(child, cpus_.at(&child), -1));
    }
    flatten_broadcom_switches(system_);
    connect_cpus();
    put_uplinks_last(system_);
    PLEXUS_TRY(check_links());
    return std::move(system_);
  }

 private:
  Result<int> add(NodeType type, uint64_t id, int host) {
    if (system_.count(type) >= kNodesPerTypeMax) {
      return fail(Code::kInvalidUsage, "more than {} {} nodes", kNodesPerTypeMax, name(type));
    }
    return add_node(system_, type, id, host);
  }

  [[nodiscard]] Node& at(int index) { return system_.nodes[static_cast<size_t>(index)]; }

  Result<void> add_cpu(const XmlElement& element) {
    PLEXUS_TRY(numa, element.integer("numaid"));
    PLEXUS_TRY(host_hash, element.hex("host_hash", 0));
    const int host = static_cast<int>(hosts_.try_emplace(host_hash, hosts_.size()).first->second);
    for (const auto& [other, index] : cpus_) {
      if (at(index).cpu.numa == numa && at(index).host == host) {
        return fail(Code::kInvalidUsage, "{}: NUMA node {} is given twice, see line {}",
                    element.where(), numa, other->line);
      }
    }
    PLEXUS_TRY(index, add(NodeType::kCpu, static_cast<uint64_t>(numa), host));
    cpus_.emplace(&element, index);
    at(index).cpu.numa = static_cast<int>(numa);
    if (const std::string* const affinity = element.find("affinity"); affinity != nullptr) {
      at(index).cpu.affinity = *affinity;
    }
    PLEXUS_TRY(kind, read_kind(element));
    at(index).cpu.kind = kind;
    for (const XmlElement& child : element.children) {
      if (child.tag == "pci") {
        PLEXUS_TRY(add_pci(child, index, index));
      } else if (child.tag == "nic") {
        PLEXUS_TRY(nic, add(NodeType::kNic, static_cast<uint64_t>(numa), host));
        connect_both(system_, index, nic, LinkType::kPci, kLocalGbPerS);
        PLEXUS_TRY(add_nets(child, nic));
      } else if (child.tag == "host") {
        PLEXUS_TRY(add_host_rank(child, index));
      }
    }
    return ok();
  }

  static Result<CpuKind> read_kind(const XmlElement& element) {
    constexpr std::array<std::pair<std::string_view, CpuArch>, 3> kArchs = {
        {{"x86_64", CpuArch::kX86}, {"arm64", CpuArch::kArm}, {"ppc64", CpuArch::kPower}}};
    constexpr std::array<std::pair<std::string_view, CpuVendor>, 4> kVendors = {
        {{"GenuineIntel", CpuVendor::kIntel},
         {"AuthenticAMD", CpuVendor::kAmd},
         {"CentaurHauls", CpuVendor::kZhaoxin},
         {"  Shanghai  ", CpuVendor::kZhaoxin}}};
    CpuKind kind;
    for (const auto& [spelling, arch] : kArchs) {
      const std::string* const written = element.find("arch");
      if (written != nullptr && *written == spelling) {
        kind.arch = arch;
      }
    }
    for (const auto& [spelling, vendor] : kVendors) {
      const std::string* const written = element.find("vendor");
      if (written != nullptr && *written == spelling) {
        kind.vendor = vendor;
      }
    }
    PLEXUS_TRY(family, element.integer("familyid", 0));
    PLEXUS_TRY(model, element.integer("modelid", 0));
    kind.family = static_cast<int>(family);
    kind.model = static_cast<int>(model);
    return kind;
  }

  Result<void> add_pci(const XmlElement& element, int parent, int cpu) {
    PLEXUS_TRY(bus_id, element.text("busid"));
    const uint64_t id = bus_id_number(bus_id);
    int index = -1;
    if (element.find_child("gpu") != nullptr) {
      PLEXUS_TRY(device, add_gpus(element, id, parent));
      index = device;
    } else if (element.find_child("nic") != nullptr) {
      const auto known = nics_.find({cpu, id});
      if (known == nics_.end()) {
        PLEXUS_TRY(nic, add(NodeType::kNic, id, at(parent).host));
        index = nics_[{cpu, id}] = nic;
      }
      for (const XmlElement& child : element.children) {
        if (child.tag == "nic") {
          PLEXUS_TRY(add_nets(child, nics_.at({cpu, id})));
        }
      }
    } else {
      PLEXUS_TRY(bridge, add(NodeType::kPci, id, at(parent).host));
      PLEXUS_TRY(pci_ids, read_pci_ids(element));
      index = bridge;
      at(index).pci_ids = pci_ids;
      for (const XmlElement& child : element.children) {
        if (child.tag == "pci") {
          PLEXUS_TRY(add_pci(child, index, cpu));
        }
      }
    }
    if (index >= 0) {
      indexes_.emplace(&element, index);
      PLEXUS_TRY(gb_per_s, read_pci_speed(element));
      connect_both(system_, index, parent, LinkType::kPci, gb_per_s);
    }
    return ok();
  }

  static Result<float> read_pci_speed(const XmlElement& element) {
    const std::string* const speed = element.find("link_speed");
    const std::string* const width = element.find("link_width");
    int64_t lanes = 0;
    if (width != nullptr && !width->empty()) {
      PLEXUS_TRY(written, element.integer("link_width"));
      lanes = written;
    }
    constexpr int64_t kLanesMax = 1024;  // a fused NIC has the lanes of all its parts
    if (lanes < 0 || lanes > kLanesMax) {
      return fail(Code::kInvalidUsage, "{}: link_width=\"{}\" is not in 0..{} lanes",
                  element.where(), *width, kLanesMax);
    }
    return pci_gb_per_s(speed == nullptr ? std::string_view() : *speed, static_cast<int>(lanes));
  }

  static Result<uint64_t> read_pci_ids(const XmlElement& element) {
    constexpr uint64_t kMask = 0xffff;
    constexpr int kBits = 16;
    uint64_t ids = 0;
    for (const char* const key : {"vendor", "device", "subsystem_vendor", "subsystem_device"}) {
      PLEXUS_TRY(id, element.hex(key, 0));
      ids = (ids << kBits) | (id & kMask);
    }
    return ids;
  }

  /// The device's node; -1: no rank uses the device.
  Result<int> add_gpus(const XmlElement& pci, uint64_t id, int parent) {
    const int host = at(parent).host;
    int device = -1;
    for (const XmlElement& gpu : pci.children) {
      if (gpu.tag != "gpu" || gpu.find("rank") == nullptr) {
        continue;
      }
      if (const std::string* const part = gpu.find("mlopart"); part != nullptr) {
        return fail(Code::kInvalidUsage,
                    "{}: mlopart=\"{}\": GPUs that are split into partitions are not supported: "
                    "use the whole GPU, or remove the attribute to have its ranks share it",
                    gpu.where(), *part);
      }
      RankDetail detail;
      PLEXUS_TRY(rank_number, read_rank(gpu));
      PLEXUS_TRY(number, gpu.integer("dev"));
      PLEXUS_TRY(sm, gpu.integer("sm"));
      PLEXUS_TRY(gdr, gpu.integer("gdr"));
      detail.rank = rank_number;
      detail.device = static_cast<int>(number);
      detail.sm = static_cast<int>(sm);
      detail.gdr = gdr != 0;
      if (device < 0) {
        PLEXUS_TRY(added, add(NodeType::kDevice, id, host));
        device = added;
        at(device).rank = detail;
        devices_.try_emplace({host, id}, device);
      }
      PLEXUS_TRY(rank, add(NodeType::kGpu, id, host));
      at(rank).rank = detail;
      connect_both(system_, rank, device, LinkType::kLoc, kLocalGbPerS);
    }
    return device;
  }

  Result<int> read_rank(const XmlElement& element) {
    constexpr int64_t kRankMax = 1'000'000'000;
    PLEXUS_TRY(rank, element.integer("rank"));
    if (rank < 0 || rank > kRankMax || !ranks_.insert(rank).second) {
      return fail(Code::kInvalidUsage, "{}: rank {} is negative, too large or given twice",
                  element.where(), rank);
    }
    return static_cast<int>(rank);
  }

  Result<void> add_host_rank(const XmlElement& element, int cpu) {
    constexpr int64_t kMbPerGb = 1000;
    RankDetail detail;
    detail.is_host = true;
    PLEXUS_TRY(number, read_rank(element));
    detail.rank = number;
    PLEXUS_TRY(mb_per_s, element.integer("bw", static_cast<int64_t>(kHostRankGbPerS) * kMbPerGb));
    PLEXUS_TRY(device, add(NodeType::kDevice, static_cast<uint64_t>(detail.rank), at(cpu).host));
    PLEXUS_TRY(rank, add(NodeType::kGpu, static_cast<uint64_t>(detail.rank), at(cpu).host));
    at(device).rank = detail;
    at(rank).rank = detail;
    connect_both(system_, rank, device, LinkType::kLoc, kLocalGbPerS);
    connect_both(system_, device, cpu, LinkType::kPci,
                 static_cast<float>(mb_per_s) / static_cast<float>(kMbPerGb));
    return ok();
  }

  Result<void> add_nets(const XmlElement& nic, int parent) {
    constexpr int64_t kSpeedDefault = 10'000;
    constexpr float kMbitPerGb = 8000;
    constexpr int64_t kConnectionsDefault = 64;
    for (const XmlElement& element : nic.children) {
      if (element.tag != "net" || element.find("dev") == nullptr) {
        continue;
      }
      NetDetail net;
      PLEXUS_TRY(device, element.integer("dev"));
      if (device < 0) {
        return fail(Code::kInvalidUsage, "{}: dev {} is negative", element.where(), device);
      }
      PLEXUS_TRY(mbit_per_s, element.integer("speed", kSpeedDefault));
      PLEXUS_TRY(latency_us, element.number("latency", 0));
      PLEXUS_TRY(port, element.integer("port", 0));
      PLEXUS_TRY(guid, element.hex("guid", unique_guid(parent, device)));
      PLEXUS_TRY(gdr, element.integer("gdr", 0));
      PLEXUS_TRY(connections, element.integer("maxconn", kConnectionsDefault));
      PLEXUS_TRY(rail, element.integer("rail", -1));
      PLEXUS_TRY(plane, element.integer("plane", -1));
      net.device = static_cast<int>(device);
      net.name = element.find("name") == nullptr ? "" : *element.find("name");
      net.gb_per_s = static_cast<float>(mbit_per_s <= 0 ? kSpeedDefault : mbit_per_s) / kMbitPerGb;
      net.latency_us = static_cast<float>(latency_us);
      net.port = static_cast<int>(port);
      net.guid = guid;
      net.gdr = gdr != 0;
      net.connections_max = static_cast<int>(connections);
      net.rail = static_cast<int>(rail);
      net.plane = static_cast<int>(plane);
      net.first = first_nets_.try_emplace({at(parent).host, device}, system_.count(NodeType::kNet))
                      .first->second;
      PLEXUS_TRY(index, add(NodeType::kNet, static_cast<uint64_t>(device), at(parent).host));
      const float gb_per_s = net.gb_per_s;
      at(index).net = std::move(net);
      connect_both(system_, parent, index, LinkType::kNet, gb_per_s);
    }
    return ok();
  }

  [[nodiscard]] uint64_t unique_guid(int nic, int64_t device) {
    constexpr int kHostShift = 56;
    return (static_cast<uint64_t>(at(nic).host) << kHostShift) | static_cast<uint64_t>(device);
  }

  /// Adds NVLink, C2C and links between switches; all their ends exist by now.
  Result<void> add_peer_links(const XmlElement& element, int cpu, int pci) {
    bool has_links = false;  // further ranks on a GPU repeat its links
    for (const XmlElement& child : element.children) {
      if (child.tag == "pci" && indexes_.contains(&child)) {
        PLEXUS_TRY(add_peer_links(child, cpu, indexes_.at(&child)));
      } else if (child.tag == "gpu" && child.find("rank") != nullptr && pci >= 0 && !has_links) {
        has_links = true;
        PLEXUS_TRY(add_gpu_links(child, cpu, devices_.at({at(pci).host, at(pci).id})));
      } else if (child.tag == "pcilink" && pci >= 0) {
        PLEXUS_TRY(target, child.text("target"));
        if (const int peer = find_switch(bus_id_number(target), at(pci).host); peer >= 0) {
          connect(system_, pci, peer, LinkType::kLoc, kLocalGbPerS);
        }
      }
    }
    return ok();
  }

  [[nodiscard]] int find_switch(uint64_t id, int host) {
    for (const int index : system_.of_type.at(static_cast<size_t>(NodeType::kPci))) {
      if (at(index).id == id && at(index).host == host) {
        return index;
      }
    }
    return -1;
  }

  Result<void> add_gpu_links(const XmlElement& gpu, int cpu, int device) {
    constexpr float kMbPerGb = 1000;
    for (const XmlElement& link : gpu.children) {
      if (link.tag == "nvlink") {
        PLEXUS_TRY(add_nvlink(link, cpu, device));
      } else if (link.tag == "c2c") {
        PLEXUS_TRY(mb_per_s, link.integer("bw"));
        PLEXUS_TRY(count, link.integer("count"));
        connect_both(system_, device, cpu, LinkType::kC2c,
                     static_cast<float>(mb_per_s) * static_cast<float>(count) / kMbPerGb);
      }
    }
    return ok();
  }

  Result<void> add_nvlink(const XmlElement& link, int cpu, int device) {
    PLEXUS_TRY(count, link.integer("count"));
    PLEXUS_TRY(target_class, link.text("tclass"));
    const float gb_per_s = static_cast<float>(count) * nvlink_gb_per_s(at(device).rank.sm);
    if (target_class == kClassNvSwitch) {
      if (system_.count(NodeType::kNvs) == 0) {  // all NVLink switches are one node
        PLEXUS_TRY(add(NodeType::kNvs, 0, at(device).host));
      }
      connect_both(system_, device, system_.index_of(NodeType::kNvs, 0), LinkType::kNvl, gb_per_s);
    } else if (target_class == kClassNvlinkBridge) {
      connect_both(system_, device, cpu, LinkType::kNvl, gb_per_s);
    } else if (target_class.starts_with(kClassDisplay)) {
      PLEXUS_TRY(target, link.text("target"));
      const auto found = devices_.find({at(device).host, bus_id_number(target)});
      if (found != devices_.end()) {  // each end describes its own direction
        connect(system_, device, found->second, LinkType::kNvl, gb_per_s);
      }
    }
    return ok();
  }

  void connect_cpus() {
    const std::vector<int> cpus = system_.of_type.at(static_cast<size_t>(NodeType::kCpu));
    for (const int from : cpus) {
      for (const int to : cpus) {
        if (from != to && at(from).host == at(to).host) {
          connect(system_, from, to, LinkType::kSys, cpu_to_cpu_gb_per_s(at(from).cpu.kind));
        }
      }
    }
  }

  Result<void> check_links() {
    for (size_t i = 0; i < system_.nodes.size(); ++i) {
      const Node& node = system_.nodes[i];
      if (static_cast<int>(node.links.size()) > kLinksMax) {
        return fail(Code::kInvalidUsage, "{} {:x} has {} links; the maximum is {}", name(node.type),
                    node.id, node.links.size(), kLinksMax);
      }
      for (const Link& link : node.links) {
        const std::vector<Link>& back = at(link.to).links;
        if (std::none_of(back.begin(), back.end(), [&](const Link& candidate) {
              return candidate.to == static_cast<int>(i) && candidate.type == link.type;
            })) {
          return fail(Code::kInvalidUsage,
                      "{} {:x} has a {} link to {} {:x}, which has none in the other direction",
                      name(node.type), node.id, name(link.type), name(at(link.to).type),
                      at(link.to).id);
        }
      }
    }
    return ok();
  }

  System system_;
  std::map<uint64_t, size_t> hosts_;  // by host_hash, numbered in order of appearance
  std::map<const XmlElement*, int> cpus_;
  std::map<const XmlElement*, int> indexes_;           // index by <pci> element
  std::map<std::pair<int, uint64_t>, int> devices_;    // (host, bus id): the first
  std::map<std::pair<int, uint64_t>, int> nics_;       // (index of the CPU, bus id)
  std::map<std::pair<int, int64_t>, int> first_nets_;  // (host, device): ordinal
  std::set<int64_t> ranks_;
};

}  // namespace

int System::sm_min() const {
  int lowest = std::numeric_limits<int>::max();
  for (const int index : of_type.at(static_cast<size_t>(NodeType::kGpu))) {
    lowest = std::min(lowest, nodes[static_cast<size_t>(index)].rank.sm);
  }
  return lowest;
}

int System::sm_max() const {
  int highest = 0;
  for (const int index : of_type.at(static_cast<size_t>(NodeType::kGpu))) {
    highest = std::max(highest, nodes[static_cast<size_t>(index)].rank.sm);
  }
  return highest;
}

Result<System> build_system(const XmlElement& machine) { return Builder().build(machine); }

uint64_t bus_id_number(std::string_view bus_id) {
  constexpr int kBits = 4;
  constexpr uint64_t kTen = 10;
  uint64_t number = 0;
  for (const char digit : bus_id) {
    if (digit >= '0' && digit <= '9') {
      number = (number << kBits) | static_cast<uint64_t>(digit - '0');
    } else if (digit >= 'a' && digit <= 'f') {
      number = (number << kBits) | (static_cast<uint64_t>(digit - 'a') + kTen);
    } else if (digit >= 'A' && digit <= 'F') {
      number = (number << kBits) | (static_cast<uint64_t>(digit - 'A') + kTen);
    }
  }
  return number;
}

std::string bus_id_text(uint64_t id) {
  constexpr int kDomainShift = 20;
  constexpr int kBusShift = 12;
  constexpr int kSlotShift = 4;
  constexpr uint64_t kByte = 0xff;
  constexpr uint64_t kFunction = 0xf;
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", id >> kDomainShift, (id >> kBusShift) & kByte,
                     (id >> kSlotShift) & kByte, id & kFunction);
}

}  // namespace plexus
