// SPDX-License-Identifier: Apache-2.0
// What this program does when it is started as a rank (processes_test.cpp).
#pragma once

#include <string>

namespace plexus::testing_device {

/// The exit code.
int run_role(const std::string& role);

// In peer_mapped_test.cpp.
int peer_mapped_role();
int peer_mapped_graph_role();
int private_role();
int shared_pieces_role();

}  // namespace plexus::testing_device
