// SPDX-License-Identifier: Apache-2.0
// The library's file, and the effects of loading it on a process.
#include <algorithm>
#include <array>
#include <dlfcn.h>
#include <regex>
#include <unistd.h>

#include "tools/conformance/check.hpp"
#include "tools/conformance/elf_file.hpp"
#include "tools/conformance/library.hpp"
#include "tools/conformance/process_state.hpp"

namespace plexus::conformance {
namespace {

Result<ElfFile> read(Fixture& fixture) {
  PLEXUS_TRY(check_elf_file(fixture.file()));
  return read_elf_file(fixture.file());
}

bool is_query(const std::string& name) {
  return name == "plexus_plugin_query" || name == "plexus_collnet_query";
}

Result<void> is_complete(Fixture& fixture) { return check_elf_file(fixture.file()); }

Result<void> has_an_entry(Fixture& fixture) {
  PLEXUS_TRY(file, read(fixture));
  return expect(std::any_of(file.exported.begin(), file.exported.end(),
                            [](const ElfSymbol& symbol) { return is_plugin_entry(symbol.name); }),
                "it exports neither plexus_plugin_query nor a table such as ncclNetPlugin_v8");
}

Result<void> exports_only_entries(Fixture& fixture) {
  PLEXUS_TRY(file, read(fixture));
  const bool is_native = std::any_of(file.exported.begin(), file.exported.end(),
                                     [](const ElfSymbol& symbol) { return is_query(symbol.name); });
  static const std::regex kApi("p?nccl(All|Reduce|Broad|Bcast|Comm|Get|Group|Mem|Send|Recv).*");
  for (const ElfSymbol& symbol : file.exported) {
    PLEXUS_TRY(
        expect(is_native ? is_plugin_entry(symbol.name) : !std::regex_match(symbol.name, kApi),
               "it exports {}, which may clash with a symbol of the host or of another plugin; "
               "compile with -fvisibility=hidden, link with a version script",
               symbol.name));
  }
  return ok();
}

Result<void> entry_kinds(Fixture& fixture) {
  PLEXUS_TRY(file, read(fixture));
  for (const ElfSymbol& symbol : file.exported) {
    if (is_plugin_entry(symbol.name)) {
      PLEXUS_TRY(expect(
          symbol.is_function == is_query(symbol.name), "{} is {}", symbol.name,
          symbol.is_function ? "a function, expected a table" : "data, expected a function"));
    }
  }
  return ok();
}

Result<void> needs_no_host(Fixture& fixture) {
  PLEXUS_TRY(file, read(fixture));
  static const std::regex kHost("lib(plexus|nccl|rccl)\\.so.*");
  for (const std::string& name : file.needed) {
    PLEXUS_TRY(expect(!std::regex_match(name, kHost),
                      "it is linked with {}: a process would contain two hosts", name));
  }
  return ok();
}

Result<void> takes_nothing_of_host(Fixture& fixture) {
  PLEXUS_TRY(file, read(fixture));
  static const std::regex kHost("(plexus_|p?nccl[A-Z]).*");
  for (const std::string& name : file.undefined) {
    PLEXUS_TRY(expect(!std::regex_match(name, kHost),
                      "it expects {} from the host, which exports no symbols to plugins", name));
  }
  return ok();
}

Result<void> needs_no_text_relocations(Fixture& fixture) {
  PLEXUS_TRY(file, read(fixture));
  return expect(!file.has_text_relocations,
                "it has text relocations; compile all of it with -fPIC");
}

Result<void> asks_for_no_executable_stack(Fixture& fixture) {
  PLEXUS_TRY(file, read(fixture));
  PLEXUS_TRY(
      expect(!file.is_writable_and_executable, "a segment of it is writable and executable"));
  return expect(!file.has_executable_stack,
                "it asks for an executable stack; link with -z noexecstack");
}

Result<void> searches_safe_folders(Fixture& fixture) {
  PLEXUS_TRY(file, read(fixture));
  for (const std::string& path : file.run_paths) {
    PLEXUS_TRY(expect(!path.empty() && (path[0] == '/' || path[0] == '$'),
                      "its run path has the entry '{}', which is relative to the current folder",
                      path));
  }
  return ok();
}

Result<void> loads(Fixture& fixture) {
  PLEXUS_TRY(load_library(fixture));
  return ok();
}

Result<void> loads_twice_as_one(Fixture& fixture) {
  PLEXUS_TRY(load_library(fixture));
  void* const again = ::dlopen(fixture.file().c_str(), RTLD_NOW | RTLD_LOCAL);
  PLEXUS_TRY(expect(again != nullptr, "a second dlopen of it failed"));
  ::dlclose(again);
  return ok();
}

Result<void> loading_leaves_no_threads(Fixture& fixture) {
  const Holdings before;
  PLEXUS_TRY(load_library(fixture));
  return before.expect_no_threads("loading it");
}

Result<void> loading_leaves_no_descriptors(Fixture& fixture) {
  const Holdings before;
  PLEXUS_TRY(load_library(fixture));
  return before.expect_no_descriptors("loading it");
}

Result<void> loading_is_silent(Fixture& fixture) {
  PLEXUS_TRY(load_library(fixture));
  // stdout and stderr of this process are a file of the kit.
  return expect(::lseek(STDOUT_FILENO, 0, SEEK_END) == 0, "loading it wrote to stdout or stderr");
}

Result<void> loading_leaves_the_process(Fixture& fixture) {
  const Surroundings before;
  PLEXUS_TRY(load_library(fixture));
  return before.expect_unchanged("loading it");
}

Result<void> reloads(Fixture& fixture) {
  fixture.status().place = Place::kLoading;
  constexpr int kTimes = 5;
  for (int i = 0; i < kTimes; ++i) {
    void* const handle = ::dlopen(fixture.file().c_str(), RTLD_NOW | RTLD_LOCAL);
    PLEXUS_TRY(expect(handle != nullptr, "dlopen number {} of it failed", i + 1));
    ::dlclose(handle);
  }
  PLEXUS_TRY(load_library(fixture));
  return ok();
}

Result<void> exits_after_loading(Fixture& fixture) { return loads(fixture); }

constexpr const char* kLoadRule =
    "plexus_plugin.h: a plugin must not block, start threads or open devices when it is loaded";

constexpr std::array kChecks = {
    Check{"file.elf", "is a complete 64-bit library for this architecture",
          "a truncated library ends the process inside dlopen", is_complete},
    Check{"file.entry", "exports an entry of a plugin",
          "plexus_plugin.h: a plugin exports plexus_plugin_query (or tables of NCCL's ABI)",
          has_an_entry},
    Check{"file.exports", "exports its entries and nothing else",
          "plexus_plugin.h: `plexus_plugin_query` is the only exported Plexus symbol",
          exports_only_entries},
    Check{"file.entry_kinds", "plexus_..._query is a function, tables are data",
          "plugin ABI: NCCL's entries are data symbols, ours is a function", entry_kinds},
    Check{"file.needed", "is not linked with the host library",
          "layers: a plugin includes and links plugin-api alone", needs_no_host},
    Check{"file.undefined", "requires no symbol of the host",
          "layers: all that a plugin gets of its host comes through the ABI",
          takes_nothing_of_host},
    Check{"file.text_relocations", "has no text relocations",
          "a hardened system refuses to load such a library", needs_no_text_relocations},
    Check{"file.stack", "requires no executable memory",
          "a hardened system refuses to load such a library", asks_for_no_executable_stack},
    Check{"file.run_path", "looks for libraries in absolute folders only",
          "a library in the current folder must not get into the process", searches_safe_folders},
    Check{"file.load", "loads with all symbols resolved", "the loader uses RTLD_NOW | RTLD_LOCAL",
          loads},
    Check{"file.load_again", "loads a second time", "hosts and tools open a library repeatedly",
          loads_twice_as_one},
    Check{"file.load_threads", "starts no thread when it is loaded", kLoadRule,
          loading_leaves_no_threads},
    Check{"file.load_descriptors", "opens no descriptor when it is loaded", kLoadRule,
          loading_leaves_no_descriptors},
    Check{"file.load_silent", "prints nothing when it is loaded",
          "plexus_plugin.h: a plugin has no other output than the log callback", loading_is_silent},
    Check{"file.load_process", "changes no state of the process when it is loaded", kLoadRule,
          loading_leaves_the_process},
    Check{"file.reload", "can be unloaded and loaded again",
          "NCCL unloads a plugin with its last communicator and loads it again (issue 1978)",
          reloads},
    Check{"file.exit",
          "lets the process exit after loading",
          "no entry raises a signal, ends the process, or lets an exception out",
          exits_after_loading,
          {.exits = true}},
};

}  // namespace

CheckTable file_checks() { return kChecks; }

}  // namespace plexus::conformance
