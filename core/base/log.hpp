// SPDX-License-Identifier: Apache-2.0
// NCCL's logging: NCCL_DEBUG, NCCL_DEBUG_SUBSYS, NCCL_DEBUG_FILE and the layout of the lines. The
// text of the last WARN is kept for ncclGetLastError at every log level.
//
// The logger is one object per process instead of a parameter: NCCL's API has a process-wide last
// error, and logging must work before any communicator exists. Threads: any.
//
//   PLEXUS_INFO(kNet, "rank {}: connected to rank {}", rank, peer);  // with NCCL_DEBUG=INFO
//   PLEXUS_WARN("rank {} does not answer", peer);                    // also the last error
#pragma once

#include <cstdint>
#include <string_view>

#include <fmt/core.h>

#include "core/base/result.hpp"

namespace plexus {

enum class LogLevel : int { kNone = 0, kVersion, kWarn, kInfo, kAbort, kTrace };

/// The bits of NCCL_DEBUG_SUBSYS; NCCL's values.
enum class Subsystem : uint64_t {
  kInit = 0x1,
  kColl = 0x2,
  kP2p = 0x4,
  kShm = 0x8,
  kNet = 0x10,
  kGraph = 0x20,
  kTuning = 0x40,
  kEnv = 0x80,
  kAlloc = 0x100,
  kCall = 0x200,
  kProxy = 0x400,
  kNvls = 0x800,
  kBootstrap = 0x1000,
  kReg = 0x2000,
  kProfile = 0x4000,
  kRas = 0x8000,
  kDestroy = 0x10000,
};

/// A line, as who listens gets it.
struct LogRecord {
  LogLevel level;
  Subsystem subsystem;
  const char* file;
  int line;
  Code code;  // of the error that a WARN is about, else kSuccess
  std::string_view text;
  const char* host;
};
/// From now on `sink` is told of each line that is written, and of WARNs that NCCL_DEBUG leaves
/// out: in any thread, in several at once. Not in a child made by fork.
using LogSink = void (*)(const LogRecord& record);
void set_log_sink(LogSink sink) noexcept;

/// Returns whether log() would write such a line. Cheap.
bool log_enabled(LogLevel level, Subsystem subsystem) noexcept;
/// Writes one line with one write(2). A WARN also becomes the last error.
void log(LogLevel level,
         Subsystem subsystem,
         const char* file,
         int line,
         std::string_view text) noexcept;
/// A WARN that also concerns those who asked for no log: where NCCL_DEBUG leaves WARN out, and is
/// not NONE, it goes to standard error, as "plexus: " and the text.
void notify(const char* file, int line, std::string_view text) noexcept;
/// Reports an error where it is handled: one WARN line that points to the error's origin.
void warn(const Error& error) noexcept;
/// Text of the last WARN of this process, at most 1023 bytes; "" before the first one. Valid until
/// the same thread calls again.
const char* last_error_text() noexcept;
/// Reads the settings from the environment again.
void reset_log() noexcept;

}  // namespace plexus

#define PLEXUS_WARN(...)                                                                   \
  ::plexus::log(::plexus::LogLevel::kWarn, ::plexus::Subsystem::kInit, __FILE__, __LINE__, \
                fmt::format(__VA_ARGS__))
#define PLEXUS_NOTIFY(...) ::plexus::notify(__FILE__, __LINE__, fmt::format(__VA_ARGS__))
#define PLEXUS_INFO(subsystem, ...)                                                                \
  do {                                                                                             \
    if (::plexus::log_enabled(::plexus::LogLevel::kInfo, ::plexus::Subsystem::subsystem)) {        \
      ::plexus::log(::plexus::LogLevel::kInfo, ::plexus::Subsystem::subsystem, __FILE__, __LINE__, \
                    fmt::format(__VA_ARGS__));                                                     \
    }                                                                                              \
  } while (false)
