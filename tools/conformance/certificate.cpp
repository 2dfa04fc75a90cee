// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/certificate.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sys/utsname.h>
#include <unistd.h>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "plugin-api/plexus_plugin.h"

#include "core/base/file.hpp"
#include "core/base/text.hpp"
#include "tools/conformance/certificate_reader.hpp"
#include "tools/conformance/report.hpp"

extern char** environ;  // NOLINT(*-avoid-non-const-global-variables): POSIX

namespace plexus::conformance {
namespace {

using nlohmann::json;

std::string format_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  const size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), size};
}

/// Of the last 1, 5 and 15 minutes.
std::string format_load() {
  std::array<double, 3> load{};
  const int count = ::getloadavg(load.data(), static_cast<int>(load.size()));
  return count == 3 ? fmt::format("{:.2f}", fmt::join(load, " ")) : "unknown";
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name") || line.starts_with("CPU part")) {
      return printable(line.substr(std::min(line.find(": ") + 2, line.size())));
    }
  }
  return "unknown";
}

json describe_machine() {
  utsname kernel{};
  ::uname(&kernel);
  return {{"processor", processor()},
          {"cores", ::sysconf(_SC_NPROCESSORS_ONLN)},
          {"kernel",
           printable(fmt::format("{} {} {}", kernel.sysname, kernel.release, kernel.machine))}};
}

/// The variables that plugins and what is below them read; of secrets only that they are set.
json describe_environment() {
  constexpr std::array<std::string_view, 14> kStems = {
      "NCCL_", "RCCL_", "PLEXUS_", "FI_",  "OFI_",     "UCX_",   "IBV_",
      "RDMAV", "MLX",   "CUDA_",   "EFA_", "LD_PRELO", "LD_LIB", "MALLOC_"};
  constexpr std::array<std::string_view, 4> kSecrets = {"SECRET", "KEY", "TOKEN", "PASSWORD"};
  constexpr size_t kBytesMost = 400;
  json found = json::object();
  for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
    const std::string_view line = *each;
    const std::string name(line.substr(0, line.find('=')));
    const auto starts = [&](std::string_view stem) { return name.starts_with(stem); };
    if (std::none_of(kStems.begin(), kStems.end(), starts)) {
      continue;
    }
    const bool is_secret =
        std::any_of(kSecrets.begin(), kSecrets.end(),
                    [&](std::string_view word) { return name.find(word) != std::string::npos; });
    const std::string_view value = line.substr(std::min(name.size() + 1, line.size()));
    found[printable(name)] = is_secret ? "(set)" : printable(value.substr(0, kBytesMost));
  }
  return found;
}

/// Any bytes as lines of ASCII.
std::string printable_lines(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c != '\n' && (c < ' ' || c > '~'); }, '?');
  return text;
}

/// A certificate travels: the library is where its reader has it.
std::string without_folder(std::string text, const std::filesystem::path& file) {
  const std::string path = file.string();
  const std::string name = "./" + file.filename().string();
  for (size_t at = text.find(path); at != std::string::npos; at = text.find(path, at)) {
    text.replace(at, path.size(), name);
    at += name.size();
  }
  return text;
}

json describe_endurance(const Endurance& endurance) {
  if (!endurance.failure.empty()) {
    return {{"seed", endurance.seed},
            {"seconds", std::lround(endurance.seconds)},
            {"failure", printable(endurance.failure)}};
  }
  return {{"seed", endurance.seed},
          {"seconds", std::lround(endurance.seconds)},
          {"epochs", endurance.epochs},
          {"messages", endurance.messages},
          {"bytes", endurance.bytes},
          {"resident_bytes_begin", endurance.resident_begin},
          {"resident_bytes_end", endurance.resident_end},
          {"failure", ""}};
}

std::string verdict_of_section(const Section& section, const Counts& counts) {
  if (!section.identity.problem.empty() || counts.failed > 0 ||
      (section.endurance.has_value() && !section.endurance->failure.empty())) {
    return "failed";
  }
  return counts.passed > 0 ? "passed" : "not tested";
}

