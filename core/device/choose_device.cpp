// SPDX-License-Identifier: Apache-2.0
#include "core/device/choose_device.hpp"

#include "core/base/log.hpp"

namespace plexus {
namespace {

Result<int> find_device(DeviceRuntime* runtime, int wish) {
  if (runtime == nullptr) {
    return fail(Code::kInvalidUsage, "this build has no CUDA support");
  }
  PLEXUS_TRY(count, runtime->count());
  if (count == 0) {
    return fail(Code::kInvalidUsage, "the CUDA driver reports no GPU");
  }
  if (wish >= count) {
    return fail(Code::kInvalidArgument, "there is no device {}: the CUDA driver reports {}", wish,
                count);
  }
  if (wish == kHostDevice) {
    PLEXUS_TRY(current, runtime->current());
    wish = current;
  }
  PLEXUS_TRY(runtime->blocks_max(wish));  // an Error if Plexus's kernels do not run on it
  return wish;
}

}  // namespace

Result<int> choose_device(DeviceRuntime* runtime, const std::string& setting, int wish) {
  if (setting == "host") {
    return kHostDevice;
  }
  auto found = find_device(runtime, wish);
  if (found.has_value() || found.error().code() == Code::kInvalidArgument) {
    return found;
  }
  const bool is_absent = found.error().code() == Code::kInvalidUsage;
  if (setting == "cuda" || !is_absent) {  // a program with a GPU may pass memory of it
    return fail(Code::kInvalidUsage,
                "PLEXUS_DEVICE={} is not possible: {}; or set PLEXUS_DEVICE=host for ranks on the "
                "host",
                setting, found.error().message());
  }
  PLEXUS_INFO(kInit, "ranks compute on the host: {}", found.error().message());
  return kHostDevice;
}

}  // namespace plexus
