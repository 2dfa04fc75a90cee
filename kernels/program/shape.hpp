// SPDX-License-Identifier: Apache-2.0
// `check_shape`: checks that every step is a verb that executors can run. Peers, chunks, buffers
// and conditions exist, and the chunk read is as long as the chunk written. The first part of the
// verifier.
#pragma once

#include <span>
#include <string>

#include "kernels/program/definition.hpp"
#include "kernels/program/program.hpp"

namespace plexus {

/// Empty, or a sentence about the first step that is wrong. `programs`: [nranks], by rank.
std::string check_shape(std::span<const Program> programs, const CollectiveDefinition& definition);

}  // namespace plexus
