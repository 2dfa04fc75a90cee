// SPDX-License-Identifier: Apache-2.0
// How ranks find each other: the unique id holds the address of a hub; every rank connects to it,
// proves that it knows the id's secret, and joins.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "core/base/config.hpp"
#include "core/bootstrap/exchange.hpp"
#include "core/bootstrap/unique_id.hpp"

namespace plexus {

/// Makes a unique id and starts its hub in this process. With NCCL_COMM_ID: only the id; rank 0's
/// join starts the hub.
Result<UniqueId> start_root(const Config& config);

/// Joins as `rank` of `nranks`. Blocks until connected; the first all_gather waits for the other
/// ranks. Returns early when `*stop` becomes true. If there are several `ids` (the same on all
/// ranks), the first is used.
Result<std::unique_ptr<Exchange>> join(const Config& config,
                                       std::span<const UniqueId> ids,
                                       int rank,
                                       int nranks,
                                       const std::atomic<bool>* stop);

}  // namespace plexus
