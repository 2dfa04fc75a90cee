// SPDX-License-Identifier: Apache-2.0
// A certificate: what the kit found about a library, as canonical JSON (one line, sorted keys, no
// floating point), signed by the key of whoever ran it, in the same file:
//
//   {"certificate":{...},"signature":{"algorithm":"Ed25519","public_key":"...","text":"..."}}
//
// What is signed is "plexus plugin certificate 1", a byte 0, and the value of "certificate" as it
// stands there. It is also shown as a page and as a badge. certificate_reader.hpp reads it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "core/base/result.hpp"
#include "security/signature.hpp"
#include "tools/conformance/certify.hpp"

namespace plexus::conformance {

/// Runs the kit. `version`: of Plexus.
[[nodiscard]] Result<nlohmann::json> make_certificate(const Subject& subject,
                                                      const CertifyOptions& options,
                                                      std::string_view version);
/// "passed", "failed", "incomplete" (part of the kit), "not tested".
[[nodiscard]] std::string verdict_of(const nlohmann::json& certificate);

/// The file. Without a key nobody signs it.
[[nodiscard]] std::string format_certificate(const nlohmann::json& certificate,
                                             const std::optional<security::SigningKey>& key);
/// HTML on one page, without scripts or references to anything else. `key` as above.
[[nodiscard]] std::string format_page(const nlohmann::json& certificate,
                                      const std::optional<security::SigningKey>& key);
/// SVG.
[[nodiscard]] std::string format_badge(const nlohmann::json& certificate);

/// The digest of a library's file in hexadecimal digits.
[[nodiscard]] Result<std::string> read_digest(const std::filesystem::path& file);

}  // namespace plexus::conformance
