// SPDX-License-Identifier: Apache-2.0
#include "core/base/log.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fmt/format.h>

#include "core/base/immortal.hpp"

namespace plexus {
namespace {

constexpr size_t kLastErrorBytes = 1024;
constexpr uint64_t kSubsystemsDefault = static_cast<uint64_t>(Subsystem::kInit) |
                                        static_cast<uint64_t>(Subsystem::kBootstrap) |
                                        static_cast<uint64_t>(Subsystem::kEnv);

struct SubsystemName {
  const char* name;
  uint64_t bits;
};
constexpr SubsystemName kSubsystemNames[] = {
    {"INIT", 0x1},         {"COLL", 0x2},   {"P2P", 0x4},        {"SHM", 0x8},
    {"NET", 0x10},         {"GRAPH", 0x20}, {"TUNING", 0x40},    {"ENV", 0x80},
    {"ALLOC", 0x100},      {"CALL", 0x200}, {"PROXY", 0x400},    {"NVLS", 0x800},
    {"BOOTSTRAP", 0x1000}, {"REG", 0x2000}, {"PROFILE", 0x4000}, {"RAS", 0x8000},
    {"DESTROY", 0x10000},  {"ALL", ~0ULL}};
constexpr const char* kLevelNames[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};

std::string upper(const char* text) {
  std::string result = text == nullptr ? "" : text;
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return result;
}

LogLevel parse_level(const std::string& text) {
  for (size_t i = 0; i < std::size(kLevelNames); ++i) {
    if (text == kLevelNames[i]) {
      return static_cast<LogLevel>(i);
    }
  }
  return LogLevel::kNone;
}

/// Bits of NCCL_DEBUG_SUBSYS, for example "INIT,NET" or "^COLL" (all but COLL).
uint64_t parse_subsystems(std::string text) {
  if (text.empty()) {
    return kSubsystemsDefault;
  }
  const bool inverted = text.front() == '^';
  text.erase(0, inverted ? 1 : 0);
  uint64_t bits = 0;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    for (const SubsystemName& row : kSubsystemNames) {
      bits |= text.substr(at, end - at) == row.name ? row.bits : 0;
    }
    at = end + 1;
  }
  return inverted ? ~bits : bits;
}

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  std::string result = name.data();
  result = result.substr(0, result.find('.'));
  std::replace_if(
      result.begin(), result.end(), [](char c) { return c == '%' || c == '/'; }, '-');
  return result;
}

class Logger {
 public:
  static Logger& instance() { return Immortal<Logger>::instance(); }

  void read_environment() {
    const std::lock_guard lock(mutex_);
    const LogLevel level = parse_level(upper(std::getenv("NCCL_DEBUG")));
    subsystems_.store(parse_subsystems(upper(std::getenv("NCCL_DEBUG_SUBSYS"))),
                      std::memory_order_relaxed);
    level_.store(static_cast<int>(level), std::memory_order_relaxed);
    if (file_ > STDERR_FILENO) {
      close(file_);
    }
    file_ = STDOUT_FILENO;
    const char* const path = std::getenv("NCCL_DEBUG_FILE");
    if (path != nullptr && level > LogLevel::kVersion) {
      const int opened = open_file(path);
      file_ = opened < 0 ? STDOUT_FILENO : opened;
    }
  }

  [[nodiscard]] bool enabled(LogLevel level, Subsystem subsystem) const {
    if (level_.load(std::memory_order_relaxed) < static_cast<int>(level)) {
      return false;
    }
    return level <= LogLevel::kWarn ||
           (subsystems_.load(std::memory_order_relaxed) & static_cast<uint64_t>(subsystem)) != 0;
  }

