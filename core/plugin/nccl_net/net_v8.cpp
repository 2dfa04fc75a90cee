// SPDX-License-Identifier: Apache-2.0
// ncclNet v8: v7 with registrations of any size, and global registration where supported.
#include "plugin-api/nccl/net_v8.h"

#include "core/plugin/nccl_net/table.hpp"

namespace plexus::nccl_net {
namespace {

class NetV8 final : public OnceNet<nccl_net_v8_t> {
 public:
  using OnceNet::OnceNet;

  [[nodiscard]] int32_t get_properties(int device, ForeignProperties& result) const override {
    nccl_net_properties_v8_t raw{};
    const int32_t code = table().get_properties(device, &raw);
    copy_common(raw, result.v12);
    result.v12.registration_is_global = raw.registration_is_global;
    result.v12.device_type = raw.device_type;
    result.v12.device_version = raw.device_version;
    return code;
  }
};

}  // namespace

std::unique_ptr<const Net> make_net_v8(const void* table) {
  return std::make_unique<const NetV8>(table);
}

}  // namespace plexus::nccl_net
