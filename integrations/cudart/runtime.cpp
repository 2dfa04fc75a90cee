// SPDX-License-Identifier: Apache-2.0
#include "integrations/cudart/runtime.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/base/units.hpp"
#include "core/os/host.hpp"
#include "integrations/cudart/call.hpp"
#include "integrations/cudart/include/cuda_runtime_api.h"

namespace plexus::cudart {
namespace {

constexpr int kDevicesDefault = 8;
constexpr int kDevicesMax = 64;
constexpr uint64_t kMemoryMin = 1_MiB;
constexpr uint64_t kMemoryUsual = 16 * 1024_MiB;
constexpr int kCopyThreadsMax = 4;

struct ThisThread {
  const char* function = nullptr;
  cudaError_t last_error = cudaSuccess;
  int device = 0;
};

// CUDA's interface keeps these for each thread.
// NOLINTNEXTLINE(cppcoreguidelines-avoid-non-const-global-variables)
thread_local constinit ThisThread this_thread;

std::string_view text_of(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): once, at the start
  return value == nullptr ? std::string_view() : std::string_view(value);
}

template <class T>
std::optional<T> parse(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional<T>(value)
                                                                  : std::nullopt;
}

/// "4G", "512M", "1000000".
std::optional<uint64_t> parse_bytes(std::string_view text) {
  uint64_t unit = 1;
  if (!text.empty()) {
    const std::string last = lower(text.substr(text.size() - 1));
    const size_t power = std::string_view("kmgt").find(last);
    if (power != std::string_view::npos) {
      constexpr unsigned kBitsPerUnit = 10;
      unit = uint64_t{1} << (kBitsPerUnit * (power + 1));
      text.remove_suffix(1);
    }
  }
  const auto value = parse<uint64_t>(text);
  uint64_t bytes = 0;
  if (!value.has_value() || __builtin_mul_overflow(*value, unit, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

/// As CUDA: the devices up to the first that there is not, and none for an empty list.
std::vector<int> visible_devices(int count) {
  std::vector<int> all;
  const char* const list =
      std::getenv("CUDA_VISIBLE_DEVICES");  // NOLINT(concurrency-mt-unsafe): once, at the start
  if (list == nullptr) {
    for (int device = 0; device < count; ++device) {
      all.push_back(device);
    }
    return all;
  }
  for (const std::string_view part : split_list(list, ',')) {
    const auto device = parse<int>(part);
    const bool is_there = device.has_value() && *device >= 0 && *device < count &&
                          std::find(all.begin(), all.end(), *device) == all.end();
    if (!is_there) {
      break;
    }
    all.push_back(*device);
  }
  return all;
}

}  // namespace

Settings read_settings() {
  Settings settings;
  int count = kDevicesDefault;
  if (const auto text = text_of("PLEXUS_CUDART_DEVICES"); !text.empty()) {
    const auto value = parse<int>(text);
    if (!value.has_value() || *value < 0 || *value > kDevicesMax) {
      settings.wrong = fmt::format("PLEXUS_CUDART_DEVICES={} must be a number in 0..{}",
                                   printable(text), kDevicesMax);
      return settings;
    }
    count = *value;
  }
  settings.devices = visible_devices(count);
  const uint64_t half = memory_bytes() / 2 / static_cast<uint64_t>(std::max(count, 1));
  settings.memory_bytes = std::clamp(half, kMemoryMin, kMemoryUsual);
  if (const auto text = text_of("PLEXUS_CUDART_MEMORY"); !text.empty()) {
    const auto value = parse_bytes(text);
    if (!value.has_value() || *value < kMemoryMin) {
      settings.devices.clear();
      settings.wrong = fmt::format(
          "PLEXUS_CUDART_MEMORY={} must be a number of bytes, at least 1M, with K, M, G or T",
          printable(text));
      return settings;
    }
    settings.memory_bytes = *value;
  }
  settings.summary = text_of("PLEXUS_CUDART_SUMMARY") == "1";
  return settings;
}

namespace {

/// At the end of a process with PLEXUS_CUDART_SUMMARY=1.
void print_summary() {
  const Runtime* const runtime = Immortal<Runtime>::find();
  if (runtime != nullptr && !runtime->is_childs) {
    std::fprintf(
        stderr,
        "plexus: %d virtual devices over host memory, of which none held more than %llu of "
        "%llu bytes; %llu streams and captures\n",
        runtime->device_count(), static_cast<unsigned long long>(runtime->memory.peak_bytes()),
        static_cast<unsigned long long>(runtime->memory.total_bytes()),
        static_cast<unsigned long long>(runtime->streams.created()));
  }
}

}  // namespace

Runtime::Runtime() {
  if (settings.summary) {
    std::atexit(print_summary);
  }
}
Runtime::Runtime(AfterFork /*tag*/, Runtime& parents)
    : settings(parents.settings), checks(false), is_childs(true) {}

int Runtime::copy_threads() { return std::clamp(cores_available(), 1, kCopyThreadsMax); }

int current_device() noexcept { return this_thread.device; }
void set_current_device(int device) noexcept { this_thread.device = device; }

cudaError_t check_device(int device) {
  const Runtime& runtime = Runtime::instance();
  if (!runtime.settings.wrong.empty()) {
    return refuse(cudaErrorNoDevice, "there are no devices: {}", runtime.settings.wrong);
  }
  if (runtime.device_count() == 0) {
    return refuse(cudaErrorNoDevice,
                  "there are no devices: PLEXUS_CUDART_DEVICES is 0 or CUDA_VISIBLE_DEVICES lists "
                  "none of them");
  }
  if (device < 0 || device >= runtime.device_count()) {
    return refuse(cudaErrorInvalidDevice,
                  "there is no device {}: this process has {} (see "
                  "PLEXUS_CUDART_DEVICES)",
                  device, runtime.device_count());
  }
  return cudaSuccess;
}

cudaError_t check_pointer(const void* pointer, const char* what) {
  return pointer != nullptr ? cudaSuccess : refuse(cudaErrorInvalidValue, "{} is NULL", what);
}

CallName::CallName(const char* name) noexcept : outer_(this_thread.function) {
  this_thread.function = name;
}
CallName::~CallName() { this_thread.function = outer_; }
const char* current_function() noexcept { return this_thread.function; }

cudaError_t check_use() noexcept {
  if (Worker::is_current()) {
    return refuse_with(cudaErrorNotPermitted,
                       "a host function of a stream must not call the CUDA runtime");
  }
  if (Runtime::instance().is_childs) {
    return refuse_with(cudaErrorInitializationError,
                       "this process was forked from one that used CUDA: fork before its first "
                       "call, or exec");
  }
  return cudaSuccess;
}

cudaError_t note(cudaError_t result) noexcept {
  if (result != cudaSuccess) {
    this_thread.last_error = result;
  }
  return result;
}

cudaError_t refuse_with(cudaError_t code, std::string_view text) noexcept {
  try {
    const char* const function = this_thread.function;
    warn(
        fail(Code::kUnhandledCudaError, "{}: {}", function == nullptr ? "cudart" : function, text));
  } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the code says it, too
  }
  return code;
}

}  // namespace plexus::cudart

using plexus::cudart::this_thread;

PLEXUS_CUDART cudaError_t cudaGetLastError(void) {
  return std::exchange(this_thread.last_error, cudaSuccess);
}
PLEXUS_CUDART cudaError_t cudaPeekAtLastError(void) { return this_thread.last_error; }
