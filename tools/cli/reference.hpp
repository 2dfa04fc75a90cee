// SPDX-License-Identifier: Apache-2.0
// What the parser of a command knows of it, for readers and for shells. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
}

namespace plexus {

/// A manual page of section 1 in roff, with all subcommands and their options.
std::string make_man_page(const CLI::App& program, std::string_view version);

/// What may stand in place of the last of `words`, which follow the program's name: subcommands, or
/// options if it begins with a dash. Empty: none, as where an option wants its value.
std::vector<std::string> complete_words(const CLI::App& program,
                                        std::span<const std::string> words);

}  // namespace plexus
