// SPDX-License-Identifier: Apache-2.0
// ncclNet v12: the newest version; it supports every call.
#include "plugin-api/nccl/net_v12.h"

#include "core/plugin/nccl_net/table.hpp"

namespace plexus::nccl_net {
namespace {

class NetV12 final : public CommNet<nccl_net_v12_t> {
 public:
  using CommNet::CommNet;

  [[nodiscard]] int32_t get_properties(int device, ForeignProperties& result) const override {
    nccl_net_properties_v12_t raw{};
    const int32_t code = table().get_properties(device, &raw);
    result.v12 = raw;
    return code;
  }
};

}  // namespace

std::unique_ptr<const Net> make_net_v12(const void* table) {
  return std::make_unique<const NetV12>(table);
}

}  // namespace plexus::nccl_net
