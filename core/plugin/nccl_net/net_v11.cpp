// SPDX-License-Identifier: Apache-2.0
// ncclNet v11 (mainline): a context per communicator.
#include "plugin-api/nccl/net_v11.h"

#include "core/plugin/nccl_net/table.hpp"

namespace plexus::nccl_net {
namespace {

class NetV11 final : public CommNet<nccl_net_v11_t> {
 public:
  using CommNet::CommNet;

  [[nodiscard]] int32_t get_properties(int device, ForeignProperties& result) const override {
    nccl_net_properties_v11_t raw{};
    const int32_t code = table().get_properties(device, &raw);
    copy_since_v9(raw, result.v12);
    result.v12.multi_request_max = raw.multi_request_max;
    return code;
  }
};

}  // namespace

std::unique_ptr<const Net> make_net_v11(const void* table) {
  return std::make_unique<const NetV11>(table);
}

}  // namespace plexus::nccl_net
