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

Result<void> write_rank_files(const std::string& file_name,
                              int nranks,
                              const std::function<std::string(int rank)>& text_of) {
  constexpr int kFilesMax = 4096;
  if (nranks > kFilesMax) {
    return fail(Code::kInvalidArgument, "a file for each of {} ranks: expects at most {}", nranks,
                kFilesMax);
  }
  const std::filesystem::path path(file_name);
  for (int rank = 0; rank < nranks; ++rank) {
    std::filesystem::path each = path;
    each.replace_extension(std::to_string(rank) + path.extension().string());
    PLEXUS_TRY(write_output(each.string(), text_of(rank)));
  }
  return ok();
}

}  // namespace plexus
