// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/process_state.hpp"

#include <algorithm>
#include <cfenv>
#include <chrono>
#include <clocale>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "tools/conformance/finding.hpp"
#include "tools/conformance/pause.hpp"
#include "tools/conformance/run_delay.hpp"

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

std::string shorten(const std::string& text) {
  constexpr size_t kMost = 60;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

}  // namespace

Descriptors list_descriptors() {
  Descriptors found;
  std::vector<int> numbers;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd")) {
    numbers.push_back(std::stoi(entry.path().filename().string()));
  }
  for (const int number : numbers) {
    std::error_code error;  // the listing's own descriptor is closed by now
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

/// A joined thread takes a moment to disappear from the kernel's list.
Result<void> Holdings::expect_no_threads(const char* use) const {
  FairDeadline deadline(std::chrono::seconds(1));
  const Pause pause;
  uint32_t now = count_threads();
  while (now > threads_ && !deadline.is_over()) {
    pause.rest();
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
  const Handlers now = list_handlers();
  for (size_t number = 1; number < kSignals; ++number) {
    const char* const name = ::sigabbrev_np(static_cast<int>(number));
    PLEXUS_TRY(expect(now[number] == handlers_[number], "{} changed the handler of the signal {}{}",
                      who, name == nullptr ? "" : "SIG",
                      name == nullptr ? std::to_string(number) : name));
  }
  const States rest = list_rest();
  for (const auto& [what, value] : rest) {
    const auto old = rest_.find(what);
    PLEXUS_TRY(expect(old != rest_.end(), "{} set {} to '{}'", who, what, shorten(value)));
    PLEXUS_TRY(expect(old->second == value, "{} changed {} from '{}' to '{}'", who, what,
                      shorten(old->second), shorten(value)));
  }
  for (const auto& [what, value] : rest_) {
    PLEXUS_TRY(
        expect(rest.contains(what), "{} removed {}, which was '{}'", who, what, shorten(value)));
  }
  return ok();
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

Surroundings::States Surroundings::list_rest() {
  States all;
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view text = *each;
    const size_t end = std::min(text.find('='), text.size());
    all[fmt::format("the environment variable {}", text.substr(0, end))] =
        text.substr(std::min(end + 1, text.size()));
  }
  all["the current directory"] = fs::current_path().string();
  const mode_t mask = ::umask(0);
  ::umask(mask);
  all["the umask"] = fmt::format("{:o}", mask);
  all["the rounding mode"] = fmt::format("{}", std::fegetround());
  all["the locale"] = std::setlocale(LC_ALL, nullptr);
  return all;
}

}  // namespace plexus::conformance
