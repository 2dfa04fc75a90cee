// SPDX-License-Identifier: Apache-2.0
// Results of a check other than success, as errors of core/base: `wrong`: the plugin broke the
// rule; `skip`: the check is impossible here; `left_alone`: the other process of the check ended
// first and has the reason.
#pragma once

#include <utility>

#include "core/base/result.hpp"

namespace plexus::conformance {

inline constexpr Code kWrongCode = Code::kInvalidUsage;
inline constexpr Code kSkipCode = Code::kInProgress;
inline constexpr Code kLeftAloneCode = Code::kRemoteError;

template <class... Args>
[[nodiscard]] Error wrong(FormatAt<std::type_identity_t<Args>...> text, Args&&... args) {
  return fail<Args...>(kWrongCode, text, std::forward<Args>(args)...);
}
template <class... Args>
[[nodiscard]] Error skip(FormatAt<std::type_identity_t<Args>...> text, Args&&... args) {
  return fail<Args...>(kSkipCode, text, std::forward<Args>(args)...);
}

/// `PLEXUS_TRY(expect(size == 8, "test() says {} bytes, 8 were sent", size));`
template <class... Args>
[[nodiscard]] Result<void> expect(bool holds,
                                  FormatAt<std::type_identity_t<Args>...> text,
                                  Args&&... args) {
  if (!holds) {
    return wrong<Args...>(text, std::forward<Args>(args)...);
  }
  return ok();
}

}  // namespace plexus::conformance
