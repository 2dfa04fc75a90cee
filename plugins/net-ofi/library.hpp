// SPDX-License-Identifier: Apache-2.0
// libfabric is loaded when a context first needs it, and not linked: Debian's brings
// libinfinipath, whose constructor takes over SIGSEGV and five more signals, and before such a
// constructor no code of a plugin's file can run. Loaded from here, the process is as it was.
#pragma once

#include <array>
#include <csignal>
#include <mutex>
#include <rdma/fabric.h>
#include <string>

namespace plexus::net_ofi {

/// The functions that libfabric exports; all else goes through its objects.
struct Library {
  std::string problem;  // why it cannot be used; then the functions are null
  decltype(&::fi_version) version = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
};

/// Gives back, in the end, the signals that libfabric took meanwhile. One at a time, others wait.
class KeptSignals {
 public:
  KeptSignals();
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;
  ~KeptSignals();

 private:
  static constexpr int kSignals = 65;
  struct Kept {
    bool is_known = false;
    struct sigaction action {};
  };
  std::unique_lock<std::mutex> turn_;
  std::array<Kept, kSignals> kept_;
};

/// Loads it the first time, which may take a second, and keeps it until the process ends. Leaves
/// signals and environment as they were. Threads: any.
[[nodiscard]] const Library& library();

}  // namespace plexus::net_ofi
