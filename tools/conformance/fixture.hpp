// SPDX-License-Identifier: Apache-2.0
// What a check's function gets: the plugin's file, the monitor for its calls, the other process if
// there is one, and bounded waits. One per process of a check.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tools/conformance/finding.hpp"
#include "tools/conformance/monitor.hpp"
#include "tools/conformance/peer_link.hpp"
#include "tools/conformance/status_page.hpp"
#include "tools/conformance/trace.hpp"

namespace plexus::conformance {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// What is checked, as the user named it.
struct Subject {
  std::filesystem::path file;
  std::string abi;        // "" the best that it has, "native", "v6": of NCCL's ABI of its kind
  uint32_t patience = 1;  // factor for waits: for a slow machine or a sanitizer
  std::string kind;       // "net", "tuner", ... if the library has several kinds; "": the first
  std::vector<std::filesystem::path> preload = {};  // libraries that the plugin finds loaded
  uint32_t bench_mebibytes = 256;                   // sent per size to measure the bandwidth
  std::filesystem::path trace = {};  // a folder for the traces of a check's processes; "": none
  seconds endurance{0};              // of the long run
  uint64_t seed = 0;                 // of the long run

  /// The version that `abi` names; 0: none.
  [[nodiscard]] int nccl_version() const;
};

class Fixture {
 public:
  struct Options {
    Subject subject;
    uint32_t role = 0;
    PeerLink peer_link;                   // to the other process of a check with two
    const ProcessStatus* peer = nullptr;  // its status
  };
  Fixture(Options options, ProcessStatus& status);

  [[nodiscard]] const Subject& subject() const noexcept { return options_.subject; }
  [[nodiscard]] const std::filesystem::path& file() const noexcept { return options_.subject.file; }
  [[nodiscard]] Monitor& monitor() noexcept { return monitor_; }
  [[nodiscard]] ProcessStatus& status() noexcept { return *status_; }
  /// 0 or 1; in a check with two processes both run the same function.
  [[nodiscard]] uint32_t role() const noexcept { return options_.role; }
  [[nodiscard]] PeerLink& peer() noexcept { return options_.peer_link; }
  [[nodiscard]] Trace& trace() noexcept { return trace_; }

  /// `time`, extended on a slow machine.
  [[nodiscard]] milliseconds bound(milliseconds time) const noexcept {
    return time * options_.subject.patience;
  }
  /// Calls `step` until it returns true; an Error of `step` ends it. `what` completes "timed out
  /// after 15000 ms: "; it is called then. Time in which other threads had the core does not count.
  [[nodiscard]] Result<void> wait_until(const std::function<std::string()>& what,
                                        const std::function<Result<bool>()>& step,
                                        milliseconds limit = kWait);
  [[nodiscard]] Result<void> wait_until(const char* what,
                                        const std::function<Result<bool>()>& step,
                                        milliseconds limit = kWait) {
    return wait_until([what]() -> std::string { return what; }, step, limit);
  }
  /// Calls `step` for the given time, at least once; an Error of `step` ends it.
  [[nodiscard]] Result<void> repeat_for(milliseconds time,
                                        const std::function<Result<void>()>& step);
  /// Ends this process at once, like a crash, and marks that as intended.
  [[noreturn]] void die();

  static constexpr milliseconds kWait = seconds(15);

 private:
  Options options_;
  ProcessStatus* status_;
  Monitor monitor_;
  Trace trace_;
};

}  // namespace plexus::conformance
