// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/device.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "plugins/net-ofi/endpoint.hpp"
#include "plugins/net-ofi/transfer.hpp"
#include "plugins/support/interface.hpp"

namespace plexus::net_ofi {
namespace {

/// FNV-1a: the number of a name, equal in every process.
uint64_t hash_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  return hash;
}

std::string pci_path(const fi_info& info) {
  const fi_pci_attr& pci = info.nic->bus_attr->attr.pci;
  std::error_code error;
  const auto path = std::filesystem::canonical(
      fmt::format("/sys/bus/pci/devices/{:04x}:{:02x}:{:02x}.{:x}", pci.domain_id, pci.bus_id,
                  pci.device_id, pci.function_id),
      error);
  return error ? "" : path.string();
}

/// libfabric's name of a fabric is unique for InfiniBand with its own subnet prefix, and for shm,
/// which is limited to one host. An IP subnet may exist twice, and EFA has a name per NIC.
uint64_t fabric_of(const fi_info& info, std::string_view provider, uint64_t host_id) {
  const std::string_view name =
      info.fabric_attr->name == nullptr ? "" : std::string_view(info.fabric_attr->name);
  if (provider == "shm") {
    return host_id;
  }
  constexpr std::string_view kPrefix = "IB-0x";
  constexpr std::string_view kDefaultSubnet = "IB-0xfe80000000000000";
  return name.starts_with(kPrefix) && name != kDefaultSubnet ? hash_of(name) : PLEXUS_UNKNOWN_U64;
}

void read_card(const Domain& card, plexus_net_properties_t& properties) {
  plugin::read_interface(card.name(), properties);
  const fi_info& info = *card.info();
  if (info.nic == nullptr) {
    return;
  }
  if (info.nic->bus_attr != nullptr && info.nic->bus_attr->bus_type == FI_BUS_PCI) {
    const std::string path = pci_path(info);
    plugin::copy_text(properties.pci_path, path);
    properties.guid = path.empty() ? PLEXUS_UNKNOWN_U64 : hash_of(path);
  }
  constexpr uint64_t kBitsPerMbit = 1'000'000;
  if (info.nic->link_attr != nullptr && info.nic->link_attr->speed >= kBitsPerMbit) {
    properties.speed_mbit_per_s = static_cast<uint32_t>(
        std::min<uint64_t>(info.nic->link_attr->speed / kBitsPerMbit, PLEXUS_UNKNOWN_U32 - 1));
  }
}

}  // namespace

Result<std::shared_ptr<Domain>> Domain::open(const Nic& nic,
                                             bool always_registers,
                                             std::optional<CudaDriver> driver) {
  std::shared_ptr<Domain> opened(new Domain);
  opened->name_ = nic.offer.domain;
  opened->provider_ = nic.offer.provider;
  opened->always_registers_ = always_registers;
  opened->info_.reset(library().dupinfo(nic.info.get()));
  if (opened->info_ == nullptr) {
    return fail(PLEXUS_SYSTEM_ERROR, "out of memory");
  }
  const std::string where = nic.offer.provider + " on " + opened->name_;
  fid_fabric* fabric = nullptr;
  PLEXUS_TRY(check_call(library().fabric(opened->info_->fabric_attr, &fabric, nullptr),
                        "open a fabric", where));
  opened->fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  PLEXUS_TRY(check_call(::fi_domain(fabric, opened->info_.get(), &domain, nullptr),
                        "open the domain", where));
  opened->domain_.reset(domain);
  opened->memory_ = std::make_unique<MemoryCache>(domain, driver);
  if (driver) {
    opened->memory_kinds_ |= PLEXUS_MEMORY_CUDA;
    if (FI_VERSION_GE(library().version(), kDmabufVersion)) {
      opened->memory_kinds_ |= PLEXUS_MEMORY_DMABUF;
    }
  }
  return opened;
}

