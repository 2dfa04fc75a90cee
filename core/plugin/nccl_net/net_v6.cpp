// SPDX-License-Identifier: Apache-2.0
// ncclNet v6: 8 requests per connection, sizes are int everywhere, no device offload.
#include "plugin-api/nccl/net_v6.h"

#include "core/plugin/nccl_net/table.hpp"

namespace plexus::nccl_net {
namespace {

class NetV6 final : public OnceNet<nccl_net_v6_t> {
 public:
  using OnceNet::OnceNet;

  [[nodiscard]] uint32_t requests_max() const noexcept override { return NCCL_REQUESTS_MAX_V6; }
  [[nodiscard]] int32_t get_properties(int device, ForeignProperties& result) const override {
    nccl_net_properties_v6_t raw{};
    const int32_t code = table().get_properties(device, &raw);
    copy_common(raw, result.v12);
    return code;
  }
};

}  // namespace

std::unique_ptr<const Net> make_net_v6(const void* table) {
  return std::make_unique<const NetV6>(table);
}

}  // namespace plexus::nccl_net
