// SPDX-License-Identifier: Apache-2.0
// The network that reduces (ncclCollNet) in the verifier: a peer with a program. In a communicator
// of nranks ranks, peers nranks, nranks + 1, ... are groups of ranks whose chunks the network
// combines.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/program/program.hpp"

namespace plexus {

/// Number of networks in the programs of all ranks.
int count_networks(std::span<const Program> programs);

/// The program of network `number`: it combines the k-th chunks of all ranks that send to it, in
/// rank order, and sends the result to each as the k-th chunk.
Program network_program(std::span<const Program> programs, int number);

}  // namespace plexus
