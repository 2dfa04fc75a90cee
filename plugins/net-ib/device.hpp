// SPDX-License-Identifier: Apache-2.0
// Cards, their ports, and the devices that the host sees: a port, or several ports that are merged
// into one. A context opens the cards anew and closes them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "plugins/net-ib/gid.hpp"
#include "plugins/net-ib/memory.hpp"
#include "plugins/net-ib/settings.hpp"
#include "plugins/net-ib/verbs.hpp"
#include "plugins/support/log.hpp"

namespace plexus::net_ib {

inline constexpr uint32_t kCardPortsMax = 8;  // ports of a card whose state is watched

/// An opened card. Threads: any.
class Card {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Card>> open(ibv_device* device,
                                                          const Settings& settings);

  [[nodiscard]] ibv_context* context() const noexcept { return context_.get(); }
  [[nodiscard]] ibv_pd* pd() const noexcept { return pd_.get(); }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const ibv_device_attr& limits() const noexcept { return limits_; }
  [[nodiscard]] MemoryCache& memory() noexcept { return memory_; }
  /// Kinds of memory (PLEXUS_MEMORY_*) that the card itself accesses.
  [[nodiscard]] uint32_t memory_kinds() const noexcept { return memory_kinds_; }
  /// Real path of its PCI function; empty: it has none.
  [[nodiscard]] const std::string& pci_path() const noexcept { return pci_path_; }
  /// -1: unknown.
  [[nodiscard]] int32_t numa_node() const noexcept { return numa_node_; }

  /// Takes what the driver reports of its own accord. Does not block; makes a system call.
  void take_events();
  /// As of the last take_events().
  [[nodiscard]] bool is_port_up(uint8_t port) const noexcept {
    return port < kCardPortsMax && is_up_[port].load(std::memory_order_relaxed);
  }
  void set_port_up(uint8_t port, bool is_up) noexcept {
    if (port < kCardPortsMax) {
      is_up_[port].store(is_up, std::memory_order_relaxed);
    }
  }
  /// The driver's words for the last event that was bad news; empty: none.
  [[nodiscard]] std::string last_event() const;

 private:
  Card(ContextPtr context, PdPtr pd, const ibv_device_attr& limits, bool orders_relaxed);
  void take(const ibv_async_event& event);

  ContextPtr context_;
  PdPtr pd_;
  std::string name_;
  std::string pci_path_;
  int32_t numa_node_ = -1;
  ibv_device_attr limits_;
  MemoryCache memory_;
  uint32_t memory_kinds_ = PLEXUS_MEMORY_HOST;
  bool heeds_events_ = true;
  std::array<std::atomic<bool>, kCardPortsMax> is_up_{};
  mutable std::mutex mutex_;
  std::string last_event_;  // guarded by mutex_
};

struct Port {
  Card* card = nullptr;
  uint8_t number = 0;
  std::string name;  // "mlx5_0", with several ports "mlx5_0:2"
  std::string pci_path;
  int32_t numa_node = -1;  // -1: unknown
  ibv_port_attr attributes{};
  Gid gid;
  uint64_t guid = 0;  // of the card
  uint64_t fabric_id = PLEXUS_UNKNOWN_U64;
  int32_t rail = -1;
  int32_t plane = -1;
  uint32_t speed_mbit_per_s = PLEXUS_UNKNOWN_U32;

  [[nodiscard]] bool is_infiniband() const noexcept {
    return attributes.link_layer == IBV_LINK_LAYER_INFINIBAND;
  }
};

/// What the host sees.
struct Device {
  std::string name;                // of its ports, joined by '+'
  std::vector<const Port*> ports;  // [rails]
};

class Devices {
 public:
  /// Opens what the settings select. Without a card, or without libibverbs, there are none, and one
  /// INFO line says so.
  [[nodiscard]] static Result<std::unique_ptr<Devices>> open(const Settings& settings,
                                                             const plugin::Log& log);

  [[nodiscard]] const std::vector<Device>& list() const noexcept { return devices_; }
  static void read_properties(const Device& device, plexus_net_properties_t& properties);

 private:
  [[nodiscard]] Result<void> open_card(ibv_device* device,
                                       const Settings& settings,
                                       const plugin::Log& log);
  [[nodiscard]] Result<void> add_port(Card& card,
                                      uint8_t number,
                                      const Settings& settings,
                                      const plugin::Log& log);

  std::vector<std::unique_ptr<Card>> cards_;
  std::vector<std::unique_ptr<Port>> ports_;
  std::vector<Device> devices_;
};

/// Mbit/s of a port; unknown: PLEXUS_UNKNOWN_U32.
[[nodiscard]] uint32_t speed_of(uint8_t active_speed, uint8_t active_width) noexcept;

/// The GIDs of a port that are not empty.
[[nodiscard]] Result<std::vector<Gid>> list_gids(ibv_context* context, uint8_t port);

/// The path between two fabrics, by their ids.
void read_path(const FabricSettings& settings,
               uint64_t source,
               uint64_t target,
               plexus_net_path_t& path);

}  // namespace plexus::net_ib