  void write_line(LogLevel level, const char* file, int line, std::string_view text) {
    const auto thread = static_cast<int>(syscall(SYS_gettid));
    std::string bytes;
    if (level == LogLevel::kWarn) {
      const char* const slash = std::strrchr(file, '/');
      bytes = fmt::format("\n{}{}:{}:{} [host] {}:{} NCCL WARN {}\n", time_stamp(), host_, getpid(),
                          thread, slash == nullptr ? file : slash + 1, line, text);
    } else if (level == LogLevel::kVersion) {
      bytes = fmt::format("{}\n", text);
    } else {
      bytes = fmt::format("{}:{}:{} [host] NCCL INFO {}\n", host_, getpid(), thread, text);
    }
    const std::lock_guard lock(mutex_);
    const ssize_t written = ::write(file_, bytes.data(), bytes.size());
    (void)written;  // no channel is left to report a failed write
  }

  void keep_error(std::string_view text) {
    const std::lock_guard lock(mutex_);
    last_error_.assign(text.substr(0, kLastErrorBytes - 1));
  }
  [[nodiscard]] std::string error() const {
    const std::lock_guard lock(mutex_);
    return last_error_;
  }

 private:
  friend class Immortal<Logger>;
  Logger() : host_(host_name()) { read_environment(); }
  /// The child writes where its parent writes, unless the file name contains the process id.
  Logger(AfterFork /*tag*/, const Logger& parent)
      : level_(parent.level_.load(std::memory_order_relaxed)),
        subsystems_(parent.subsystems_.load(std::memory_order_relaxed)),
        host_(parent.host_),
        file_(parent.file_) {
    const char* const path = std::getenv("NCCL_DEBUG_FILE");
    if (path != nullptr && std::strstr(path, "%p") != nullptr && file_ > STDERR_FILENO) {
      const int opened = open_file(path);
      file_ = opened < 0 ? file_ : opened;
    }
  }

  [[nodiscard]] int open_file(const char* path) const {
    constexpr mode_t kReadableByAll = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;
    return open(expand(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC,
                kReadableByAll);
  }

  [[nodiscard]] std::string expand(const char* path) const {
    std::string result;
    for (; *path != '\0'; ++path) {
      if (path[0] == '%' && path[1] == 'h') {
        result += host_;
        ++path;
      } else if (path[0] == '%' && path[1] == 'p') {
        result += std::to_string(getpid());
        ++path;
      } else if (path[0] == '%' && path[1] == '%') {
        result += '%';
        ++path;
      } else {
        result += *path;
      }
    }
    return result;
  }

  static std::string time_stamp() {
    const char* const wish = std::getenv("NCCL_DEBUG_TIMESTAMP_FORMAT");
    std::string format = wish == nullptr ? "[%F %T] " : wish;
    std::replace(format.begin(), format.end(), '_', ' ');
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    localtime_r(&now, &parts);
    std::array<char, 128> text{};
    const size_t length = std::strftime(text.data(), text.size(), format.c_str(), &parts);
    return {text.data(), length};
  }

  std::atomic<int> level_{0};
  std::atomic<uint64_t> subsystems_{kSubsystemsDefault};
  const std::string host_;
  mutable std::mutex mutex_;
  int file_ = STDOUT_FILENO;  // guarded by mutex_
  std::string last_error_;    // guarded by mutex_
};

}  // namespace

bool log_enabled(LogLevel level, Subsystem subsystem) noexcept {
  return Logger::instance().enabled(level, subsystem);
}

void log(LogLevel level,
         Subsystem subsystem,
         const char* file,
         int line,
         std::string_view text) noexcept {
  try {
    Logger& logger = Logger::instance();
    if (level == LogLevel::kWarn) {
      logger.keep_error(text);
    }
    if (logger.enabled(level, subsystem)) {
      logger.write_line(level, file, line, text);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for a log line
  }
}

void warn(const Error& error) noexcept {
  log(LogLevel::kWarn, Subsystem::kInit, error.file(), error.line(), error.message());
}

const char* last_error_text() noexcept {
  thread_local std::string copy;
  try {
    copy = Logger::instance().error();
  } catch (...) {
    return "out of memory";
  }
  return copy.c_str();  // NOLINT(clang-analyzer-cplusplus.InnerPointer): thread_local
}

void reset_log() noexcept {
  try {
    Logger::instance().read_environment();
  } catch (...) {  // NOLINT(bugprone-empty-catch): the old settings stay
  }
}

}  // namespace plexus
