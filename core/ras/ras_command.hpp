// SPDX-License-Identifier: Apache-2.0
// The lines that a client of NCCL's RAS protocol sends, as values, and their splitting. The bytes
// come from whoever can connect and are not trusted. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace plexus {

enum class RasVerb {
  kReply,  // `reply` is all there is to it
  kTimeout,
  kFormat,
  kStatus,  // the connection ends with the answer, as with kDiagnostics
  kMonitor,
  kDiagnostics,
};

struct RasCommand {
  RasVerb verb = RasVerb::kReply;
  std::string reply = {};      // to send first, with its line feed; kStatus, kDiagnostics: none
  double seconds = 0;          // kTimeout; 0: no limit
  bool is_json = false;        // kFormat
  bool is_verbose = false;     // kStatus
  bool has_lifecycle = false;  // kMonitor: the group of events
};
/// `line` without its line feed.
RasCommand parse_ras_command(std::string_view line);

/// What has come from a client and was not a whole line yet.
class RasLines {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }
  /// The next line, without its end.
  std::optional<std::string> next();
  /// More than a line may have has come without an end.
  [[nodiscard]] bool is_too_long() const noexcept {
    return bytes_.size() >= kLineBytesMax && bytes_.find('\n') >= kLineBytesMax;
  }
  static constexpr size_t kLineBytesMax = 1024;

 private:
  std::string bytes_;
};

}  // namespace plexus
