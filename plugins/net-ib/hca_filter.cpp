// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/hca_filter.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace plexus::net_ib {
namespace {

using plugin::fail;
using plugin::Result;

constexpr size_t kHcaEntriesMax = 32;
constexpr uint64_t kHcaFabricIdMax = uint64_t{1} << 48;
constexpr uint64_t kHcaIdMax = INT16_MAX;  // NCCL's rails and planes have 16 bits
constexpr uint64_t kHcaPortMax = 255;

/// An empty field is absent.
Result<std::optional<uint64_t>> read_field(std::string_view entry,
                                           std::string_view field,
                                           uint64_t most) {
  if (field.empty()) {
    return std::optional<uint64_t>();
  }
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc{} || end != field.data() + field.size() || value > most) {
    return fail(PLEXUS_INVALID_USAGE,
                "NCCL_IB_HCA: '{}' of the entry '{}' is not a number in 0..{}; correct it", field,
                entry, most);
  }
  return std::optional<uint64_t>(value);
}

int32_t or_none(const std::optional<uint64_t>& value) {
  return value ? static_cast<int32_t>(*value) : -1;
}

Result<HcaEntry> read_hca_entry(std::string_view text, HcaSyntax syntax) {
  std::array<std::string_view, 4> fields{};
  size_t count = 0;
  for (std::string_view rest = text;;) {
    const size_t end = rest.find(':');
    if (count == (syntax == HcaSyntax::kFabricId ? 3 : fields.size())) {
      return fail(PLEXUS_INVALID_USAGE, "NCCL_IB_HCA: the entry '{}' has too many fields; it is {}",
                  text,
                  syntax == HcaSyntax::kFabricId ? "name:port:fabricId" : "name:port:rail:plane");
    }
    fields[count++] = rest.substr(0, end);
    if (end == std::string_view::npos) {
      break;
    }
    rest.remove_prefix(end + 1);
  }
  if (fields[0].empty()) {
    return fail(PLEXUS_INVALID_USAGE, "NCCL_IB_HCA: the entry '{}' has no name; correct it", text);
  }
  HcaEntry entry;
  entry.name = fields[0];
  PLEXUS_TRY(port, read_field(text, fields[1], kHcaPortMax));
  entry.port = or_none(port);
  if (syntax == HcaSyntax::kFabricId) {
    PLEXUS_TRY(id, read_field(text, fields[2], kHcaFabricIdMax));
    entry.fabric_id = id;
    return entry;
  }
  PLEXUS_TRY(rail, read_field(text, fields[2], kHcaIdMax));
  PLEXUS_TRY(plane, read_field(text, fields[3], kHcaIdMax));
  entry.rail = or_none(rail);
  entry.plane = or_none(plane);
  return entry;
}

}  // namespace

Result<HcaFilter> HcaFilter::parse(std::string_view text, HcaSyntax syntax) {
  HcaFilter filter;
  filter.excludes_ = text.starts_with('^');
  text.remove_prefix(filter.excludes_ ? 1 : 0);
  filter.is_exact_ = text.starts_with('=');
  text.remove_prefix(filter.is_exact_ ? 1 : 0);
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    if (end > 0) {
      PLEXUS_TRY(entry, read_hca_entry(text.substr(0, end), syntax));
      if (filter.excludes_ && (entry.rail >= 0 || entry.plane >= 0 || entry.fabric_id)) {
        return fail(PLEXUS_INVALID_USAGE,
                    "NCCL_IB_HCA: '{}' is excluded by '^' and cannot have ids; leave them out",
                    text.substr(0, end));
      }
      filter.entries_.push_back(std::move(entry));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (filter.entries_.size() > kHcaEntriesMax) {
    return fail(PLEXUS_INVALID_USAGE, "NCCL_IB_HCA has {} entries, at most {} are allowed",
                filter.entries_.size(), kHcaEntriesMax);
  }
  return filter;
}

std::optional<HcaEntry> HcaFilter::find(std::string_view name, uint32_t port) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const HcaEntry& each) {
    const bool is_named = is_exact_ ? name == each.name : name.starts_with(each.name);
    return is_named && (each.port < 0 || static_cast<uint32_t>(each.port) == port);
  });
  const bool is_listed = found != entries_.end();
  if (entries_.empty() || (excludes_ && !is_listed)) {
    return HcaEntry{std::string(name), static_cast<int32_t>(port), -1, -1, std::nullopt};
  }
  return is_listed && !excludes_ ? std::optional<HcaEntry>(*found) : std::nullopt;
}

}  // namespace plexus::net_ib
