// SPDX-License-Identifier: Apache-2.0
// What two ranks say to each other about one-sided operations, as control messages with the tag
// ControlTag::kOneSided. Of messages between two ranks the order is kept.
//
//   kAsk    to the owner of a window: where is it?
//   kWindowInfo  the answer, once the window is registered
//   kWrite  data for a window of a rank whose memory the sender cannot map
//   kRaise  one more signal, after the data before it
//   kTaken  the answer to the last two: how many bytes the sender may send again
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "core/base/result.hpp"
#include "kernels/layout/fifo.hpp"

namespace plexus::one_sided {

/// Windows are numbered in the order of their registration, which is the same on all ranks.
using WindowNumber = uint32_t;
inline constexpr WindowNumber kNoWindow = 0;  // only where the signals are

inline constexpr uint32_t kPieceBytesMax = 256 * 1024;  // of one kWrite
inline constexpr uint64_t kRaiseBytes = 64;             // what a kRaise counts for

struct Ask {
  WindowNumber window;
};
struct WindowInfo {
  WindowNumber window;
  uint32_t contexts;  // that the owner has signals for
  uint32_t signals;   // of each context
  uint64_t size_bytes;
  uint64_t address;           // in the owner's process
  MappedPlace place;          // segment 0: it cannot be mapped
  MappedPlace signals_place;  // likewise
};
struct Write {
  WindowNumber window;
  uint64_t offset;
  std::string_view data;  // points into the message
};
struct Raise {
  uint32_t context;
  uint32_t signal;
};
struct Taken {
  uint64_t size_bytes;
};
using Message = std::variant<Ask, WindowInfo, Write, Raise, Taken>;

std::string to_bytes(const Message& message);
/// kInternalError: not such a message.
Result<Message> from_bytes(std::string_view bytes);

}  // namespace plexus::one_sided
