// SPDX-License-Identifier: Apache-2.0
// Where in the program a call into this library came from, for messages that name the place.
#pragma once

#include <string>

namespace plexus {

/// The address of the innermost call on this thread's stack whose caller is neither this library
/// nor one of CUDA's names beside it; of this library where there is none. Takes microseconds.
[[nodiscard]] const void* find_caller() noexcept;

/// "program+0x12a4", as addr2line -e program wants it, with the function's name where the program
/// exports it.
[[nodiscard]] std::string describe_caller(const void* caller);

}  // namespace plexus
