// SPDX-License-Identifier: Apache-2.0
// `plexus plugin certify|verify-certificate`. Exit codes of certify: 0 no table that was tested
// breaks jobs, 1 one does, 2 wrong usage, 3 nothing could be tested; of verify-certificate: 0 the
// text is as its signer signed it (and, if asked for, the key and the library are the ones), 1 it
// is not, 2 it is no certificate.
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "core/base/file.hpp"
#include "tools/cli/flags.hpp"
#include "tools/cli/plugin_check.hpp"
#include "tools/conformance/certificate.hpp"
#include "tools/conformance/certificate_reader.hpp"
#include "tools/conformance/report.hpp"

namespace plexus {
namespace {

using conformance::Section;
using conformance::Verdict;
using security::SigningKey;

struct CertifyFlags : SubjectFlags {
  std::string make_key;  // files
  std::string key;
  std::string out;
  std::string html;
  std::string badge;
  std::string known;
  std::vector<std::string> only;
  double hours = 0;
  uint64_t seed = 0;
};

struct VerifyFlags {
  std::string file;
  std::string key;
  std::string library;
};

/// Prints the public key of a new one.
Result<int> make_key(const std::string& path) {
  const std::optional<SigningKey> key = security::make_signing_key();
  const int file =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (!key.has_value() || file < 0) {
    return fail(Code::kInvalidUsage, "--make-key: cannot make a key in the new file {}: {}", path,
                key.has_value() ? std::strerror(errno) : "the system has no randomness");
  }
  const std::string text = security::format_signing_key(*key);
  const bool is_written =
      ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(file) == 0;
  ::close(file);
  if (!is_written) {
    return fail(Code::kSystemError, "--make-key: cannot write to {}", path);
  }
  fmt::print("{}\n", security::format_hex(security::public_key_of(*key)));
  return kExitOk;
}

/// nullopt: none was named.
Result<std::optional<SigningKey>> read_key(const std::string& path) {
  constexpr size_t kBytesMost = 256;
  if (path.empty()) {
    return std::optional<SigningKey>();
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && (status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return fail(Code::kInvalidUsage,
                "--key: others may read or write {}: whoever has it can sign; chmod 600 it", path);
  }
  PLEXUS_TRY(text, read_file(path, kBytesMost));
  const auto key = security::parse_signing_key(text);
  if (!key.has_value()) {
    return fail(Code::kInvalidUsage, "--key: {} is not a key that --make-key has written", path);
  }
  return key;
}

conformance::CertifyOptions make_options(const CertifyFlags& flags, bool is_told) {
  constexpr double kSecondsPerHour = 3600;
  conformance::CertifyOptions options;
  options.run.jobs = static_cast<uint32_t>(flags.jobs);
  options.only = flags.only;
  options.endurance = conformance::seconds(static_cast<int64_t>(flags.hours * kSecondsPerHour));
  options.seed = flags.seed != 0 ? flags.seed : std::random_device()();
  options.begins = [is_told](const Section& section) {
    if (is_told) {
      fmt::print("{} {}\n", section.entry, section.identity.name);
    }
  };
  options.progress = [is_told](const Verdict& verdict) {
    if (is_told) {
      fmt::print("{}\n", format_verdict(verdict));
    }
  };
  return options;
}

Result<int> certify(const CertifyFlags& flags) {
  if (flags.library.empty() || (flags.out.empty() && flags.html.empty() && flags.badge.empty())) {
    return fail(Code::kInvalidUsage,
                "plugin certify needs LIB and a file to write: --out, --html "
                "or --badge");
  }
  PLEXUS_TRY(key, read_key(flags.key));
  PLEXUS_TRY(subject, make_subject(flags));
  const bool is_told = flags.out != "-" && flags.html != "-" && flags.badge != "-";
  conformance::CertifyOptions options = make_options(flags, is_told);
  PLEXUS_TRY(known, read_known_limits(flags.known, conformance::all_checks()));
  options.run.known = std::move(known);
  PLEXUS_TRY(certificate, make_certificate(subject, options, PLEXUS_VERSION));
  const std::string text = conformance::format_certificate(certificate, key);
  if (!flags.out.empty()) {
    PLEXUS_TRY(write_output(flags.out, text));
  }
  if (!flags.html.empty()) {
    PLEXUS_TRY(write_output(flags.html, conformance::format_page(certificate, key)));
  }
  if (!flags.badge.empty()) {
    PLEXUS_TRY(write_output(flags.badge, conformance::format_badge(certificate)));
  }
  PLEXUS_TRY(facts, conformance::read_certificate(text));
  for (const std::string& line : facts.sections) {
    fmt::print(is_told ? stdout : stderr, "{}\n", line);
  }
  return facts.verdict == "failed"       ? kExitWrong
         : facts.verdict == "not tested" ? kExitUnchecked
                                         : kExitOk;
}

/// PUBLIC: the digits, or a file that has them.
Result<security::PublicKey> read_public_key(const std::string& named) {
  constexpr size_t kBytesMost = 256;
  security::PublicKey key{};
  if (security::parse_hex(named, key)) {
    return key;
  }
  PLEXUS_TRY(text, read_file(named, kBytesMost));
  while (text.ends_with('\n')) {
    text.pop_back();
  }
  if (!security::parse_hex(text, key)) {
    return fail(Code::kInvalidUsage,
                "--key: {} has no public key, 64 hexadecimal digits as --make-key prints them",
                named);
  }
  return key;
}

/// What the user has besides the certificate.
struct Known {
  std::optional<security::PublicKey> key;
  std::string library;  // "": none was named
  std::string digest;
};

Result<Known> read_known(const VerifyFlags& flags) {
  Known known;
  if (!flags.key.empty()) {
    PLEXUS_TRY(key, read_public_key(flags.key));
    known.key = key;
  }
  if (!flags.library.empty()) {
    PLEXUS_TRY(library, find_plugin_file(flags.library));
    PLEXUS_TRY(digest, conformance::read_digest(library));
    known.library = library.string();
    known.digest = std::move(digest);
  }
  return known;
}

/// What is not so; "": nothing.
std::string find_disagreement(const conformance::CertificateFacts& facts, const Known& known) {
  if (!facts.signer.has_value()) {
    return "nobody has signed this certificate";
  }
  if (!facts.is_intact) {
    return "the signature is not one of this text by this key: one of them was changed afterwards";
  }
  if (known.key.has_value() && *known.key != *facts.signer) {
    return "another key has signed it than --key";
  }
  if (!known.library.empty() && known.digest != facts.digest) {
    return fmt::format("{} is another library: its BLAKE2b-256 is {}", known.library, known.digest);
  }
  return "";
}

Result<int> verify(const VerifyFlags& flags) {
  PLEXUS_TRY(known, read_known(flags));
  PLEXUS_TRY(text, read_file(flags.file, conformance::kCertificateBytesMost));
  PLEXUS_TRY(facts, conformance::read_certificate(text));
  fmt::print("{}, BLAKE2b-256 {}\nchecked by the kit of Plexus {} from {} to {}: {}\n",
             facts.library, facts.digest, facts.version, facts.begin, facts.end, facts.verdict);
  for (const std::string& line : facts.sections) {
    fmt::print("  {}\n", line);
  }
  if (facts.signer.has_value()) {
    fmt::print("  signer: {}\n", security::format_hex(*facts.signer));
  }
  if (const std::string why = find_disagreement(facts, known); !why.empty()) {
    return report_error(fail(Code::kInvalidArgument, "{}", why), kExitWrong);
  }
  fmt::print("the text is as it was signed{}{}\n",
             known.key.has_value() ? " by --key" : "; whose key that is, its owner must tell you",
             known.library.empty() ? "" : ", and the library is the one that was checked");
  return kExitOk;
}

template <class Flags>
Command make_command(CLI::App* app,
                     const std::shared_ptr<Flags>& flags,
                     Result<int> (*run)(const Flags&)) {
  return {app, [flags, run] {
            const Result<int> result = run(*flags);
            return result ? result.value() : report_error(result.error(), kExitUsage);
          }};
}

Result<int> certify_or_make_key(const CertifyFlags& flags) {
  return flags.make_key.empty() ? certify(flags) : make_key(flags.make_key);
}

void add_certify_flags(CLI::App& app, const std::shared_ptr<CertifyFlags>& flags) {
  constexpr double kHoursMost = 10000;
  app.add_option("LIB", flags->library, "a file, or a name such as net-socket")->type_name("");
  app.add_option("--out", flags->out, "write the certificate, JSON, to this file (-: stdout)")
      ->type_name("FILE");
  app.add_option("--html", flags->html, "write it as a page to this file (-: stdout)")
      ->type_name("FILE");
  app.add_option("--badge", flags->badge, "write a badge, SVG, to this file (-: stdout)")
      ->type_name("FILE");
  app.add_option("--key", flags->key, "sign with the key of this file")->type_name("FILE");
  app.add_option("--make-key", flags->make_key,
                 "only make a key in this new file, and print its public half")
      ->type_name("FILE");
  app.add_option("--hours", flags->hours,
                 "let each network also carry messages for so long (such as 0.1)")
      ->check(CLI::Range(0.0, kHoursMost))
      ->type_name("N");
  app.add_option("--seed", flags->seed, "of that long run (default: a random one)")->type_name("N");
  app.add_option("--abi", flags->abi,
                 "only tables of this ABI: native, or a version of NCCL's such as v8 (default: the "
                 "best of each kind, and Plexus's own)")
      ->type_name("VALUE");
  app.add_option("--only", flags->only,
                 "only these checks, as in check; such a certificate says that it is incomplete")
      ->delimiter(',')
      ->type_name("ID");
  app.add_option("--known", flags->known,
                 "a file of known limits, as in check; the certificate has them with their reasons")
      ->type_name("FILE");
}

}  // namespace

std::vector<Command> add_plugin_certify_commands(CLI::App& plugin) {
  const auto flags = std::make_shared<CertifyFlags>();
  CLI::App* certify = plugin.add_subcommand(
      "certify", "Check every table of a plugin, and write a signed certificate");
  add_certify_flags(*certify, flags);
  add_subject_flags(*certify, flags);
  const auto verify_flags = std::make_shared<VerifyFlags>();
  CLI::App* verification = plugin.add_subcommand(
      "verify-certificate",
      "Who signed a certificate, whether it was changed, and for what library");
  verification->add_option("FILE", verify_flags->file, "the certificate, JSON")
      ->required()
      ->type_name("");
  verification
      ->add_option("--key", verify_flags->key,
                   "the signer's public key as you know it: its digits, or a file that has them")
      ->type_name("PUBLIC");
  verification->add_option("--library", verify_flags->library, "the library that you have")
      ->type_name("LIB");
  return {make_command(certify, flags, certify_or_make_key),
          make_command(verification, verify_flags, verify)};
}

}  // namespace plexus
