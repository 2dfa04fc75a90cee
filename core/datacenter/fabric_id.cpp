// SPDX-License-Identifier: Apache-2.0
#include "core/datacenter/fabric_id.hpp"

#include <algorithm>
#include <charconv>

namespace plexus {
namespace {

constexpr size_t kEntriesMax = 32;
constexpr uint64_t kPortMax = 255;
constexpr uint64_t kIdRailMax = 32'767;

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, at));
    if (at == text.size()) {
      return parts;
    }
    text.remove_prefix(at + 1);
  }
}

/// Decimal, or hexadecimal after 0x. nullopt: the field is empty.
Result<std::optional<uint64_t>> read_field(std::string_view text, const char* what, uint64_t most) {
  if (text.empty()) {
    return std::optional<uint64_t>();
  }
  const bool is_hex = text.starts_with("0x");
  const std::string_view digits = text.substr(is_hex ? 2 : 0);
  uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, is_hex ? 16 : 10);
  if (error != std::errc() || stop != end || digits.empty() || value > most) {
    return fail(Code::kInvalidUsage, "{} must be in 0..{}, not '{}'", what, most, text);
  }
  return std::optional<uint64_t>(value);
}

Result<HcaEntry> read_entry(std::string_view text, HcaSyntax syntax, bool excludes) {
  const std::vector<std::string_view> fields = split(text, ':');
  const size_t most = syntax == HcaSyntax::kFabricId ? 3 : 4;
  if (fields[0].empty() || fields.size() > most) {
    return fail(
        Code::kInvalidUsage, "an entry must be {}",
        syntax == HcaSyntax::kFabricId ? "name[:port[:fabricId]]" : "name[:port[:rail[:plane]]]");
  }
  if (excludes && fields.size() > 2) {
    return fail(Code::kInvalidUsage,
                "a list that begins with ^ excludes devices and cannot give ids");
  }
  const auto field = [&](size_t index) {
    return index < fields.size() ? fields[index] : std::string_view();
  };
  const auto as_int = [](std::optional<uint64_t> value) {
    return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
  };
  HcaEntry entry;
  entry.name = fields[0];
  PLEXUS_TRY(port, read_field(field(1), "the port", kPortMax));
  entry.port = as_int(port);
  if (syntax == HcaSyntax::kFabricId) {
    PLEXUS_TRY(id, read_field(field(2), "the fabricId", kFabricIdMax));
    entry.fabric_id = id;
    return entry;
  }
  PLEXUS_TRY(rail, read_field(field(2), "the rail", kIdRailMax));
  PLEXUS_TRY(plane, read_field(field(3), "the plane", kIdRailMax));
  entry.rail = as_int(rail);
  entry.plane = as_int(plane);
  return entry;
}

}  // namespace

const HcaEntry* HcaList::find(std::string_view name, int port) const {
  const auto at = std::find_if(entries.begin(), entries.end(), [&](const HcaEntry& entry) {
    const bool named = exact ? name == entry.name : name.starts_with(entry.name);
    return named && (!entry.port || *entry.port == port);
  });
  return at == entries.end() ? nullptr : &*at;
}

Result<HcaList> parse_hca_list(std::string_view text, HcaSyntax syntax) {
  HcaList list;
  list.excludes = text.starts_with('^');
  text.remove_prefix(list.excludes ? 1 : 0);
  list.exact = text.starts_with('=');
  text.remove_prefix(list.exact ? 1 : 0);
  if (text.empty()) {
    return list;
  }
  for (const std::string_view part : split(text, ',')) {
    auto entry = read_entry(part, syntax, list.excludes);
    if (!entry) {
      return std::move(entry).error().with_context(fmt::format("NCCL_IB_HCA: '{}'", part));
    }
    if (list.entries.size() == kEntriesMax) {
      return fail(Code::kInvalidUsage, "NCCL_IB_HCA has more than {} entries", kEntriesMax);
    }
    list.entries.push_back(std::move(entry).value());
  }
  return list;
}

}  // namespace plexus
