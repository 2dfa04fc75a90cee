// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/library.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <utility>
#include <vector>

#include "plugins/net-ofi/fabric.hpp"

namespace plexus::net_ofi {
namespace {

// NOLINTBEGIN(concurrency-mt-unsafe): the environment changes only inside of the first init

std::mutex& signals_mutex() {
  static std::mutex mutex;
  return mutex;
}

/// Environment variables that libfabric reads in its first call and that have no other interface;
/// the user's values are kept. ofi_rxm gives every endpoint buffers for a host full of peers (85
/// MB); this plugin's have one peer each. An endpoint has 1,024 buffers for sends and 1,024 for
/// receives, all touched by the first message: each KiB less per buffer saves 2 MB, and longer
/// messages cost an extra round trip. ofi_rxm checks for new connections every 10 ms by default.
class LibraryDefaults {
 public:
  LibraryDefaults() {
    constexpr std::pair<const char*, const char*> kDefaults[] = {
        {"FI_OFI_RXM_MSG_TX_SIZE", "64"},
        {"FI_OFI_RXM_MSG_RX_SIZE", "64"},
        {"FI_OFI_RXM_BUFFER_SIZE", "2048"},
        {"FI_OFI_RXM_CM_PROGRESS_INTERVAL", "1000"}};  // in us
    for (const auto& [name, value] : kDefaults) {
      if (std::getenv(name) == nullptr && ::setenv(name, value, 0) == 0) {
        set_.push_back(name);
      }
    }
  }
  LibraryDefaults(const LibraryDefaults&) = delete;
  LibraryDefaults& operator=(const LibraryDefaults&) = delete;
  ~LibraryDefaults() {
    for (const char* const name : set_) {
      ::unsetenv(name);
    }
  }

 private:
  std::vector<const char*> set_;
};

template <class Function>
void find(void* file, const char* name, Function& function, std::string& problem) {
  function = reinterpret_cast<Function>(::dlsym(file, name));
  if (function == nullptr && problem.empty()) {
    problem = std::string("libfabric.so.1 has no ") + name;
  }
}

Library load() {
  const KeptSignals signals;
  const LibraryDefaults defaults;
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
