// SPDX-License-Identifier: Apache-2.0
// Reads the file of a certificate, which may be anybody's: bounded in bytes and depth, one spelling
// of each text, and nothing of it is believed but what the signature covers.
//
//   PLEXUS_TRY(facts, read_certificate(text));
//   if (facts.is_intact) ...  // `*facts.signer` has signed this text
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "security/signature.hpp"

namespace plexus::conformance {

/// The value of the member "format", and what signatures are made for.
inline constexpr std::string_view kCertificateFormat = "plexus plugin certificate 1";
inline constexpr size_t kCertificateBytesMost = 16 << 20;

/// What a certificate says, each text fit for a terminal.
struct CertificateFacts {
  std::string library;  // its file's name
  std::string digest;
  std::string version;  // of the kit
  std::string begin;
  std::string end;
  std::string verdict;
  std::vector<std::string> sections;  // a line each
  std::optional<security::PublicKey> signer;
  bool is_intact = false;  // the signer signed this text
};
/// The Error says in which way it is no certificate.
[[nodiscard]] Result<CertificateFacts> read_certificate(std::string_view text);

}  // namespace plexus::conformance
