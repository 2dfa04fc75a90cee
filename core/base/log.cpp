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

#include "core/base/conf_file.hpp"
#include "core/base/config.hpp"
#include "core/base/immortal.hpp"
#include "guest/file.hpp"

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

/// NCCL's addition to strftime: %1f to %9f are digits of the second's fraction.
void put_fraction(std::string& format, long nanoseconds) {
  const std::string digits = fmt::format("{:09}", nanoseconds);
  for (size_t at = 0; (at = format.find('%', at)) != std::string::npos && at + 2 < format.size();) {
    const char count = format[at + 1];
    if (count >= '1' && count <= '9' && format[at + 2] == 'f') {
      format.replace(at, 3, digits, 0, static_cast<size_t>(count - '0'));
    } else {
      at += 2;
    }
  }
}

/// Which file a descriptor stands for, to notice that its number has been taken by another.
struct FileIdentity {
  explicit FileIdentity(int fd) {
    struct stat about {};
    is_open = fstat(fd, &about) == 0;
    is_socket = is_open && S_ISSOCK(about.st_mode);
    device = about.st_dev;
    inode = about.st_ino;
  }
  [[nodiscard]] bool is_same(const FileIdentity& other) const {
    return is_open && other.is_open && device == other.device && inode == other.inode;
  }
  bool is_open;
  bool is_socket;
  dev_t device;
  ino_t inode;
};

/// The program's standard output or standard error when this library was loaded.
const FileIdentity& first_identity(int fd) {
  static const FileIdentity output(STDOUT_FILENO);
  static const FileIdentity error(STDERR_FILENO);
  return fd == STDOUT_FILENO ? output : error;
}
[[maybe_unused]] const FileIdentity& kFirstOutput = first_identity(STDOUT_FILENO);

/// Descriptor 1 or 2 as long as it is the program's.
class ProgramOutput {
 public:
  explicit ProgramOutput(int fd) : fd_(fd), was_closed_(!first_identity(fd).is_open) {}

  void write(std::string_view bytes) {
    if (is_programs()) {
      (void)write_all(fd_, bytes);  // no channel is left to report a failed write
    }
  }

 private:
  /// Not when the descriptor was or is closed: what has that number then is something else, a
  /// socket or a file of the program's. One that was open may become another file (dup2), but no
  /// socket.
  bool is_programs() {
    const FileIdentity now(fd_);
    was_closed_ = was_closed_ || !now.is_open;
    return !was_closed_ && (!now.is_socket || now.is_same(first_identity(fd_)));
  }

  int fd_;
  bool was_closed_;
};

/// Where lines go: standard output or NCCL_DEBUG_FILE.
class LogTarget {
 public:
  /// Standard output, from now on.
  void close() {
    if (file_ >= 0 && FileIdentity(file_).is_same(identity_)) {
      ::close(file_);
    }
    file_ = -1;
  }
  /// The file from now on, or the target as it was if that cannot be had. A pipe that nobody reads
  /// cannot, and one that is full is waited for only briefly.
  void open(const std::string& path) {
    const int opened = open_text_file(path, O_TRUNC | O_APPEND);
    if (opened >= 0) {
      file_ = opened;
      identity_ = FileIdentity(opened);
    } else {
      write(
          fmt::format("NCCL_DEBUG_FILE={} cannot be written ({}): the log goes to standard "
                      "output\n",
                      path, std::strerror(errno)));
    }
  }
  [[nodiscard]] bool is_file() const { return file_ >= 0; }

  void write(std::string_view bytes) {
    if (file_ < 0) {
      output_.write(bytes);
    } else if (FileIdentity(file_).is_same(identity_)) {
      (void)write_all(file_, bytes);
    }
  }

 private:
  int file_ = -1;
  FileIdentity identity_{-1};  // of file_
  ProgramOutput output_{STDOUT_FILENO};
};

class Logger {
 public:
  static Logger& instance() { return Immortal<Logger>::instance(); }

