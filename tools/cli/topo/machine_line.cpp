// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/topo/machine_line.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>

#include <fmt/format.h>

#include "tools/cli/flags.hpp"

namespace plexus {
namespace {

struct GpuName {
  const char* name;
  int sm;
  int nvlinks;
  int pci_gt_per_s;
};
constexpr std::array kGpus = {
    GpuName{"V100", 70, 6, 8},     GpuName{"V100-PCIe", 70, 0, 8},  GpuName{"T4", 75, 0, 8},
    GpuName{"A100", 80, 12, 16},   GpuName{"A100-PCIe", 80, 0, 16}, GpuName{"A40", 86, 0, 16},
    GpuName{"A10G", 86, 0, 16},    GpuName{"L4", 89, 0, 16},        GpuName{"L40S", 89, 0, 16},
    GpuName{"H100", 90, 18, 32},   GpuName{"H100-PCIe", 90, 0, 32}, GpuName{"H800", 90, 8, 32},
    GpuName{"H20", 90, 18, 32},    GpuName{"H200", 90, 18, 32},     GpuName{"GH200", 90, 18, 32},
    GpuName{"B200", 100, 18, 32},  GpuName{"B300", 103, 18, 64},    GpuName{"GB200", 100, 18, 32},
    GpuName{"GB300", 103, 18, 64}, GpuName{"RTX5090", 120, 0, 32},
};

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

const GpuName* find_gpu(const std::string& name) {
  const auto* const found = std::find_if(kGpus.begin(), kGpus.end(), [&](const GpuName& gpu) {
    return lower_case(gpu.name) == lower_case(name);
  });
  return found == kGpus.end() ? nullptr : found;
}

/// "8xib400": how many, what, and the number at the end of that, if any.
struct Word {
  int count = 1;
  std::string name;
  int number = 0;
};

Result<Word> parse_word(const std::string& text) {
  constexpr IntRange kCount = {1, 128};
  constexpr IntRange kGbit = {1, 10'000};
  Word word;
  const size_t times = text.find_first_not_of("0123456789");
  std::string rest = text;
  if (times != std::string::npos && times > 0 && text[times] == 'x') {
    PLEXUS_TRY(count, parse_int(text.substr(0, times), kCount));
    word.count = static_cast<int>(count);
    rest = text.substr(times + 1);
  }
  word.name = lower_case(rest);
  const size_t digits = rest.find_last_not_of("0123456789") + 1;
  if (find_gpu(rest) == nullptr && digits < rest.size() && digits > 0) {
    PLEXUS_TRY(number, parse_int(rest.substr(digits), kGbit));
    word.number = static_cast<int>(number);
    word.name = lower_case(rest.substr(0, digits));
  }
  return word;
}

XmlElement make_element(std::string_view tag,
                        std::vector<std::pair<std::string, std::string>> attributes) {
  return {.tag = std::string(tag), .attributes = std::move(attributes), .children = {}, .line = 0};
}

/// Each GPU has a PCI domain of its own.
std::string bus_id(int gpu, int bus, int device) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", gpu + 1, bus, device);
}

XmlElement describe_pci(
    const MachineLine& line, int gpu, const char* pci_class, int bus, int device) {
  return make_element(
      "pci", {{"busid", bus_id(gpu, bus, device)},
              {"class", pci_class},
              {"link_speed", fmt::format("{}.0 GT/s PCIe", find_gpu(line.gpu)->pci_gt_per_s)},
              {"link_width", "16"}});
}

XmlElement describe_gpu(const MachineLine& line, int number) {
  XmlElement gpu = make_element("gpu", {{"dev", fmt::format("{}", number)},
                                        {"sm", fmt::format("{}", line.sm)},
                                        {"rank", fmt::format("{}", number)},
                                        {"gdr", line.network == Network::kStaged ? "0" : "1"}});
  const auto link = [&](const std::string& target, int count, const char* tclass) {
    gpu.children.push_back(make_element(
        "nvlink", {{"target", target}, {"count", fmt::format("{}", count)}, {"tclass", tclass}}));
  };
  if (line.nvlinks > 0 && line.gpus > 1 && line.per_pair == 0) {
    link("fffffff:ffff:ff", line.nvlinks, "0x068000");
  }
  for (int other = 0; other < line.gpus && line.per_pair > 0; ++other) {
    if (other != number) {
      link(bus_id(other, 2, 0), line.per_pair, "0x030200");
    }
  }
  return gpu;
}

XmlElement describe_switch(const MachineLine& line, int number, int nics, int nic_gbit) {
  constexpr int kMbitPerGbit = 1000;
  XmlElement pci = describe_pci(line, number, "0x060400", 1, 0);
  pci.children.push_back(describe_pci(line, number, "0x030200", 2, 0));
  pci.children.back().children.push_back(describe_gpu(line, number));
  for (int nic = 0; nic < nics; ++nic) {
    if (nic * line.gpus / nics != number) {
      continue;
    }
    XmlElement card = describe_pci(line, number, "0x020000", 3, nic % 32);
    card.children.push_back(make_element("nic", {}));
    card.children.back().children.push_back(
        make_element("net", {{"name", fmt::format("nic{}", nic)},
                             {"dev", fmt::format("{}", nic)},
                             {"speed", fmt::format("{}", nic_gbit * kMbitPerGbit)},
                             {"guid", fmt::format("0x{:x}", nic + 1)},
                             {"latency", line.latency_us()},
                             {"gdr", line.network == Network::kStaged ? "0" : "1"}}));
    pci.children.push_back(std::move(card));
  }
  return pci;
}

}  // namespace

std::string MachineLine::latency_us() const {
  constexpr int kNewGbit = 200;
  const bool efa = network == Network::kEfa || network == Network::kEfa1;
  return !efa ? "0" : nic_gbit < kNewGbit ? "75" : "35";
}

Result<MachineLine> parse_machine_line(const std::string& text) {
  std::istringstream words(text);
  MachineLine line;
  for (std::string one; words >> one;) {
    PLEXUS_TRY(word, parse_word(one));
    const std::optional<Network> network = find_network(word.name);
    if (const GpuName* const gpu = find_gpu(word.name); gpu != nullptr && line.gpu.empty()) {
      line.gpu = gpu->name;
      line.gpus = word.count;
      line.sm = gpu->sm;
      line.nvlinks = gpu->nvlinks;
    } else if (network.has_value() && word.number > 0 && line.nics == 0) {
      line.network = *network;
      line.nics = word.count;
      line.nic_gbit = word.number;
    } else if (word.name == "mesh" && word.number > 0 && line.per_pair == 0) {
      line.per_pair = word.number;
    } else if (word.name == "amd" && word.count == 1) {
      line.amd = true;
    } else {
      return fail(Code::kInvalidArgument,
                  "'{}' of '{}' is not known: a machine is such as \"8xH100 8xib400\", of the GPUs "
                  "{}, and networks {} with the Gbit/s of each NIC; mesh6: NVLinks between any two "
                  "GPUs; amd: CPUs",
                  one, text, names_of(kGpus), network_names());
    }
  }
  if (line.gpu.empty()) {
    return fail(Code::kInvalidArgument, "'{}' names no GPUs: expects such as \"8xH100 8xib400\"",
                text);
  }
  return line;
}

XmlElement describe_machine(const MachineLine& line) {
  const bool join = line.nics > line.gpus && line.gpus > 1;
  const int nics = join ? line.gpus : line.nics;
  const int gbit = join ? line.nic_gbit * line.nics / line.gpus : line.nic_gbit;
  const int cpus = line.gpus > 2 ? 2 : 1;
  const int per_cpu = (line.gpus + cpus - 1) / cpus;
  XmlElement system = make_element("system", {{"version", "1"}});
  for (int cpu = 0; cpu < cpus; ++cpu) {
    XmlElement node = make_element("cpu", {{"numaid", fmt::format("{}", cpu)},
                                           {"affinity", "ff"},
                                           {"arch", "x86_64"},
                                           {"vendor", line.amd ? "AuthenticAMD" : "GenuineIntel"},
                                           {"familyid", line.amd ? "143" : "6"},
                                           {"modelid", line.amd ? "49" : "143"}});
    for (int gpu = cpu * per_cpu; gpu < std::min(line.gpus, (cpu + 1) * per_cpu); ++gpu) {
      node.children.push_back(describe_switch(line, gpu, nics, gbit));
    }
    system.children.push_back(std::move(node));
  }
  return system;
}

}  // namespace plexus
