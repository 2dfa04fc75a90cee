// SPDX-License-Identifier: Apache-2.0
// `Result<T>` for plugins: a value, or a `Failure` (a PLEXUS_* code and one sentence). It has the
// idea and spelling of the core's, which a plugin cannot include. The ABI boundary
// (abi_boundary.hpp) converts it to the code that crosses the ABI and the PLEXUS_LOG_ERROR line
// that explains it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <boost/outcome/basic_result.hpp>
#include <boost/outcome/policy/terminate.hpp>
#include <boost/outcome/try.hpp>
#include <boost/version.hpp>
#include <fmt/core.h>

#include "plugin-api/plexus_plugin.h"

namespace plexus::plugin {

struct [[nodiscard]] Failure {
  int32_t code = PLEXUS_INTERNAL_ERROR;
  std::string text;
};

template <class T = void>
using Result = BOOST_OUTCOME_V2_NAMESPACE::
    basic_result<T, Failure, BOOST_OUTCOME_V2_NAMESPACE::policy::terminate>;

/// Result of a step that never blocks.
enum class Progress { kPending, kDone };

/// `return fail(PLEXUS_SYSTEM_ERROR, "cannot bind {}: {}", address, reason);`
template <class... Args>
[[nodiscard]] Failure fail(int32_t code, fmt::format_string<Args...> text, Args&&... args) {
  return {code, fmt::format(text, std::forward<Args>(args)...)};
}

/// The value of a successful `Result<void>`.
[[nodiscard]] inline auto ok() noexcept { return BOOST_OUTCOME_V2_NAMESPACE::success(); }

/// The code of another plugin, which has given its reason to the host itself: no text.
[[nodiscard]] inline Result<void> pass_on(int32_t code) {
  return code == PLEXUS_OK ? Result<void>(ok()) : Result<void>(Failure{code, {}});
}

}  // namespace plexus::plugin

/// The one control-flow macro: `PLEXUS_TRY(expr)` or `PLEXUS_TRY(variable, expr)`.
#if BOOST_VERSION < 107500
#define PLEXUS_TRY(...) BOOST_OUTCOME_TRY(__VA_ARGS__)
#else  // the first of several arguments is a declaration there
#define PLEXUS_TRY(first, ...) \
  BOOST_OUTCOME_TRY(__VA_OPT__(auto&&) first __VA_OPT__(, ) __VA_ARGS__)
#endif
