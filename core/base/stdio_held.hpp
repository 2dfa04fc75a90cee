// SPDX-License-Identifier: Apache-2.0
// Calls of libraries that open descriptors of their own (plugins, launchers' libraries) in a
// program that has closed some of descriptors 0 to 2; our own descriptors: guest/descriptors.hpp.
#pragma once

namespace plexus {

/// While one lives, the numbers of closed descriptors among 0 to 2 are taken, by descriptors that
/// can neither be read nor written (as those that are closed), so that others get higher ones.
/// Threads: any.
class StdioHeld {
 public:
  StdioHeld() noexcept;
  ~StdioHeld();
  StdioHeld(const StdioHeld&) = delete;
  StdioHeld& operator=(const StdioHeld&) = delete;
};

}  // namespace plexus
