// SPDX-License-Identifier: Apache-2.0
// Pictures of a program file: its steps as text, and as SVG with lanes as rows and messages as
// arrows. A step's place in time is the earliest at which it can run when every step takes as long.
#pragma once

#include <string>

#include "core/programs/program_file.hpp"

namespace plexus {

/// "send input 2 to 1", for each step of each lane of each rank, with its time.
std::string draw_text(const ProgramFile& file);
/// Fails for more steps than a picture can show.
Result<std::string> draw_svg(const ProgramFile& file);

}  // namespace plexus
