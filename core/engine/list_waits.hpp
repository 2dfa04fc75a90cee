// SPDX-License-Identifier: Apache-2.0
// What is told of an execution that has not moved for long.
#pragma once

#include <optional>
#include <vector>

#include "core/engine/execution.hpp"

namespace plexus {

/// What it waits for: connections, messages or slots for its lanes, and peers that still read its
/// user's memory.
std::vector<Wait> list_waits(const Execution& execution);

/// That, how many messages its connections have sent, and what plugins hold up.
Standstill describe_standstill(const Execution& execution);

/// A peer of `gone` that it waits for, and of which nothing is under way any more; nullopt: none.
/// `connects`: connections over networks that are not made yet may still be.
std::optional<Wait> find_missing(const Execution& execution,
                                 const std::vector<int>& gone,
                                 bool connects);

}  // namespace plexus
