// SPDX-License-Identifier: Apache-2.0
#include "tests/support/software_habits.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

namespace plexus::testing_device {
namespace {

thread_local DriverCalls allowed = DriverCalls::kOrdered;
thread_local bool in_host_function = false;

[[noreturn]] void refuse(const char* call, const char* why) {
  std::fprintf(stderr, "software device: %s is called %s\n", call, why);
  std::abort();
}

}  // namespace

SoftwareHabits SoftwareHabits::parse(const std::string& text) {
  SoftwareHabits habits;
  const std::map<std::string, bool*> switches = {
      {"cooperative_alone", &habits.cooperative_alone},
      {"launch_blocking", &habits.launch_blocking},
      {"free_waits", &habits.free_waits},
      {"driver_lock", &habits.driver_lock},
      {"clearing_needs_room", &habits.clearing_needs_room},
      {"refuses_ipc", &habits.refuses_ipc},
      {"refuses_cumem", &habits.refuses_cumem},
      {"refuses_export", &habits.refuses_export},
      {"refuses_import", &habits.refuses_import},
      {"strict", &habits.strict}};
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    const int number = equals == std::string::npos ? 1 : std::atoi(word.c_str() + equals + 1);
    if (const auto at = switches.find(name); at != switches.end()) {
      *at->second = number != 0;
    } else if (name == "queues") {
      habits.queues = number;
    } else if (name == "block_threads" && number > 0) {
      habits.block_threads = static_cast<uint32_t>(number);
    } else {
      std::fprintf(stderr,
                   "PLEXUS_TEST_HABITS: '%s' is no habit of tests/support/software_habits\n",
                   word.c_str());
      std::exit(2);
    }
  }
  return habits;
}

void fault(const char* what, const void* address) {
  std::fprintf(stderr, "software device: %s at %p\n", what, address);
  std::abort();
}

// ---- CallRules ----

DriverCalls CallRules::allow(DriverCalls calls) noexcept { return std::exchange(allowed, calls); }

void CallRules::begin_host_function() noexcept { in_host_function = true; }

void CallRules::check(const char* call, DriverCalls needed) const {
  if (!strict_) {
    return;
  }
  if (in_host_function) {
    refuse(call, "by a host function");
  }
  if (allowed == DriverCalls::kNone) {
    refuse(call, "by the thread that moves network slots");
  }
  if (needed <= allowed) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (kernels_ > 0) {
    refuse(call,
           "while a kernel of the library may run, outside of init, registration and destroy");
  }
}

void CallRules::begin_kernel() {
  const std::lock_guard lock(mutex_);
  ++kernels_;
}

void CallRules::end_kernel() {
  const std::lock_guard lock(mutex_);
  --kernels_;
  ended_.notify_all();
}

void CallRules::await_kernels(const char* call) {
  constexpr auto kLimit = std::chrono::seconds(30);
  std::unique_lock lock(mutex_);
  if (!ended_.wait_for(lock, kLimit, [this] { return kernels_ == 0; })) {
    std::fprintf(stderr, "software device: %s has waited for a kernel for 30 s\n", call);
    std::abort();
  }
}

// ---- HardwareQueue ----

uint64_t HardwareQueue::take() {
  const std::lock_guard lock(mutex_);
  return taken_++;
}

void HardwareQueue::await(uint64_t ticket) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return started_ == ticket; });
}

void HardwareQueue::pass() {
  const std::lock_guard lock(mutex_);
  ++started_;
  changed_.notify_all();
}

}  // namespace plexus::testing_device
