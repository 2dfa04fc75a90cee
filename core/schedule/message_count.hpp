// SPDX-License-Identifier: Apache-2.0
// How many messages a work moves through one connection, if any: which connections a plan needs,
// and what profilers are told beforehand. Pure.
#pragma once

#include <cstdint>

#include "core/transport/connection.hpp"
#include "kernels/host/executor.hpp"

namespace plexus {

/// Does any loop of `work` move something in `step`? Both sides of a connection say the same.
[[nodiscard]] bool moves_data(const Work& work, const Step& step);

/// 0: the work does not use `end`.
[[nodiscard]] uint64_t count_messages(const Work& work, const ConnectionEnd& end);

}  // namespace plexus
