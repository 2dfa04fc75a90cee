// SPDX-License-Identifier: Apache-2.0
// What holds unless Plexus itself is wrong. A check that fails prints the expression, its values and
// its place, and what the ranks of the process are doing where that is known, and ends the process:
//
//   PLEXUS_ASSERT(nranks > 0, nranks);              in every build; not for the data path
//   PLEXUS_DCHECK(step < taken + kSlots, step);     with PLEXUS_DEBUG_CHECKS alone (the presets dev,
//                                                   asan, tsan, fuzz); else it is compiled, not run
//
// Errors of users, peers, plugins and the system are no reason for either: they are Results.
#pragma once

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <type_traits>

namespace plexus {

/// Prints to standard error what the ranks of the process are doing. Called once, by a process that
/// is about to end, in any thread and with any lock held: it must return within seconds.
using FlightRecord = void (*)();

/// nullptr: nothing is known, as in plugins.
inline std::atomic<FlightRecord>& flight_record() noexcept {
  static std::atomic<FlightRecord> record{nullptr};
  return record;
}

namespace assert_detail {

template <class T>
std::string text_of(const T& value) {
  if constexpr (requires { value.load(); }) {
    return text_of(value.load());
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<long long>(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    return std::to_string(value);
  } else if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return '"' + std::string(std::string_view(value)) + '"';
  } else {
    constexpr size_t kPointerChars = 24;
    char text[kPointerChars] = {};
    static_cast<void>(std::snprintf(text, sizeof text, "%p", static_cast<const void*>(value)));
    return text;
  }
}

[[noreturn, gnu::cold, gnu::noinline]] inline void end(const char* expression,
                                                       const char* names,
                                                       const std::string& values,
                                                       const char* file,
                                                       int line) noexcept {
  static std::atomic<bool> is_ending{false};
  std::fprintf(stderr, "%s:%d: Plexus is wrong here, please report it: '%s' does not hold", file,
               line, expression);
  std::fprintf(stderr, values.empty() ? "%s%s\n" : " (%s: %s)\n", names, values.c_str());
  const FlightRecord record = flight_record().load();
  if (record != nullptr && !is_ending.exchange(true)) {
    record();
  }
  std::abort();
}

template <class... Values>
[[noreturn, gnu::cold, gnu::noinline]] void fail(const char* expression,
                                                 const char* file,
                                                 int line,
                                                 const char* names,
                                                 const Values&... values) noexcept {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + text_of(values)), ...);
  end(expression, names, text, file, line);
}

}  // namespace assert_detail
}  // namespace plexus

#define PLEXUS_ASSERT(condition, ...)                                                  \
  (static_cast<bool>(condition)                                                        \
       ? static_cast<void>(0)                                                          \
       : ::plexus::assert_detail::fail(#condition, __FILE__, __LINE__, #__VA_ARGS__ __VA_OPT__(, ) \
                                           __VA_ARGS__))

#if defined(PLEXUS_DEBUG_CHECKS) && !defined(__CUDA_ARCH__)
#define PLEXUS_DCHECK(condition, ...) PLEXUS_ASSERT(condition __VA_OPT__(, ) __VA_ARGS__)
#else
#define PLEXUS_DCHECK(condition, ...) \
  (true ? static_cast<void>(0) : PLEXUS_ASSERT(condition __VA_OPT__(, ) __VA_ARGS__))
#endif
