// SPDX-License-Identifier: Apache-2.0
// What this library keeps for its process: settings, devices, and the tables of memory, streams,
// events and graphs.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/immortal.hpp"
#include "integrations/cudart/memory.hpp"
#include "integrations/cudart/streams.hpp"
#include "integrations/cudart/worker.hpp"

namespace plexus::cudart {

struct Settings {
  std::vector<int> devices;   // numbers of those that this process sees (CUDA_VISIBLE_DEVICES)
  uint64_t memory_bytes = 0;  // of each
  bool summary = false;       // say at the end what was used
  std::string wrong;          // a sentence if one of them is wrong; empty: none is
};

/// Reads PLEXUS_CUDART_DEVICES, PLEXUS_CUDART_MEMORY, PLEXUS_CUDART_SUMMARY, CUDA_VISIBLE_DEVICES.
Settings read_settings();

/// Threads: any. A child made by fork has one that refuses all calls, as CUDA does.
class Runtime {
 public:
  static Runtime& instance() { return Immortal<Runtime>::instance(); }

  const Settings settings = read_settings();
  const bool checks = plexusChecks() != 0;  // PLEXUS_CHECK=1
  const bool is_childs = false;             // of a process that used CUDA
  Memory memory{settings.devices.size(), settings.memory_bytes, checks};
  Streams streams{settings.devices.size()};
  Worker host_functions{"host functions of streams", 1};
  Worker copies{"copies of streams", copy_threads()};

  [[nodiscard]] int device_count() const noexcept {
    return static_cast<int>(settings.devices.size());
  }

 private:
  friend class Immortal<Runtime>;
  Runtime();
  Runtime(AfterFork tag, Runtime& parents);
  static int copy_threads();
};

/// The calling thread's.
int current_device() noexcept;
void set_current_device(int device) noexcept;
/// cudaErrorInvalidDevice unless this process has it; cudaErrorNoDevice when it has none.
cudaError_t check_device(int device);
/// cudaErrorInvalidValue when it is NULL.
cudaError_t check_pointer(const void* pointer, const char* what);

}  // namespace plexus::cudart
