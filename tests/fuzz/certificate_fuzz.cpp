// SPDX-License-Identifier: Apache-2.0
// Any bytes as a certificate of a plugin, and as the file of a signing key. A certificate that is
// accepted has texts that are fit for a terminal, and no byte of it can be changed unnoticed.
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/text.hpp"
#include "security/signature.hpp"
#include "tools/conformance/certificate_reader.hpp"

namespace plexus {
namespace {

void require(bool holds) {
  if (!holds) {
    std::abort();
  }
}

bool is_intact(std::string_view text) {
  const auto facts = conformance::read_certificate(text);
  return facts.has_value() && facts.value().is_intact;
}

void fuzz(std::string_view text) {
  if (const auto key = security::parse_signing_key(text); key.has_value()) {
    require(security::format_signing_key(*key) == text);
  }
  const auto facts = conformance::read_certificate(text);
  if (facts.has_error()) {
    require(!facts.error().message().empty());
    return;
  }
  for (const std::string& line : facts.value().sections) {
    require(line == printable(line));
  }
  require(facts.value().library == printable(facts.value().library));
  require(!facts.value().is_intact || facts.value().signer.has_value());
  if (facts.value().is_intact && !text.empty()) {
    std::string changed(text);
    const size_t at = std::hash<std::string_view>()(text) % changed.size();
    changed[at] = static_cast<char>(changed[at] ^ 1);
    require(!is_intact(changed));
  }
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
