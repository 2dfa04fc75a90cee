// SPDX-License-Identifier: Apache-2.0
// Makes what Container names: namespaces, limits, and refused system calls.
#pragma once

#include <string>
#include <sys/types.h>

#include "tests/soak/program.hpp"

namespace plexus::soak {

/// Why a process of this kind cannot be made here; "": it can.
std::string why_not(Container container);

/// fork() into the namespaces of a container; -1 and errno as fork().
pid_t fork_into(Container container);

/// The rest, in the child, before exec: ids, limits, system calls. False: it cannot be made.
bool enter(Container container);

/// From now on these are refused to all threads of the process, as when a filter is installed late.
bool refuse_attach_and_memfd();

/// 0 to 2. What the process opens next takes their numbers.
void close_stdio();
/// A line to 1 and 2: where they were closed, it must not go into what the library has opened.
void print_as_programs_do();
/// What stands in their place and is not a regular file; "": nothing. A socket or an event there
/// would get what the program prints.
std::string find_in_place_of_stdio();

}  // namespace plexus::soak
