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

#include "core/plugin/nccl_net/table.hpp"
#include "core/plugin/nccl_table.hpp"

namespace plexus::nccl_net {
namespace {

/// A version. `Base`: OnceNet or CommNet of its table; `Properties`: what its devices have.
template <class Base, class Properties>
class VersionNet : public Base {
 public:
  using Base::Base;

  [[nodiscard]] int32_t get_properties(int device, ForeignProperties& result) const override {
    Properties raw{};
    const int32_t code = this->table().get_properties(device, &raw);
    copy_properties(raw, result.v12);
    if constexpr (requires { raw.fabric_id; }) {
      result.fabric_id = raw.fabric_id;
    }
    return code;
  }
};

/// v11 of the cross-dc branch: v10 plus the reachability of fabrics.
class CrossDcNet final
    : public VersionNet<OnceNet<nccl_net_v11_cross_dc_t>, nccl_net_properties_v11_cross_dc_t> {
 public:
  using VersionNet::VersionNet;

  [[nodiscard]] bool has_net_path() const noexcept override { return table().net_path != nullptr; }
  [[nodiscard]] int32_t net_path(uint64_t source, uint64_t target, int& level) const override {
    nccl_net_path_t path{NCCL_PATH_DISCONNECTED};
    const int32_t code = table().net_path(source, target, &path);
    level = path.level;
    return code;
  }
};

struct Version {
  size_t table_bytes;
  std::unique_ptr<const Net> (*make)(const void* table);  // the plugin's symbol
};

template <class Table, class Made>
constexpr Version version_of() {
  return {sizeof(Table), [](const void* table) -> std::unique_ptr<const Net> {
            return std::make_unique<const Made>(table);
          }};
}
template <class Table, class Properties>
constexpr Version kOnce = version_of<Table, VersionNet<OnceNet<Table>, Properties>>();
template <class Table, class Properties>
constexpr Version kPerComm = version_of<Table, VersionNet<CommNet<Table>, Properties>>();

/// The supported versions, starting with kVersionLeast.
constexpr std::array<Version, kVersionMost - kVersionLeast + 1> kVersions = {{
    kOnce<nccl_net_v6_t, nccl_net_properties_v6_t>,
    kOnce<nccl_net_v7_t, nccl_net_properties_v7_t>,
    kOnce<nccl_net_v8_t, nccl_net_properties_v8_t>,
    kOnce<nccl_net_v9_t, nccl_net_properties_v9_t>,
    kOnce<nccl_net_v10_t, nccl_net_properties_v10_t>,
    kPerComm<nccl_net_v11_t, nccl_net_properties_v11_t>,
    kPerComm<nccl_net_v12_t, nccl_net_properties_v12_t>,
}};
constexpr Version kCrossDc = version_of<nccl_net_v11_cross_dc_t, CrossDcNet>();
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
