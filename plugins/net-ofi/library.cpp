// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/library.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "guest/port_range.hpp"
#include "plugins/net-ofi/fabric.hpp"

namespace plexus::net_ofi {
namespace {

// NOLINTBEGIN(concurrency-mt-unsafe): variables are only read

std::mutex& signals_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// What libfabric reads in its first call and has no other interface for. ofi_rxm gives every
/// endpoint buffers for a host full of peers (85 MB); this plugin's have one peer each. An endpoint
/// has 1,024 buffers for sends and 1,024 for receives, all touched by the first message: each KiB
/// less per buffer saves 2 MB. ofi_rxm checks for new connections every 10 ms by default.
constexpr std::array<const char*, 4> kDefaults = {
    "FI_OFI_RXM_MSG_TX_SIZE=64", "FI_OFI_RXM_MSG_RX_SIZE=64", "FI_OFI_RXM_BUFFER_SIZE=2048",
    "FI_OFI_RXM_CM_PROGRESS_INTERVAL=1000"};  // in us

std::mutex& environment_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// The current variables, and those of `more` that are not among them. It lives as long as the
/// process: a thread may still read it later.
char** extend_environment(std::span<const char* const> more) {
  static std::deque<std::vector<char*>> kept;
  std::vector<char*> all;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    all.push_back(*each);
  }
  for (const char* const variable : more) {
    const std::string name(variable, std::strchr(variable, '='));
    if (std::getenv(name.c_str()) == nullptr) {
      all.push_back(const_cast<char*>(variable));  // NOLINT(*-const-cast): only read
    }
  }
  all.push_back(nullptr);
  const auto found = std::find(kept.begin(), kept.end(), all);
  return found == kept.end() ? kept.emplace_back(std::move(all)).data() : found->data();
}

template <class Function>
void find(void* file, const char* name, Function& function, std::string& problem) {
  function = reinterpret_cast<Function>(::dlsym(file, name));
  if (function == nullptr && problem.empty()) {
    problem = std::string("libfabric.so.1 has no ") + name;
  }
}

/// The ports of PLEXUS_PORT_RANGE for the providers over TCP, which read them once in a process;
/// one that is not understood is refused where the settings are read.
std::vector<std::string> list_port_variables() {
  const char* const text = std::getenv(kPortRangeSetting);
  const PortRange range = parse_ports(text == nullptr ? "" : text).value_or(PortRange{});
  return range.low == 0
             ? std::vector<std::string>{}
             : std::vector<std::string>{fmt::format("FI_TCP_PORT_LOW_RANGE={}", range.low),
                                        fmt::format("FI_TCP_PORT_HIGH_RANGE={}", range.high)};
}

Library load() {
  const KeptSignals signals;
  static const std::vector<std::string> ports = list_port_variables();  // as the environment
  std::vector<const char*> variables(kDefaults.begin(), kDefaults.end());
  for (const std::string& each : ports) {
    variables.push_back(each.c_str());
  }
  const ExtraVariables defaults(variables);
  Library loaded;
  void* const file = ::dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);  // never closed
  if (file == nullptr) {
    const char* const reason = ::dlerror();
    loaded.problem = reason == nullptr ? "libfabric.so.1 cannot be loaded" : reason;
    return loaded;
  }
  find(file, "fi_version", loaded.version, loaded.problem);
  find(file, "fi_strerror", loaded.strerror, loaded.problem);
  find(file, "fi_getinfo", loaded.getinfo, loaded.problem);
  find(file, "fi_dupinfo", loaded.dupinfo, loaded.problem);
  find(file, "fi_freeinfo", loaded.freeinfo, loaded.problem);
  find(file, "fi_fabric", loaded.fabric, loaded.problem);
  if (loaded.problem.empty()) {
    fi_info* list = nullptr;  // the first call loads the providers
    loaded.getinfo(kApiVersion, nullptr, nullptr, 0, nullptr, &list);
    loaded.freeinfo(list);
  }
  return loaded;
}

// NOLINTEND(concurrency-mt-unsafe)

}  // namespace

ExtraVariables::ExtraVariables(std::span<const char* const> variables)
    : turn_(environment_mutex()), own_(extend_environment(variables)), before_(environ) {
  environ = own_;
}

ExtraVariables::~ExtraVariables() {
  if (environ ==
      own_) {  // otherwise another thread has set a variable, and made an array of its own
    environ = before_;
  }
}

KeptSignals::KeptSignals() : turn_(signals_mutex()) {
  for (int number = 1; number < kSignals; ++number) {
    Kept& kept = kept_[static_cast<size_t>(number)];
    kept.is_known = ::sigaction(number, nullptr, &kept.action) == 0;
  }
}

KeptSignals::~KeptSignals() {
  for (int number = 1; number < kSignals; ++number) {
    const Kept& kept = kept_[static_cast<size_t>(number)];
    struct sigaction now {};
    if (kept.is_known && ::sigaction(number, nullptr, &now) == 0 &&
        now.sa_handler != kept.action.sa_handler) {  // NOLINT(*-union-access): POSIX
      ::sigaction(number, &kept.action, nullptr);
    }
  }
}

const Library& library() {
  static const Library kLibrary = load();
  return kLibrary;
}

}  // namespace plexus::net_ofi
