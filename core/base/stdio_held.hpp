// SPDX-License-Identifier: Apache-2.0
// Descriptors that are opened in a program that has closed some of descriptors 0 to 2: by the core,
// and by libraries that it calls (plugins, launchers' libraries). Another thread of the program may
// print at any moment, so none of them may have such a number even until it is given a higher one.
#pragma once

#include "guest/descriptors.hpp"

namespace plexus {

/// While one lives, the numbers of closed descriptors among 0 to 2 are taken, by descriptors that
/// can neither be read nor written (as those that are closed), so that others get higher ones.
/// Threads: any.
class StdioHeld {
 public:
  StdioHeld() noexcept;
  ~StdioHeld();  // leaves errno as it is
  StdioHeld(const StdioHeld&) = delete;
  StdioHeld& operator=(const StdioHeld&) = delete;
};

/// Calls `make`, which returns a new descriptor or -1 with errno, and returns one that is above 2
/// and never was one of 0 to 2.
template <class Make>
int open_above_stdio(const Make& make) {
  const StdioHeld held;
  return above_stdio(make());
}

}  // namespace plexus
