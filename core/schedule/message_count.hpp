// SPDX-License-Identifier: Apache-2.0
// How many messages works move through connections, if any: which connections a plan needs, what
// transports ask for, and what profilers are told beforehand. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/execution.hpp"
#include "core/transport/connection.hpp"
#include "kernels/host/executor.hpp"

namespace plexus {

/// Does any loop of `work` move something in `step`? Both sides of a connection say the same.
[[nodiscard]] bool moves_data(const Work& work, const Step& step);

/// 0: the work does not use `end`.
[[nodiscard]] uint64_t count_messages(const WorkQueue::Item& item, const ConnectionKey& key);

/// What one run of `execution` takes from each of its receiving ends that have a pump.
[[nodiscard]] std::vector<ExpectedMessages> count_expected(const Execution& execution);

}  // namespace plexus
