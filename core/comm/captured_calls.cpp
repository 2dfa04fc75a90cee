// SPDX-License-Identifier: Apache-2.0
#include "core/comm/captured_calls.hpp"

#include <algorithm>
#include <memory>
#include <new>
#include <utility>

#include "core/base/log.hpp"
#include "core/comm/communicator.hpp"
#include "core/device/virtual_devices.hpp"

namespace plexus {
namespace {

CUstream_st* handle_of(HostStream* stream) { return reinterpret_cast<CUstream_st*>(stream); }

struct CapturedCalls final : plexusCaptured {
  CapturedCalls() : plexusCaptured{.issue = issue_calls, .release = release_calls} {}

  static int issue_calls(plexusCaptured* self, CUstream_st* stream);
  static void release_calls(plexusCaptured* self) {
    const std::unique_ptr<CapturedCalls> owner(static_cast<CapturedCalls*>(self));
  }

  std::vector<Task> tasks;
  std::vector<uint64_t> numbers;  // of the tasks' communicators
  Result<void> (*run)(std::span<const Task>) = nullptr;
};

Result<void> issue_on(const CapturedCalls& calls, CUstream_st* stream) {
  std::vector<Task> tasks = calls.tasks;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!Communicator::is_live(tasks[i].comm) || tasks[i].comm->number() != calls.numbers[i]) {
      return fail(Code::kInvalidUsage,
                  "the graph makes a call on a communicator that was destroyed: destroy graphs "
                  "before the communicators that they use");
    }
    tasks[i].stream = reinterpret_cast<HostStream*>(stream);
  }
  return calls.run(tasks);
}

int CapturedCalls::issue_calls(plexusCaptured* self, CUstream_st* stream) {
  try {
    const auto issued = issue_on(*static_cast<const CapturedCalls*>(self), stream);
    if (issued.has_error()) {
      warn(issued.error());
      return static_cast<int>(issued.error().code());
    }
    return static_cast<int>(Code::kSuccess);
  } catch (const std::bad_alloc&) {
    return static_cast<int>(Code::kSystemError);
  }
}

}  // namespace

std::optional<std::vector<Task>> take_down(std::span<const Task> tasks,
                                           Result<void> (*run)(std::span<const Task>)) {
  const plexusVirtualDevices* const devices = virtual_devices();
  const auto is_captured = [devices](const Task& task) {
    return task.stream != nullptr && devices->is_captured(handle_of(task.stream)) != 0;
  };
  if (devices == nullptr || std::none_of(tasks.begin(), tasks.end(), is_captured)) {
    return std::nullopt;
  }
  std::vector<Task> others;
  std::vector<std::unique_ptr<CapturedCalls>> captured;  // one for each stream
  for (const Task& task : tasks) {
    if (!is_captured(task)) {
      others.push_back(task);
      continue;
    }
    auto at = std::find_if(captured.begin(), captured.end(), [&](const auto& calls) {
      return calls->tasks.front().stream == task.stream;
    });
    if (at == captured.end()) {
      at = captured.insert(at, std::make_unique<CapturedCalls>());
      (*at)->run = run;
    }
    (*at)->tasks.push_back(task);
    (*at)->numbers.push_back(task.comm->number());
  }
  for (auto& calls : captured) {
    CUstream_st* const stream = handle_of(calls->tasks.front().stream);
    devices->capture(stream, calls.release());
  }
  return others;
}

}  // namespace plexus
