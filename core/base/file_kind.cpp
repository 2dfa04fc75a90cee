// SPDX-License-Identifier: Apache-2.0
#include "core/base/file_kind.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/text.hpp"

namespace plexus {
namespace {

constexpr std::string_view kBlank = " \t\r\n";

struct KindText {
  const char* what;
  const char* readers;  // nullptr: nothing here reads it
};

/// Indexed by FileKind.
constexpr std::array kKindTexts = {
    KindText{"NCCL's XML of a topology (<system>)", "NCCL_TOPO_FILE and `plexus topo`"},
    KindText{"NCCL's XML of channels (<graphs>)", "NCCL_GRAPH_FILE and --graph"},
    KindText{"an algorithm's program, in JSON of Plexus or XML of MSCCL",
             "PLEXUS_PROGRAM_PATH and `plexus program`"},
    KindText{"a fabric file ('host' and 'link' lines)", "PLEXUS_FABRIC_FILE"},
    KindText{"a fabric model ('dc' and 'between' lines)", "`plexus topo fabric` and `plexus sim`"},
    KindText{"Slurm's topology.conf or topology.yaml", "`plexus topo slurm`"},
    KindText{"a file of settings (NAME=value)", "NCCL_CONF_FILE"},
    KindText{"RCCL's XML of a topology", nullptr},
    KindText{"hwloc's XML of a machine (lstopo)", nullptr},
    KindText{"an execution plan of MSCCL++", "PLEXUS_PROGRAM_PATH and `plexus program`"},
    KindText{"the calls of a job (docs/formats.md)", "`plexus sim --workload`"},
};
static_assert(kKindTexts.size() == static_cast<size_t>(FileKind::kUnknown));

const KindText& text_of_kind(FileKind kind) { return kKindTexts.at(static_cast<size_t>(kind)); }

void skip_blank(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// From the first element on: without declaration, document type and comments.
std::string_view first_element(std::string_view text) {
  while (text.starts_with("<?") || text.starts_with("<!")) {
    const std::string_view end = text.starts_with("<!--") ? "-->" : ">";
    const size_t at = text.find(end);
    text.remove_prefix(at == std::string_view::npos ? text.size() : at + end.size());
    skip_blank(text);
  }
  return text;
}

FileKind find_xml_kind(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, FileKind>, 4> kRoots = {
      {{"system", FileKind::kTopology},
       {"graphs", FileKind::kGraphs},
       {"algo", FileKind::kProgram},
       {"topology", FileKind::kHwloc}}};
  std::string_view element = first_element(text);
  element = element.substr(0, element.find('>'));
  if (!element.starts_with('<')) {
    return FileKind::kUnknown;
  }
  const std::string_view tag =
      element.substr(1, std::min(element.find_first_of(" \t\r\n/>"), element.size()) - 1);
  for (const auto& [root, kind] : kRoots) {
    if (tag == root) {
      const bool is_rccl = kind == FileKind::kTopology &&
                           (contains(element, "version=\"2\"") || contains(text, "<xgmi"));
      return is_rccl ? FileKind::kRcclTopology : kind;
    }
  }
  return FileKind::kUnknown;
}

FileKind find_json_kind(std::string_view text) {
  if (contains(text, "\"plexus-program\"")) {
    return FileKind::kProgram;
  }
  return contains(text, "\"gpus\"") && contains(text, "\"threadblocks\"") ? FileKind::kMscclppPlan
                                                                          : FileKind::kUnknown;
}

/// Decides by the first line that is more than a comment.
FileKind find_line_kind(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, FileKind>, 7> kWords = {
      {{"switchname", FileKind::kSlurm},
       {"blockname", FileKind::kSlurm},
       {"blocksizes", FileKind::kSlurm},
       {"topology:", FileKind::kSlurm},
       {"host", FileKind::kFabricFile},
       {"dc", FileKind::kFabricModel},
       {"between", FileKind::kFabricModel}}};
  std::string line;
  while (line.empty() && !text.empty()) {
    skip_blank(text);
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(whole.size());
    const std::string_view stripped = whole.substr(0, whole.find('#'));
    line = stripped.starts_with("---") ? "" : std::string(stripped);
  }
  std::string_view rest = line;
  rest.remove_prefix(std::min(rest.find_first_not_of("- \t"), rest.size()));
  const std::string word = lower(rest.substr(0, rest.find_first_of(" \t=")));
  for (const auto& [known, kind] : kWords) {
    if (word == known) {
      return kind;
    }
  }
  const bool is_setting = word.size() < rest.size() && rest[word.size()] == '=' &&
                          (word.starts_with("nccl_") || word.starts_with("plexus_"));
  return is_setting ? FileKind::kSettings : FileKind::kUnknown;
}

}  // namespace

FileKind find_file_kind(std::string_view text) {
  skip_blank(text);
  if (text.starts_with('<')) {
    return find_xml_kind(text);
  }
  return text.starts_with('{') ? find_json_kind(text) : find_line_kind(text);
}

Result<void> check_file_kind(std::string_view text, FileKind wanted) {
  const FileKind kind = find_file_kind(text);
  if (kind == wanted || kind == FileKind::kUnknown) {
    return ok();
  }
  const KindText& found = text_of_kind(kind);
  const std::string readers =
      found.readers == nullptr ? "" : fmt::format(", for {}", found.readers);
  return fail(Code::kInvalidUsage, "this is {}{}; {} read{} {}", found.what, readers,
              text_of_kind(wanted).readers,
              contains(text_of_kind(wanted).readers, " and ") ? "" : "s",
              text_of_kind(wanted).what);
}

}  // namespace plexus
