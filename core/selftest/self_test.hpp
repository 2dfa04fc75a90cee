// SPDX-License-Identifier: Apache-2.0
// The self-test of PLEXUS_SELFTEST=1: the ranks of a communicator that is being made try the links
// between them in rounds of pairs, tell each other what they saw, and come to one verdict.
//
//   PLEXUS_TRY(run_self_test({.exchange = exchange.get(), .transport = context, ...}));
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/transport/transport_table.hpp"

namespace plexus {

struct SelfTestOptions {
  Exchange* exchange;
  TransportContext transport;    // the communicator's; group and exchange are replaced
  int channels;                  // that the communicator may use: they take the devices in turn
  std::vector<int> datacenters;  // [nranks]
  bool is_crowded;               // ranks share cores
  std::string file;              // rank 0 appends a line of JSON to it; "": none
  const std::atomic<bool>* give_up;
};

/// Collective; all ranks must call it. A link that is bad is told, and is no Error.
Result<void> run_self_test(const SelfTestOptions& options);

}  // namespace plexus
