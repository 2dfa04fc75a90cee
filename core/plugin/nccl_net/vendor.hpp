// SPDX-License-Identifier: Apache-2.0
// A loaded library of NCCL's net ABI: its initialisation and its devices.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/plexus_net.h"

#include "core/base/immortal.hpp"
#include "core/plugin/nccl_net/log.hpp"
#include "core/plugin/nccl_net/net.hpp"
#include "core/plugin/net_plugin.hpp"

namespace plexus::nccl_net {

/// The `NetOrigin` of its NetPlugin.
/// Threads: any; init, devices and properties of a plugin run one at a time, as under NCCL.
class Vendor final : public NetOrigin, public std::enable_shared_from_this<Vendor> {
 public:
  explicit Vendor(std::unique_ptr<const Net> net) : net_(std::move(net)) {}

  [[nodiscard]] std::string name() const override;
  [[nodiscard]] int32_t init(const plexus_net_config_t* config,
                             plexus_net_context_t** context) const override;
  void finalize(CommState& comm, const LogTarget& log) const;
  [[nodiscard]] const Net& net() const noexcept { return *net_; }

 private:
  [[nodiscard]] int32_t init_once(CommState& comm, const LogTarget& log) const;
  [[nodiscard]] int32_t init_comm(CommState& comm, uint64_t comm_id, const LogTarget& log) const;
  [[nodiscard]] int32_t read_devices(plexus_net_context_t& context) const;

  std::unique_ptr<const Net> net_;
  /// One lock for all vendors: another one may use the same library, whose init may write its
  /// table.
  struct Turn {
    std::mutex mutex;
  };
  static std::mutex& turn() { return Immortal<Turn>::instance().mutex; }

  mutable bool is_initialised_ = false;  // guarded by turn(); process-once plugins only
  mutable std::string failed_;           // guarded by turn(); why the init failed; "": it did not
};

}  // namespace plexus::nccl_net

struct plexus_net_context {
  std::shared_ptr<const plexus::nccl_net::Vendor> vendor;  // shared by all contexts of the plugin
  plexus::nccl_net::LogTarget log;
  plexus::nccl_net::CommState comm;
  std::vector<plexus_net_properties_t> devices;
  [[nodiscard]] const plexus::nccl_net::Net& net() const noexcept { return vendor->net(); }
};
