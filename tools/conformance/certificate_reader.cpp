// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/certificate_reader.hpp"

#include <tuple>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "core/base/text.hpp"

namespace plexus::conformance {
namespace {

using nlohmann::json;

Error refuse(std::string_view why) {
  return fail(Code::kInvalidUsage, "it is not a certificate of `plexus plugin certify`: {}", why);
}

/// The member of that name and type; null: there is none.
const json* find(const json& object, const char* name, json::value_t type) {
  if (!object.is_object()) {
    return nullptr;
  }
  const auto found = object.find(name);
  return found == object.end() || found->type() != type ? nullptr : &*found;
}

Result<std::string> text_at(const json& object, const char* name) {
  const json* const found = find(object, name, json::value_t::string);
  if (found == nullptr) {
    return refuse(fmt::format("it has no text '{}' where one must be", name));
  }
  return printable(found->get<std::string>());
}

Result<json> parse(std::string_view text) {
  constexpr int kDepthMost = 8;
  if (text.size() > kCertificateBytesMost) {
    return refuse(fmt::format("it has more than {} bytes", kCertificateBytesMost));
  }
  bool is_deep = false;
  const json::parser_callback_t look = [&](int depth, json::parse_event_t, json&) {
    is_deep = is_deep || depth > kDepthMost;
    return !is_deep;
  };
  json document = json::parse(text, look, false);
  if (is_deep || document.is_discarded()) {
    return refuse(is_deep ? "it is nested too deeply" : "it is not JSON");
  }
  // One text per meaning: no member twice, no other spelling of a number.
  if (document.dump() + "\n" != text) {
    return refuse("it is not spelled as that command writes it");
  }
  return document;
}

Result<std::string> describe(const json& section) {
  PLEXUS_TRY(entry, text_at(section, "entry"));
  PLEXUS_TRY(name, text_at(section, "name"));
  PLEXUS_TRY(verdict, text_at(section, "verdict"));
  PLEXUS_TRY(reason, text_at(section, "reason"));
  const json* const counts = find(section, "counts", json::value_t::object);
  std::string numbers;
  for (const char* const each : {"passed", "failed", "weak", "beyond", "known", "skipped"}) {
    const json* const number =
        counts == nullptr ? nullptr : find(*counts, each, json::value_t::number_unsigned);
    if (number == nullptr) {
      return refuse("a section has no counts");
    }
    if (*number != 0U) {
      numbers += fmt::format("{}{} {}", numbers.empty() ? " (" : ", ", number->dump(), each);
    }
  }
  return fmt::format("{}{}{}: {}{}{}{}", entry, name.empty() ? "" : " ", name, verdict, numbers,
                     numbers.empty() ? "" : ")", reason.empty() ? "" : ": " + reason);
}

Result<void> read_signature(const json& document, CertificateFacts& facts) {
  const json& signature = document["signature"];
  if (signature.is_null()) {
    return ok();
  }
  PLEXUS_TRY(algorithm, text_at(signature, "algorithm"));
  PLEXUS_TRY(signer, text_at(signature, "public_key"));
  PLEXUS_TRY(text, text_at(signature, "text"));
  security::PublicKey key{};
  security::Signature bytes{};
  if (algorithm != "Ed25519" || signature.size() != 3 || !security::parse_hex(signer, key) ||
      !security::parse_hex(text, bytes)) {
    return refuse("its signature is not one of Ed25519 in hexadecimal digits");
  }
  facts.signer = key;
  facts.is_intact =
      security::is_signed(key, kCertificateFormat, document["certificate"].dump(), bytes);
  return ok();
}

}  // namespace

Result<CertificateFacts> read_certificate(std::string_view text) {
  PLEXUS_TRY(document, parse(text));
  const json* const certificate = find(document, "certificate", json::value_t::object);
  if (certificate == nullptr || !document.contains("signature") || document.size() != 2) {
    return refuse("it does not consist of a certificate and a signature");
  }
  PLEXUS_TRY(format, text_at(*certificate, "format"));
  if (format != kCertificateFormat) {
    return refuse(fmt::format("its format is '{}', expected '{}'", format, kCertificateFormat));
  }
  CertificateFacts facts;
  PLEXUS_TRY(read_signature(document, facts));
  const json none;
  const auto part = [&](const char* name) -> const json& {
    const json* const found = find(*certificate, name, json::value_t::object);
    return found == nullptr ? none : *found;
  };
  for (const auto& [object, name, target] :
       {std::tuple{&part("library"), "name", &facts.library},
        std::tuple{&part("library"), "blake2b_256", &facts.digest},
        std::tuple{&part("kit"), "version", &facts.version},
        std::tuple{&part("times"), "begin", &facts.begin},
        std::tuple{&part("times"), "end", &facts.end},
        std::tuple{certificate, "verdict", &facts.verdict}}) {
    PLEXUS_TRY(value, text_at(*object, name));
    *target = std::move(value);
  }
  const json* const sections = find(*certificate, "sections", json::value_t::array);
  if (sections == nullptr) {
    return refuse("it has no sections");
  }
  for (const json& section : *sections) {
    PLEXUS_TRY(line, describe(section));
    facts.sections.push_back(std::move(line));
  }
  return facts;
}

}  // namespace plexus::conformance
