// SPDX-License-Identifier: Apache-2.0
// libfabric is loaded when a context first needs it instead of being linked: Debian's version
// brings libinfinipath, whose constructor installs handlers for SIGSEGV and five more signals, and
// no code of a linked plugin can run before such a constructor. Loading it from here allows
// restoring the handlers.
#pragma once

#include <array>
#include <csignal>
#include <mutex>
#include <rdma/fabric.h>
#include <span>
#include <string>

namespace plexus::net_ofi {

/// The functions that libfabric exports; everything else goes through its objects.
struct Library {
  std::string problem;  // why it is unusable; the functions are then null
  decltype(&::fi_version) version = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
};

/// Restores in its destructor the signal handlers that libfabric replaced. One at a time; others
/// wait.
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

/// Adds variables ("NAME=value", string literals) to the environment until its destructor, for
/// settings of libfabric that have no other interface; the user's values win. The process gets
/// another array of the same strings, in one store, so that other threads may read meanwhile. One
/// at a time; others wait.
class ExtraVariables {
 public:
  explicit ExtraVariables(std::span<const char* const> variables);
  ExtraVariables(const ExtraVariables&) = delete;
  ExtraVariables& operator=(const ExtraVariables&) = delete;
  ~ExtraVariables();

 private:
  std::unique_lock<std::mutex> turn_;
  char** own_;
  char** before_;
};

/// Loads the library on the first call, which may take a second, and keeps it until the process
/// exits. Leaves signals and environment unchanged. Threads: any.
[[nodiscard]] const Library& library();

}  // namespace plexus::net_ofi
