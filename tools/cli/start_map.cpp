// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/start_map.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/json_members.hpp"
#include "core/base/text.hpp"

namespace plexus {
namespace {

using nlohmann::json;

constexpr size_t kSideMax = 64;  // of the map; more ranks share a row
constexpr int kRanksMax = 1 << 24;

/// A finite number of 0 or more; 0: it is none.
double amount_of(const json& object, std::string_view key) {
  const json* const at = find_member(object, key);
  const double value = at == nullptr || !at->is_number() ? 0 : at->get<double>();
  return std::isfinite(value) && value > 0 ? value : 0;
}

/// How bad a link is, and a letter for it.
struct Cell {
  double badness = -1;  // -1: not tried
  char letter = '.';
  std::string text = {};
};

Cell cell_of(const json& link, double usual) {
  const std::string fault = text_of(link, "fault");
  if (fault == "failed") {
    return {.badness = 1, .letter = 'X', .text = "lost"};
  }
  if (fault == "corrupt") {
    return {.badness = 1, .letter = 'C', .text = "bits"};
  }
  if (fault == "late") {
    return {.badness = 1, .letter = 'L', .text = "late"};
  }
  const double share = usual == 0 ? 1 : std::min(1.0, amount_of(link, "gb_per_s") / usual);
  constexpr double kShares[] = {0.25, 0.5, 0.75};
  const auto above = std::upper_bound(std::begin(kShares), std::end(kShares), share);
  return {.badness = 1 - share,
          .letter = "_-+#"[above - std::begin(kShares)],
          .text = fmt::format("{:.0f}", 100 * share)};
}

/// The rate that is usual for the link: of its class, else the best of the file.
double usual_rate(const json& record, const json& link, double best) {
  const json* const classes = find_member(record, "classes");
  const std::string network = text_of(link, "network");
  const json* const usual =
      classes == nullptr ? nullptr : find_member(*classes, network.empty() ? "memory" : network);
  const double rate = usual == nullptr ? 0 : amount_of(*usual, "gb_per_s");
  return rate > 0 ? rate : best;
}

std::vector<std::vector<Cell>> make_cells(const json& record, size_t nranks, size_t in_cell) {
  const size_t side = (nranks + in_cell - 1) / in_cell;
  std::vector<std::vector<Cell>> cells(side, std::vector<Cell>(side));
  std::map<std::string, double> best;  // by network
  const json empty = json::array();
  const json* const links = find_member(record, "links");
  for (const json& link : links == nullptr || !links->is_array() ? empty : *links) {
    double& rate = best[text_of(link, "network")];
    rate = std::max(rate, amount_of(link, "gb_per_s"));
  }
  for (const json& link : links == nullptr || !links->is_array() ? empty : *links) {
    const double source = amount_of(link, "source");
    const double target = amount_of(link, "target");
    if (source >= static_cast<double>(nranks) || target >= static_cast<double>(nranks)) {
      continue;
    }
    Cell cell = cell_of(link, usual_rate(record, link, best[text_of(link, "network")]));
    Cell& place =
        cells[static_cast<size_t>(source) / in_cell][static_cast<size_t>(target) / in_cell];
    if (cell.badness > place.badness) {
      place = std::move(cell);
    }
  }
  return cells;
}

/// Names of rows and columns: the first rank of each.
std::vector<std::string> make_names(size_t side, size_t in_cell) {
  std::vector<std::string> names;
  for (size_t i = 0; i < side; ++i) {
    names.push_back(std::to_string(i * in_cell));
  }
  return names;
}

std::string draw_text(const std::vector<std::vector<Cell>>& cells, size_t in_cell) {
  std::string text = fmt::format(
      "rows send, columns receive{}; rate against its class: # from 75 %, + 50, - 25, _ less; "
      "L late, C changed, X lost, . not tried\n",
      in_cell == 1 ? "" : fmt::format(", {} ranks each, the worst link shows", in_cell));
  for (size_t row = 0; row < cells.size(); ++row) {
    text += fmt::format("{:>8} ", row * in_cell);
    for (const Cell& cell : cells[row]) {
      text += cell.letter;
    }
    text += '\n';
  }
  return text;
}

}  // namespace

Result<StartReport> read_start_report(std::string_view file) {
  const auto lines = split_list(file, '\n');
  const json record =
      lines.empty() ? json() : json::parse(lines.back(), nullptr, /*allow_exceptions=*/false);
  const double nranks = amount_of(record, "nranks");
  if (nranks < 2 || nranks > kRanksMax || find_member(record, "links") == nullptr) {
    return fail(Code::kInvalidArgument,
                "the last line is not of a self-test: name a file that PLEXUS_SELFTEST_FILE has "
                "named in a job with PLEXUS_SELFTEST=1");
  }
  const auto ranks = static_cast<size_t>(nranks);
  const size_t in_cell = (ranks + kSideMax - 1) / kSideMax;
  const auto cells = make_cells(record, ranks, in_cell);
  StartReport report;
  report.map = {.title = "links at start: % of the usual rate",
                .row_name = "sends",
                .rows = make_names(cells.size(), in_cell),
                .columns = make_names(cells.size(), in_cell),
                .values = {}};
  for (const auto& row : cells) {
    auto& values = report.map.values.emplace_back();
    auto& texts = report.map.texts.emplace_back();
    for (const Cell& cell : row) {
      values.push_back(std::max(0.0, cell.badness));
      texts.push_back(cell.text);
    }
  }
  report.text = fmt::format("comm {} of {} ranks, tried {:.0f} x in {:.2f} s\n",
                            printable(text_of(record, "comm")), ranks, amount_of(record, "tries"),
                            amount_of(record, "seconds")) +
                draw_text(cells, in_cell);
  const json* const findings = find_member(record, "findings");
  if (findings != nullptr && findings->is_array()) {
    for (const json& found : *findings) {
      report.text += printable(text_of(found, "sentence")) + "\n";
    }
    report.findings = findings->size();
  }
  if (report.findings == 0) {
    report.text += "all links are like their class\n";
  }
  return report;
}

}  // namespace plexus
