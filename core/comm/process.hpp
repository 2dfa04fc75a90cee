// SPDX-License-Identifier: Apache-2.0
// What the communicators of one process share: where ranks of the process meet, its shareable
// memory, its host streams and the thread that serves them. NCCL's API has no handle for it, so
// core/api fetches the one instance and passes it down; nothing below does.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unistd.h>

#include "core/base/config.hpp"
#include "core/base/immortal.hpp"
#include "core/comm/communicator_table.hpp"
#include "core/comm/use_check.hpp"
#include "core/device/choose_device.hpp"
#include "core/device/device_watch.hpp"
#include "core/device/host_stream.hpp"
#include "core/device/virtual_devices.hpp"
#include "core/engine/async_engine.hpp"
#include "core/join/rendezvous.hpp"
#include "core/launch/launch_pool.hpp"
#include "core/plugin/collnet_registry.hpp"
#include "core/plugin/nccl_profiler/profiler.hpp"
#include "core/plugin/registry.hpp"
#include "core/ras/ras_server.hpp"
#include "core/setup/comm_setup.hpp"
#include "core/setup/topology.hpp"
#include "core/stall/stall_watch.hpp"
#include "core/stall/status_server.hpp"
#include "core/transport/memory/direct.hpp"
#include "core/transport/memory/user_memory.hpp"
#include "core/tuning/rates_file.hpp"

namespace plexus {

/// Threads: any. A child made by fork has its own, which takes over only memory from ncclMemAlloc.
class Process final : private ForkAware {
 public:
  /// Made at first use and never destroyed: threads of plugins may outlive main().
  static Process& instance() { return Immortal<Process>::instance(); }

  Agents agents{process_id(), agent_hooks()};
  CommunicatorTable communicators;
  LocalRendezvous rendezvous;
  UserMemory memory;
  AsyncEngine async{[this] {
    if (devices_ != nullptr) {
      devices_->allow(DriverCalls::kNone);
    }
  }};
  DeviceWatch device_watch;
  CollnetPluginCache collnet_plugins;
  NetPluginCache net_plugins;
  ProfilerMasks profiler_masks;
  TopologyCache topologies;
  GroupCache<std::vector<PeerInfo>> infos;
  GroupCache<ProgramSet> programs;
  RatesCache rates;
  GroupCache<SharedMemory> shown;
  LaunchPool launches;
  StallWatch stalls;
  StatusServer status{stalls};
  RasServer ras{stalls};

  /// All settings. The first call loads NCCL_ENV_PLUGIN, which then answers for them; if that
  /// fails, all calls do.
  Result<Config> read_settings();

  /// nullptr: PLEXUS_CHECK is not 1.
  [[nodiscard]] UseCheck* check() {
    const Checks checks = checks_.load(std::memory_order_acquire);  // pairs with decide_check()
    return checks == Checks::kOff ? nullptr : checks == Checks::kOn ? &*check_ : decide_check();
  }

  /// ncclSetEncryption: connections from now on prove `key`, and are encrypted; empty: neither.
  void set_encryption(std::string key);

  /// nullptr: this build is without CUDA.
  [[nodiscard]] DeviceRuntime* devices() const noexcept {
    return virtual_devices() == nullptr ? devices_ : nullptr;
  }
  /// For tests: before the first communicator.
  void use_devices(DeviceRuntime* devices) noexcept { devices_ = devices; }

  [[nodiscard]] SetupContext setup_context() noexcept {
    return {.net_plugins = &net_plugins,
            .collnet_plugins = &collnet_plugins,
            .topologies = &topologies,
            .infos = &infos,
            .programs = &programs,
            .rates = &rates,
            .shown = &shown,
            .devices = devices_,
            .hooks = agent_hooks()};
  }

  // -- ncclMemAlloc --
  /// On the current device; on the host page-aligned, and shareable with other processes.
  Result<void*> allocate_memory(size_t size_bytes);
  Result<void> free_memory(void* pointer);

  // -- streams and events of host ranks (plexus.h) --
  Result<HostStream*> create_stream();
  /// kInvalidArgument when it is none of ours. Waits for the stream's work.
  Result<void> destroy_stream(HostStream* stream);
  [[nodiscard]] HostStream* find_stream(const void* handle) const;
  /// The process that made the stream `handle`, from which this one was forked; 0: no such stream.
  [[nodiscard]] int32_t parent_of_stream(const void* handle) const;
  /// Work put on `stream` from now on starts when `event`'s last mark is reached.
  void make_wait(HostStream* stream, const HostEvent& event);
  /// `function` runs in the async engine's thread, in the order of the stream.
  void launch_host_function(HostStream* stream, std::function<void()> function);

  /// Likewise `start`; what comes behind it on the stream waits until the mark is reached.
  void launch_work(HostStream* stream,
                   std::function<void(const std::shared_ptr<StreamMark>&)> start);

  HostEvent* create_event();
  /// kInvalidArgument when it is none of ours. Threads and streams that wait for it go on waiting.
  Result<void> destroy_event(const void* handle);
  /// kInvalidArgument when it is none of ours. Shared with the table: another thread may destroy
  /// it.
  [[nodiscard]] Result<std::shared_ptr<HostEvent>> find_event(const void* handle) const;

 private:
  friend class Immortal<Process>;
  enum class Checks { kUnknown, kOff, kOn };
  static AgentHooks agent_hooks();
  UseCheck* decide_check();
  Result<void> add_job_secret(Config& config);
  Process();
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
  std::string encryption_key_;  // guarded by mutex_; empty: none
  std::once_flag env_once_;
  std::once_flag limit_once_;
  std::optional<Error> env_error_;     // written once
  std::atomic<bool> env_read_{false};  // is that so?
  std::optional<UseCheck> check_;      // written once, under mutex_
  std::atomic<Checks> checks_{Checks::kUnknown};
};

}  // namespace plexus
