// SPDX-License-Identifier: Apache-2.0
// The host's log callback as an object. A plugin has no other output.
//
//   const plexus::plugin::Log log(config.log, config.log_sink);
//   log.info("net-mine: {} devices", 2);
//   log.error("the device eth0 has no address: give it one");  // before a failing code
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "plugin-api/plexus_plugin.h"

namespace plexus::plugin {

/// A format string with the source position at which it was written.
template <class... Args>
struct LogText {
  template <class S>
  consteval LogText(const S& text,  // NOLINT(google-explicit-constructor): a format string
                    const char* at_file = __builtin_FILE(),
                    int at_line = __builtin_LINE())
      : format(text), file(at_file), line(at_line) {}
  fmt::format_string<Args...> format;
  const char* file;
  int line;
};

/// A value. Threads: any.
class Log {
 public:
  Log(plexus_log_fn callback, plexus_log_sink_t* sink) noexcept
      : callback_(callback), sink_(sink) {}

  template <class... Args>
  void warn(LogText<std::type_identity_t<Args>...> text, Args&&... args) const {
    write(PLEXUS_LOG_WARN, text.file, text.line,
          fmt::format(text.format, std::forward<Args>(args)...));
  }
  void warn_each(const std::vector<std::string>& lines) const {
    for (const std::string& line : lines) {
      warn("{}", line);
    }
  }
  template <class... Args>
  void info(LogText<std::type_identity_t<Args>...> text, Args&&... args) const {
    write(PLEXUS_LOG_INFO, text.file, text.line,
          fmt::format(text.format, std::forward<Args>(args)...));
  }
  /// The reason of the failure that this thread returns next; see PLEXUS_LOG_ERROR.
  void error(const char* text) const noexcept {
    callback_(sink_, PLEXUS_LOG_ERROR, __builtin_FILE(), __builtin_LINE(), text);
  }

 private:
  void write(int32_t level, const char* file, int line, const std::string& text) const {
    callback_(sink_, level, file, line, text.c_str());
  }
  plexus_log_fn callback_;
  plexus_log_sink_t* sink_;
};

}  // namespace plexus::plugin
