// SPDX-License-Identifier: Apache-2.0
// The profilers of one communicator: any number of libraries of NCCL's profiler ABI
// (`ncclProfiler_v4` .. `v6`). An event is passed to each profiler that wants its kind or a
// descendant of it, so that no parent is missing. A profiler that fails is switched off with one
// WARN.
//
// Callers hold a null pointer when none is loaded; profiling then costs only that test.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "plugin-api/nccl/profiler.h"

#include "core/base/fork.hpp"
#include "core/base/result.hpp"
#include "core/plugin/registry.hpp"

namespace plexus {

struct ProfilerOptions {
  /// NCCL_PROFILER_PLUGIN: comma list of names, files or paths; `none`: none. Empty:
  /// `libnccl-profiler.so` when there is one.
  std::string plugins;
  std::string folders;  // PLEXUS_PLUGIN_PATH
  std::filesystem::path own_folder = NetPluginOptions::find_own_plugin_folder();
};

/// What profilers are told about the communicator.
struct ProfiledComm {
  uint64_t id = 0;
  std::string name;
  int nnodes = 1;
  int nranks = 1;
  int rank = 0;
};

inline constexpr size_t kProfilersMax = 8;

/// An event with each profiler's handle. A value; null: this profiler does not track the event.
struct ProfileEvent {
  std::array<void*, kProfilersMax> handles{};
};

/// The activation masks of a process, one for each profiler, as NCCL has one: profilers set theirs
/// at the first init only, keep its address, and write it when no communicator is left. Threads:
/// any. A child made by fork has its parent's, at the same addresses.
class ProfilerMasks {
 public:
  ProfilerMasks() = default;
  ProfilerMasks(AfterFork /*tag*/, const ProfilerMasks& parent) : masks_(parent.masks_) {}
  /// That of the profiler with this table; 0 before its first init. Lives as long as the process.
  [[nodiscard]] int* find_or_make(const void* table);
  /// Around a fork.
  void hold() noexcept { mutex_.lock(); }
  void release() noexcept { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  std::map<const void*, std::shared_ptr<int>> masks_;  // guarded by mutex_; shared with children
};

/// One library for one communicator. Threads: any; calls for one event may come from several
/// threads.
class Profiler {
 public:
  virtual ~Profiler() = default;
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// Null when this version has no such event. Parents are filled in here.
  [[nodiscard]] virtual int32_t start(nccl_profile_event_v7_t what,
                                      void* parent,
                                      void* group,
                                      void** event) noexcept = 0;
  [[nodiscard]] virtual int32_t stop(void* event) noexcept = 0;
  [[nodiscard]] virtual int32_t record(void* event,
                                       int state,
                                       nccl_profile_state_t* what) noexcept = 0;
  virtual void finalize() noexcept = 0;

  [[nodiscard]] bool wants(uint64_t type) const noexcept;
  // logs once and switches the profiler off
  bool complain(const char* call, int32_t code) noexcept;

 protected:
  explicit Profiler(int* mask) : mask_(mask) {}
  void* context_ = nullptr;
  int* const mask_;  // the process's; the plugin may change it at any time: read at each event

 private:
  std::atomic<bool> is_off_{false};
};

/// Threads: any.
class ProfilerSet {
 public:
  /// Null: no profiler is asked for. An Error only if the user named one that cannot be loaded.
  /// `masks` must outlive it.
  [[nodiscard]] static Result<std::unique_ptr<ProfilerSet>> open(const ProfilerOptions& options,
                                                                 const ProfiledComm& comm,
                                                                 ProfilerMasks& masks);
  ~ProfilerSet();
  ProfilerSet(const ProfilerSet&) = delete;
  ProfilerSet& operator=(const ProfilerSet&) = delete;

  /// Whether a profiler wants events of `type` or of a descendant.
  [[nodiscard]] bool wants(uint64_t type) const noexcept;
  /// `parent`, `group`: null if there is none. `what`: everything but the parents, which are filled
  /// in.
  [[nodiscard]] ProfileEvent start(const nccl_profile_event_v7_t& what,
                                   const ProfileEvent* parent,
                                   const ProfileEvent* group = nullptr) noexcept;
  /// `number`: bytes of a step, or the GPU's clock.
  void record(const ProfileEvent& event, int state, uint64_t number = 0) noexcept;
  /// To be called once per event; nothing about the event may follow.
  void stop(ProfileEvent& event) noexcept;

 private:
  explicit ProfilerSet(ProfiledComm comm) : comm_(std::move(comm)) {}
  ProfiledComm comm_;  // profilers keep a pointer to its name
  std::vector<std::unique_ptr<Profiler>> profilers_;
};

}  // namespace plexus
