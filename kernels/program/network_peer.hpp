// SPDX-License-Identifier: Apache-2.0
// The network that reduces (ncclCollNet) as the verifier sees it: a peer with a program. Peers
// nranks, nranks + 1, ... of a communicator of nranks ranks are groups of ranks whose chunks the
// network combines.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/program/program.hpp"

namespace plexus {

/// How many networks the programs of all ranks talk to.
int count_networks(std::span<const Program> programs);

/// What network `number` does, as a program: the k-th chunks of all ranks that send to it are
/// combined, in the order of the ranks, and the result is every one's k-th chunk from it.
Program network_program(std::span<const Program> programs, int number);

}  // namespace plexus
