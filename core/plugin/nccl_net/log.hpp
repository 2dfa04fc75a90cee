// SPDX-License-Identifier: Apache-2.0
// NCCL's log callback has no argument for the caller. A `LogScope` around each call into a plugin
// provides it: lines of that thread belong to the scope's context, and the first WARN of a call
// that fails becomes the reason of the failure (PLEXUS_LOG_ERROR); later ones are consequences.
// Lines of a plugin's own threads go to the process's log.
#pragma once

#include <cstdint>
#include <string>

#include "plugin-api/plexus_plugin.h"

namespace plexus::nccl_net {

/// The destination of a context's lines. A value.
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

  /// NCCL's result of the call as a code of plexus_plugin.h. Logs the reason of a failure: the
  /// plugin's warning, or else that `call` failed.
  [[nodiscard]] int32_t finish(const char* call, int32_t result);
  /// The reason of the failed call.
  [[nodiscard]] const std::string& reason() const noexcept { return warning_; }

 private:
  friend void take_line(LogScope& scope, int level, const char* file, int line, const char* text);
  /// Logs a warning that belongs to no failure.
  void flush_warning();

  LogTarget target_;
  LogScope* outer_;
  std::string warning_;      // the first one; empty: none, nothing allocated
  bool has_failed_ = false;  // the warning is logged as the reason
};

/// The log callback that plugins get.
void log_from_nccl_plugin(int level,
                          unsigned long subsystems,
                          const char* file,
                          int line,
                          const char* format,
                          ...) noexcept __attribute__((format(printf, 5, 6)));

}  // namespace plexus::nccl_net
