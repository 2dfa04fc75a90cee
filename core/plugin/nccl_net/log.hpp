// SPDX-License-Identifier: Apache-2.0
// NCCL's log callback has no argument that says whose line it is. A `LogScope` round each call into
// a plugin tells: lines of that thread belong to its context, and what the plugin WARNs about first
// in a call that fails becomes the reason of the failure (PLEXUS_LOG_ERROR): what comes after it
// tells what followed. Lines of a plugin's own threads go to the process's log.
#pragma once

#include <cstdint>
#include <string>

#include "plugin-api/plexus_plugin.h"

namespace plexus::nccl_net {

/// Where a context's lines go. A value.
struct LogTarget {
  plexus_log_fn write = nullptr;
  plexus_log_sink_t* sink = nullptr;

  void error(const std::string& text) const {
    write(sink, PLEXUS_LOG_ERROR, __builtin_FILE(), __builtin_LINE(), text.c_str());
  }
};

/// Threads: lives on the stack of one call; scopes nest.
class LogScope {
 public:
  explicit LogScope(const LogTarget& target) noexcept;
  ~LogScope();
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

  /// NCCL's result of the call as a code of plexus_plugin.h. A failing one has its reason logged:
  /// what the plugin warned about, else that `call` failed.
  [[nodiscard]] int32_t finish(const char* call, int32_t result);
  /// Of the call that failed.
  [[nodiscard]] const std::string& reason() const noexcept { return warning_; }

 private:
  friend void take_line(LogScope& scope, int level, const char* file, int line, const char* text);
  /// A warning that explains no failure.
  void flush_warning();

  LogTarget target_;
  LogScope* outer_;
  std::string warning_;      // the first one; empty: none, nothing allocated
  bool has_failed_ = false;  // then the warning is told, as the reason
};

/// What plugins get.
void log_from_nccl_plugin(int level,
                          unsigned long subsystems,
                          const char* file,
                          int line,
                          const char* format,
                          ...) noexcept __attribute__((format(printf, 5, 6)));

}  // namespace plexus::nccl_net
