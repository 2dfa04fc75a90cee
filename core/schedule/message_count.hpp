// SPDX-License-Identifier: Apache-2.0
// Counts the messages that works send through connections: which connections a plan needs, what
// transports post in advance, and what profilers are told in advance. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/execution.hpp"
#include "core/transport/connection.hpp"
#include "kernels/host/executor.hpp"

namespace plexus {

/// Whether any loop of `work` moves data in `step`. Both sides of a connection get the same answer.
[[nodiscard]] bool moves_data(const Work& work, const Step& step);

/// 0: the work does not use `end`.
[[nodiscard]] uint64_t count_messages(const WorkQueue::Item& item, const ConnectionKey& key);

/// Messages that one run of `execution` receives through each receiving end with a pump.
[[nodiscard]] std::vector<ExpectedMessages> count_expected(const Execution& execution);

}  // namespace plexus
