// SPDX-License-Identifier: Apache-2.0
// What every plugin with contexts is held to: many of them, one after the other, leave nothing.
#pragma once

#include <functional>

#include "tools/conformance/check.hpp"

namespace plexus::conformance {

/// `use(times)` makes, uses and ends so many contexts, which log through `stand`.
Result<void> leaves_nothing(Stand& stand, const std::function<Result<void>(int times)>& use);

}  // namespace plexus::conformance
