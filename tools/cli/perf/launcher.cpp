// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/launcher.hpp"

#include <array>
#include <fstream>
#include <iterator>
#include <limits>
#include <unistd.h>

#include <fmt/core.h>

#include "tools/cli/flags.hpp"

namespace plexus::perf {
namespace {

/// The variables of one launcher. nullptr: it has none for this purpose.
struct LauncherRow {
  const char* name;
  const char* rank;
  const char* nranks;
  const char* nranks_on_host;
  const char* job[2];    // parts of the job's key
  const char* required;  // set by this launcher and not by an outer one (a Slurm batch script also
                         // has a rank)
};

// The order matters: mpirun and torchrun also run inside Slurm jobs.
constexpr std::array kLaunchers = {
    LauncherRow{"Open MPI",
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_SIZE",
                {"PMIX_NAMESPACE", nullptr},
                nullptr},
    LauncherRow{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", {nullptr, nullptr}, nullptr},
    LauncherRow{"torchrun",
                "RANK",
                "WORLD_SIZE",
                "LOCAL_WORLD_SIZE",
                {"TORCHELASTIC_RUN_ID", nullptr},
                "MASTER_ADDR"},
    LauncherRow{"Slurm",
                "SLURM_PROCID",
                "SLURM_STEP_NUM_TASKS",
                nullptr,
                {"SLURM_JOB_ID", "SLURM_STEP_ID"},
                "SLURM_STEP_ID"},
};

Result<int> read_int(const Environment& environment, const char* name, IntRange range) {
  const char* text = environment(name);
  if (text == nullptr) {
    return fail(Code::kInvalidUsage,
                "the launcher set a rank, but not {}; give --rank, --nranks and --rendezvous",
                name);
  }
  const Result<int64_t> value = parse_int(text, range);
  if (!value) {
    return fail(Code::kInvalidUsage, "the launcher's variable {} {}", name,
                value.error().message());
  }
  return static_cast<int>(value.value());
}

std::string find_job(const Environment& environment,
                     const LauncherRow& row,
                     const std::string& parent) {
  std::string job = row.name;
  bool known = false;
  for (const char* name : row.job) {
    const char* value = name == nullptr ? nullptr : environment(name);
    if (value != nullptr) {
      job += fmt::format(" {}", value);
      known = true;
    }
  }
  return known || parent.empty() ? job : fmt::format("{} {}", job, parent);
}

/// MASTER_ADDR and MASTER_PORT, or NCCL_COMM_ID.
Result<std::string> find_rendezvous(const Environment& environment) {
  const char* host = environment("MASTER_ADDR");
  if (host != nullptr && environment("MASTER_PORT") != nullptr) {
    PLEXUS_TRY(port,
               read_int(environment, "MASTER_PORT", {1, std::numeric_limits<uint16_t>::max() - 1}));
    // torchrun's store listens on MASTER_PORT, so the next port is used.
    const int shift = environment("TORCHELASTIC_RUN_ID") != nullptr ? 1 : 0;
    const bool bare_ipv6 = std::string(host).find(':') != std::string::npos && host[0] != '[';
    return bare_ipv6 ? fmt::format("[{}]:{}", host, port + shift)
                     : fmt::format("{}:{}", host, port + shift);
  }
  const char* given = environment("NCCL_COMM_ID");
  return std::string(given == nullptr ? "" : given);
}

}  // namespace

Result<std::optional<LaunchedRank>> find_launched_rank(const Environment& environment,
                                                       const std::string& parent) {
  constexpr int kMany = std::numeric_limits<int>::max();
  for (const LauncherRow& row : kLaunchers) {
    if (environment(row.rank) == nullptr ||
        (row.required != nullptr && environment(row.required) == nullptr)) {
      continue;
    }
    LaunchedRank found;
    found.launcher = row.name;
    PLEXUS_TRY(nranks, read_int(environment, row.nranks, {1, kMany}));
    PLEXUS_TRY(rank, read_int(environment, row.rank, {0, nranks - 1}));
    found.rank = rank;
    found.nranks = nranks;
    if (row.nranks_on_host != nullptr && environment(row.nranks_on_host) != nullptr) {
      PLEXUS_TRY(local, read_int(environment, row.nranks_on_host, {1, nranks}));
      found.nranks_on_host = local;
    } else if (const char* nodes = environment("SLURM_STEP_NUM_NODES");
               nodes != nullptr && std::string(nodes) == "1") {
      found.nranks_on_host = nranks;
    }
    found.job = find_job(environment, row, parent);
    PLEXUS_TRY(rendezvous, find_rendezvous(environment));
    found.rendezvous = rendezvous;
    return std::optional(std::move(found));
  }
  return std::optional<LaunchedRank>();
}

std::string describe_parent() {
  const pid_t parent = getppid();
  std::ifstream file(fmt::format("/proc/{}/stat", parent));
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  // Field 22 is the start time in ticks since boot. The name in field 2 may contain anything and
  // ends at the last ')'.
  constexpr int kFieldsFromName = 20;
  size_t at = stat.rfind(')');
  for (int field = 0; field < kFieldsFromName && at != std::string::npos; ++field) {
    at = stat.find(' ', at + 1);
  }
  const std::string started =
      at == std::string::npos ? "" : stat.substr(at + 1, stat.find(' ', at + 1) - at - 1);
  return fmt::format("{}-{}", parent, started);
}

}  // namespace plexus::perf
