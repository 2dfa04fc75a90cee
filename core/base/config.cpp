// SPDX-License-Identifier: Apache-2.0
#include "core/base/config.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <set>
#include <thread>
#include <variant>
#include <vector>

#include <fmt/format.h>

#include "core/base/conf_file.hpp"
#include "core/base/immortal.hpp"
#include "core/base/log.hpp"

namespace plexus {
namespace {

using Member = std::variant<int64_t Config::*, bool Config::*, std::string Config::*>;

struct Row {
  Setting setting;
  Member member;
  int64_t low = 0;
  int64_t high = 0;
  const char* when_empty = nullptr;  // the value that an empty setting stands for; null: an empty
                                     // setting counts as not set
};

constexpr int64_t kBytesMax = int64_t{1} << 40;
constexpr int64_t kSecondsMax = 1'000'000;

const Row kRows[] = {
    {{"NCCL_BUFFSIZE", "0", "bytes, 0 = automatic: 1 MiB, with a network 4 MiB",
      "slot buffer of a connection, divided into 8 slots"},
     &Config::buffsize_bytes,
     0,
     kBytesMax},
    {{"NCCL_MIN_CTAS", "0", "1..64, 0 = automatic", "fewest channels"}, &Config::min_ctas, 0, 64},
    {{"NCCL_MAX_CTAS", "0", "1..64, 0 = automatic", "most channels"}, &Config::max_ctas, 0, 64},
    {{"NCCL_NCHANNELS_PER_NET_PEER", "0", "1..64, 0 = automatic",
      "connections to a rank over the network that share a long message of ncclSend"},
     &Config::net_channels,
     0,
     64},
    {{"NCCL_SHM_DISABLE", "0", "0 or 1", "1: processes of one host do not use shared memory"},
     &Config::shm_disable},
    {{"NCCL_P2P_DISABLE", "0", "0 or 1", "1: ranks of one process do not use the direct transport"},
     &Config::p2p_disable},
    {{"NCCL_P2P_DIRECT_DISABLE", "0", "0 or 1", "1: peers do not read user buffers in place"},
     &Config::p2p_direct_disable},
    {{"NCCL_LOCAL_REGISTER", "1", "0 or 1",
      "0: registered memory and memory from ncclMemAlloc is neither mapped by peers nor sent from "
      "by networks"},
     &Config::local_register},
    {{"NCCL_CUMEM_ENABLE", "-2", "0 or 1, -2 = automatic",
      "0: ncclMemAlloc on a GPU gives memory of cudaMalloc, not of cuMemCreate"},
     &Config::cumem_enable,
     -2,
     1},
    {{"PLEXUS_ATTACH", "1", "0 or 1",
      "0: processes of one host do not read each other's memory by system calls "
      "(process_vm_readv)"},
     &Config::attach},
    {{"PLEXUS_ATTACH_BYTES", "-1", "bytes, -1 = automatic",
      "smallest message that is read from the peer's memory instead of copied through slots"},
     &Config::attach_bytes,
     -1,
     int64_t{1} << 31},
    {{"PLEXUS_RATES_FILE", "", "file, or none",
      "where the measured rates of this host are kept; unset: in the user's cache folder; none: "
      "built-in rates"},
     &Config::rates_file},
    {{"NCCL_GRAPH_REGISTER", "1", "0 or 1", "0: buffers of a CUDA graph are not mapped by peers"},
     &Config::graph_register},
    {{"NCCL_GRAPH_MIXING_SUPPORT", "1", "0 or 1",
      "0: no order between CUDA graphs and other calls of a communicator: the program keeps it"},
     &Config::graph_mixing},
    {{"NCCL_HOSTID", "", "text", "identity of this host, in place of its name"}, &Config::hostid},
    {{"NCCL_COMM_BLOCKING", "-1", "0 or 1, -1 = as the communicator's config says",
      "0: init, split and finalize return ncclInProgress"},
     &Config::comm_blocking,
     -1,
     1},
    {{"NCCL_NUM_RMA_CTX", "-1", "0..1024, -1 = as the communicator's config says",
      "contexts of one-sided operations; 0: there are none"},
     &Config::num_rma_ctx,
     -1,
     1024},
    {{"NCCL_RMA_EAGER_INIT", "-1", "0 or 1, -1 = as the communicator's config says",
      "1: signals can be used before the first window"},
     &Config::rma_eager_init,
     -1,
     1},
    {{"NCCL_COMM_ID", "", "host:port", "where rank 0 listens, in place of a unique id's address"},
     &Config::comm_id},
    {{"NCCL_ALGO", "", "list, or collective:list;...", "algorithms to use, ^ to exclude"},
     &Config::algo},
    {{"NCCL_PROTO", "", "list, or collective:list;...",
      "protocols to use (LL, LL128, Simple), ^ to exclude"},
     &Config::proto},
    {{"PLEXUS_PROGRAM_PATH", "", "folders or files, separated by :",
      "algorithms from files (JSON, MSCCL XML) that are candidates beside the built-in ones; the "
      "same files on all ranks"},
     &Config::program_path},
    {{"NCCL_NET", "", "names", "the network to use, or those to choose from"}, &Config::net},
    {{"NCCL_ALLNET_ENABLE", "0", "0 or 1", "1: a communicator uses all its networks at once"},
     &Config::allnet},
    {{"NCCL_NET_PLUGIN", "", "[label=]name or file[?setting=value&...], ^ to exclude, none",
      "network plugins to load, in order; unset: libnccl-net.so when there is one"},
     &Config::net_plugin,
     0,
     0,
     "none"},
    {{"PLEXUS_NET_FALLBACK", "0", "0 or 1",
      "1: when no plugin of NCCL_NET_PLUGIN can be used, Plexus's own network is used, with a "
      "WARN"},
     &Config::net_fallback},
    {{"NCCL_TUNER_PLUGIN", "", "name or file, or none",
      "tuner plugin to load; unset: one in NCCL_NET_PLUGIN, else tuner-default"},
     &Config::tuner_plugin},
    {{"NCCL_PROFILER_PLUGIN", "", "names or files, or none",
      "profiler plugins to load; unset: libnccl-profiler.so when there is one"},
     &Config::profiler_plugin},
    {{"NCCL_COLLNET_ENABLE", "-1", "0 or 1, -1 = as the communicator's config says",
      "1: the network may reduce between hosts, when a collnet plugin is there"},
     &Config::collnet_enable,
     -1,
     1},
    {{"NCCL_COLLNET_NODE_THRESHOLD", "2", "1..1000000",
      "with fewer hosts the network does not reduce"},
     &Config::collnet_node_threshold,
     1,
     1'000'000},
    {{"PLEXUS_COLLNET_PLUGIN", "", "name or file, or none",
      "collnet plugin to load; unset: one in NCCL_NET_PLUGIN"},
     &Config::collnet_plugin},
    {{"PLEXUS_DETERMINISTIC", "0", "0 or 1",
      "1: reductions combine in rank order, so that their bits depend on the inputs alone"},
     &Config::deterministic},
    {{"PLEXUS_PLUGIN_PATH", "", "folders, separated by :",
      "where plugins are looked for after the library's folder and its subfolder plexus"},
     &Config::plugin_path},
    {{"PLEXUS_NET_ABI", "auto", "auto, native, v6..v12",
      "which ABI of a network plugin is used; auto: the native one, else the newest"},
     &Config::net_abi},
    {{"PLEXUS_NET_V11", "auto", "auto, mainline, cross-dc",
      "which layout ncclNetPlugin_v11 has; auto: detected from its size"},
     &Config::net_v11},
    {{"NCCL_SOCKET_IFNAME", "", "prefixes, = exact, ^ exclude", "interfaces for sockets"},
     &Config::socket_ifname},
    {{"NCCL_SOCKET_FAMILY", "", "AF_INET or AF_INET6", "address family for sockets"},
     &Config::socket_family},
    {{"NCCL_SOCKET_RETRY_CNT", "34", "0..1000000", "tries to connect"},
     &Config::socket_retry_count,
     0,
     1'000'000},
    {{"NCCL_SOCKET_RETRY_SLEEP_MSEC", "100", "milliseconds", "pause between tries to connect"},
     &Config::socket_retry_sleep_ms,
     0,
     1'000'000},
    {{"NCCL_OOB_NET_IFNAME", "", "as NCCL_SOCKET_IFNAME", "interface for the bootstrap"},
     &Config::bootstrap_ifname},
    {{"PLEXUS_PORT_RANGE", "", "low-high",
      "ports that are listened on, by the control plane and by net-socket, net-ib and net-ofi "
      "(providers over TCP)"},
     &Config::port_range},
    {{"PLEXUS_BOOTSTRAP_TIMEOUT", "300", "seconds", "how long init waits for all ranks"},
     &Config::bootstrap_timeout_s,
     1,
     kSecondsMax},
    {{"PLEXUS_CONTROL_CONNECTIONS", "256", "1..1000000",
      "connections of the control plane that a process keeps open, besides those of its tree; the "
      "one that was not used for longest is closed"},
     &Config::control_connections,
     1,
     1'000'000},
    {{"PLEXUS_STALL_S", "30", "seconds, 0 = never",
      "ranks that wait for longer in a call ask all others what they do, and log who keeps them "
      "waiting"},
     &Config::stall_s,
     0,
     kSecondsMax},
    {{"PLEXUS_STALL_FILE", "", "path",
      "what they find is appended to this file, as a line of JSON"},
     &Config::stall_file},
    {{"PLEXUS_DOCTOR", "1", "0 or 1", "0: `plexus doctor` cannot ask this process"},
     &Config::doctor},
    {{"PLEXUS_SELFTEST", "0", "0 or 1",
      "1: init tries every link for latency, bandwidth and integrity, and a WARN names what falls "
      "out of its class (docs/operating.md); the same on all ranks"},
     &Config::selftest},
    {{"PLEXUS_SELFTEST_FILE", "", "path",
      "rank 0 appends what was measured to this file, as a line of JSON"},
     &Config::selftest_file},
    {{"NCCL_RAS_ENABLE", "1", "0 or 1", "0: this process answers no client of NCCL's RAS protocol"},
     &Config::ras_enable},
    {{"NCCL_RAS_ADDR", "localhost:28028", "host:port",
      "where it answers them (docs/operating.md); another host than this one is refused"},
     &Config::ras_addr},
    {{"NCCL_RAS_TIMEOUT_FACTOR", "1", "0.01..1000",
      "multiplies how long an answer waits for late ranks (0.4 s)"},
     &Config::ras_timeout_factor},
    {{"PLEXUS_NET_SECURITY", "auth", "off, auth or tls",
      "how connections prove the job's secret; tls: and are encrypted; the same on all ranks"},
     &Config::net_security},
    {{"PLEXUS_SECRET_FILE", "", "file",
      "a secret of the job that every connection proves beside the unique id's; mode 600, the same "
      "on all ranks"},
     &Config::secret_file},
    {{"PLEXUS_NET_CHECKSUM", "0", "0 or 1",
      "1: a CRC32C finds messages that a network changed; not payloads in GPU memory"},
     &Config::net_checksum},
    {{"PLEXUS_RAISE_NOFILE", "0", "0 or 1",
      "1: the first init raises the process's limit of open files as far as it may (ulimit -Hn)"},
     &Config::raise_nofile},
    {{"PLEXUS_DEVICE", "auto", "auto, cuda or host",
      "where ranks compute; auto: the current CUDA device when there is one, else the host"},
     &Config::device},
    {{"NCCL_CHECK_POINTERS", "0", "0 or 1",
      "1: a CUDA rank's buffers must be memory that its device reaches"},
     &Config::check_pointers},
    {{"PLEXUS_CHECK", "0", "0 or 1",
      "1: wrong uses of NCCL and of buffers are looked for and named; calls take longer"},
     &Config::check},
    {{"PLEXUS_CHECK_NAN", "0", "0 or 1",
      "1: the first NaN or infinity that a rank gives to a reduction is named; host ranks only"},
     &Config::check_nan},
    {{"NCCL_TOPO_FILE", "", "file",
      "description of this host, in place of the detected one; ranks and NICs are filled in"},
     &Config::topo_file},
    {{"NCCL_TOPO_DUMP_FILE", "", "file", "rank 0 writes the description of its host"},
     &Config::topo_dump_file},
    {{"NCCL_GRAPH_FILE", "", "file", "channels of this host, in place of the search"},
     &Config::graph_file},
    {{"NCCL_GRAPH_DUMP_FILE", "", "file", "rank 0 writes the channels of its host"},
     &Config::graph_dump_file},
    {{"NCCL_P2P_LEVEL", "", "LOC..SYS or 0..5", "longest path for peer access between GPUs"},
     &Config::p2p_level},
    {{"NCCL_NET_GDR_LEVEL", "", "LOC..SYS or 0..5", "longest path between GPU and NIC for GDR"},
     &Config::net_gdr_level},
    {{"NCCL_NET_GDR_READ", "-1", "0 or 1, -1 = by the GPU", "NICs read GPU memory when they send"},
     &Config::net_gdr_read,
     -1,
     1},
    {{"NCCL_NET_GDR_C2C", "1", "0 or 1",
      "0: no GDR from a NIC on the CPU to which a GPU is connected by C2C"},
     &Config::net_gdr_c2c},
    {{"NCCL_NET_FORCE_FLUSH", "0", "0 or 1", "1: flush each receive into GPU memory, on any GPU"},
     &Config::net_force_flush},
    {{"NCCL_DMABUF_ENABLE", "1", "0 or 1", "0: GPU memory is not given to NICs by dma-buf"},
     &Config::dmabuf_enable},
    {{"NCCL_CROSS_NIC", "2", "0, 1, 2 = when that gives more",
      "whether a ring may leave a host through another NIC than it entered by"},
     &Config::cross_nic,
     0,
     2},
    {{"NCCL_NETDEVS_POLICY", "AUTO", "AUTO, ALL, MAX:N", "how many NICs a GPU uses"},
     &Config::netdevs_policy},
    {{"NCCL_NET_DISABLE_INTRA", "0", "0 or 1", "1: two GPUs of a host never prefer the network"},
     &Config::net_disable_intra},
    {{"NCCL_NVB_DISABLE", "0", "0 or 1", "1: no NVLink path through a GPU in between"},
     &Config::nvb_disable},
    {{"NCCL_PXN_DISABLE", "0", "0 or 1", "1: no path to a NIC through the GPU beside it"},
     &Config::pxn_disable},
    {{"NCCL_PXN_C2C", "1", "0 or 1", "0: no such path to a NIC on a CPU joined by C2C"},
     &Config::pxn_c2c},
    {{"PLEXUS_XDC_TIMEOUT_MSEC", "2000", "50..600000",
      "a link to another datacenter that is silent for this long counts as lost"},
     &Config::xdc_timeout_ms,
     50,
     600'000},
    {{"PLEXUS_XDC_RETRY_MSEC", "5000", "0..3600000",
      "after this long a lost link to another datacenter is tried again; 0: never"},
     &Config::xdc_retry_ms,
     0,
     3'600'000},
    {{"PLEXUS_FABRIC_FILE", "", "file",
      "which host is in which datacenter, and the links between datacenters"},
     &Config::fabric_file},
    {{"NCCL_SCATTER_XDC", "1", "0 or 1",
      "0: all channels cross between datacenters at the same hosts"},
     &Config::scatter_xdc},
    {{"NCCL_IB_HCA", "", "[^][=]name[:port[:...]],...",
      "with PLEXUS_IB_HCA=fabricid: the fabrics of the network's devices"},
     &Config::ib_hca},
    {{"PLEXUS_IB_HCA", "rail", "rail or fabricid",
      "the third field of NCCL_IB_HCA: rail (releases of NCCL), fabricId (its branch cross-dc)"},
     &Config::ib_hca_syntax},
    {{"NCCL_IB_FABRICID_MAXRAIL", "4611686018427387904", "1..4611686018427387904",
      "a fabricId is datacenter * this + rail"},
     &Config::ib_rails_max,
     1,
     int64_t{1} << 62},
};

/// Names from older NCCL releases. When several are set, the most restrictive value wins.
struct OldName {
  const char* name;
  int64_t Config::*member;
  bool is_lower_bound;
};
constexpr OldName kOldNames[] = {
    {"NCCL_MIN_NCHANNELS", &Config::min_ctas, true},
    {"NCCL_MIN_NRINGS", &Config::min_ctas, true},
    {"NCCL_MAX_NCHANNELS", &Config::max_ctas, false},
    {"NCCL_MAX_NRINGS", &Config::max_ctas, false},
};

struct Found {
  std::string value;
  std::string where;
};

/// Replaces the process's environment while an env plugin is loaded; null: the environment is read
/// directly. One per process, like the environment itself.
std::atomic<Environment>& environment() noexcept {
  static std::atomic<Environment> instance{nullptr};
  return instance;
}

std::recursive_mutex& environment_mutex() { return Immortal<std::recursive_mutex>::instance(); }

/// `files`: as they were read; nullptr: they are read if the environment does not have it.
std::optional<Found> find_setting(const char* name, const ConfFiles* files = nullptr) {
  const auto lock = hold_environment();
  if (const Environment ask = environment().load(std::memory_order_acquire); ask != nullptr) {
    if (auto value = ask(name); value.has_value()) {
      return Found{std::move(*value), "the env plugin"};
    }
  } else if (const char* const value = std::getenv(name); value != nullptr) {
    return Found{value, "the environment"};
  }
  auto in_file = files != nullptr ? files->find(name) : ConfFiles::read().find(name);
  if (in_file.has_value()) {
    return Found{std::move(in_file->value), std::move(in_file->file)};
  }
  return std::nullopt;
}

/// Where to correct a value: in the file from which it came into the environment, if so.
std::string origin_of(const Found& found, const char* name) {
  auto in_file = ConfFiles::read().find(name);
  return in_file.has_value() && in_file->value == found.value ? in_file->file : found.where;
}

/// The sentences that have been logged, so that each is logged once per process. Threads: any.
class LoggedOnce {
 public:
  bool is_new(const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    return sentences_.insert(sentence).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> sentences_;  // guarded by mutex_
};

void warn_once(const std::string& sentence) {
  if (Immortal<LoggedOnce>::instance().is_new(sentence)) {
    PLEXUS_WARN("{}", sentence);
  }
}

/// A number beyond the limits is taken for the nearest within them, as NCCL does, with a WARN.
Result<int64_t> parse_integer(
    const Found& found, const char* name, const char* takes, int64_t low, int64_t high) {
  char* end = nullptr;
  errno = 0;
  const int64_t value = std::strtoll(found.value.c_str(), &end, 0);  // ERANGE: the nearest
  if (found.value.empty() || *end != '\0') {
    return fail(Code::kInvalidArgument, "{}={} (from {}) is invalid: expected {}", name,
                found.value, origin_of(found, name), takes);
  }
  const int64_t limited = std::clamp(value, low, high);
  if (limited != value || errno == ERANGE) {
    warn_once(fmt::format("{}={} (from {}) is limited to {}: expected {}", name, found.value,
                          origin_of(found, name), limited, takes));
  }
  return limited;
}

Result<void> read_row(const Row& row, const ConfFiles& files, Config& config) {
  auto found = find_setting(row.setting.name, &files);
  if (found.has_value() && found->value.empty() && row.when_empty != nullptr) {
    found->value = row.when_empty;
  }
  if (!found.has_value() || found->value.empty()) {
    return ok();
  }
  if (const auto* const text = std::get_if<std::string Config::*>(&row.member)) {
    config.*(*text) = found->value;
  } else if (const auto* const flag = std::get_if<bool Config::*>(&row.member)) {
    PLEXUS_TRY(value, parse_integer(*found, row.setting.name, row.setting.takes, 0, 1));
    config.*(*flag) = value != 0;
  } else {
    PLEXUS_TRY(value,
               parse_integer(*found, row.setting.name, row.setting.takes, row.low, row.high));
    config.*std::get<int64_t Config::*>(row.member) = value;
  }
  return ok();
}

Result<void> read_old_name(const OldName& old, const ConfFiles& files, Config& config) {
  const auto found = find_setting(old.name, &files);
  if (!found.has_value() || found->value.empty()) {
    return ok();
  }
  PLEXUS_TRY(value, parse_integer(*found, old.name, "1..64", 0, 64));
  int64_t& member = config.*old.member;
  const bool wins = member == 0 || (old.is_lower_bound ? value > member : value < member);
  if (value > 0 && wins) {
    member = value;
  }
  return ok();
}

Result<void> check_choices(const Config& config) {
  if (config.device != "auto" && config.device != "cuda" && config.device != "host") {
    return fail(Code::kInvalidArgument, "{} is invalid: expected auto, cuda or host",
                describe_setting("PLEXUS_DEVICE", config.device));
  }
  if (config.net_security != "off" && config.net_security != "auth" &&
      config.net_security != "tls") {
    return fail(Code::kInvalidArgument, "{} is invalid: expected off, auth or tls",
                describe_setting("PLEXUS_NET_SECURITY", config.net_security));
  }
  if (!config.socket_family.empty() && config.socket_family != "AF_INET" &&
      config.socket_family != "AF_INET6") {
    return fail(Code::kInvalidArgument, "{} is invalid: expected AF_INET or AF_INET6",
                describe_setting("NCCL_SOCKET_FAMILY", config.socket_family));
  }
  return ok();
}

/// PLEXUS_TRACE is a setting of the profiler plugin that it calls for, read there from the
/// environment.
void add_trace(Config& config) {
  const auto lock = hold_environment();
  const char* const file = std::getenv("PLEXUS_TRACE");
  std::string& plugins = config.profiler_plugin;
  if (file != nullptr && *file != '\0' &&
      ("," + plugins + ",").find(",trace,") == std::string::npos) {
    plugins += plugins.empty() ? "trace" : ",trace";
  }
}

}  // namespace

std::string describe_setting(const char* name, const std::string& value) {
  const auto found = find_setting(name);
  return found.has_value() && found->value == value
             ? fmt::format("{}={} (from {})", name, value, origin_of(*found, name))
             : fmt::format("{}={}", name, value);
}

std::span<const Setting> settings() {
  static const auto kSettings = [] {
    std::array<Setting, std::size(kRows)> all{};
    std::transform(std::begin(kRows), std::end(kRows), all.begin(),
                   [](const Row& row) { return row.setting; });
    return all;
  }();
  return kSettings;
}

std::string settings_markdown() {
  std::string text = "| setting | default | takes | what |\n|---|---|---|---|\n";
  for (const Setting& setting : settings()) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", setting.name, setting.default_text,
                        setting.takes, setting.doc);
  }
  return text;
}

std::optional<std::string> setting_value(std::string_view name) {
  auto found = find_setting(std::string(name).c_str());
  return found.has_value() ? std::optional(std::move(found->value)) : std::nullopt;
}

std::unique_lock<std::recursive_mutex> hold_environment() {
  constexpr auto kPatience = std::chrono::seconds(1);
  constexpr auto kPause = std::chrono::milliseconds(1);
  static std::atomic<bool> is_given_up{false};  // who holds it was waited for in vain
  std::unique_lock lock(environment_mutex(), std::try_to_lock);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!lock.owns_lock() && !is_given_up.load(std::memory_order_relaxed)) {
    if (std::chrono::steady_clock::now() > until) {
      is_given_up.store(true, std::memory_order_relaxed);
      return lock;
    }
    std::this_thread::sleep_for(kPause);
    (void)lock.try_lock();
  }
  if (lock.owns_lock()) {
    is_given_up.store(false, std::memory_order_relaxed);
  }
  return lock;
}

void set_environment(Environment ask) noexcept {
  environment().store(ask, std::memory_order_release);  // pairs with the load in find_setting()
}

void reset_environment() noexcept { set_environment(nullptr); }

Result<Config> read_config() {
  const ConfFiles files = ConfFiles::read();
  {
    const auto lock = hold_environment();
    files.export_all();
  }
  Config config;
  for (const Row& row : kRows) {
    PLEXUS_TRY(read_row(row, files, config));
  }
  for (const OldName& old : kOldNames) {
    PLEXUS_TRY(read_old_name(old, files, config));
  }
  PLEXUS_TRY(check_choices(config));
  add_trace(config);
  return config;
}

}  // namespace plexus
