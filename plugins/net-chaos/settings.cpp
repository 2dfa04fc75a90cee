// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-chaos/settings.hpp"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "guest/file.hpp"

namespace plexus::net_chaos {
namespace {

using plugin::SettingReader;

std::string read_variable(const SettingReader& read, const char* name) {
  const char* value = read(name);
  return value == nullptr ? "" : value;
}

Result<Script> parse_script(std::string_view text) {
  auto script = Script::parse(text);
  if (script.has_error()) {
    return fail(script.error().code, "PLEXUS_CHAOS_SCRIPT: {}", script.error().text);
  }
  if (script.value().names_ranks()) {
    return fail(PLEXUS_INVALID_USAGE,
                "PLEXUS_CHAOS_SCRIPT: rank=, peer= and slow= are for `plexus sim`, since a network "
                "does not know ranks: use device=N or connection=N");
  }
  return script;
}

Result<Script> read_script(const SettingReader& read) {
  const std::string text = read_variable(read, "PLEXUS_CHAOS_SCRIPT");
  if (!text.starts_with('@')) {
    return parse_script(text);
  }
  const FileText file = read_regular_file(text.substr(1));
  if (!file.refusal.empty()) {
    return fail(PLEXUS_INVALID_USAGE, "PLEXUS_CHAOS_SCRIPT={}: the file cannot be read: {}", text,
                file.refusal);
  }
  return parse_script(file.text);
}

Result<uint64_t> read_seed(const SettingReader& read) {
  const std::string text = read_variable(read, "PLEXUS_CHAOS_SEED");
  char* end = nullptr;
  const uint64_t seed = text.empty() ? 1 : std::strtoull(text.c_str(), &end, 0);
  if (end != nullptr && *end != '\0') {
    return fail(PLEXUS_INVALID_USAGE, "PLEXUS_CHAOS_SEED={} is not a number; correct or unset it",
                text);
  }
  return seed;
}

/// PLEXUS_CHAOS_BLOCK, "FUNCTION@FILE".
Result<Block> read_block(const SettingReader& read) {
  const std::string text = read_variable(read, "PLEXUS_CHAOS_BLOCK");
  const size_t at = text.find('@');
  if (!text.empty() && (at == 0 || at == std::string::npos || at + 1 == text.size())) {
    return fail(PLEXUS_INVALID_USAGE, "PLEXUS_CHAOS_BLOCK={} is not FUNCTION@FILE, as isend@/tmp/x",
                text);
  }
  return text.empty() ? Block()
                      : Block{.function = text.substr(0, at), .file = text.substr(at + 1)};
}

}  // namespace

void Block::block_in(std::string_view called) const {
  if (called == function && std::filesystem::exists(file)) {
    std::ofstream(file + ".reached").flush();
  }
  while (called == function && std::filesystem::exists(file)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Result<Settings> read_settings(const SettingReader& read) {
  PLEXUS_TRY(script, read_script(read));
  PLEXUS_TRY(seed, read_seed(read));
  PLEXUS_TRY(block, read_block(read));
  return Settings{std::move(script), seed, std::move(block),
                  read_variable(read, "PLEXUS_CHAOS_NET")};
}

}  // namespace plexus::net_chaos
