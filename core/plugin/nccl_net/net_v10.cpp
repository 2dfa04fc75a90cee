// SPDX-License-Identifier: Apache-2.0
// ncclNet v10: each connect has a traffic class.
#include "plugin-api/nccl/net_v10.h"

#include "core/plugin/nccl_net/table.hpp"

namespace plexus::nccl_net {
namespace {

class NetV10 final : public OnceNet<nccl_net_v10_t> {
 public:
  using OnceNet::OnceNet;

  [[nodiscard]] int32_t get_properties(int device, ForeignProperties& result) const override {
    nccl_net_properties_v10_t raw{};
    const int32_t code = table().get_properties(device, &raw);
    copy_since_v9(raw, result.v12);
    return code;
  }
};

}  // namespace

std::unique_ptr<const Net> make_net_v10(const void* table) {
  return std::make_unique<const NetV10>(table);
}

}  // namespace plexus::nccl_net
