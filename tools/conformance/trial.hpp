// SPDX-License-Identifier: Apache-2.0
// The program that repeats a check, and trials of it: it runs in processes of its own, compiled
// into the kit (`repeat/`).
#pragma once

#include <cstdint>
#include <vector>

#include "tools/conformance/runner.hpp"

namespace plexus::conformance::repeat {
#include "tools/conformance/repeat/steps.h"
}  // namespace plexus::conformance::repeat

namespace plexus::conformance {

/// The steps of all processes of a check.
struct Program {
  std::vector<std::vector<repeat::step>> processes;
};

[[nodiscard]] repeat::step make_step(int what, const char* name);

/// N of a table of NCCL's ABI _vN; 0: Plexus's own.
[[nodiscard]] int abi_version(const Identity& identity);

/// Whether the program fails in one run.
[[nodiscard]] bool fails(const Subject& subject, const Identity& identity, const Program& program);

/// Whether the program fails at any speed of its processes, and on a loaded machine. What fails
/// only in time is no repetition: it may pass on the machine of the plugin's author.
[[nodiscard]] bool always_fails(const Subject& subject,
                                const Identity& identity,
                                const Program& program);

}  // namespace plexus::conformance
