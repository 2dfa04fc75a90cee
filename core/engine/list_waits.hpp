// SPDX-License-Identifier: Apache-2.0
// What is told of an execution that has not moved for long.
#pragma once

#include <vector>

#include "core/engine/execution.hpp"

namespace plexus {

/// What it waits for: connections, messages or slots for its lanes, and peers that still read its
/// user's memory.
std::vector<Wait> list_waits(const Execution& execution);
/// How many messages its connections have sent.
std::vector<Sent> list_sent(const Execution& execution);

}  // namespace plexus
