// SPDX-License-Identifier: Apache-2.0
#include "core/comm/process.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "core/base/config.hpp"
#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/comm/at_exit.hpp"
#include "core/comm/communicator.hpp"
#include "core/join/job_secret.hpp"
#include "core/os/descriptors.hpp"
#include "core/plugin/call_watch.hpp"
#include "core/plugin/env_plugin.hpp"
#include "core/plugin/log_plugin.hpp"
#include "core/stall/stall_probe.hpp"
#include "guest/assert.hpp"

namespace plexus {

namespace {

std::map<const void*, int32_t> join(const std::set<const void*>& handles,
                                    int32_t pid,
                                    std::map<const void*, int32_t> others) {
  for (const void* const handle : handles) {
    others.emplace(handle, pid);
  }
  return others;
}

/// What the ranks of this process do, as `plexus doctor` shows it. Bounded, because the thread
/// whose assertion failed may hold any lock.
void print_flight_record() {
  constexpr auto kTime = std::chrono::seconds(2);
  auto written = std::make_shared<std::promise<void>>();
  auto thread = start_thread("a flight record", [written] {
    if (Process* const process = Immortal<Process>::find(); process != nullptr) {
      std::fprintf(stderr, "the ranks of this process: %s\n", process->stalls.report().c_str());
    }
    written->set_value();
  });
  if (thread.has_value()) {
    static_cast<void>(written->get_future().wait_for(kTime));
    thread.value().detach();
  }
}

/// Why other ranks may wait for those of this process.
std::string explain_wait() {
  constexpr auto kLong = std::chrono::seconds(1);
  const auto inside = CallWatcher::of_process().find_longest(std::nullopt);
  return !inside.has_value() || inside->time < kLong
             ? std::string()
             : fmt::format("has been inside {} of plugin {} for {} s", inside->entry,
                           inside->plugin, inside->time.count() / 1000);
}

/// A call that only some ranks have made may have ended on those: it is told when they have left.
bool compare_left(uint64_t group, size_t nranks, const AgentHooks::Records& records) {
  std::map<int, LeaveRecord> decoded;
  for (const auto& [rank, record] : records) {
    auto one = decode_leave_record(record);
    if (!one.has_value() || one->how != Departure::kDestroyed) {
      return true;
    }
    decoded.emplace(rank, std::move(*one));
  }
  const std::string sentence = compare_calls(decoded);
  if (!sentence.empty()) {
    PLEXUS_NOTIFY("comm {:#x} of {} ranks: {}", group, nranks, sentence);
  }
  return !sentence.empty();
}

/// When the library goes: after the destructors of the program's objects, which may end groups and
/// communicators still.
__attribute__((destructor)) void report_at_unload() {
  Process* const process = Immortal<Process>::find();
  if (process != nullptr && process->check() != nullptr) {
    process->check()->report_at_end();
  }
}

}  // namespace

AgentHooks Process::agent_hooks() { return {.explain = explain_wait, .compare = compare_left}; }

Process::Process() {
  flight_record().store(&print_flight_record);
  // Children made by fork inherit this; one that has made nothing has nothing to leave.
  std::atexit([] {
    if (Process* const process = Immortal<Process>::find(); process != nullptr) {
      leave_at_exit(*process);
    }
  });
  Forks::add(*this);
}

Process::Process(AfterFork tag, Process& parent)
    : memory(tag, parent.memory),
      profiler_masks(tag, parent.profiler_masks),
      parents_streams_(join(parent.streams_, parent.pid_, parent.parents_streams_)) {
  if (parent.env_read_.load(std::memory_order_acquire)) {
    std::call_once(env_once_, [&] {
      if (parent.env_error_.has_value()) {
        env_error_ = parent.env_error_->clone();
      }
    });
    env_read_.store(true, std::memory_order_relaxed);
  }
  Forks::add(*this);
}

void Process::hold() noexcept {
  mutex_.lock();
  communicators.hold();
  memory.hold();
  profiler_masks.hold();
}

void Process::release() noexcept {
  profiler_masks.release();
  memory.release();
  communicators.release();
  mutex_.unlock();
}

Result<Config> Process::read_settings() {
  std::call_once(env_once_, [this] {
    auto installed =
        plexus::install_env_plugin({.plugin = setting_value("NCCL_ENV_PLUGIN").value_or(""),
                                    .folders = setting_value("PLEXUS_PLUGIN_PATH").value_or("")});
    if (installed.has_error()) {
      env_error_ = std::move(installed).error();
    } else {
      install_log_plugin({.plugin = setting_value("NCCL_LOG_PLUGIN").value_or(""),
                          .folders = setting_value("PLEXUS_PLUGIN_PATH").value_or("")});
    }
    env_read_.store(true, std::memory_order_release);  // pairs with the load of a child's
  });
  if (env_error_.has_value()) {
    return env_error_->clone();
  }
  PLEXUS_TRY(config, read_config());
  if (virtual_devices() != nullptr) {
    config.device = "host";  // which these stand for
  }
  PLEXUS_TRY(add_job_secret(config));
  if (config.raise_nofile) {  // once: a program that lowers it again has its reasons
    std::call_once(limit_once_, raise_descriptor_limit);
  }
  return config;
}

/// Settings that are wrong are told by the call that needs them.
UseCheck* Process::decide_check() {
  const auto config = read_settings();
  if (config.has_error()) {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  if (config.value().check && !check_.has_value()) {
    check_.emplace(*this);
  }
  // pairs with check()
  checks_.store(check_.has_value() ? Checks::kOn : Checks::kOff, std::memory_order_release);
  return check_.has_value() ? &*check_ : nullptr;
}

/// The call comes before the file.
Result<void> Process::add_job_secret(Config& config) {
  {
    const std::lock_guard lock(mutex_);
    config.job_secret = encryption_key_;
  }
  if (config.job_secret.empty() && !config.secret_file.empty()) {
    PLEXUS_TRY(secret, read_job_secret(config.secret_file));
    config.job_secret = std::move(secret);
  }
  return ok();
}

void Process::set_encryption(std::string key) {
  constexpr const char* kMode = "PLEXUS_NET_SECURITY";  // which plugins read, too
  const std::lock_guard lock(mutex_);
  if (!key.empty()) {
    setenv(kMode, "tls", 1);
  } else if (!encryption_key_.empty()) {
    unsetenv(kMode);
  }
  explicit_bzero(encryption_key_.data(), encryption_key_.size());
  encryption_key_ = std::move(key);
}

Result<void*> Process::allocate_memory(size_t size_bytes) {
  PLEXUS_TRY(config, read_settings());
  const Allowing all(devices_, DriverCalls::kAll);
  PLEXUS_TRY(device, choose_device(devices_, config.device, kHostDevice));
  if (device == kHostDevice) {
    return memory.allocate(size_bytes);
  }
  return memory.allocate_on(*devices_, device,
                            {.size_bytes = size_bytes, .in_piece = config.cumem_enable != 0});
}

Result<void> Process::free_memory(void* pointer) {
  const Allowing all(devices_, DriverCalls::kAll);
  communicators.any([&](const Communicator& comm) {
    comm.forget_memory(pointer);
    return false;
  });
  return memory.release(pointer);
}

Result<HostStream*> Process::create_stream() {
  PLEXUS_TRY(async.start());
  auto stream = std::make_unique<HostStream>();
  const std::lock_guard lock(mutex_);
  streams_.insert(stream.get());
  return stream.release();
}

HostStream* Process::find_stream(const void* handle) const {
  const std::lock_guard lock(mutex_);
  if (streams_.count(handle) == 0) {
    return nullptr;
  }
  return static_cast<HostStream*>(
      const_cast<void*>(handle));  // NOLINT(cppcoreguidelines-pro-type-const-cast): ours
}

int32_t Process::parent_of_stream(const void* handle) const {
  const auto at = parents_streams_.find(handle);
  return at == parents_streams_.end() ? 0 : at->second;
}

Result<void> Process::destroy_stream(HostStream* stream) {
  {
    const std::lock_guard lock(mutex_);
    if (streams_.erase(stream) == 0) {
      return fail(Code::kInvalidArgument,
                  "the stream was not created by plexusStreamCreate or is already destroyed");
    }
  }
  const std::unique_ptr<HostStream> owner(stream);
  return owner->wait();
}

void Process::make_wait(HostStream* stream, const HostEvent& event) {
  auto mark = event.last();
  if (mark == nullptr || (mark->reached() && mark->error() == nullptr)) {
    return;
  }
  async.submit({.parts = {}, .streams = {stream}, .after = std::move(mark)});
}

void Process::launch_host_function(HostStream* stream, std::function<void()> function) {
  async.submit({.parts = {}, .streams = {stream}, .function = std::move(function)});
}

void Process::launch_work(HostStream* stream,
                          std::function<void(const std::shared_ptr<StreamMark>&)> start) {
  const auto done = std::make_shared<StreamMark>();
  launch_host_function(stream, [start = std::move(start), done] { start(done); });
  async.submit({.parts = {}, .streams = {stream}, .after = done});
}

HostEvent* Process::create_event() {
  auto event = std::make_shared<HostEvent>();
  HostEvent* const handle = event.get();
  const std::lock_guard lock(mutex_);
  events_.emplace(handle, std::move(event));
  return handle;
}

Result<void> Process::destroy_event(const void* handle) {
  const std::lock_guard lock(mutex_);
  if (events_.erase(handle) == 0) {
    return fail(Code::kInvalidArgument,
                "the event was not created by plexusEventCreate or is already destroyed");
  }
  return ok();
}

Result<std::shared_ptr<HostEvent>> Process::find_event(const void* handle) const {
  const std::lock_guard lock(mutex_);
  const auto at = events_.find(handle);
  if (at == events_.end()) {
    return fail(Code::kInvalidArgument,
                "the event was not created by plexusEventCreate or is already destroyed");
  }
  return at->second;
}

}  // namespace plexus
