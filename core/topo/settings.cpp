// SPDX-License-Identifier: Apache-2.0
#include "core/topo/settings.hpp"

#include <array>
#include <charconv>

namespace plexus {
namespace {

/// A path type by name, or by the number that older NCCL releases used.
Result<std::optional<PathType>> parse_level(std::string_view setting, const std::string& text) {
  constexpr std::array kOldNumbers = {PathType::kLoc, PathType::kPix, PathType::kPxb,
                                      PathType::kPhb, PathType::kSys, PathType::kSys};
  if (text.empty()) {
    return std::optional<PathType>();
  }
  const std::optional<PathType> named = find_path_type(text);
  if (named && *named <= PathType::kSys) {
    return named;
  }
  const auto number = static_cast<size_t>(text[0] - '0');
  if (text.size() == 1 && number < kOldNumbers.size()) {
    return std::optional(kOldNumbers.at(number));
  }
  return fail(
      Code::kInvalidArgument,
      "{}={} is invalid: expected LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB or SYS, or 0..5",
      setting, text);
}

Result<void> parse_policy(const std::string& text, TopoOptions& options) {
  constexpr std::string_view kMost = "MAX:";
  if (text.empty() || text == "AUTO") {
    options.nets_policy = NetPolicy::kAuto;
  } else if (text == "ALL") {
    options.nets_policy = NetPolicy::kAll;
  } else {
    const char* const end = text.data() + text.size();
    const char* const first = text.data() + kMost.size();
    int most = 0;
    if (!text.starts_with(kMost) || std::from_chars(first, end, most).ptr != end || most < 1) {
      return fail(Code::kInvalidArgument,
                  "NCCL_NETDEVS_POLICY={} is invalid: expected AUTO, ALL or MAX:N", text);
    }
    options.nets_policy = NetPolicy::kMax;
    options.nets_per_gpu_max = most;
  }
  return ok();
}

}  // namespace

Result<TopoOptions> read_topo_options(const Config& config) {
  TopoOptions options;
  PLEXUS_TRY(p2p_level, parse_level("NCCL_P2P_LEVEL", config.p2p_level));
  PLEXUS_TRY(gdr_level, parse_level("NCCL_NET_GDR_LEVEL", config.net_gdr_level));
  options.p2p_level = config.p2p_disable ? std::optional(PathType::kLoc) : p2p_level;
  options.net_gdr_level = gdr_level;
  if (config.net_gdr_read >= 0) {
    options.net_gdr_read = config.net_gdr_read != 0;
  }
  options.net_gdr_c2c = config.net_gdr_c2c;
  options.shm_disable = config.shm_disable;
  options.nvb_disable = config.nvb_disable;
  options.pxn_disable = config.pxn_disable;
  options.pxn_c2c = config.pxn_c2c;
  options.net_disable_intra = config.net_disable_intra;
  options.cross_nic = static_cast<int>(config.cross_nic);
  PLEXUS_TRY(parse_policy(config.netdevs_policy, options));
  return options;
}

}  // namespace plexus