/// Checks that passed with their milliseconds, the others with all that is known.
json describe_section(const Section& section, const std::filesystem::path& file) {
  const Counts counts = count(section.verdicts);
  json passed = json::object();
  json others = json::array();
  for (const Verdict& verdict : section.verdicts) {
    const auto time_ms = std::lround(verdict.seconds * 1000);
    if (verdict.outcome == Outcome::kPass) {
      passed[verdict.check->id] = time_ms;
      continue;
    }
    const auto program = section.programs.find(verdict.check->id);
    others.push_back({{"id", verdict.check->id},
                      {"verdict", word_of(verdict)},
                      {"title", verdict.check->title},
                      {"rule", verdict.check->rule},
                      {"detail", printable(without_folder(verdict.detail, file))},
                      {"milliseconds", time_ms},
                      {"program", program == section.programs.end()
                                      ? ""
                                      : printable_lines(without_folder(program->second, file))}});
  }
  const std::string& why =
      section.identity.problem.empty() ? section.untested : section.identity.problem;
  return {{"entry", printable(section.entry)},
          {"kind", section.kind},
          {"abi", printable(section.identity.abi)},
          {"name", printable(section.identity.name)},
          {"verdict", verdict_of_section(section, counts)},
          {"reason", printable(without_folder(why, file))},
          {"counts",
           {{"passed", counts.passed},
            {"failed", counts.failed},
            {"weak", counts.weak},
            {"beyond", counts.beyond},
            {"skipped", counts.skipped},
            {"known", counts.known}}},
          {"passed", passed},
          {"others", others},
          {"endurance",
           section.endurance.has_value() ? describe_endurance(*section.endurance) : json()}};
}

std::string verdict_of_all(const json& sections, bool is_part) {
  const auto has = [&](const char* verdict) {
    return std::any_of(sections.begin(), sections.end(),
                       [&](const json& each) { return each["verdict"] == verdict; });
  };
  if (has("failed")) {
    return "failed";
  }
  return !has("passed") ? "not tested" : is_part ? "incomplete" : "passed";
}

json describe_options(const Subject& subject, const CertifyOptions& options) {
  json preloaded = json::array();
  for (const std::filesystem::path& file : subject.preload) {
    preloaded.push_back(printable(file.filename().string()));
  }
  json known = json::object();
  for (const auto& [id, reason] : options.run.known) {
    known[id] = printable(reason);
  }
  return {{"jobs", options.run.jobs}, {"patience", subject.patience},
          {"only", options.only},     {"abi", printable(subject.abi)},
          {"known_limits", known},    {"preloaded", preloaded}};
}

}  // namespace

Result<std::string> read_digest(const std::filesystem::path& file) {
  PLEXUS_TRY(bytes, read_file(file.string()));
  return security::format_hex(security::compute_digest(bytes));
}

std::string verdict_of(const json& certificate) {
  return certificate["verdict"].get<std::string>();
}

Result<json> make_certificate(const Subject& subject,
                              const CertifyOptions& options,
                              std::string_view version) {
  PLEXUS_TRY(digest, read_digest(subject.file));
  json times = {{"begin", format_time()}, {"load_begin", format_load()}};
  PLEXUS_TRY(sections, certify(subject, options));
  times.update({{"end", format_time()}, {"load_end", format_load()}});
  PLEXUS_TRY(later, read_digest(subject.file));
  if (later != digest) {
    return fail(Code::kInvalidUsage, "{} was changed while it was checked: run it again",
                subject.file.string());
  }
  json described = json::array();
  for (const Section& section : sections) {
    described.push_back(describe_section(section, subject.file));
  }
  const std::string verdict = verdict_of_all(described, !options.only.empty());
  return json{
      {"format", kCertificateFormat},
      {"verdict", verdict},
      {"library", {{"name", printable(subject.file.filename().string())}, {"blake2b_256", digest}}},
      {"kit",
       {{"version", version},
        {"abi", fmt::format("{}.{}", PLEXUS_ABI_MAJOR, PLEXUS_ABI_MINOR)},
        {"seeds", "messages are functions of their size and number; the long run has its own"},
        {"options", describe_options(subject, options)}}},
      {"machine", describe_machine()},
      {"environment", describe_environment()},
      {"times", std::move(times)},
      {"sections", std::move(described)}};
}

std::string format_certificate(const json& certificate,
                               const std::optional<security::SigningKey>& key) {
  const std::string text = certificate.dump();
  json signature;
  if (key.has_value()) {
    signature = {{"algorithm", "Ed25519"},
                 {"public_key", security::format_hex(security::public_key_of(*key))},
                 {"text", security::format_hex(security::sign(*key, kCertificateFormat, text))}};
  }
  return fmt::format("{{\"certificate\":{},\"signature\":{}}}\n", text, signature.dump());
}

}  // namespace plexus::conformance
