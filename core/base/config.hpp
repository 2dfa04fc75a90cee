// SPDX-License-Identifier: Apache-2.0
// All settings of the library in one table (config.cpp): name, type, default, range, one-line
// documentation. Read into a plain `Config` when a communicator is made, and passed down from
// there. The environment wins over the files of settings (conf_file.hpp). A word that is not known
// is an error that names it, never a silent default; a number beyond the limits is limited, with a
// WARN.
//
//   PLEXUS_TRY(config, read_config());  // an Error names the setting, its value and where it was
//   set return config.stall_s;
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace plexus {

struct Config {
  int64_t buffsize_bytes = 0;
  int64_t min_ctas = 0;
  int64_t max_ctas = 0;
  int64_t net_channels = 0;
  bool shm_disable = false;
  bool p2p_disable = false;
  bool p2p_direct_disable = false;
  bool local_register = true;
  int64_t cumem_enable = -2;
  bool attach = true;
  int64_t attach_bytes = -1;
  std::string rates_file;
  bool graph_register = true;
  bool graph_mixing = true;
  std::string hostid;
  int64_t comm_blocking = -1;
  int64_t num_rma_ctx = -1;
  int64_t rma_eager_init = -1;
  std::string comm_id;
  std::string algo;
  std::string program_path;
  std::string proto;
  std::string net;
  std::string net_plugin;
  bool net_fallback = false;
  bool allnet = false;
  std::string tuner_plugin;
  int64_t collnet_enable = -1;
  int64_t collnet_node_threshold = 2;
  std::string collnet_plugin;
  std::string profiler_plugin;
  bool deterministic = false;
  std::string plugin_path;
  std::string net_abi;
  std::string net_v11;
  std::string socket_ifname;
  std::string socket_family;
  int64_t socket_retry_count = 34;
  int64_t socket_retry_sleep_ms = 100;
  std::string bootstrap_ifname;
  std::string port_range;
  int64_t bootstrap_timeout_s = 300;
  int64_t control_connections = 256;  // NOLINT(readability-magic-numbers): a default
  int64_t stall_s = 30;               // NOLINT(readability-magic-numbers): a default
  std::string stall_file;
  bool doctor = true;
  bool selftest = false;
  std::string selftest_file;
  bool ras_enable = true;
  std::string ras_addr = "localhost:28028";
  std::string ras_timeout_factor = "1";
  std::string net_security = "auth";
  std::string secret_file;
  std::string job_secret;  // of that file, or of ncclSetEncryption; no setting
  bool net_checksum = false;
  bool raise_nofile = false;
  std::string device = "auto";
  bool check_pointers = false;
  bool check = false;
  bool check_nan = false;
  std::string topo_file;
  std::string topo_dump_file;
  std::string graph_file;
  std::string graph_dump_file;
  std::string p2p_level;
  std::string net_gdr_level;
  int64_t net_gdr_read = -1;
  bool net_gdr_c2c = true;
  bool net_force_flush = false;
  bool dmabuf_enable = true;
  bool nvb_disable = false;
  bool pxn_disable = false;
  bool pxn_c2c = true;
  bool net_disable_intra = false;
  int64_t cross_nic = 2;
  std::string netdevs_policy;
  int64_t xdc_timeout_ms = 2000;  // NOLINT(readability-magic-numbers): a default
  int64_t xdc_retry_ms = 5000;    // NOLINT(readability-magic-numbers): a default
  std::string fabric_file;
  bool scatter_xdc = true;
  std::string ib_hca;
  std::string ib_hca_syntax = "rail";
  int64_t ib_rails_max = int64_t{1} << 62;  // NOLINT(readability-magic-numbers): a default
};

/// One row of the settings table, as the parameter API and the generated documentation show it.
struct Setting {
  const char* name;
  const char* default_text;
  const char* takes;  // accepted range or choices, with the unit
  const char* doc;
};

std::span<const Setting> settings();
/// The settings table as Markdown.
std::string settings_markdown();
/// The text that the user set, from the environment or a file; nullopt: not set.
std::optional<std::string> setting_value(std::string_view name);
/// "NAME=value (from /etc/nccl.conf)": a setting, and where it was set, for messages.
std::string describe_setting(const char* name, const std::string& value);
Result<Config> read_config();

/// Returns the lock that is held while settings are read and while a plugin makes its context:
/// libraries that plugins use may call setenv then, and getenv in another thread would race with
/// it. Recursive, because plugins read settings through this library. A plugin that has not come
/// back after a second is waited for no longer: the lock that is returned is not held then.
[[nodiscard]] std::unique_lock<std::recursive_mutex> hold_environment();

/// Looks up a setting in place of getenv; nullopt: it is not set.
using Environment = std::optional<std::string> (*)(const char* name);
/// Settings are looked up through `environment` from now on; used by env plugins. Threads: any.
void set_environment(Environment environment) noexcept;
/// Settings are read from the process's environment again.
void reset_environment() noexcept;

}  // namespace plexus
