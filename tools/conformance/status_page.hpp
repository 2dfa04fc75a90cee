// SPDX-License-Identifier: Apache-2.0
// A page of memory that a check's processes share with the kit: what each is doing, and how it
// ended. It outlives a crash, so that the verdict can name the plugin's entry in which the crash
// happened.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace plexus::conformance {

/// Where a process is: in an entry of the plugin, or in a possibly long operation of the kit.
enum class Place : uint32_t {
  kKit,
  kLoading,
  kQuery,
  kInit,
  kFinalize,
  kDeviceCount,
  kProperties,
  kListen,
  kConnect,
  kAccept,
  kRegisterSend,
  kRegisterRecv,
  kDeregister,
  kIsend,
  kIrecv,
  kFlush,
  kTest,
  kCloseSend,
  kCloseRecv,
  kCloseListen,
  kNetPath,
  kGetTimes,
  kStartEvent,
  kStopEvent,
  kRecordState,
  kReduceSupport,
  kRegister,
  kIallreduce,
  kCloseGroup,
  kWaitingForPeer,
  kExit,
};
inline constexpr uint32_t kPlaces = static_cast<uint32_t>(Place::kExit) + 1;

/// "isend", "waiting for the other process".
[[nodiscard]] const char* place_name(Place place);

enum class ProcessState : uint32_t {
  kRunning,
  kPassed,
  kFailed,
  kSkipped,
  kLeftAlone,
  kDiedOnPurpose
};

/// A text that a dying process leaves.
class StatusText {
 public:
  void set(std::string_view text) noexcept;
  [[nodiscard]] std::string get() const;

 private:
  static constexpr size_t kBytes = 1500;
  std::array<char, kBytes> bytes_{};
};

/// The state of one process. Written by it, read by the kit after its end.
struct ProcessStatus {
  std::atomic<int32_t> pid{0};
  std::atomic<ProcessState> state{ProcessState::kRunning};
  std::atomic<Place> place{Place::kKit};
  StatusText text;                     // result of the check
  std::atomic<bool> is_broken{false};  // a rule for every call was broken; `broken` describes it
  std::atomic<bool> has_broken_text{false};
  StatusText broken;
};

struct StatusPage {
  std::array<ProcessStatus, 2> statuses;
};

struct UnmapStatusPage {
  void operator()(StatusPage* page) const noexcept;
};
using SharedStatusPage = std::unique_ptr<StatusPage, UnmapStatusPage>;
[[nodiscard]] Result<SharedStatusPage> make_status_page();

}  // namespace plexus::conformance
