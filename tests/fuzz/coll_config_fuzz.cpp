// SPDX-License-Identifier: Apache-2.0
// Any bytes as ncclCollConfig_t with a list of options of vendors, and any text as its algSelection
// for every collective. What is accepted is within its bounds.
//
// Input: bytes of the struct, then of options, 16 each; the rest is the text.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "core/api/coll_config.hpp"
#include "core/tuning/algorithm_selection.hpp"

namespace plexus {
namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void nobody(void* /*user*/, const char* /*text*/) {}

std::string_view take(std::string_view& bytes, size_t size_bytes) {
  const std::string_view taken = bytes.substr(0, size_bytes);
  bytes.remove_prefix(taken.size());
  return taken;
}

void fuzz(std::string_view bytes) {
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  std::array<ncclConfigExt_t, 4> options{};
  const plexusExplain_t explain{nobody, nullptr};
  const std::string_view raw = take(bytes, sizeof config);
  std::memcpy(&config, raw.data(), raw.size());
  for (size_t i = 0; i < options.size(); ++i) {
    const std::string_view option = take(bytes, 2 * sizeof(int) + 2);
    std::memcpy(&options[i].key, option.data(), std::min(option.size(), sizeof options[i].key));
    // Pointers are the caller's own; the list may end, go on, or go back.
    const size_t next = option.size() > 8 ? static_cast<uint8_t>(option[8]) % 6U : 5U;
    options[i].next = next < options.size() ? &options[next] : nullptr;
    if (options[i].key.optionId == PLEXUS_OPTION_EXPLAIN && option.size() > 9) {
      options[i].val.raw = option[9] % 2 == 1 ? const_cast<plexusExplain_t*>(&explain) : nullptr;
    } else if (option.size() > 9 && option[9] % 2 == 1) {
      options[i].val.raw = const_cast<plexusExplain_t*>(&explain);
    } else if (option.size() > 9) {
      options[i].val.i = static_cast<int8_t>(option[9]) / 2;
    }
  }
  const std::string text(bytes);
  config.ext = options.data();
  config.algSelection = text.c_str();
  config.launchCompletionEvent = nullptr;
  if (const auto checked = check_coll_config(config); checked.has_value()) {
    const CollConfig& accepted = checked.value();
    require(accepted.min_ctas >= 0 && accepted.max_ctas <= 64);
    require(accepted.max_ctas == 0 || accepted.min_ctas <= accepted.max_ctas);
    require(accepted.deadline_ms <= static_cast<uint32_t>(std::numeric_limits<int>::max()));
  }
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (const auto selection = parse_selection(text, collective); selection.has_value()) {
      require(selection.value() != 0);
    }
  }
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
