// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/algorithm_selection.hpp"

#include <algorithm>
#include <bitset>
#include <iterator>
#include <utility>

#include <fmt/ranges.h>

#include "core/base/text.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr size_t kNamesMax = 256;
using NameSet = std::bitset<kNamesMax>;

/// NCCL's names of algorithms that are others than those of NCCL_ALGO.
constexpr std::pair<std::string_view, std::string_view> kSpelledApart[] = {
    {"collnetdirect", "collnet_direct"}, {"collnetchain", "collnet_chain"}};

/// Names of NCCL that no rank can serve: they need an NVSwitch or kernels for windows.
constexpr const char* kWithoutAlgorithm[] = {"nvls_simple",
                                             "nvlstree_simple",
                                             "symk_agxll_r",
                                             "symk_agxllmc_r",
                                             "symk_rsxtmald_agxtmast",
                                             "symk_rsxld_agxst",
                                             "symk_rsxldmc_agxstmc",
                                             "symk_ll",
                                             "symk_llmc",
                                             "symk_tmast",
                                             "symk_st",
                                             "symk_tmastmc",
                                             "symk_stmc",
                                             "symk_railring_lsastmc",
                                             "symk_tmald",
                                             "symk_ld",
                                             "symk_ldmc",
                                             "symk_raila2a_lsald",
                                             "symk_raila2a_lsaldmc"};

struct Name {
  std::string text;    // lower case
  std::string family;  // empty: none has it
  Protocol protocol = Protocol::kSimple;
};

std::string spelling_of(std::string_view family) {
  const auto* const apart = std::find_if(std::begin(kSpelledApart), std::end(kSpelledApart),
                                         [&](const auto& entry) { return entry.first == family; });
  return std::string(apart == std::end(kSpelledApart) ? family : apart->second);
}

std::vector<Name> make_names() {
  std::vector<Name> names;
  std::vector<std::string_view> seen;
  for (const Algorithm& row : algorithms()) {
    if (is_point_to_point(row.collective) ||
        std::find(seen.begin(), seen.end(), row.family) != seen.end()) {
      continue;
    }
    seen.emplace_back(row.family);
    for (const Protocol protocol : kProtocols) {
      names.push_back({.text = spelling_of(row.family) + "_" + lower(name(protocol)),
                       .family = row.family,
                       .protocol = protocol});
    }
  }
  for (const char* const text : kWithoutAlgorithm) {
    names.push_back({.text = text, .family = ""});
  }
  PLEXUS_ASSERT(names.size() <= kNamesMax, names.size());
  return names;
}

/// All known names; their places are the bits of a NameSet.
const std::vector<Name>& known_names() {
  static const std::vector<Name> kNames = make_names();
  return kNames;
}

NameSet all_names() {
  NameSet all;
  for (size_t i = 0; i < known_names().size(); ++i) {
    all.set(i);
  }
  return all;
}

/// Empty: no name begins so.
NameSet find_names(std::string_view beginning) {
  NameSet found;
  for (size_t i = 0; i < known_names().size() && !beginning.empty(); ++i) {
    found[i] = known_names()[i].text.starts_with(beginning);
  }
  return found;
}

Result<NameSet> parse_term(std::string_view term) {
  NameSet both = all_names();
  bool has_factor = false;
  for (std::string_view factor : split_list(term, '+')) {
    if (factor.empty()) {
      continue;
    }
    has_factor = true;
    const bool excludes = factor.starts_with('^');
    factor.remove_prefix(excludes ? 1 : 0);
    const NameSet found = find_names(factor);
    if (found.none()) {
      return fail(Code::kInvalidArgument, "algSelection: '{}' is not the beginning of a name",
                  factor);
    }
    both &= excludes ? all_names() & ~found : found;
  }
  if (!has_factor || both.none()) {
    return fail(Code::kInvalidArgument, "algSelection: '{}' names nothing", term);
  }
  return both;
}

/// The place of a row among those of its collective.
size_t row_of(const Algorithm& algorithm) {
  const std::span<const Algorithm> table = algorithms();
  return static_cast<size_t>(std::count_if(table.data(), &algorithm, [&](const Algorithm& before) {
    return before.collective == algorithm.collective;
  }));
}

/// The name's combination for the collective; 0: the collective has none.
AlgorithmSelection meaning_of(const Name& each, Collective collective) {
  for (const Algorithm& row : algorithms()) {
    if (row.collective == collective && each.family == row.family) {
      return selection_of(row, each.protocol);
    }
  }
  return 0;
}

}  // namespace

AlgorithmSelection selection_of(const Algorithm& algorithm, Protocol protocol) {
  if (algorithm.recorded != nullptr) {
    return 0;
  }
  const size_t place = row_of(algorithm) * kProtocols.size() + static_cast<size_t>(protocol);
  PLEXUS_ASSERT(place < 64, place);
  return AlgorithmSelection{1} << place;
}

Result<AlgorithmSelection> parse_selection(std::string_view text, Collective collective) {
  std::string written;
  std::copy_if(text.begin(), text.end(), std::back_inserter(written),
               [](char c) { return c != ' ' && c != '\t' && c != '\r' && c != '\n'; });
  written = lower(written);
  NameSet any;
  for (const std::string_view term : split_list(written, ',')) {
    if (!term.empty()) {
      PLEXUS_TRY(named, parse_term(term));
      any |= named;
    }
  }
  AlgorithmSelection selection = 0;
  for (size_t i = 0; i < known_names().size(); ++i) {
    selection |= any[i] ? meaning_of(known_names()[i], collective) : 0;
  }
  if (selection == 0) {
    return fail(Code::kInvalidArgument,
                "algSelection '{}' leaves no algorithm for {}: it has {}; or set "
                "forceAlgSelection to 0",
                text, name(collective), fmt::join(list_selectable(collective), ", "));
  }
  return selection;
}

std::vector<std::string> list_selectable(Collective collective) {
  std::vector<std::string> listed;
  for (const Name& each : known_names()) {
    if (meaning_of(each, collective) != 0) {
      listed.push_back(each.text);
    }
  }
  return listed;
}

}  // namespace plexus
