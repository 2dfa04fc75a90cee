// SPDX-License-Identifier: Apache-2.0
// What a library is: loaded in a process of its own, which leaves the answer on its seat.
#include <optional>

#include "tools/conformance/collnet.hpp"
#include "tools/conformance/library.hpp"
#include "tools/conformance/nccl_profiler.hpp"
#include "tools/conformance/nccl_tuner.hpp"
#include "tools/conformance/runner.hpp"

namespace plexus::conformance {
namespace {

/// As it lies on the seat: "2\tplexus 1.1\tSocket", the kind as a number.
std::string on_seat(PluginKind kind, std::string_view abi, std::string_view name) {
  return fmt::format("{}\t{}\t{}", static_cast<int>(kind), abi, name);
}

bool wants_kind(const Stand& stand, PluginKind kind) {
  const std::string& wanted = stand.subject().kind;
  return wanted.empty() || wanted == kind_word(kind);
}

/// Nothing: it is no native plugin of the kind that is wanted.
std::optional<std::string> look_for_native(Stand& stand, const Library& library) {
  using Query = const plexus_plugin_t*(uint32_t);
  Query* const query = library.find_function<Query>("plexus_plugin_query");
  if (query == nullptr || !(stand.subject().abi.empty() || stand.subject().abi == "native")) {
    return std::nullopt;
  }
  stand.seat().place = Place::kQuery;
  const plexus_plugin_t* const plugin = query(PLEXUS_HOST_ABI);
  stand.seat().place = Place::kKit;
  if (plugin == nullptr) {
    return std::nullopt;
  }
  const PluginKind kind = plugin->kind == PLEXUS_KIND_TUNER ? PluginKind::kTuner : PluginKind::kNet;
  if (!wants_kind(stand, kind)) {
    return std::nullopt;
  }
  return on_seat(kind, fmt::format("plexus {}.{}", plugin->abi_major, plugin->abi_minor),
                 plugin->name == nullptr ? "" : plugin->name);
}

bool has_any(const Library& library, const char* stem) {
  return find_newest_table(library, stem, kAnyNcclVersion).has_value();
}

Result<void> look_at_library(Stand& stand) {
  PLEXUS_TRY(library, load_library(stand));
  if (const auto native = look_for_native(stand, library)) {
    stand.seat().text.set(*native);
    return ok();
  }
  const bool is_collnet =
      library.has_symbol("plexus_collnet_query") || has_any(library, "ncclCollNetPlugin");
  const bool is_net = has_any(library, "ncclNetPlugin") && wants_kind(stand, PluginKind::kNet);
  if (!is_net && has_any(library, "ncclTunerPlugin") && wants_kind(stand, PluginKind::kNcclTuner)) {
    PLEXUS_TRY(tuner, NcclTuner::load(stand));
    stand.seat().text.set(on_seat(PluginKind::kNcclTuner, tuner.entry(), tuner.name()));
    return ok();
  }
  if (!is_net && has_any(library, "ncclProfiler") && wants_kind(stand, PluginKind::kProfiler)) {
    PLEXUS_TRY(profiler, NcclProfiler::load(stand));
    stand.seat().text.set(on_seat(PluginKind::kProfiler, profiler.entry(), profiler.name()));
    return ok();
  }
  if (!is_net && is_collnet && wants_kind(stand, PluginKind::kCollnet)) {
    PLEXUS_TRY(collnet, Collnet::load(stand));
    const bool is_native = collnet.plugin->origin == nullptr;
    stand.seat().text.set(
        on_seat(PluginKind::kCollnet,
                is_native ? fmt::format("plexus {}.x", PLEXUS_ABI_MAJOR) : collnet.plugin->version,
                collnet.plugin->name));
    return ok();
  }
  if (!wants_kind(stand, PluginKind::kNet)) {
    return wrong("it is no {} plugin", stand.subject().kind);
  }
  PLEXUS_TRY(net, Net::load(stand));
  stand.seat().text.set(
      on_seat(PluginKind::kNet, net.plugin->descriptor().entry, net.plugin->network_name()));
  return ok();
}

constexpr Check kLook = {"identity", "", "", &look_at_library};

}  // namespace

Result<Identity> identify(const Subject& subject) {
  PLEXUS_TRY(verdict, run_alone(subject, kLook));
  Identity identity;
  if (verdict.outcome != Outcome::kPass) {
    identity.problem = verdict.detail;
    return identity;
  }
  const size_t first = verdict.detail.find('\t');
  const size_t second = verdict.detail.find('\t', first + 1);
  identity.kind = static_cast<PluginKind>(std::stoi(verdict.detail.substr(0, first)));
  identity.abi = verdict.detail.substr(first + 1, second - first - 1);
  identity.name = verdict.detail.substr(second + 1);
  return identity;
}

}  // namespace plexus::conformance