bool Domain::needs_registration(uint32_t kind) const noexcept {
  return kind != PLEXUS_MEMORY_HOST || always_registers_ ||
         (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0;
}

std::string Device::name() const {
  std::string text;
  for (size_t i = 0; i < rails.size(); ++i) {
    const bool is_new = std::find(rails.begin(), rails.begin() + static_cast<ptrdiff_t>(i),
                                  rails[i]) == rails.begin() + static_cast<ptrdiff_t>(i);
    if (is_new) {
      text += (i == 0 ? "" : "+") + rails[i]->name();
    }
  }
  return text;
}

Result<Cards::Domains> Cards::open_for_device_memory(const std::vector<Nic>& nics,
                                                     const Settings& settings) {
  const bool insists = settings.device_memory == DeviceMemoryWish::kInsists;
  PLEXUS_TRY(driver, CudaDriver::find(insists));
  PLEXUS_TRY(for_device_memory, find_for_device_memory(nics, settings));
  Domains domains;
  for (const Nic& nic : for_device_memory) {
    PLEXUS_TRY(domain, Domain::open(nic, settings.always_registers, driver));
    // checks that an endpoint can be opened with these promises
    PLEXUS_TRY(Endpoint::open(domain));
    domains.push_back(std::move(domain));
  }
  return domains;
}

Result<Cards::Domains> Cards::open_domains(const std::vector<Nic>& nics, const Settings& settings) {
  if (settings.device_memory == DeviceMemoryWish::kNo) {
    device_memory_text_ = "no GPU memory (PLEXUS_OFI_HMEM=0)";
  } else {
    auto domains = open_for_device_memory(nics, settings);
    if (domains.has_value()) {
      const bool has_dmabuf = (domains.value().front()->memory_kinds() & PLEXUS_MEMORY_DMABUF) != 0;
      device_memory_text_ = has_dmabuf ? "GPU memory, also by dma-buf" : "GPU memory";
      return std::move(domains).value();
    }
    const Failure& why = domains.error();
    if (settings.device_memory == DeviceMemoryWish::kInsists) {
      return fail(why.code, "PLEXUS_OFI_HMEM=1, but the network cannot access GPU memory: {}",
                  why.text);
    }
    device_memory_text_ = "no GPU memory (" + why.text + ")";
  }
  Domains domains;
  for (const Nic& nic : nics) {
    PLEXUS_TRY(domain, Domain::open(nic, settings.always_registers));
    domains.push_back(std::move(domain));
  }
  return domains;
}

Result<Cards> Cards::open(const Settings& settings) {
  PLEXUS_TRY(nics, find_nics(settings));
  Cards cards;
  cards.provider_ = nics.front().offer.provider;
  PLEXUS_TRY(domains, cards.open_domains(nics, settings));
  for (size_t first = 0; first < nics.size(); first += settings.rails) {
    const size_t count = std::min<size_t>(settings.rails, nics.size() - first);
    Device device;
    device.tag_bits = nics[first].offer.tag_bits;
    device.index = static_cast<uint32_t>(cards.devices_.size());
    for (size_t rail = 0; rail < settings.rails; ++rail) {
      device.rails.push_back(domains[first + rail % count]);
    }
    cards.devices_.push_back(std::move(device));
  }
  return cards;
}

void Cards::read_properties(const Device& device,
                            uint64_t host_id,
                            plexus_net_properties_t& properties) const {
  const Domain& first = *device.rails.front();
  const fi_info& info = *first.info();
  read_card(first, properties);
  std::vector<const Domain*> seen;
  uint64_t speed = 0;
  for (const std::shared_ptr<Domain>& rail : device.rails) {
    if (std::find(seen.begin(), seen.end(), rail.get()) != seen.end()) {
      continue;
    }
    seen.push_back(rail.get());
    plexus_net_properties_t one{};
    one.speed_mbit_per_s = PLEXUS_UNKNOWN_U32;
    read_card(*rail, one);
    speed += one.speed_mbit_per_s;
  }
  properties.speed_mbit_per_s =
      static_cast<uint32_t>(std::min<uint64_t>(speed, PLEXUS_UNKNOWN_U32));
  plugin::copy_text(properties.name, device.name());
  properties.fabric_id = fabric_of(info, provider_, host_id);
  properties.message_bytes_max =
      std::min<uint64_t>(info.ep_attr->max_msg_size, PLEXUS_NET_MESSAGE_BYTES_MAX);
  properties.pointer_support = first.memory_kinds();
  properties.latency_ns = PLEXUS_UNKNOWN_U32;
  properties.comms_max = static_cast<uint32_t>(
      std::clamp<size_t>(info.domain_attr->ep_cnt / device.rails.size(), 1, UINT16_MAX));
  properties.recvs_max = PLEXUS_NET_RECVS_MAX;
  properties.requests_max = kRequests;
  properties.rail_id = -1;
  properties.plane_id = -1;
}

void read_path(const Cards& cards, uint64_t source, uint64_t target, plexus_net_path_t& path) {
  path = plugin::unknown_path();
  if (source == PLEXUS_UNKNOWN_U64 || target == PLEXUS_UNKNOWN_U64) {
    return;
  }
  if (source == target) {
    path.level = PLEXUS_NET_LEVEL_SAME_DC;
  } else if (cards.provider() == "shm") {
    path.level = PLEXUS_NET_LEVEL_DISCONNECTED;
  }
}

}  // namespace plexus::net_ofi
