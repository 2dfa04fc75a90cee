// SPDX-License-Identifier: Apache-2.0
// A common interface to all versions of NCCL's tuner ABI, and the choice of a library's version.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "plugin-api/nccl/tuner.h"
#include "plugin-api/plexus_tuner.h"

#include "core/base/result.hpp"
#include "core/plugin/library.hpp"

namespace plexus::nccl_tuner {

inline constexpr int kVersionLeast = 2;
inline constexpr int kVersionMost = 6;

/// One block of floats, as the ABI requires; microseconds.
using CostTable = std::array<float, size_t{NCCL_TUNER_ALGORITHMS} * NCCL_TUNER_PROTOCOLS>;
constexpr size_t place_of(int algorithm, int protocol) {
  return static_cast<size_t>(algorithm) * NCCL_TUNER_PROTOCOLS + static_cast<size_t>(protocol);
}

struct Question {
  int collective;  // NCCL_TUNER_*
  size_t size_bytes;
  int calls_in_group;
  int is_registered;
};

/// One library's table without the differences of its version. Codes are the plugin's own.
class LibraryTuner {
 public:
  virtual ~LibraryTuner() = default;
  [[nodiscard]] virtual const char* name() const = 0;
  virtual int32_t init(const plexus_tuner_comm_t& comm, void** context) const = 0;
  /// Changes `costs`, and may raise `channels` from 0 to a number that it wants.
  virtual int32_t ask(void* context,
                      const Question& question,
                      CostTable& costs,
                      int& channels) const = 0;
  /// Changes `chunk_bytes`; versions before v6 do not.
  virtual int32_t ask_chunk(void* context,
                            const Question& question,
                            int algorithm,
                            int protocol,
                            int channels,
                            size_t& chunk_bytes) const = 0;
  virtual void finalize(void* context) const = 0;
};

struct Choice {
  std::unique_ptr<const LibraryTuner> tuner;
  std::string entry;  // "ncclTunerPlugin_v5", for messages
};

/// The library's highest supported version; nullopt: it has none. An Error when its table is
/// smaller than the ABI requires or lacks an entry, or when it has only unsupported versions. Calls
/// no function of the library.
[[nodiscard]] Result<std::optional<Choice>> choose_tuner(const Library& library);

}  // namespace plexus::nccl_tuner
