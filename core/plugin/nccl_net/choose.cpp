// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/nccl_net/choose.hpp"

#include <algorithm>
#include <array>

#include "plugin-api/nccl/net_v10.h"
#include "plugin-api/nccl/net_v11.h"
#include "plugin-api/nccl/net_v11_cross_dc.h"
#include "plugin-api/nccl/net_v6.h"
#include "plugin-api/nccl/net_v7.h"
#include "plugin-api/nccl/net_v8.h"
#include "plugin-api/nccl/net_v9.h"

#include "core/plugin/nccl_table.hpp"

namespace plexus::nccl_net {
namespace {

struct Version {
  size_t table_bytes;
  MakeNet* make;
};

/// The supported versions, starting with kVersionLeast.
constexpr std::array<Version, kVersionMost - kVersionLeast + 1> kVersions = {{
    {sizeof(nccl_net_v6_t), &make_net_v6},
    {sizeof(nccl_net_v7_t), &make_net_v7},
    {sizeof(nccl_net_v8_t), &make_net_v8},
    {sizeof(nccl_net_v9_t), &make_net_v9},
    {sizeof(nccl_net_v10_t), &make_net_v10},
    {sizeof(nccl_net_v11_t), &make_net_v11},
    {sizeof(nccl_net_v12_t), &make_net_v12},
}};
constexpr Version kCrossDc = {sizeof(nccl_net_v11_cross_dc_t), &make_net_v11_cross_dc};
constexpr int kForked = 11;  // two different ABIs have this version

constexpr const char* kStem = "ncclNetPlugin";

bool is_cross_dc(size_t symbol_bytes, V11Layout layout) {
  if (layout == V11Layout::kBySize) {
    return symbol_bytes == kCrossDc.table_bytes;
  }
  return layout == V11Layout::kCrossDc;
}

Error explain_none(const Library& library, int version) {
  if (version != 0) {
    return fail(
        Code::kInvalidUsage,
        "it has no {}_v{}, which PLEXUS_NET_ABI=v{} requires; correct or unset PLEXUS_NET_ABI",
        kStem, version, version);
  }
  if (const auto other = find_newest_table(library, kStem, kAnyNcclVersion)) {
    return fail(Code::kInvalidUsage,
                "it has {}, expected plexus_plugin_query or ncclNetPlugin_v{} to v{}; use a build "
                "of it for an NCCL version in that range",
                other->symbol, kVersionLeast, kVersionMost);
  }
  return fail(Code::kInvalidUsage,
              "it has neither plexus_plugin_query nor ncclNetPlugin_v{} to v{}: it is not a net "
              "plugin; correct the name in NCCL_NET_PLUGIN",
              kVersionLeast, kVersionMost);
}

}  // namespace

Result<Choice> choose_net(const Library& library, int version, V11Layout layout) {
  const NcclVersions wanted = {std::max(version, kVersionLeast),
                               version == 0 ? kVersionMost : std::min(version, kVersionMost)};
  const auto table = find_newest_table(library, kStem, wanted);
  if (!table.has_value()) {
    return explain_none(library, version);
  }
  const bool cross_dc = table->version == kForked && is_cross_dc(table->object.size_bytes, layout);
  const Version& chosen =
      cross_dc ? kCrossDc : kVersions[static_cast<size_t>(table->version - kVersionLeast)];
  PLEXUS_TRY(table->check_size(chosen.table_bytes));
  return Choice{chosen.make(table->object.address),
                table->symbol + (cross_dc ? " (cross-dc)" : "")};
}

}  // namespace plexus::nccl_net
