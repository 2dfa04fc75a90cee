// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/nccl_net/choose.hpp"

#include <array>

#include "plugin-api/nccl/net_v10.h"
#include "plugin-api/nccl/net_v11.h"
#include "plugin-api/nccl/net_v11_cross_dc.h"
#include "plugin-api/nccl/net_v6.h"
#include "plugin-api/nccl/net_v7.h"
#include "plugin-api/nccl/net_v8.h"
#include "plugin-api/nccl/net_v9.h"

namespace plexus::nccl_net {
namespace {

struct Version {
  size_t table_bytes;
  MakeNet* make;
};

/// From kVersionLeast on.
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
constexpr int kForked = 11;  // the version that two ABIs share

std::string symbol_of(int version) { return fmt::format("ncclNetPlugin_v{}", version); }

bool is_cross_dc(size_t symbol_bytes, V11Layout layout) {
  if (layout == V11Layout::kBySize) {
    return symbol_bytes == kCrossDc.table_bytes;
  }
  return layout == V11Layout::kCrossDc;
}

Error explain_none(const Library& library, int version) {
  constexpr int kVersionsKnown = 20;  // some to come
  if (version != 0) {
    return fail(Code::kInvalidUsage,
                "it has no {}, which PLEXUS_NET_ABI=v{} asks for; correct or unset PLEXUS_NET_ABI",
                symbol_of(version), version);
  }
  for (int other = kVersionsKnown; other >= 1; --other) {
    if (library.has_symbol(symbol_of(other).c_str())) {
      return fail(
          Code::kInvalidUsage,
          "it has {}, expected plexus_plugin_query or ncclNetPlugin_v{} to v{}; use a build "
          "of it for another NCCL",
          symbol_of(other), kVersionLeast, kVersionMost);
    }
  }
  return fail(
      Code::kInvalidUsage,
      "it has neither plexus_plugin_query nor ncclNetPlugin_v{} to v{}: it is no net plugin; "
      "correct the name in NCCL_NET_PLUGIN",
      kVersionLeast, kVersionMost);
}

Result<Choice> use(const Library::Object& object, int version, V11Layout layout) {
  const bool cross_dc = version == kForked && is_cross_dc(object.size_bytes, layout);
  const Version& chosen =
      cross_dc ? kCrossDc : kVersions[static_cast<size_t>(version - kVersionLeast)];
  if (object.size_bytes != 0 && object.size_bytes < chosen.table_bytes) {
    return fail(Code::kInvalidUsage,
                "its {} has {} bytes, expected {}: it was built with a header that is not NCCL's; "
                "rebuild it",
                symbol_of(version), object.size_bytes, chosen.table_bytes);
  }
  return Choice{chosen.make(object.address), symbol_of(version) + (cross_dc ? " (cross-dc)" : "")};
}

}  // namespace

Result<Choice> choose_net(const Library& library, int version, V11Layout layout) {
  for (int each = kVersionMost; each >= kVersionLeast; --each) {
    if (version != 0 && each != version) {
      continue;
    }
    const auto object = library.find_object(symbol_of(each).c_str());
    if (object.has_value()) {
      return use(*object, each, layout);
    }
  }
  return explain_none(library, version);
}

}  // namespace plexus::nccl_net
