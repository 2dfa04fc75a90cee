// SPDX-License-Identifier: Apache-2.0
// The rates of this host (core/tuning) as `plexus explain` shows them and `plexus tune` renews
// them.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "core/base/config.hpp"
#include "core/base/result.hpp"
#include "core/tuning/copy_methods.hpp"

namespace plexus {

/// What processes of this host would agree on at init, if the kernel lets them.
HostCopyMethods find_copy_methods(const Config& config);
/// The rates, and the copy method of a message by size.
void print_copy_methods(const HostCopyMethods& methods);
nlohmann::ordered_json json_of(const HostCopyMethods& methods);

/// Measures this host and replaces its file; prints where that is. Nothing where it is switched
/// off.
Result<void> renew_rates(const Config& config);

}  // namespace plexus
