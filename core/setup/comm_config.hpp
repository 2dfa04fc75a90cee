// SPDX-License-Identifier: Apache-2.0
// A communicator's own settings: the validated `ncclConfig_t` with environment overrides applied,
// and the device that the communicator computes on.
#pragma once

#include <cstdint>
#include <pthread.h>
#include <string>

namespace plexus {

/// Plain value. `core/api` makes it from the user's `ncclConfig_t`; a child communicator copies its
/// parent's.
struct CommConfig {
  bool blocking = true;
  int min_ctas = 0;  // number of channels; 0: automatic
  int max_ctas = 0;
  std::string net_name;  // empty: automatic
  bool collnet_enable = false;
  bool split_share = false;
  bool shrink_share = false;
  uint64_t share_group = 0;  // communicators that end together in ncclCommAbort; 0: it alone
  int traffic_class = -1;
  int rma_contexts = 1;  // 0: no one-sided operations
  int rma_signals = 1;   // of each context
  bool rma_eager = false;
  std::string comm_name;
  int device = -1;  // CUDA's device number; -1: the host. A child has its parent's
  // device of core/device/virtual_devices.h for which a rank on the host computes; -1: none
  int virtual_device = -1;
  pthread_t maker{};              // the thread that made the communicator
  const void* made_at = nullptr;  // by which place in the program (PLEXUS_CHECK=1)
};

}  // namespace plexus
