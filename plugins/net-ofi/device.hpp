// SPDX-License-Identifier: Apache-2.0
// An open NIC (`Domain`), and a device as the host sees it: one or several NICs whose endpoints
// together carry a connection (`Device`).
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
  /// `driver`: for GPU memory that the NIC is to access; nullopt: host memory only.
  [[nodiscard]] static Result<std::shared_ptr<Domain>> open(
      const Nic& nic, bool always_registers, std::optional<CudaDriver> driver = std::nullopt);

  [[nodiscard]] fid_domain* raw() const noexcept { return domain_.get(); }
  [[nodiscard]] fi_info* info() const noexcept { return info_.get(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& provider() const noexcept { return provider_; }
  [[nodiscard]] MemoryCache& memory() noexcept { return *memory_; }
  /// Whether memory must be registered before it is used for a send or a receive.
  [[nodiscard]] bool needs_registration(uint32_t kind) const noexcept;
  /// PLEXUS_MEMORY_* mask.
  [[nodiscard]] uint32_t memory_kinds() const noexcept { return memory_kinds_; }
  [[nodiscard]] bool takes_device_memory() const noexcept {
    return memory_kinds_ != PLEXUS_MEMORY_HOST;
  }
  /// Whether remote reads use the process's addresses instead of offsets in a registration.
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
  std::vector<std::shared_ptr<Domain>> rails;  // 1 .. kRailsMax; a NIC may occur twice
  uint32_t tag_bits = 64;
  uint32_t index = 0;  // of the context's devices
  [[nodiscard]] std::string name() const;
  [[nodiscard]] uint64_t tag_mask() const noexcept {
    return tag_bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << tag_bits) - 1;
  }
};

/// The NICs of a context and the devices made from them: `rails` NICs per device, in order; the
/// last device wraps around if there are too few NICs.
class Cards {
 public:
  [[nodiscard]] static Result<Cards> open(const Settings& settings);

  [[nodiscard]] const std::vector<Device>& devices() const noexcept { return devices_; }
  [[nodiscard]] const std::string& provider() const noexcept { return provider_; }
  /// "GPU memory" and how it is accessed, or why it is not.
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

/// The path between two fabric ids from read_properties().
void read_path(const Cards& cards, uint64_t source, uint64_t target, plexus_net_path_t& path);

}  // namespace plexus::net_ofi
