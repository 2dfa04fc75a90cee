// SPDX-License-Identifier: Apache-2.0
// What a process of a check does with connections and messages, a line per event, so that
// `repetition` can make a program of it. Lines are written at once: they survive a crash.
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include <fmt/core.h>

#include "plugin-api/plexus_net.h"

namespace plexus::conformance {

class Trace {
 public:
  /// Writes to the file `folder`/`role`; nothing if `folder` is empty.
  Trace(const std::filesystem::path& folder, uint32_t role);
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace();

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    if (fd_ >= 0) {
      write(fmt::format(format, std::forward<Args>(args)...));
    }
  }
  /// A number for an end of a connection, which has no handle of the plugin's yet.
  [[nodiscard]] uint32_t next_end() noexcept { return ends_.fetch_add(1) + 1; }
  /// Tells handles of listening ends apart.
  [[nodiscard]] static uint64_t fingerprint(const plexus_net_handle_t& handle) noexcept;

 private:
  void write(const std::string& line);

  int fd_ = -1;
  std::atomic<uint32_t> ends_{0};
};

}  // namespace plexus::conformance
