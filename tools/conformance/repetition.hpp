// SPDX-License-Identifier: Apache-2.0
// A C program that repeats a failed check of a net plugin, without the kit and, for a plugin of
// NCCL's ABI, without any header: for the plugin's author. It is made of the calls that the check
// made (`trace`), runs here before it is shown, and has as few messages as still fail in every
// trial (`trial`).
#pragma once

#include <string>

#include "tools/conformance/runner.hpp"

namespace plexus::conformance {

/// Whether such a program can be made: for checks of messages on connections that stay.
[[nodiscard]] bool is_repeatable(const Check& check);

/// The program. Fails with a sentence when the check, or the program, does not fail again.
[[nodiscard]] Result<std::string> make_repetition(const Subject& subject,
                                                  const Identity& identity,
                                                  const Verdict& verdict);

}  // namespace plexus::conformance
