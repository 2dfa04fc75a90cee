// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/process_state.hpp"

#include <cfenv>
#include <clocale>
#include <filesystem>
#include <malloc.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/core.h>

extern char** environ;  // NOLINT(*-avoid-non-const-global-variables): POSIX

namespace plexus::conformance {

namespace fs = std::filesystem;

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

std::string describe_new(const Descriptors& before, const Descriptors& now) {
  std::string text;
  for (const auto& [number, target] : now) {
    const auto old = before.find(number);
    if (old == before.end() || old->second != target) {
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", number, target);
    }
  }
  return text;
}

uint32_t count_threads() {
  uint32_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/task")) {
    count += entry.exists() ? 1 : 0;
  }
  return count;
}

uint32_t settle_threads(uint32_t count, std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  uint32_t found = count_threads();
  while (found > count && std::chrono::steady_clock::now() < deadline) {
    ::sched_yield();
    found = count_threads();
  }
  return found;
}

uint64_t count_heap_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

Handlers list_handlers() {
  Handlers handlers{};
  for (int number = 1; number < kSignals; ++number) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) == 0) {
      handlers[static_cast<size_t>(number)] =
          reinterpret_cast<std::uintptr_t>(action.sa_handler);  // NOLINT(*-union-access)
    }
  }
  return handlers;
}

std::vector<std::string> list_surroundings() {
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
