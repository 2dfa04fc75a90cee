// SPDX-License-Identifier: Apache-2.0
// ncclNet v11 of the cross-dc branch: v10 plus the reachability of fabrics.
#include "plugin-api/nccl/net_v11_cross_dc.h"

#include "core/plugin/nccl_net/table.hpp"

namespace plexus::nccl_net {
namespace {

class NetV11CrossDc final : public OnceNet<nccl_net_v11_cross_dc_t> {
 public:
  using OnceNet::OnceNet;

  [[nodiscard]] bool has_net_path() const noexcept override { return table().net_path != nullptr; }
  [[nodiscard]] int32_t net_path(uint64_t source, uint64_t target, int& level) const override {
    nccl_net_path_t path{NCCL_PATH_DISCONNECTED};
    const int32_t code = table().net_path(source, target, &path);
    level = path.level;
    return code;
  }

  [[nodiscard]] int32_t get_properties(int device, ForeignProperties& result) const override {
    nccl_net_properties_v11_cross_dc_t raw{};
    const int32_t code = table().get_properties(device, &raw);
    copy_since_v9(raw, result.v12);
    result.fabric_id = raw.fabric_id;
    return code;
  }
};

}  // namespace

std::unique_ptr<const Net> make_net_v11_cross_dc(const void* table) {
  return std::make_unique<const NetV11CrossDc>(table);
}

}  // namespace plexus::nccl_net
