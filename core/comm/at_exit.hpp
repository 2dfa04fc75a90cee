// SPDX-License-Identifier: Apache-2.0
// The normal end of a process (exit, or the end of main) with communicators that it has not
// destroyed: scripts end so. Their ranks leave as those that destroy do, so that the others finish
// what they are at. Called by core/comm/process.
#pragma once

namespace plexus {

class Process;

/// Leaves all communicators in which no call is under way. They stay, because a destructor of the
/// program may still destroy them. Bounded: a thread that exits may hold any lock.
void leave_at_exit(Process& process) noexcept;

}  // namespace plexus
