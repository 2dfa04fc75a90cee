// SPDX-License-Identifier: Apache-2.0
#include "core/setup/datacenters.hpp"

#include <set>

#include "core/base/text.hpp"
#include "core/datacenter/fabric_id.hpp"
#include "guest/file.hpp"

namespace plexus {
namespace {

constexpr const char* kSyntaxFabricId = "fabricid";
constexpr const char* kSyntaxRail = "rail";

Result<bool> lists_fabric_ids(const Config& config) {
  if (config.ib_hca_syntax != kSyntaxFabricId && config.ib_hca_syntax != kSyntaxRail) {
    return fail(Code::kInvalidArgument, "PLEXUS_IB_HCA={} is invalid: expected {} or {}",
                config.ib_hca_syntax, kSyntaxRail, kSyntaxFabricId);
  }
  return config.ib_hca_syntax == kSyntaxFabricId;
}

/// Key for comparing network names: case is ignored, and only as many characters as a location
/// holds.
std::string net_key(std::string_view name) {
  return lower(name.substr(0, kDatacenterNameBytesMax));
}

Result<FabricAnswer> ask_plugin(const NetContext& net, uint64_t from, uint64_t to) {
  using Level = FabricAnswer::Level;
  PLEXUS_TRY(path, net.net_path(from, to));
  FabricAnswer answer{.from = from, .to = to, .level = Level::kUnknown, .path = {}};
  answer.path = {.connected = path.connected,
                 .mbit_per_s = path.bandwidth_mbit_per_s,
                 .latency_ns = std::nullopt,
                 .cost = path.cost};
  if (path.latency) {
    answer.path.latency_ns = static_cast<uint64_t>(path.latency->count());
  }
  if (!path.connected) {
    answer.level = Level::kDisconnected;
  } else if (path.level) {
    answer.level = *path.level == 0 ? Level::kSame : Level::kOther;
  }
  return answer;
}

}  // namespace

Result<FabricFile> read_fabric_file(const Config& config) {
  if (config.fabric_file.empty()) {
    return FabricFile{};
  }
  const FileText file = read_regular_file(config.fabric_file);
  if (file.text.empty() || !file.refusal.empty()) {
    return fail(Code::kInvalidArgument, "{} cannot be read: {}",
                describe_setting("PLEXUS_FABRIC_FILE", config.fabric_file),
                file.refusal.empty() ? "it is empty" : file.refusal);
  }
  auto parsed = parse_fabric_file(file.text);
  if (!parsed) {
    return std::move(parsed).error().with_context(
        describe_setting("PLEXUS_FABRIC_FILE", config.fabric_file));
  }
  return std::move(parsed).value();
}

Result<Location> find_location(const DatacenterSource& source) {
  const Config& config = *source.config;
  PLEXUS_TRY(file, read_fabric_file(config));
  Location location = file.location_of(source.host);
  location.scatter = config.scatter_xdc;
  PLEXUS_TRY(by_list, lists_fabric_ids(config));
  HcaList list;
  if (by_list) {
    PLEXUS_TRY(parsed, parse_hca_list(config.ib_hca, HcaSyntax::kFabricId));
    list = std::move(parsed);
  }
  std::set<uint64_t> ids;
  for (uint32_t device = 0; source.net != nullptr && device < source.net->device_count();
       ++device) {
    const NetProperties& properties = source.net->properties(device);
    const HcaEntry* const entry = list.find(properties.name, static_cast<int>(properties.port));
    const std::optional<uint64_t> id =
        entry != nullptr && entry->fabric_id ? entry->fabric_id : properties.fabric_id;
    if (id) {
      ids.insert(*id);
    }
  }
  if (ids.size() > kFabricIdsMax) {
    return fail(Code::kInvalidUsage,
                "the network's devices on host {} are in {} fabrics, at most {} are supported",
                source.host, ids.size(), kFabricIdsMax);
  }
  location.fabric_ids.assign(ids.begin(), ids.end());
  if (!by_list && !ids.empty()) {
    location.net = net_key(source.net->plugin().network_name());
  }
  return location;
}

Result<std::vector<FabricAnswer>> ask_network(const DatacenterSource& source,
                                              std::span<const uint64_t> own,
                                              std::span<const uint64_t> ids) {
  std::vector<FabricAnswer> answers;
  PLEXUS_TRY(by_list, lists_fabric_ids(*source.config));
  for (const uint64_t from : own) {
    for (const uint64_t to : ids) {
      if (by_list) {
        answers.push_back(
            {.from = from,
             .to = to,
             .level = fabric_level(from, to, static_cast<uint64_t>(source.config->ib_rails_max)),
             .path = {}});
      } else {
        PLEXUS_TRY(answer, ask_plugin(*source.net, from, to));
        answers.push_back(answer);
      }
    }
  }
  return answers;
}

}  // namespace plexus
