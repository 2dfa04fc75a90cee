// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/process_state.hpp"

#include <cfenv>
#include <chrono>
#include <clocale>
#include <csignal>
#include <filesystem>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/conformance/finding.hpp"

extern char** environ;  // NOLINT(*-avoid-non-const-global-variables): POSIX

namespace plexus::conformance {

namespace fs = std::filesystem;

namespace {

uint32_t count_threads() {
  uint32_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/task")) {
    count += entry.exists() ? 1 : 0;
  }
  return count;
}

}  // namespace

Descriptors list_descriptors() {
  Descriptors found;
  std::vector<int> numbers;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd")) {
    numbers.push_back(std::stoi(entry.path().filename().string()));
  }
  for (const int number : numbers) {
    std::error_code error;  // the descriptor of the listing itself is gone by now
    const fs::path target = fs::read_symlink(fmt::format("/proc/self/fd/{}", number), error);
    if (!error) {
      found[number] = target.string();
    }
  }
  return found;
}

Holdings::Holdings() : descriptors_(list_descriptors()), threads_(count_threads()) {}

std::string Holdings::opened() const {
  std::string text;
  for (const auto& [number, target] : list_descriptors()) {
    const auto old = descriptors_.find(number);
    if (old == descriptors_.end() || old->second != target) {
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", number, target);
    }
  }
  return text;
}

Result<void> Holdings::expect_no_descriptors(const char* use) const {
  const std::string left = opened();
  return expect(left.empty(), "open after {}: {}", use, left);
}

/// A thread that was joined takes a moment to leave the kernel's list.
Result<void> Holdings::expect_no_threads(const char* use) const {
  using Clock = std::chrono::steady_clock;
  constexpr auto kLimit = std::chrono::seconds(1);
  const auto deadline = Clock::now() + kLimit;
  uint32_t now = count_threads();
  while (now > threads_ && Clock::now() < deadline) {
    ::sched_yield();
    now = count_threads();
  }
  return expect(now <= threads_, "{} threads after {}, {} before", now, use, threads_);
}

Result<void> Holdings::expect_nothing_more(const char* use) const {
  PLEXUS_TRY(expect_no_descriptors(use));
  return expect_no_threads(use);
}

Surroundings::Surroundings() : handlers_(list_handlers()), rest_(list_rest()) {}

Result<void> Surroundings::expect_unchanged(const char* who) const {
  PLEXUS_TRY(expect(handlers_ == list_handlers(), "{} changed a signal's handler", who));
  return expect(rest_ == list_rest(),
                "{} changed the environment, the folder, the umask, the rounding mode or the "
                "locale",
                who);
}

Surroundings::Handlers Surroundings::list_handlers() {
  Handlers handlers{};
  for (int number = 1; number < static_cast<int>(kSignals); ++number) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) == 0) {
      handlers[static_cast<size_t>(number)] =
          reinterpret_cast<std::uintptr_t>(action.sa_handler);  // NOLINT(*-union-access)
    }
  }
  return handlers;
}

std::vector<std::string> Surroundings::list_rest() {
  std::vector<std::string> all;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    all.emplace_back(*each);
  }
  all.push_back("folder " + fs::current_path().string());
  const mode_t mask = ::umask(0);
  ::umask(mask);
  all.push_back(fmt::format("umask {:o}", mask));
  all.push_back(fmt::format("rounding mode {}", std::fegetround()));
  all.push_back(std::string("locale ") + std::setlocale(LC_ALL, nullptr));
  return all;
}

}  // namespace plexus::conformance
