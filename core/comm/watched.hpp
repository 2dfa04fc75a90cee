// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace plexus {

class Communicator;

/// Adds a communicator that has been set up to the process's stall watch, which may be asked from
/// now on who keeps its calls waiting.
void watch_for_stalls(Communicator& comm);

}  // namespace plexus
