// SPDX-License-Identifier: Apache-2.0
#include "core/join/wire_up.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>
#include <utility>

#include "core/base/hash.hpp"
#include "core/base/log.hpp"
#include "core/join/pmi.hpp"
#include "core/join/pmix.hpp"
#include "core/join/rendezvous.hpp"

namespace plexus {
namespace {

/// Where rank 0 listens without PLEXUS_PORT_RANGE: below the ports that Linux gives to clients.
constexpr PortRange kPorts = {.low = 20000, .high = 31999};

// Ids travel as hexadecimal digits, which every launcher takes.
Result<std::string> make_text(const Config& config) {
  PLEXUS_TRY(id, start_root(config));
  std::string text;
  for (const std::byte byte : id.to_bytes()) {
    text += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  return text;
}

Result<UniqueId> parse_text(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr unsigned kDigitBits = 4;
  std::array<std::byte, UniqueId::kBytes> bytes{};
  if (text.size() != 2 * bytes.size() ||
      text.find_first_not_of(kDigits) != std::string_view::npos) {
    return fail(Code::kRemoteError,
                "the launcher passed on {} bytes that are no unique id: rank 0 must be a process "
                "of the same program",
                text.size());
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] = static_cast<std::byte>(kDigits.find(text[2 * at]) << kDigitBits |
                                       kDigits.find(text[2 * at + 1]));
  }
  return UniqueId::from_bytes(bytes);
}

/// The user means a job on one host.
bool says_this_host(std::string_view host) {
  return host == "localhost" || host == "::1" || host == "[::1]" ||
         (host.starts_with("127.") &&
          host.find_first_not_of("0123456789.") == std::string_view::npos);
}

/// The id that all ranks derive from the launcher's variables.
Result<UniqueId> derive(const Config& config, const LaunchedRank& launched) {
  PLEXUS_TRY(given, parse_port_range(config.port_range));
  const PortRange range = given.low == 0 ? kPorts : given;
  Fnv1a hash;
  hash.mix(launched.key);
  const auto low = static_cast<uint64_t>(range.low);
  const uint64_t nports = static_cast<uint64_t>(range.high) - low + 1;
  const uint64_t port = launched.port != 0 ? launched.port : low + hash.value() % nports;
  const bool bare_ipv6 =
      launched.host.find(':') != std::string::npos && launched.host.front() != '[';
  const std::string host = bare_ipv6 ? fmt::format("[{}]", launched.host) : launched.host;
  const std::string text = fmt::format("{}:{}", host, port);
  auto address = SocketAddress::parse(text);
  if (address.has_error()) {
    return std::move(address).error().with_context(fmt::format(
        "rank 0 is on '{}' by {}: make this name known on every node, or set NCCL_COMM_ID to "
        "HOST:PORT with an address of that node",
        launched.host, launched.source));
  }
  if (!launched.misplaced.empty()) {
    return fail(
        Code::kInvalidUsage,
        "the ranks look for rank 0 on '{}', the first node of {}, but {} (srun -m arbitrary "
        "may do so): start with srun --mpi=pmix or --mpi=pmi2, list the node of rank 0 "
        "first, or set NCCL_COMM_ID to HOST:PORT with an address of it",
        launched.host, launched.source, launched.misplaced);
  }
  UniqueId::Listener listener = UniqueId::Listener::kRankZero;
  if (!launched.one_host && !says_this_host(launched.host)) {
    listener = UniqueId::Listener::kRankZeroAnywhere;
    if (address.value().is_loopback()) {
      // The node itself calls its name so (Debian's 127.0.1.1), where the others cannot go.
      PLEXUS_TRY(own, find_own_address(config));
      own.set_port(static_cast<uint16_t>(port));
      address = own;
    }
  }
  PLEXUS_TRY(
      id, UniqueId::derive(address.value(), fmt::format("plexus job {}\n{}", text, launched.key)));
  id.listener = listener;
  return id;
}

/// The id that rank 0 makes, passed on by PMI-1.
Result<UniqueId> pass_on(const Config& config,
                         const std::string& pmi_fd,
                         int rank,
                         const Deadline& deadline) {
  std::string text;
  if (rank == 0) {
    PLEXUS_TRY(made, make_text(config));
    text = made;
  }
  PLEXUS_TRY(got, pass_on_by_pmi(pmi_fd, rank, text, deadline));
  return parse_text(got);
}

Result<UniqueId> find_id(const Config& config,
                         const LaunchVariables& variables,
                         LaunchedRank& launched) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(config.bootstrap_timeout_s));
  if (launched.nranks == 1 || (launched.nranks != 0 && !config.comm_id.empty())) {
    return start_root(config);
  }
  if (launched.has_pmi) {
    return pass_on(config, variables("PMI_FD"), launched.rank, deadline);
  }
  std::string why_not = "it offers no PMI";
  if (launched.has_pmix) {
    const auto answer = pass_on_by_pmix(
        launched.rank, [&] { return make_text(config); }, deadline);
    if (answer.has_value()) {
      launched.nranks = answer.value().nranks;
      return parse_text(answer.value().value);
    }
    why_not = answer.error().message();
    // An Open MPI that was built with a PMIx of its own has no library for us.
    if (answer.error().code() != Code::kInvalidUsage || launched.nranks == 0) {
      return answer.error().clone();
    }
  }
  if (!launched.host.empty()) {
    return derive(config, launched);
  }
  return fail(Code::kInvalidUsage,
              "{} does not say where rank 0 is ({}): set NCCL_COMM_ID to HOST:PORT with rank 0's "
              "host and a free port there",
              launched.launcher, why_not);
}

}  // namespace

Result<WireUp> wire_up(const Config& config, const LaunchVariables& variables) {
  const auto read = [&] {
    const auto held = hold_environment();
    return find_launched_rank(variables);
  };
  PLEXUS_TRY(launched, read());
  if (!launched.has_value()) {
    return fail(Code::kInvalidUsage,
                "no launcher has started this process (the variables of srun, mpirun, torchrun and "
                "PMIx are not set): use one, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
  }
  auto id = find_id(config, variables, *launched);
  if (id.has_error()) {
    return std::move(id).error().with_context(
        fmt::format("rank {} of {}", launched->rank, launched->job));
  }
  PLEXUS_INFO(kBootstrap, "rank {} of {}: {} ranks meet at {}", launched->rank, launched->job,
              launched->nranks, id.value().address.to_string());
  return WireUp{.id = id.value(), .rank = launched->rank, .nranks = launched->nranks};
}

}  // namespace plexus
