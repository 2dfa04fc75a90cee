// SPDX-License-Identifier: Apache-2.0
// ncclNet v7: v6 with 32 requests, and with devices that a host may be unable to drive.
#include "plugin-api/nccl/net_v7.h"

#include "core/plugin/nccl_net/table.hpp"

namespace plexus::nccl_net {
namespace {

class NetV7 final : public OnceNet<nccl_net_v7_t> {
 public:
  using OnceNet::OnceNet;

  [[nodiscard]] int32_t get_properties(int device, ForeignProperties& result) const override {
    nccl_net_properties_v7_t raw{};
    const int32_t code = table().get_properties(device, &raw);
    copy_common(raw, result.v12);
    result.v12.device_type = raw.device_type;
    result.v12.device_version = raw.device_version;
    return code;
  }
};

}  // namespace

std::unique_ptr<const Net> make_net_v7(const void* table) {
  return std::make_unique<const NetV7>(table);
}

}  // namespace plexus::nccl_net