  void read_environment() {
    const auto environment = hold_environment();
    ConfFiles::read().export_all();
    const std::lock_guard lock(mutex_);
    const std::string wish = upper(std::getenv("NCCL_DEBUG"));
    const LogLevel level = parse_level(wish);
    is_silent_ = wish == kLevelNames[0];
    subsystems_.store(parse_subsystems(upper(std::getenv("NCCL_DEBUG_SUBSYS"))),
                      std::memory_order_relaxed);
    level_.store(static_cast<int>(level), std::memory_order_relaxed);
    const char* const path = std::getenv("NCCL_DEBUG_FILE");
    target_.close();
    if (path != nullptr && level > LogLevel::kVersion) {
      target_.open(expand(path));
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
    target_.write(bytes);
  }

  void tell_sink(LogRecord record) const {
    record.host = host_.c_str();
    if (const LogSink sink = sink_.load(std::memory_order_acquire); sink != nullptr) {
      sink(record);
    }
  }
  void set_sink(LogSink sink) noexcept { sink_.store(sink, std::memory_order_release); }

  void write_notice(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (!is_silent_) {
      error_output_.write(fmt::format("plexus: {}\n", text));
    }
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
        target_(parent.target_),
        error_output_(parent.error_output_),
        is_silent_(parent.is_silent_) {
    const char* const path = std::getenv("NCCL_DEBUG_FILE");
    if (path != nullptr && std::strstr(path, "%p") != nullptr && target_.is_file()) {
      target_.open(expand(path));
    }
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
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    put_fraction(format, now.tv_nsec);
    std::tm parts{};
    localtime_r(&now.tv_sec, &parts);
    std::array<char, 128> text{};
    const size_t length = std::strftime(text.data(), text.size(), format.c_str(), &parts);
    return {text.data(), length};
  }

  std::atomic<int> level_{0};
  std::atomic<uint64_t> subsystems_{kSubsystemsDefault};
  std::atomic<LogSink> sink_{nullptr};
  const std::string host_;
  mutable std::mutex mutex_;
  LogTarget target_;  // guarded by mutex_, as what follows
  ProgramOutput error_output_{STDERR_FILENO};
  bool is_silent_ = false;  // NCCL_DEBUG=NONE
  std::string last_error_;
};

}  // namespace

bool log_enabled(LogLevel level, Subsystem subsystem) noexcept {
  return Logger::instance().enabled(level, subsystem);
}

void set_log_sink(LogSink sink) noexcept { Logger::instance().set_sink(sink); }

static void write_record(const LogRecord& record) noexcept {
  try {
    Logger& logger = Logger::instance();
    const bool is_warning = record.level == LogLevel::kWarn;
    if (is_warning) {
      logger.keep_error(record.text);
    }
    const bool is_written = logger.enabled(record.level, record.subsystem);
    if (is_written) {
      logger.write_line(record.level, record.file, record.line, record.text);
    }
    if (is_written || is_warning) {
      logger.tell_sink(record);
    }
  } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for a log line
  }
}

void log(LogLevel level,
         Subsystem subsystem,
         const char* file,
         int line,
         std::string_view text) noexcept {
  write_record({.level = level,
                .subsystem = subsystem,
                .file = file,
                .line = line,
                .code = Code::kSuccess,
                .text = text,
                .host = ""});
}

void notify(const char* file, int line, std::string_view text) noexcept {
  log(LogLevel::kWarn, Subsystem::kInit, file, line, text);
  if (!log_enabled(LogLevel::kWarn, Subsystem::kInit)) {
    try {
      Logger::instance().write_notice(text);
    } catch (...) {  // NOLINT(bugprone-empty-catch): no memory for a line
    }
  }
}

void warn(const Error& error) noexcept {
  write_record({.level = LogLevel::kWarn,
                .subsystem = Subsystem::kInit,
                .file = error.file(),
                .line = error.line(),
                .code = error.code(),
                .text = error.message(),
                .host = ""});
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
