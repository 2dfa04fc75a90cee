// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/reference.hpp"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

namespace plexus {
namespace {

/// Those that --help shows.
std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); });
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* each) { return !each->get_group().empty(); });
}

/// The subcommand of that name; `app` itself: there is none.
const CLI::App* enter(const CLI::App& app, const std::string& name) {
  for (const CLI::App* each : subcommands_of(app)) {
    if (each->get_name() == name) {
      return each;
    }
  }
  return &app;
}

/// "-b", "--minbytes".
std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) {
    names.push_back("-" + name);
  }
  for (const std::string& name : option.get_lnames()) {
    names.push_back("--" + name);
  }
  return names;
}

bool wants_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// Text as roff: no line of it is taken for a request, no character for an escape.
std::string roff(std::string_view text) {
  std::string result;
  for (const char each : text) {
    const bool begins_line = result.empty() || result.back() == '\n';
    if (begins_line && (each == '.' || each == '\'')) {
      result += "\\&";
    }
    if (each == '\\') {
      result += "\\e";
    } else if (each == '-') {
      result += "\\-";
    } else {
      result += each;
    }
  }
  return result;
}

std::string describe(const CLI::Option& option) {
  const std::string value = option.get_type_name().empty() ? "VALUE" : option.get_type_name();
  std::string title;
  for (const std::string& name : names_of(option)) {
    title += fmt::format("{}\\fB{}\\fR", title.empty() ? "" : ", ", roff(name));
  }
  if (option.get_positional()) {
    title = fmt::format("\\fI{}\\fR", roff(option.get_name(true)));
  } else if (wants_value(option)) {
    title += fmt::format(" \\fI{}\\fR", roff(value));
  }
  return fmt::format(".TP\n{}\n{}\n", title, roff(option.get_description()));
}

/// A section of the subcommand, then those of its own subcommands.
void add_section(const CLI::App& app, const std::string& path, std::string& page) {
  std::string usage = path;
  std::string options;
  for (const CLI::Option* option : options_of(app)) {
    if (option->get_positional()) {
      usage += " " + option->get_name(true);
    }
    if (option != app.get_help_ptr()) {
      options += describe(*option);
    }
  }
  const bool has_subcommands = !subcommands_of(app).empty();
  page += fmt::format(".SS {}{}\n{}\n{}", roff(usage), has_subcommands ? " SUBCOMMAND" : "",
                      roff(app.get_description()), options);
  if (const std::string footer = app.get_footer(); !footer.empty()) {
    page += ".PP\n" + roff(footer) + "\n";
  }
  for (const CLI::App* each : subcommands_of(app)) {
    add_section(*each, path + " " + each->get_name(), page);
  }
}

}  // namespace

std::string make_man_page(const CLI::App& program, std::string_view version) {
  const std::string name = program.get_name();
  std::string title = name;
  std::transform(title.begin(), title.end(), title.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  std::string page = fmt::format(
      ".TH {} 1 \"\" \"{} {}\"\n"
      ".SH NAME\n{} \\- {}\n"
      ".SH SYNOPSIS\n\\fB{}\\fR \\fISUBCOMMAND\\fR [\\fIOPTIONS\\fR]\n"
      ".SH SUBCOMMANDS\n",
      title, name, version, name, roff(program.get_description()), name);
  for (const CLI::App* each : subcommands_of(program)) {
    add_section(*each, name + " " + each->get_name(), page);
  }
  return page +
         ".SH EXIT STATUS\n"
         ".TP\n0\nsuccess\n.TP\n1\nit ran and found something wrong\n"
         ".TP\n2\nwrong arguments\n.TP\n3\nthere was nothing that could be done\n";
}

std::vector<std::string> complete_words(const CLI::App& program,
                                        std::span<const std::string> words) {
  if (words.empty()) {
    return {};
  }
  const CLI::App* app = &program;
  bool is_value = false;  // the word belongs to the option before it
  for (const std::string& word : words.first(words.size() - 1)) {
    const CLI::Option* const option =
        !is_value && word.starts_with('-') ? app->get_option_no_throw(word) : nullptr;
    if (!is_value && option == nullptr) {
      app = enter(*app, word);
    }
    is_value = option != nullptr && wants_value(*option);
  }
  const std::string& last = words.back();
  std::vector<std::string> found;
  if (is_value) {
    return found;
  }
  if (last.starts_with('-')) {
    for (const CLI::Option* option : options_of(*app)) {
      const std::vector<std::string> names = names_of(*option);
      found.insert(found.end(), names.begin(), names.end());
    }
  } else {
    for (const CLI::App* each : subcommands_of(*app)) {
      found.push_back(each->get_name());
    }
  }
  std::erase_if(found, [&](const std::string& each) { return !each.starts_with(last); });
  return found;
}

}  // namespace plexus
