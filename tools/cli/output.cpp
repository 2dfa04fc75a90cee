// SPDX-License-Identifier: Apache-2.0
// Where the commands, and the library that unit tests link, write what flags like --json ask for.
#include <fstream>
#include <string>

#include <fmt/core.h>

#include "tools/cli/commands.hpp"

namespace plexus {

Result<void> write_output(const std::string& file_name, const std::string& text) {
  if (file_name == "-") {
    fmt::print("{}", text);
    return ok();
  }
  std::ofstream file(file_name);
  file << text << std::flush;
  if (!file) {
    return fail(Code::kInvalidArgument, "cannot write to the file '{}'", file_name);
  }
  return ok();
}

}  // namespace plexus
