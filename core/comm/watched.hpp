// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/stall/stall_member.hpp"

namespace plexus {

class Communicator;

/// What the stall watch is told of a communicator that has been set up.
StallMember describe_member(Communicator& comm);

}  // namespace plexus
