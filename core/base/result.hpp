// SPDX-License-Identifier: Apache-2.0
// `Result<T>` is a value or an `Error` (a code and one sentence), for operating errors. The codes
// are ncclResult_t's numbers, so that the ABI boundary converts without a table. An `Error` is
// built once, where the failure is seen, and says what failed, where, and what to do about it;
// callers add context with `with_context` instead of logging a second line.
//
//   if (!is_open) {
//     return fail(Code::kInvalidUsage, "descriptor {} is closed: open it first", fd);
//   }
//   return fd;
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <boost/outcome/basic_result.hpp>
#include <boost/outcome/policy/terminate.hpp>
#include <boost/outcome/try.hpp>
#include <boost/version.hpp>
#include <fmt/core.h>

namespace plexus {

/// The values of ncclResult_t.
enum class Code : int32_t {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,
};

/// Why an operation failed. Move-only and two words wide, so that `Result<void>` is cheap to
/// return.
class [[nodiscard]] Error {
 public:
  Error() noexcept = default;  // "no error": required by Boost.Outcome, never returned
  Error(Code code, std::string message, const char* file, int line)
      : code_(code), detail_(std::make_unique<Detail>(Detail{std::move(message), file, line})) {}

  [[nodiscard]] Code code() const noexcept { return code_; }
  [[nodiscard]] const std::string& message() const noexcept { return detail_->message; }
  /// Source position where the error was made, for the WARN line.
  [[nodiscard]] const char* file() const noexcept { return detail_->file; }
  [[nodiscard]] int line() const noexcept { return detail_->line; }

  /// The same error, its message prefixed with "context: ".
  [[nodiscard]] Error with_context(std::string_view context) && {
    detail_->message.insert(0, fmt::format("{}: ", context));
    return std::move(*this);
  }
  /// An independent copy, for a failure that several communicators report.
  [[nodiscard]] Error clone() const { return {code_, message(), file(), line()}; }

 private:
  struct Detail {
    std::string message;
    const char* file;
    int line;
  };
  Code code_ = Code::kSuccess;
  std::unique_ptr<Detail> detail_;
};

template <class T = void>
using Result = BOOST_OUTCOME_V2_NAMESPACE::
    basic_result<T, Error, BOOST_OUTCOME_V2_NAMESPACE::policy::terminate>;

/// A format string with the source position at which it was written.
template <class... Args>
struct FormatAt {
  template <class S>
  // NOLINTNEXTLINE(google-explicit-constructor): a string literal becomes a format string
  consteval FormatAt(const S& text,
                     const char* origin_file = __builtin_FILE(),
                     int origin_line = __builtin_LINE())
      : format(text), file(origin_file), line(origin_line) {}
  fmt::format_string<Args...> format;
  const char* file;
  int line;
};

/// `return fail(Code::kInvalidArgument, "root {} is not in 0..{}", root, nranks - 1);`
template <class... Args>
[[nodiscard]] Error fail(Code code, FormatAt<std::type_identity_t<Args>...> text, Args&&... args) {
  return {code, fmt::format(text.format, std::forward<Args>(args)...), text.file, text.line};
}

/// The value of a successful `Result<void>`.
[[nodiscard]] inline auto ok() noexcept { return BOOST_OUTCOME_V2_NAMESPACE::success(); }

}  // namespace plexus

/// The one control-flow macro: `PLEXUS_TRY(expr)` or `PLEXUS_TRY(variable, expr)` (declares `auto&&
/// variable`).
#if BOOST_VERSION < 107500
#define PLEXUS_TRY(...) BOOST_OUTCOME_TRY(__VA_ARGS__)
#else  // the first of several arguments is a declaration there
#define PLEXUS_TRY(first, ...) \
  BOOST_OUTCOME_TRY(__VA_OPT__(auto&&) first __VA_OPT__(, ) __VA_ARGS__)
#endif
