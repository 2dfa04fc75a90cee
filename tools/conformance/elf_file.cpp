// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/elf_file.hpp"

#include <algorithm>
#include <cstring>
#include <elf.h>
#include <fstream>
#include <iterator>
#include <optional>
#include <regex>
#include <string_view>

namespace plexus::conformance {
namespace {

using Image = std::vector<char>;

/// `count` objects at `offset`; nullopt: not within the file.
template <class T>
std::optional<std::vector<T>> read_table(const Image& image, uint64_t offset, uint64_t count) {
  if (offset > image.size() || count > (image.size() - offset) / sizeof(T)) {
    return std::nullopt;
  }
  std::vector<T> table(count);
  if (count > 0) {
    std::memcpy(table.data(), image.data() + offset, count * sizeof(T));
  }
  return table;
}

std::string text_at(const Image& image, uint64_t offset) {
  if (offset >= image.size()) {
    return "";
  }
  const char* const begin = image.data() + offset;
  return {begin, ::strnlen(begin, image.size() - offset)};
}

/// Whether linkers or instrumentation define the name in every library.
bool is_of_linker(std::string_view name) {
  for (const std::string_view stem :
       {"_init", "_fini", "_edata", "_end", "__bss_start", "__asan", "__ubsan", "__tsan",
        "__odr_asan", "__start_", "__stop_", "__llvm_", "__gcov", "__sancov"}) {
    if (name.substr(0, stem.size()) == stem) {
      return true;
    }
  }
  return false;
}

void add_symbols(const Image& image,
                 const std::vector<Elf64_Sym>& symbols,
                 uint64_t names,
                 ElfFile& file) {
  for (const Elf64_Sym& symbol : symbols) {
    const std::string name = text_at(image, names + symbol.st_name);
    const auto binding = ELF64_ST_BIND(symbol.st_info);
    if (name.empty() || binding == STB_LOCAL) {
      continue;
    }
    if (symbol.st_shndx == SHN_UNDEF) {
      if (binding != STB_WEAK) {
        file.undefined.push_back(name);
      }
    } else if (symbol.st_shndx != SHN_ABS && ELF64_ST_VISIBILITY(symbol.st_other) == STV_DEFAULT &&
               !is_of_linker(name)) {
      file.exported.push_back({name, symbol.st_size, ELF64_ST_TYPE(symbol.st_info) == STT_FUNC});
    }
  }
}

void add_dynamic(const Image& image,
                 const std::vector<Elf64_Dyn>& entries,
                 uint64_t names,
                 ElfFile& file) {
  for (const Elf64_Dyn& entry : entries) {
    switch (entry.d_tag) {
      case DT_NEEDED:
        file.needed.push_back(text_at(image, names + entry.d_un.d_val));
        break;
      case DT_RPATH:
      case DT_RUNPATH: {
        const std::string paths = text_at(image, names + entry.d_un.d_val);
        for (size_t at = 0; at <= paths.size();) {
          const size_t end = std::min(paths.find(':', at), paths.size());
          file.run_paths.push_back(paths.substr(at, end - at));
          at = end + 1;
        }
        break;
      }
      case DT_TEXTREL:
        file.has_text_relocations = true;
        break;
      case DT_FLAGS:
        file.has_text_relocations |= (entry.d_un.d_val & DF_TEXTREL) != 0;
        break;
      default:
        break;
    }
  }
}

void add_segments(const std::vector<Elf64_Phdr>& segments, ElfFile& file) {
  for (const Elf64_Phdr& segment : segments) {
    const bool is_executable = (segment.p_flags & PF_X) != 0;
    file.has_executable_stack |= segment.p_type == PT_GNU_STACK && is_executable;
    file.is_writable_and_executable |=
        segment.p_type == PT_LOAD && is_executable && (segment.p_flags & PF_W) != 0;
  }
}

}  // namespace

bool is_plugin_entry(const std::string& name) {
  static const std::regex kEntry(
      "plexus_(plugin|collnet)_query|nccl(Net|CollNet|Tuner|Env|Gin|Rma|Log)Plugin_v[0-9]+|"
      "ncclProfiler_v[0-9]+");
  return std::regex_match(name, kEntry);
}

Result<ElfFile> read_elf_file(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  const Image image{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  const auto header = read_table<Elf64_Ehdr>(image, 0, 1);
  if (!header) {
    return fail(Code::kSystemError, "it is too short for an ELF file");
  }
  const auto segments =
      read_table<Elf64_Phdr>(image, header->front().e_phoff, header->front().e_phnum);
  const auto sections =
      read_table<Elf64_Shdr>(image, header->front().e_shoff, header->front().e_shnum);
  if (!segments || !sections) {
    return fail(Code::kSystemError, "its program or section headers are not within the file");
  }
  ElfFile file;
  add_segments(*segments, file);
  for (const Elf64_Shdr& section : *sections) {
    if (section.sh_type != SHT_DYNSYM && section.sh_type != SHT_DYNAMIC) {
      continue;
    }
    const uint64_t names =
        section.sh_link < sections->size() ? (*sections)[section.sh_link].sh_offset : image.size();
    if (section.sh_type == SHT_DYNSYM) {
      const auto symbols =
          read_table<Elf64_Sym>(image, section.sh_offset, section.sh_size / sizeof(Elf64_Sym));
      add_symbols(image, symbols.value_or(std::vector<Elf64_Sym>{}), names, file);
    } else {
      const auto entries =
          read_table<Elf64_Dyn>(image, section.sh_offset, section.sh_size / sizeof(Elf64_Dyn));
      add_dynamic(image, entries.value_or(std::vector<Elf64_Dyn>{}), names, file);
    }
  }
  return file;
}

}  // namespace plexus::conformance
