// SPDX-License-Identifier: Apache-2.0
// Determines the kind of a library: loads it in a separate process, which leaves the answer on its
// status.
#include <algorithm>
#include <array>
#include <optional>
#include <unistd.h>

#include "tools/conformance/collnet.hpp"
#include "tools/conformance/library.hpp"
#include "tools/conformance/nccl_profiler.hpp"
#include "tools/conformance/nccl_tuner.hpp"
#include "tools/conformance/runner.hpp"

namespace plexus::conformance {
namespace {

/// The format in the status: "2\tplexus 1.1\tSocket\t", with the kind as a number; after the last
/// tab, the reason why nothing can be checked.
std::string status_text_of(PluginKind kind,
                           std::string_view abi,
                           std::string_view name,
                           std::string_view unchecked = "") {
  return fmt::format("{}\t{}\t{}\t{}", static_cast<int>(kind), abi, name, unchecked);
}

bool wants_kind(const Fixture& fixture, PluginKind kind) {
  const std::string& wanted = fixture.subject().kind;
  return wanted.empty() || wanted == kind_word(kind);
}

/// nullopt: not a native plugin of the wanted kind.
std::optional<std::string> look_for_native(Fixture& fixture, const Library& library) {
  using Query = const plexus_plugin_t*(uint32_t);
  Query* const query = library.find_function<Query>("plexus_plugin_query");
  if (query == nullptr || !(fixture.subject().abi.empty() || fixture.subject().abi == "native")) {
    return std::nullopt;
  }
  fixture.status().place = Place::kQuery;
  const plexus_plugin_t* const plugin = query(PLEXUS_HOST_ABI);
  fixture.status().place = Place::kKit;
  if (plugin == nullptr) {
    return std::nullopt;
  }
  const PluginKind kind = plugin->kind == PLEXUS_KIND_TUNER ? PluginKind::kTuner : PluginKind::kNet;
  if (!wants_kind(fixture, kind)) {
    return std::nullopt;
  }
  return status_text_of(kind, fmt::format("plexus {}.{}", plugin->abi_major, plugin->abi_minor),
                        plugin->name == nullptr ? "" : plugin->name);
}

bool has_any(const Library& library, const char* stem) {
  return find_newest_table(library, stem, kAnyNcclVersion).has_value();
}

/// Detects tables of kinds that hosts support and the kit does not check.
std::optional<std::string> look_for_unchecked_kind(const Library& library) {
  struct Kind {
    const char* stem;
    const char* what;
    const char* variable;
  };
  constexpr std::array<Kind, 3> kKinds = {
      {{"ncclEnvPlugin", "an env plugin", "NCCL_ENV_PLUGIN"},
       {"ncclGinPlugin", "a GIN plugin (networking that the GPU starts)", "NCCL_GIN_PLUGIN"},
       {"ncclRmaPlugin", "an RMA plugin (one-sided networking)", "NCCL_RMA_PLUGIN"}}};
  for (const Kind& kind : kKinds) {
    const auto table = find_newest_table(library, kind.stem, kAnyNcclVersion);
    if (table.has_value()) {
      return status_text_of(
          PluginKind::kNone, table->symbol, "",
          fmt::format("it is {} ({}), a kind that the kit does not check; NCCL loads it "
                      "by {}",
                      kind.what, table->symbol, kind.variable));
    }
  }
  return std::nullopt;
}

Result<void> look_at_library(Fixture& fixture) {
  auto loaded = load_library(fixture);
  if (loaded.has_error()) {
    const auto missing = explain_missing_cuda(loaded.error().message());
    if (!missing.has_value()) {
      return std::move(loaded).error();
    }
    fixture.status().text.set(status_text_of(PluginKind::kNone, "", "", *missing));
    return ok();
  }
  const Library library = std::move(loaded).value();
  if (const auto native = look_for_native(fixture, library)) {
    fixture.status().text.set(*native);
    return ok();
  }
  const bool is_collnet =
      library.has_symbol("plexus_collnet_query") || has_any(library, "ncclCollNetPlugin");
  const bool is_net = has_any(library, "ncclNetPlugin") && wants_kind(fixture, PluginKind::kNet);
  if (!is_net && has_any(library, "ncclTunerPlugin") &&
      wants_kind(fixture, PluginKind::kNcclTuner)) {
    PLEXUS_TRY(tuner, NcclTuner::load(fixture));
    fixture.status().text.set(status_text_of(PluginKind::kNcclTuner, tuner.entry(), tuner.name()));
    return ok();
  }
  if (!is_net && has_any(library, "ncclProfiler") && wants_kind(fixture, PluginKind::kProfiler)) {
    PLEXUS_TRY(profiler, NcclProfiler::load(fixture));
    fixture.status().text.set(
        status_text_of(PluginKind::kProfiler, profiler.entry(), profiler.name()));
    return ok();
  }
  if (!is_net && is_collnet && wants_kind(fixture, PluginKind::kCollnet)) {
    PLEXUS_TRY(collnet, Collnet::load(fixture));
    const bool is_native = collnet.plugin->origin == nullptr;
    fixture.status().text.set(status_text_of(
        PluginKind::kCollnet,
        is_native ? fmt::format("plexus {}.x", PLEXUS_ABI_MAJOR) : collnet.plugin->version,
        collnet.plugin->name));
    return ok();
  }
  if (!wants_kind(fixture, PluginKind::kNet)) {
    return wrong("it is not a plugin of kind {}", fixture.subject().kind);
  }
  const auto unchecked = is_net ? std::nullopt : look_for_unchecked_kind(library);
  if (unchecked.has_value()) {
    fixture.status().text.set(*unchecked);
    return ok();
  }
  PLEXUS_TRY(net, Net::load(fixture));
  fixture.status().text.set(
      status_text_of(PluginKind::kNet, net.plugin->descriptor().entry, net.plugin->network_name()));
  return ok();
}

/// The last lines that the library has logged or printed.
std::string own_lines(Fixture& fixture) {
  constexpr size_t kLinesMost = 6;
  constexpr size_t kPrintedMost = 400;
  std::vector<std::string> lines;
  for (const LogLine& line : fixture.monitor().lines()) {
    lines.push_back(line.text);
  }
  std::string text;
  const size_t first = lines.size() > kLinesMost ? lines.size() - kLinesMost : 0;
  for (size_t i = first; i < lines.size(); ++i) {
    text += (text.empty() ? "" : "\n") + lines[i];
  }
  // stdout and stderr of this process are a file of the kit.
  std::array<char, kPrintedMost> printed{};
  const ssize_t size = ::pread(STDOUT_FILENO, printed.data(), printed.size(), 0);
  if (size > 0) {
    text += (text.empty() ? "" : "\n") + std::string(printed.data(), static_cast<size_t>(size));
  }
  return text;
}

/// Leaves in the status why it is unusable here, with its own lines; empty: it is usable.
void leave_unusable(Fixture& fixture, std::string_view why) {
  fixture.status().text.set(fmt::format("{}\n{}", why, own_lines(fixture)));
}

/// For a net plugin: checks that init works here and that there is a device.
Result<void> look_for_devices(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  Monitor& monitor = fixture.monitor();
  plexus_net_config_t config{sizeof config, -1, 1, &Monitor::write_line, monitor.sink(), nullptr};
  plexus_net_context_t* raw = nullptr;
  const int32_t made = monitor.call(Place::kInit, [&] { return net.plugin->init(&config, &raw); });
  if (made != PLEXUS_OK) {
    leave_unusable(fixture, fmt::format("its init fails here with code {}", made));
    return ok();
  }
  uint32_t count = 0;
  const int32_t counted =
      monitor.call(Place::kDeviceCount, [&] { return net.ops().device_count(raw, &count); });
  if (counted != PLEXUS_OK || count == 0) {
    leave_unusable(fixture, counted == PLEXUS_OK ? "it finds no device here"
                                                 : "it cannot count its devices here");
  }
  return ok();
}

constexpr Check kLook = {"identity", "", "", &look_at_library};
constexpr Check kDevices = {"devices", "", "", &look_for_devices};

/// A crash or hang here is left for the checks to report.
Result<void> add_devices(const Subject& subject, Identity& identity) {
  PLEXUS_TRY(verdict, run_alone(subject, kDevices));
  if (verdict.outcome == Outcome::kPass && !verdict.detail.empty()) {
    const size_t end = verdict.detail.find('\n');
    identity.unchecked = verdict.detail.substr(0, end);
    identity.log = verdict.detail.substr(end + 1);
  }
  return ok();
}

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
  const size_t third = verdict.detail.find('\t', second + 1);
  identity.kind = static_cast<PluginKind>(std::stoi(verdict.detail.substr(0, first)));
  identity.abi = verdict.detail.substr(first + 1, second - first - 1);
  identity.name = verdict.detail.substr(second + 1, third - second - 1);
  identity.unchecked = third < verdict.detail.size() ? verdict.detail.substr(third + 1) : "";
  if (identity.kind == PluginKind::kNet) {
    PLEXUS_TRY(add_devices(subject, identity));
  }
  return identity;
}

}  // namespace plexus::conformance
