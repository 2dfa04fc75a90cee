// SPDX-License-Identifier: Apache-2.0
#include "core/programs/program_set.hpp"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "core/base/config.hpp"
#include "core/base/hash.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/programs/program_file.hpp"
#include "guest/file.hpp"

namespace plexus {
namespace {

constexpr size_t kFilesMax = 4096;

/// A word that NCCL_ALGO can name: the file's name in lower case, without what would part words,
/// and not one of the table's.
std::string family_of(const std::string& name) {
  std::string family = lower(name);
  std::replace_if(
      family.begin(), family.end(),
      [](char c) { return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.'; },
      '_');
  const auto table = algorithms();
  const bool is_taken =
      family.empty() || std::any_of(table.begin(), table.end(),
                                    [&](const Algorithm& row) { return family == row.family; });
  return is_taken ? family + "-file" : family;
}

Result<void> add_text(const std::filesystem::path& path, std::vector<ProgramText>& texts) {
  FileText file = read_regular_file(path.string(), kFileBytesMax);
  if (!file.refusal.empty()) {
    return fail(Code::kInvalidUsage, "'{}' cannot be read: {}", path.string(), file.refusal);
  }
  texts.push_back({.path = path.string(), .text = std::move(file.text)});
  return ok();
}

Result<void> read_entry(const std::filesystem::path& folder, std::vector<ProgramText>& texts) {
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_regular_file(folder, error)) {
    return add_text(folder, texts);
  }
  for (auto at = std::filesystem::directory_iterator(folder, error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    if (at->path().extension() == ".json" || at->path().extension() == ".xml") {
      paths.push_back(at->path());
    }
  }
  if (error) {
    return fail(Code::kInvalidUsage, "cannot read the folder '{}': {}", folder.string(),
                error.message());
  }
  std::sort(paths.begin(), paths.end());
  if (texts.size() + paths.size() > kFilesMax) {
    return fail(Code::kInvalidUsage, "more than {} files", kFilesMax);
  }
  for (const std::filesystem::path& path : paths) {
    PLEXUS_TRY(add_text(path, texts));
  }
  return ok();
}

int most_lanes(std::span<const Program> programs) {
  size_t most = 1;
  for (const Program& program : programs) {
    most = std::max(most, program.lanes.size());
  }
  return static_cast<int>(most);
}

}  // namespace

Result<std::vector<ProgramText>> read_program_folders(std::string_view folders) {
  std::vector<ProgramText> texts;
  for (const std::string_view folder : split_list(folders, ':')) {
    if (auto read = read_entry(folder, texts); !read) {
      return std::move(read).error().with_context(
          describe_setting("PLEXUS_PROGRAM_PATH", std::string(folders)));
    }
  }
  return texts;
}

uint64_t hash_of(std::span<const ProgramText> texts) {
  Fnv1a hash;
  for (const ProgramText& each : texts) {
    hash.mix(std::filesystem::path(each.path).filename().string());
    hash.mix(uint64_t{each.text.size()});
    hash.mix(each.text);
  }
  return texts.empty() ? 0 : hash.value();
}

ProgramSet::ProgramSet(std::span<const ProgramText> texts, int nranks) {
  for (const ProgramText& file : texts) {
    add(file, nranks);
  }
}

void ProgramSet::add(const ProgramText& text, int nranks) {
  auto parsed = parse_program_file(text.text);
  if (parsed.has_error()) {
    PLEXUS_WARN("{}: it is not used: {}", text.path, parsed.error().message());
    return;
  }
  ProgramFile file = std::move(parsed).value();
  const std::string family = family_of(file.name);
  if (std::find(families_.begin(), families_.end(), family) == families_.end()) {
    families_.push_back(family);
  }
  if (file.nranks() != nranks) {
    return;
  }
  const ProgramProof proof = prove(file);
  if (!proof.proved || !proof.unfit.empty()) {
    PLEXUS_WARN("{}: it is not used: {}", text.path, proof.proved ? proof.unfit : proof.reason);
    return;
  }
  const VerifyResult& result = proof.any();
  const auto message_chunks = static_cast<int>(chunks_of_longest_message(file.programs));
  Fnv1a hash;
  hash.mix(text.text);
  entries_.push_back(
      std::make_unique<Entry>(Entry{.family = family,
                                    .recorded = {.programs = std::move(file.programs),
                                                 .apart = std::move(file.apart),
                                                 .message_chunks = message_chunks,
                                                 .root = proof.root,
                                                 .bytes_min = file.bytes_min,
                                                 .bytes_max = file.bytes_max,
                                                 .protocol = file.protocol,
                                                 .hash = hash.value(),
                                                 .cost = {.rounds = result.rounds,
                                                          .chunks_moved = result.chunks_moved,
                                                          .chunks_in_all = result.chunks_in_all,
                                                          .chunks_reduced = result.chunks_reduced,
                                                          .chunks = result.chunks}}}));
  const Entry& entry = *entries_.back();
  algorithms_.push_back({.name = entry.family.c_str(),
                         .family = entry.family.c_str(),
                         .collective = file.collective,
                         .nranks_max = nranks,
                         .recorded = &entry.recorded,
                         .lanes = most_lanes(entry.recorded.programs)});
}

}  // namespace plexus
