// SPDX-License-Identifier: Apache-2.0
// What other ranks say of their links at start, and the file that `plexus doctor --start` reads:
// what is accepted gets a verdict, and a map.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "core/selftest/verdict.hpp"
#include "tools/cli/start_map.hpp"

namespace plexus {
namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void fuzz(std::string_view bytes) {
  constexpr int kRanks = 4;
  std::vector<std::vector<LinkSample>> by_rank(kRanks);
  for (auto& samples : by_rank) {  // a quarter each
    const size_t part = std::min(bytes.size(), bytes.size() / kRanks + 1);
    if (auto decoded = decode_samples(bytes.substr(0, part), kRanks); decoded.has_value()) {
      samples = std::move(decoded).value();
    }
    bytes.remove_prefix(part);
  }
  const Verdict verdict = judge(join_samples(by_rank), std::vector<TriedRank>(kRanks));
  for (const Finding& found : verdict.findings) {
    require(!found.ranks.empty() && !found.sentence.empty());
  }
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  plexus::fuzz(bytes);
  if (const auto samples = plexus::decode_samples(bytes, 4); samples.has_value()) {
    plexus::require(plexus::encode(samples.value()).size() == size);
  }
  if (const auto report = plexus::read_start_report(bytes); report.has_value()) {
    plexus::require(report.value().map.values.size() == report.value().map.rows.size());
  }
  return 0;
}
