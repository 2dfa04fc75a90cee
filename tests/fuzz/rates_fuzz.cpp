// SPDX-License-Identifier: Apache-2.0
// Any bytes as the file of a host's rates. If accepted, they are plausible, survive their text, and
// every choice made from them is one.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/tuning/copy_methods.hpp"

namespace plexus {
namespace {

constexpr std::string_view kHost = "node1";

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

void fuzz(std::string_view text) {
  const auto rates = parse_rates(text, kHost);
  if (rates.has_error()) {
    return;
  }
  require(is_plausible(rates.value()));
  require(parse_rates(format_rates(rates.value(), kHost), kHost).value() == rates.value());
  const HostCopyMethods methods{
      .attach = true, .attach_bytes = -1, .measured = true, .rates = rates.value()};
  for (const uint64_t size_bytes : {uint64_t{0}, uint64_t{100'000}, uint64_t{1} << 50}) {
    require(std::isfinite(rates.value().slowest().time_ns(CopyMethod::kThroughSlots, size_bytes)));
    (void)choose_copy_method(methods, {.size_bytes = size_bytes});
  }
  require(message_latency_ns(methods) > 0);
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
