// SPDX-License-Identifier: Apache-2.0
// What the communicators of one process share: where ranks of the process meet, its shareable
// memory, its host streams and the thread that serves them. The one object per process that NCCL's
// API forces on us; everything below gets the parts it needs passed in.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unistd.h>

#include "core/base/config.hpp"
#include "core/base/immortal.hpp"
#include "core/device/choose_device.hpp"
#include "core/device/host_stream.hpp"
#include "core/engine/async_engine.hpp"
#include "core/launch/launch_pool.hpp"
#include "core/plugin/collnet_registry.hpp"
#include "core/plugin/registry.hpp"
#include "core/setup/comm_setup.hpp"
#include "core/setup/topology.hpp"
#include "core/stall/stall_watch.hpp"
#include "core/transport/direct.hpp"
#include "core/transport/user_memory.hpp"

namespace plexus {

/// Threads: any. A child made by fork has its own: what its parent made is not used there, but for
/// memory from ncclMemAlloc.
class Process final : private ForkAware {
 public:
  /// Made at first use and never destroyed: threads of plugins may outlive main().
  static Process& instance() { return Immortal<Process>::instance(); }

  LocalRendezvous rendezvous;
  UserMemory memory;
  AsyncEngine async;
  CollnetPluginCache collnet_plugins;
  NetPluginCache net_plugins;
  TopologyCache topologies;
  LaunchPool launches;
  StallWatch stalls;

  /// All settings. The first call makes NCCL_ENV_PLUGIN answer for them; when that fails, all do.
  Result<Config> read_settings();

  /// nullptr: this build is without CUDA.
  [[nodiscard]] DeviceRuntime* devices() const noexcept { return devices_; }
  /// For tests: before the first communicator.
  void use_devices(DeviceRuntime* devices) noexcept { devices_ = devices; }

  [[nodiscard]] SetupContext setup_context() noexcept {
    return {.net_plugins = &net_plugins,
            .collnet_plugins = &collnet_plugins,
            .topologies = &topologies,
            .devices = devices_};
  }

  HostStream* create_stream();
  /// kInvalidArgument when it is none of ours. Waits for the stream's work.
  Result<void> destroy_stream(HostStream* stream);
  [[nodiscard]] HostStream* find_stream(const void* handle) const;
  /// The process that made the stream `handle`, from which this one was forked; 0: no such stream.
  [[nodiscard]] int32_t parent_of_stream(const void* handle) const;

  HostEvent* create_event();
  /// kInvalidArgument when it is none of ours. Who waits for it goes on waiting.
  Result<void> destroy_event(const void* handle);
  /// nullptr when it is none of ours. Shared with the table: another thread may destroy it.
  [[nodiscard]] std::shared_ptr<HostEvent> find_event(const void* handle) const;

 private:
  friend class Immortal<Process>;
  Process() { Forks::add(*this); }
  Process(AfterFork tag, Process& parent);
  void hold() noexcept override;
  void release() noexcept override;
  void leave() noexcept override { release(); }

  const int32_t pid_ = getpid();
  mutable std::mutex mutex_;
  std::set<const void*> streams_;                             // guarded by mutex_
  std::map<const void*, std::shared_ptr<HostEvent>> events_;  // guarded by mutex_
  const std::map<const void*, int32_t> parents_streams_;      // and who made each
  DeviceRuntime* devices_ = cuda_runtime();
  std::once_flag env_once_;
  std::optional<Error> env_error_;     // written once
  std::atomic<bool> env_read_{false};  // is that so?
};

}  // namespace plexus
