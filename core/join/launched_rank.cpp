// SPDX-License-Identifier: Apache-2.0
#include "core/join/launched_rank.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string_view>

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/os/host.hpp"

namespace plexus {
namespace {

constexpr size_t kNameBytesMax = 253;  // of a host, as in DNS
constexpr size_t kListBytesMax = size_t{1} << 20;
constexpr size_t kShownBytesMax = 64;  // of a name in messages
constexpr int kPortMax = std::numeric_limits<uint16_t>::max();

constexpr const char* kOpenMpi = "Open MPI";
constexpr const char* kPmi = "PMI";
constexpr const char* kPmix = "PMIx";
constexpr const char* kSlurm = "Slurm";

/// The variables of one launcher. nullptr: it has none for this purpose.
struct LauncherRow {
  const char* name;
  const char* rank;
  const char* nranks;
  const char* nranks_on_host;
  const char* job;       // the job's name
  const char* required;  // set by this launcher and not by an outer one
};

// The order matters: torchrun and mpirun also run inside Slurm jobs, and inherit srun's variables.
constexpr std::array kLaunchers = {
    LauncherRow{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
                "TORCHELASTIC_RUN_ID"},
    LauncherRow{kOpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", nullptr},
    LauncherRow{kPmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", nullptr, nullptr},
    LauncherRow{"a job by MASTER_ADDR", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", nullptr,
                "MASTER_ADDR"},
    LauncherRow{kPmix, "PMIX_RANK", nullptr, nullptr, "PMIX_NAMESPACE", "PMIX_NAMESPACE"},
    LauncherRow{kSlurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, nullptr, "SLURM_STEP_ID"},
};

/// Reads variables and checks them.
class Variables {
 public:
  explicit Variables(const LaunchVariables& read) : read_(read) {}

  [[nodiscard]] bool has(const char* name) const {
    return name == nullptr || read_(name) != nullptr;
  }
  [[nodiscard]] std::string text(const char* name) const {
    const char* value = name == nullptr ? nullptr : read_(name);
    return value == nullptr ? "" : value;
  }
  /// For messages: short, and nothing that a terminal would take for a command.
  [[nodiscard]] std::string shown(const char* name) const {
    return printable(text(name).substr(0, kShownBytesMax));
  }
  [[nodiscard]] Result<int> number(const char* name, int min, int max) const {
    const std::string value = text(name);
    int number = 0;
    const char* const end = value.data() + value.size();
    const auto read = std::from_chars(value.data(), end, number);
    if (value.empty() || read.ec != std::errc() || read.ptr != end || number < min ||
        number > max) {
      return has(name) ? fail(Code::kInvalidUsage,
                              "the launcher's variable {}='{}' is not a number from {} to {}", name,
                              shown(name), min, max)
                       : fail(Code::kInvalidUsage, "the launcher has set a rank, but not {}", name);
    }
    return number;
  }

 private:
  const LaunchVariables& read_;
};

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_';
}

bool is_host(std::string_view host) {
  // An address of IPv6 has colons, and % before its interface.
  return !host.empty() && host.size() <= kNameBytesMax && host.front() != '-' &&
         std::all_of(host.begin(), host.end(), [](char c) {
           return is_name_character(c) || c == ':' || c == '%' || c == '[' || c == ']';
         });
}

/// A step that srun has started in a job, not the job's script or an interactive shell, which have
/// numbers from 0xfffffff0.
bool is_step(const Variables& variables) {
  constexpr int kStepsMax = 0x7ffffff0;
  return variables.number("SLURM_STEP_ID", 0, kStepsMax).has_value();
}

bool is_of(const LauncherRow& row, const Variables& variables) {
  return variables.has(row.rank) && variables.has(row.required) &&
         (std::string_view(row.name) != kSlurm || is_step(variables));
}

std::string describe(const LauncherRow& row, const Variables& variables) {
  std::string job = row.name;
  if (row.job != nullptr && variables.has(row.job)) {
    job += fmt::format(" job {}", variables.shown(row.job));
  }
  if (variables.has("SLURM_JOB_ID") && !variables.text("SLURM_JOB_ID").empty()) {
    job = fmt::format("{}Slurm job {}", job == kSlurm ? "" : job + " in ",
                      variables.shown("SLURM_JOB_ID"));
    if (is_step(variables)) {
      job += fmt::format(" step {}", variables.shown("SLURM_STEP_ID"));
    }
  }
  const std::string node = variables.shown("SLURMD_NODENAME");
  return fmt::format("{}, {}", job, node.empty() ? host_identity("").name : node);
}

/// Reads how many of the ranks are on this host.
Result<bool> is_one_host(const LauncherRow& row, const Variables& variables, int nranks) {
  if (row.nranks_on_host != nullptr && variables.has(row.nranks_on_host)) {
    PLEXUS_TRY(local, variables.number(row.nranks_on_host, 1, nranks));
    return local == nranks;
  }
  return nranks == 1 || (is_step(variables) && variables.text("SLURM_STEP_NUM_NODES") == "1");
}

/// How this task knows that rank 0 is not on the first node of its step: it is rank 0, or the first
/// task of that node. srun -m arbitrary makes such steps. Empty: it does not.
std::string find_misplaced(const Variables& variables, int rank, const std::string& first) {
  const std::string node = variables.text("SLURMD_NODENAME");
  if (rank == 0 && !node.empty() && node != first) {
    return fmt::format("rank 0 is on '{}'", variables.shown("SLURMD_NODENAME"));
  }
  return rank != 0 && node == first && variables.text("SLURM_LOCALID") == "0"
             ? fmt::format("the first rank there is {}", rank)
             : "";
}

/// Where rank 0 is, by MASTER_ADDR or Slurm's list of nodes.
Result<void> find_address(const LauncherRow& row, const Variables& variables, LaunchedRank* found) {
  const bool needs_port = std::string_view(row.rank) == "RANK";
  if (variables.has("MASTER_ADDR") && (needs_port || variables.has("MASTER_PORT"))) {
    // The store of torch.distributed listens on MASTER_PORT, so the next port is used.
    PLEXUS_TRY(port, variables.number("MASTER_PORT", 1, kPortMax - 1));
    found->host = variables.text("MASTER_ADDR");
    found->source = "MASTER_ADDR";
    found->port = static_cast<uint16_t>(port + (variables.has("TORCHELASTIC_RUN_ID") ? 1 : 0));
  } else if (found->one_host && (row.job != nullptr || is_step(variables))) {  // jobs have names
    found->host = "127.0.0.1";
  } else if (std::string_view(row.name) == kSlurm && variables.has("SLURM_STEP_NODELIST")) {
    PLEXUS_TRY(first, first_of_node_list(variables.text("SLURM_STEP_NODELIST")));
    found->host = first;
    found->source = "SLURM_STEP_NODELIST";
    found->misplaced = find_misplaced(variables, found->rank, first);
  }
  if (!found->host.empty() && !is_host(found->host)) {
    return fail(Code::kInvalidUsage, "{}='{}' is not the name or address of a host", found->source,
                variables.shown(found->source.c_str()));
  }
  return ok();
}

/// All that tells this start of the job from others.
std::string key_of(const LauncherRow& row, const Variables& variables) {
  std::string key = row.name;
  for (const char* name : {row.job, "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT",
                           "TORCHELASTIC_RESTART_COUNT"}) {
    key += "\n" + variables.text(name);
  }
  return key;
}

}  // namespace

const char* read_launch_variable(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-mt-unsafe): as all who read settings
}

Result<std::string> first_of_node_list(const std::string& list) {
  std::string name;
  size_t at = 0;
  const auto skip_to = [&](char wanted) { at = std::min(list.find(wanted, at), list.size()); };
  for (; at < list.size() && list[at] != ',' && name.size() <= kNameBytesMax; ++at) {
    if (list[at] != '[') {
      name += list[at];
      continue;
    }
    const size_t digits = at + 1;
    const size_t end = std::min(list.find_first_not_of("0123456789", digits), list.size());
    name.append(list, digits, end - digits);
    skip_to(']');
    if (end == digits || at == list.size()) {
      name.clear();
      break;
    }
  }
  const bool is_name = !name.empty() && name.size() <= kNameBytesMax &&
                       list.size() <= kListBytesMax && name.front() != '-' &&
                       std::all_of(name.begin(), name.end(), is_name_character);
  if (!is_name) {
    return fail(Code::kInvalidUsage,
                "SLURM_STEP_NODELIST='{}' does not begin with the name of a node, as node[01-16] "
                "does",
                printable(list.substr(0, kShownBytesMax)));
  }
  return name;
}

Result<std::optional<LaunchedRank>> find_launched_rank(const LaunchVariables& read) {
  constexpr int kMany = std::numeric_limits<int>::max();
  const Variables variables(read);
  const auto* const row = std::find_if(kLaunchers.begin(), kLaunchers.end(),
                                       [&](const auto& each) { return is_of(each, variables); });
  if (row == kLaunchers.end()) {
    return std::optional<LaunchedRank>();
  }
  LaunchedRank found;
  found.launcher = row->name;
  found.job = describe(*row, variables);
  if (row->nranks != nullptr) {
    PLEXUS_TRY(nranks, variables.number(row->nranks, 1, kMany));
    found.nranks = nranks;
    PLEXUS_TRY(one_host, is_one_host(*row, variables, nranks));
    found.one_host = one_host;
  }
  PLEXUS_TRY(rank, variables.number(row->rank, 0, found.nranks == 0 ? kMany : found.nranks - 1));
  found.rank = rank;
  // Both are passed on to what a rank starts, so that of an outer launcher they say nothing.
  const std::string_view name = row->name;
  found.has_pmi = name == kPmi && variables.has("PMI_FD");
  found.has_pmix = (name == kOpenMpi || name == kPmix) && variables.has("PMIX_NAMESPACE") &&
                   variables.has("PMIX_RANK");
  PLEXUS_TRY(find_address(*row, variables, &found));
  found.key = key_of(*row, variables);
  return std::optional(std::move(found));
}

}  // namespace plexus
