// SPDX-License-Identifier: Apache-2.0
// A card, opened (`Domain`), and what the host sees as a device: one or several cards whose
// endpoints carry one connection together (`Device`).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ofi/fabric.hpp"
#include "plugins/net-ofi/memory.hpp"
#include "plugins/net-ofi/provider.hpp"

namespace plexus::net_ofi {

/// Threads: any. Its endpoints keep it open.
class Domain {
 public:
  /// `driver`: of the GPU memory that the card is to take; nullopt: host memory only.
  [[nodiscard]] static Result<std::shared_ptr<Domain>> open(
      const Nic& nic, bool always_registers, std::optional<CudaDriver> driver = std::nullopt);

  [[nodiscard]] fid_domain* raw() const noexcept { return domain_.get(); }
  [[nodiscard]] fi_info* info() const noexcept { return info_.get(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& provider() const noexcept { return provider_; }
  [[nodiscard]] MemoryCache& memory() noexcept { return *memory_; }
  /// Whether memory has to be registered before it is sent or received into.
  [[nodiscard]] bool needs_registration(uint32_t kind) const noexcept;
  /// PLEXUS_MEMORY_* mask.
  [[nodiscard]] uint32_t memory_kinds() const noexcept { return memory_kinds_; }
  [[nodiscard]] bool takes_device_memory() const noexcept {
    return memory_kinds_ != PLEXUS_MEMORY_HOST;
  }
  /// Are the addresses of remote reads those of the process, not offsets in a registration?
  [[nodiscard]] bool has_virtual_addresses() const noexcept {
    return (info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0;
  }

 private:
  Domain() = default;
  std::string name_;
  std::string provider_;
  bool always_registers_ = false;
  uint32_t memory_kinds_ = PLEXUS_MEMORY_HOST;
  InfoPtr info_;
  FidPtr<fid_fabric> fabric_;
  FidPtr<fid_domain> domain_;
  std::unique_ptr<MemoryCache> memory_;
};

struct Device {
  std::vector<std::shared_ptr<Domain>> rails;  // 1 .. kRailsMax; a card may be there twice
  uint32_t tag_bits = 64;
  [[nodiscard]] std::string name() const;
  [[nodiscard]] uint64_t tag_mask() const noexcept {
    return tag_bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << tag_bits) - 1;
  }
};

/// Cards of a context and the devices made of them: `rails` cards each, in order; the last one
/// goes round when cards are fewer.
class Cards {
 public:
  [[nodiscard]] static Result<Cards> open(const Settings& settings);

  [[nodiscard]] const std::vector<Device>& devices() const noexcept { return devices_; }
  [[nodiscard]] const std::string& provider() const noexcept { return provider_; }
  /// "GPU memory" and how, or why not.
  [[nodiscard]] const std::string& device_memory_text() const noexcept {
    return device_memory_text_;
  }
  void read_properties(const Device& device,
                       uint64_t host_id,
                       plexus_net_properties_t& properties) const;

 private:
  using Domains = std::vector<std::shared_ptr<Domain>>;
  [[nodiscard]] static Result<Domains> open_for_device_memory(const std::vector<Nic>& nics,
                                                              const Settings& settings);
  [[nodiscard]] Result<Domains> open_domains(const std::vector<Nic>& nics,
                                             const Settings& settings);

  std::string provider_;
  std::string device_memory_text_;
  std::vector<Device> devices_;
};

/// The path between two fabric ids that read_properties() gave.
void read_path(const Cards& cards, uint64_t source, uint64_t target, plexus_net_path_t& path);

}  // namespace plexus::net_ofi
