// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/template.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/topo/system.hpp"
#include "tools/cli/flags.hpp"

namespace plexus {
namespace {

constexpr std::string_view kDisplay = "0x03";
constexpr std::string_view kNetwork = "0x02";

XmlElement element(std::string_view tag) {
  return {.tag = std::string(tag), .attributes = {}, .children = {}, .line = 0};
}

/// Appends the <pci> of a class that have no such child.
void collect(XmlElement& parent,
             std::string_view pci_class,
             std::string_view child,
             std::vector<XmlElement*>* found) {
  for (XmlElement& pci : parent.children) {
    const std::string* const its_class = pci.find("class");
    if (pci.tag == "pci" && its_class != nullptr && its_class->starts_with(pci_class) &&
        pci.find_child(child) == nullptr) {
      found->push_back(&pci);
    }
    collect(pci, pci_class, child, found);
  }
}

std::vector<XmlElement*> devices_of(XmlElement& machine,
                                    std::string_view pci_class,
                                    std::string_view child) {
  std::vector<XmlElement*> found;
  collect(machine, pci_class, child, &found);
  const auto id = [](const XmlElement* pci) {
    const std::string* const bus_id = pci->find("busid");
    return bus_id == nullptr ? 0 : bus_id_number(*bus_id);
  };
  std::stable_sort(found.begin(), found.end(),
                   [&](const XmlElement* a, const XmlElement* b) { return id(a) < id(b); });
  return found;
}

XmlElement make_gpu(size_t number, const TemplateDevices& devices) {
  XmlElement gpu = element("gpu");
  gpu.set("dev", fmt::format("{}", number));
  gpu.set("sm", fmt::format("{}", devices.sm));
  gpu.set("rank", fmt::format("{}", number));
  gpu.set("gdr", "1");
  if (devices.nvlinks > 0) {
    XmlElement link = element("nvlink");
    link.set("target", "fffffff:ffff:ff");
    link.set("count", fmt::format("{}", devices.nvlinks));
    link.set("tclass", "0x068000");
    gpu.children.push_back(std::move(link));
  }
  return gpu;
}

XmlElement make_nic(size_t number, const TemplateDevices& devices) {
  constexpr int kMbitPerGbit = 1000;
  XmlElement net = element("net");
  net.set("name", fmt::format("nic{}", number));
  net.set("dev", fmt::format("{}", number));
  net.set("speed", fmt::format("{}", devices.nic_gbit_per_s * kMbitPerGbit));
  net.set("gdr", "1");
  XmlElement nic = element("nic");
  nic.children.push_back(std::move(net));
  return nic;
}

}  // namespace

Result<void> parse_gpus(const std::string& text, TemplateDevices* devices) {
  constexpr IntRange kSm = {10, 999};
  constexpr IntRange kNvlinks = {1, 1000};
  const size_t colon = std::min(text.find(':'), text.size());
  PLEXUS_TRY(sm, parse_int(text.substr(0, colon), kSm));
  devices->sm = static_cast<int>(sm);
  if (colon < text.size()) {
    PLEXUS_TRY(nvlinks, parse_int(text.substr(colon + 1), kNvlinks));
    devices->nvlinks = static_cast<int>(nvlinks);
  }
  return ok();
}

XmlElement add_devices(XmlElement machine, const TemplateDevices& devices) {
  if (devices.sm > 0) {
    const std::vector<XmlElement*> gpus = devices_of(machine, kDisplay, "gpu");
    for (size_t number = 0; number < gpus.size(); ++number) {
      gpus[number]->children.push_back(make_gpu(number, devices));
    }
  }
  if (devices.nic_gbit_per_s > 0) {
    const std::vector<XmlElement*> nics = devices_of(machine, kNetwork, "nic");
    for (size_t number = 0; number < nics.size(); ++number) {
      nics[number]->children.push_back(make_nic(number, devices));
    }
  }
  return machine;
}

Result<MachineFile> parse_machine_file(const std::string& text) {
  constexpr IntRange kCount = {1, 65'536};
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size() ||
      text.find_first_not_of("0123456789", colon + 1) != std::string::npos) {
    return MachineFile{.file = text, .count = 1};
  }
  PLEXUS_TRY(count, parse_int(text.substr(colon + 1), kCount));
  return MachineFile{.file = text.substr(0, colon), .count = static_cast<int>(count)};
}

}  // namespace plexus
