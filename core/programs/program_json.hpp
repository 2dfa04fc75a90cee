// SPDX-License-Identifier: Apache-2.0
// Program files as JSON: what Program holds, member by member (docs/programs.md has the schema).
#pragma once

#include <string>
#include <string_view>

#include "core/programs/program_file.hpp"

namespace plexus {

Result<ProgramFile> parse_program_json(std::string_view text);
/// A step a line, without members that have their default.
std::string format_program_json(const ProgramFile& file);

}  // namespace plexus
