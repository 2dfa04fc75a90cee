// SPDX-License-Identifier: Apache-2.0
// ncclNet v9: reports its longest message.
#include "plugin-api/nccl/net_v9.h"

#include "core/plugin/nccl_net/table.hpp"

namespace plexus::nccl_net {
namespace {

class NetV9 final : public OnceNet<nccl_net_v9_t> {
 public:
  using OnceNet::OnceNet;

  [[nodiscard]] int32_t get_properties(int device, ForeignProperties& result) const override {
    nccl_net_properties_v9_t raw{};
    const int32_t code = table().get_properties(device, &raw);
    copy_since_v9(raw, result.v12);
    return code;
  }
};

}  // namespace

std::unique_ptr<const Net> make_net_v9(const void* table) {
  return std::make_unique<const NetV9>(table);
}

}  // namespace plexus::nccl_net
