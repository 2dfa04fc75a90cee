// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/nccl_net/log.hpp"

#include <array>
#include <cstdarg>
#include <cstdio>

#include <fmt/core.h>

#include "plugin-api/nccl/net_common.h"

#include "core/base/log.hpp"

namespace plexus::nccl_net {
namespace {

/// The call in progress in this thread; NCCL's log callback has no argument for it.
LogScope*& current_scope() noexcept {
  // NOLINTNEXTLINE(*-avoid-non-const-global-variables): the callback has no argument
  thread_local LogScope* scope = nullptr;
  return scope;
}

constexpr size_t kLineMax = 1024;  // as NCCL's own

int32_t native_level(int level) noexcept {
  return level == NCCL_LOG_TRACE ? PLEXUS_LOG_TRACE : PLEXUS_LOG_INFO;
}

bool is_warning(int level) noexcept { return level == NCCL_LOG_WARN || level == NCCL_LOG_ABORT; }

/// Logs lines of the plugin's own threads.
void log_for_process(int level, const char* file, int line, const char* text) noexcept {
  if (is_warning(level)) {
    log(LogLevel::kWarn, Subsystem::kNet, file, line, text);
  } else if (log_enabled(LogLevel::kInfo, Subsystem::kNet)) {
    log(LogLevel::kInfo, Subsystem::kNet, file, line, text);
  }
}

}  // namespace

LogScope::LogScope(const LogTarget& target) noexcept : target_(target), outer_(current_scope()) {
  current_scope() = this;
}

LogScope::~LogScope() {
  flush_warning();
  current_scope() = outer_;
}

void LogScope::flush_warning() {
  if (!warning_.empty() && !has_failed_) {
    target_.write(target_.sink, PLEXUS_LOG_WARN, "", 0, warning_.c_str());
    warning_.clear();
  }
}

int32_t LogScope::finish(const char* call, int32_t result) {
  if (result == PLEXUS_OK) {
    return PLEXUS_OK;
  }
  // "In progress" is not a valid result of a net plugin; as PLEXUS_AGAIN it would mean "call
  // again".
  const bool is_code = result > PLEXUS_OK && result <= PLEXUS_TIMEOUT && result != PLEXUS_AGAIN;
  if (warning_.empty()) {
    warning_ = fmt::format(
        "its {} failed with ncclResult {} and gave no reason; NCCL_DEBUG=INFO may show more", call,
        result);
  }
  has_failed_ = true;
  target_.error(warning_);
  return is_code ? result : PLEXUS_INTERNAL_ERROR;
}

void take_line(LogScope& scope, int level, const char* file, int line, const char* text) {
  if (is_warning(level) && scope.warning_.empty()) {
    // logged as a warning when the call succeeds, or as the reason of its failure
    scope.warning_ = text;
  } else if (is_warning(level)) {
    scope.target_.write(scope.target_.sink, PLEXUS_LOG_WARN, file, line, text);
  } else {
    scope.target_.write(scope.target_.sink, native_level(level), file, line, text);
  }
}

void log_from_nccl_plugin(
    int level, unsigned long, const char* file, int line, const char* format, ...) noexcept {
  if (format == nullptr ||
      (level == NCCL_LOG_TRACE && !log_enabled(LogLevel::kTrace, Subsystem::kNet))) {
    return;
  }
  std::array<char, kLineMax> text{};
  va_list arguments;
  va_start(arguments, format);
  const int length = std::vsnprintf(text.data(), text.size(), format, arguments);
  va_end(arguments);
  if (length < 0) {
    return;
  }
  const char* const place = file == nullptr ? "" : file;
  try {
    if (LogScope* scope = current_scope(); scope != nullptr) {
      take_line(*scope, level, place, line, text.data());
    } else {
      log_for_process(level, place, line, text.data());
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): a lost log line is the lesser evil
  }
}

}  // namespace plexus::nccl_net
