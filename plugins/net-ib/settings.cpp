// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/settings.hpp"

#include <algorithm>

#include "plugins/support/number_setting.hpp"
#include "plugins/support/port_setting.hpp"
#include "plugins/support/security_mode.hpp"

namespace plexus::net_ib {
namespace {

/// A row of the table of numbers: name, default, bounds, and where the value goes.
struct NumberRow {
  const char* name;
  int64_t initial;
  int64_t least;
  int64_t most;
  void (*set)(Settings& settings, int64_t value);
};

Choice to_choice(int64_t value) {
  return value == 0 ? Choice::kOff : value == 1 ? Choice::kOn : Choice::kAuto;
}
template <class T>
T narrow(int64_t value) {
  return static_cast<T>(value);
}

constexpr int64_t kByteMax = 255;
constexpr int64_t kSlMax = 15;
constexpr uint64_t kArThreshold = 8192;  // bytes, NCCL's default
constexpr int64_t kGibibyte = int64_t{1} << 30;
constexpr int64_t kIdMax = int64_t{1} << 62;

/// NCCL's names and, but for NCCL_IB_USE_INLINE, defaults; docs/net-ib.md has the same rows. -1 of
/// NCCL_IB_SL and NCCL_IB_TC is "not set", which is 0; -2 of NCCL_IB_AR_THRESHOLD is kArThreshold.
constexpr NumberRow kNumbers[] = {
    {"NCCL_IB_DISABLE", 0, 0, 1, [](Settings& s, int64_t v) { s.is_disabled = v != 0; }},
    {"NCCL_IB_GID_INDEX", -1, -1, UINT16_MAX,
     [](Settings& s, int64_t v) { s.gid.index = narrow<int32_t>(v); }},
    {"NCCL_IB_ROCE_VERSION_NUM", 2, 1, 2,
     [](Settings& s, int64_t v) { s.gid.roce_version = narrow<uint32_t>(v); }},
    {"NCCL_IB_DEVICE_PCI_ORDER", 1, 0, 1, [](Settings& s, int64_t v) { s.orders_by_pci = v != 0; }},
    {"NCCL_IB_QPS_PER_CONNECTION", 1, 1, kQpsMax,
     [](Settings& s, int64_t v) { s.qps = narrow<uint32_t>(v); }},
    {"NCCL_IB_SPLIT_DATA_ON_QPS", 0, 0, 1,
     [](Settings& s, int64_t v) { s.splits_on_qps = v != 0; }},
    {"PLEXUS_IB_STRIPE_MIN", 65536, 1, kGibibyte,
     [](Settings& s, int64_t v) { s.stripe_bytes_min = narrow<uint64_t>(v); }},
    {"NCCL_IB_TIMEOUT", 20, 1, 31, [](Settings& s, int64_t v) { s.timeout = narrow<uint8_t>(v); }},
    {"NCCL_IB_RETRY_CNT", 7, 0, 7, [](Settings& s, int64_t v) { s.retries = narrow<uint8_t>(v); }},
    {"NCCL_IB_MQP_RETRY_CNT", 34, 0, 1000,
     [](Settings& s, int64_t v) { s.connect_retries = narrow<uint32_t>(v); }},
    {"NCCL_IB_MQP_RETRY_SLEEP_MSEC", 100, 0, 10'000,
     [](Settings& s, int64_t v) { s.connect_retry_pause = std::chrono::milliseconds(v); }},
    {"NCCL_IB_MQP_RETRY_ALL", 0, 0, 1, [](Settings& s, int64_t v) { s.retries_all = v != 0; }},
    {"NCCL_IB_PKEY", 0, 0, UINT16_MAX,
     [](Settings& s, int64_t v) { s.pkey_index = narrow<uint16_t>(v); }},
    {"NCCL_IB_SL", -1, -1, kSlMax,
     [](Settings& s, int64_t v) { s.service_level = narrow<uint8_t>(v < 0 ? 0 : v); }},
    {"NCCL_IB_USE_INLINE", 1, 0, 1, [](Settings& s, int64_t v) { s.sends_inline = v != 0; }},
    {"NCCL_IB_ADAPTIVE_ROUTING", -2, -2, 1,
     [](Settings& s, int64_t v) { s.adaptive_routing = to_choice(v); }},
    {"NCCL_IB_AR_THRESHOLD", -2, -2, kGibibyte,
     [](Settings& s, int64_t v) {
       s.adaptive_routing_bytes = v < 0 ? kArThreshold : narrow<uint64_t>(v);
     }},
    {"NCCL_IB_ECE_ENABLE", 1, 0, 1, [](Settings& s, int64_t v) { s.uses_ece = v != 0; }},
    {"NCCL_IB_PCI_RELAXED_ORDERING", 2, 0, 2,
     [](Settings& s, int64_t v) { s.orders_relaxed = v != 0; }},
    {"NCCL_IB_RETURN_ASYNC_EVENTS", 1, 0, 1,
     [](Settings& s, int64_t v) { s.heeds_events = v != 0; }},
    {"PLEXUS_IB_GDR", 2, 0, 2, [](Settings& s, int64_t v) { s.gpu_memory = to_choice(v); }},
    {"NCCL_GDR_FLUSH_DISABLE", 0, 0, 1, [](Settings& s, int64_t v) { s.flushes = v == 0; }},
    {"PLEXUS_IB_CONNECT_TIMEOUT_S", 60, 1, 3600,
     [](Settings& s, int64_t v) { s.connect_timeout = std::chrono::seconds(v); }},
    {"NCCL_IB_FABRICID_MAXRAIL", kIdMax, 1, kIdMax,
     [](Settings& s, int64_t v) { s.fabric.rails_max = narrow<uint64_t>(v); }},
    {"NCCL_IB_FABRICID_DEFAULT", int64_t{1} << 60, 0, kIdMax,
     [](Settings& s, int64_t v) { s.fabric.ib_default = narrow<uint64_t>(v); }},
    {"NCCL_ROCE_FABRICID_DEFAULT", int64_t{1} << 61, 0, kIdMax,
     [](Settings& s, int64_t v) { s.fabric.roce_default = narrow<uint64_t>(v); }},
};

std::string_view read_text(const ReadVariable& read, const char* name) {
  const char* const text = read(name);
  return text == nullptr ? "" : text;
}

Result<int64_t> read_ib_number(const ReadVariable& read, const NumberRow& row, Settings& settings) {
  return plugin::read_number(read, row.name, {row.initial, row.least, row.most}, settings.limited);
}

/// The host's wish for a communicator comes after the user's settings.
Result<void> read_traffic_classes(const ReadVariable& read, int32_t wish, Settings& settings) {
  constexpr NumberRow kData = {"NCCL_IB_TC", -1, -1, kByteMax, nullptr};
  constexpr NumberRow kControl = {"NCCL_IB_FIFO_TC", -1, -1, kByteMax, nullptr};
  PLEXUS_TRY(data, read_ib_number(read, kData, settings));
  PLEXUS_TRY(control, read_ib_number(read, kControl, settings));
  if (wish > kByteMax) {
    return fail(PLEXUS_INVALID_USAGE, "the communicator's traffic class {} is larger than {}", wish,
                kByteMax);
  }
  const int64_t chosen = data >= 0 ? data : wish >= 0 ? wish : 0;
  settings.traffic_class = static_cast<uint8_t>(chosen);
  settings.control_traffic_class = static_cast<uint8_t>(control >= 0 ? control : chosen);
  return ok();
}

Result<void> read_gid_wish(const ReadVariable& read, GidWish& wish) {
  const std::string_view family = read_text(read, "NCCL_IB_ADDR_FAMILY");
  if (!family.empty() && family != "AF_INET" && family != "AF_INET6") {
    return fail(PLEXUS_INVALID_USAGE,
                "NCCL_IB_ADDR_FAMILY={} is neither AF_INET nor AF_INET6; correct or unset it",
                family);
  }
  wish.prefers_ipv4 = family != "AF_INET6";
  PLEXUS_TRY(range, AddressRange::parse(read_text(read, "NCCL_IB_ADDR_RANGE")));
  wish.range = range;
  return ok();
}

Result<HcaFilter> read_hcas(const ReadVariable& read) {
  const std::string_view syntax = read_text(read, "PLEXUS_IB_HCA");
  if (!syntax.empty() && syntax != "rail" && syntax != "fabricid") {
    return fail(PLEXUS_INVALID_USAGE,
                "PLEXUS_IB_HCA={} is neither rail nor fabricid; correct or unset it", syntax);
  }
  return HcaFilter::parse(read_text(read, "NCCL_IB_HCA"),
                          syntax == "fabricid" ? HcaSyntax::kFabricId : HcaSyntax::kRail);
}

/// NCCL_NET_FORCE_MERGE: "mlx5_0,mlx5_1;mlx5_2,mlx5_3".
Result<std::vector<std::vector<std::string>>> read_merged(const ReadVariable& read) {
  std::vector<std::vector<std::string>> groups;
  std::string_view rest = read_text(read, "NCCL_NET_FORCE_MERGE");
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(';'), rest.size());
    std::vector<std::string> names;
    for (std::string_view group = rest.substr(0, end); !group.empty();) {
      const size_t comma = std::min(group.find(','), group.size());
      names.emplace_back(group.substr(0, comma));
      group.remove_prefix(std::min(comma + 1, group.size()));
    }
    if (names.size() > kRailsMax) {
      return fail(PLEXUS_INVALID_USAGE,
                  "NCCL_NET_FORCE_MERGE={} joins {} devices, at most {} are allowed",
                  rest.substr(0, end), names.size(), kRailsMax);
    }
    if (!names.empty()) {
      groups.push_back(std::move(names));
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return groups;
}

/// NCCL_NET_MERGE_LEVEL and NCCL_NET_MERGE_POLICY. NCCL's levels P2C and PXN are between GPUs and
/// cards, not between cards; they include PXB.
Result<void> read_merge_rules(const ReadVariable& read, Settings& settings) {
  struct Level {
    std::string_view name;
    MergeLevel level;
  };
  constexpr Level kLevels[] = {
      {"", MergeLevel::kPort},   {"LOC", MergeLevel::kLoc}, {"PORT", MergeLevel::kPort},
      {"PIX", MergeLevel::kPix}, {"PXB", MergeLevel::kPxb}, {"P2C", MergeLevel::kPxb},
      {"PXN", MergeLevel::kPxb}, {"PHB", MergeLevel::kPhb}, {"SYS", MergeLevel::kSys}};
  const std::string_view name = read_text(read, "NCCL_NET_MERGE_LEVEL");
  const auto* const found = std::find_if(std::begin(kLevels), std::end(kLevels),
                                         [&](const Level& each) { return each.name == name; });
  if (found == std::end(kLevels)) {
    return fail(PLEXUS_INVALID_USAGE,
                "NCCL_NET_MERGE_LEVEL={} is none of LOC, PORT, PIX, PXB, PHB and SYS; correct or "
                "unset it",
                name);
  }
  const std::string_view policy = read_text(read, "NCCL_NET_MERGE_POLICY");
  if (!policy.empty() && policy != "ALL" && policy != "RAIL") {
    return fail(PLEXUS_INVALID_USAGE,
                "NCCL_NET_MERGE_POLICY={} is neither ALL nor RAIL; correct or unset it", policy);
  }
  constexpr NumberRow kMerges = {"NCCL_IB_MERGE_NICS", 1, 0, 1, nullptr};
  PLEXUS_TRY(merges, read_ib_number(read, kMerges, settings));
  settings.merge_level = merges == 0 ? MergeLevel::kLoc : found->level;
  settings.keeps_rails_apart = policy == "RAIL";
  return ok();
}

}  // namespace

Result<Settings> read_settings(const ReadVariable& read, int32_t traffic_class) {
  Settings settings;
  for (const NumberRow& row : kNumbers) {
    PLEXUS_TRY(value, read_ib_number(read, row, settings));
    row.set(settings, value);
  }
  PLEXUS_TRY(read_traffic_classes(read, traffic_class, settings));
  PLEXUS_TRY(read_merge_rules(read, settings));
  PLEXUS_TRY(read_gid_wish(read, settings.gid));
  PLEXUS_TRY(hcas, read_hcas(read));
  PLEXUS_TRY(merged, read_merged(read));
  PLEXUS_TRY(family, plugin::parse_family(read("NCCL_SOCKET_FAMILY")));
  PLEXUS_TRY(security, plugin::read_mode(read));
  PLEXUS_TRY(ports, plugin::read_ports(read));
  settings.ports = ports;
  if (security == security::Mode::kTls) {
    return fail(PLEXUS_INVALID_USAGE,
                "PLEXUS_NET_SECURITY=tls, but RDMA sends in clear: use net-socket "
                "(NCCL_NET=Socket), or auth where nobody else reaches the network");
  }
  settings.hcas = std::move(hcas);
  settings.merged = std::move(merged);
  settings.family = family;
  settings.security = security;
  settings.interfaces = read_text(read, "NCCL_SOCKET_IFNAME");
  return settings;
}

}  // namespace plexus::net_ib
