// SPDX-License-Identifier: Apache-2.0
// The text of STATUS. Its lines and their order are NCCL's, since programs parse them; what we add
// stands in a section of its own at the end.
#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/text.hpp"
#include "core/ras/ras_report.hpp"

namespace plexus {
namespace {

// The highest status of a communicator's ranks is shown.
enum Status { kNoComm, kInit, kRunning, kFinalize, kAbort };
constexpr const char* kStatusNames[] = {"NOCOMM", "INIT", "RUNNING", "FINALIZE", "ABORT"};

constexpr unsigned kMismatch = 1;
constexpr unsigned kError = 2;
constexpr unsigned kIncomplete = 4;

/// A communicator as a row of the table sees it.
struct View {
  const RasComm* comm = nullptr;
  int nodes = 0;
  int per_node_min = 0;
  int per_node_max = 0;
  Status status = kNoComm;
  unsigned errors = 0;
  std::vector<const RasRank*> silent = {};  // missing, though they should answer
  std::map<Status, std::vector<const RasRank*>> by_status = {};
  std::string name = {};  // "#0-0 (00000000deadbeef)"
  [[nodiscard]] auto key() const {
    return std::tuple(-comm->nranks, -nodes, per_node_min, per_node_max, status, errors);
  }
};

Status status_of(const MemberState& state) {
  if (state.is_aborted) {
    return kAbort;
  }
  if (state.is_finalized) {
    return kFinalize;
  }
  return state.error == static_cast<uint8_t>(Code::kInProgress) ? kInit : kRunning;
}

const char* describe_error(uint8_t error) {
  constexpr const char* kTexts[] = {"success",
                                    "Unhandled CUDA error",
                                    "System error",
                                    "Internal error",
                                    "Invalid argument",
                                    "Invalid usage",
                                    "Remote process error",
                                    "NCCL operation in progress"};
  return error < std::size(kTexts) ? kTexts[error] : "Unexpected error";
}

bool has_failed(const RasRank& rank) {
  return rank.said->state.error != 0 &&
         rank.said->state.error != static_cast<uint8_t>(Code::kInProgress);
}

bool have_equal_counts(const RasComm& comm) {
  return std::all_of(comm.ranks.begin(), comm.ranks.end(), [&](const RasRank& rank) {
    return rank.said->counts == comm.ranks.front().said->counts;
  });
}

View look_at(const RasJob& job, const RasComm& comm) {
  View view{.comm = &comm};
  std::map<std::string, int> per_node;
  for (const RasRank& rank : comm.ranks) {
    ++per_node[job.process_of(rank)->host];
    view.by_status[status_of(rank.said->state)].push_back(&rank);
    view.errors |= has_failed(rank) ? kError : 0U;
  }
  for (const RasRank& rank : comm.missing) {
    const RasProcess* const process = job.process_of(rank);
    ++per_node[process == nullptr ? "unknown" : process->host];
    if (process != nullptr && (process->has_answered || (process->is_gone && !process->is_dead))) {
      view.by_status[kNoComm].push_back(&rank);
    } else {
      view.silent.push_back(&rank);
    }
  }
  view.nodes = static_cast<int>(per_node.size());
  const auto [least, most] =
      std::minmax_element(per_node.begin(), per_node.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  view.per_node_min = least->second;
  view.per_node_max = most->second;
  view.status = view.by_status.empty() ? kNoComm : view.by_status.rbegin()->first;
  view.errors |= view.silent.empty() ? 0U : kIncomplete;
  view.errors |= view.by_status.size() > 1 || !have_equal_counts(comm) ? kMismatch : 0U;
  return view;
}

std::vector<View> look_at_all(const RasJob& job) {
  std::vector<View> views;
  for (const RasComm& comm : job.comms) {
    views.push_back(look_at(job, comm));
  }
  std::stable_sort(views.begin(), views.end(),
                   [](const View& a, const View& b) { return a.key() < b.key(); });
  int group = -1;
  int index = 0;
  for (size_t i = 0; i < views.size(); ++i) {
    const bool is_first = i == 0 || views[i].key() != views[i - 1].key();
    group += is_first ? 1 : 0;
    index = is_first ? 0 : index + 1;
    views[i].name = fmt::format("#{}-{} ({:016x})", group, index, views[i].comm->group);
  }
  return views;
}

std::string describe_errors(unsigned errors) {
  std::vector<const char*> names;
  for (const auto& [bit, name] : {std::pair(kIncomplete, "INCOMPLETE"), std::pair(kError, "ERROR"),
                                  std::pair(kMismatch, "MISMATCH")}) {
    if ((errors & bit) != 0) {
      names.push_back(name);
    }
  }
  return names.empty() ? "OK" : fmt::format("{}", fmt::join(names, ","));
}

class Report {
 public:
  Report(const RasJob& job, bool is_verbose)
      : job_(job), is_verbose_(is_verbose), views_(look_at_all(job)) {}

  std::string make() {
    add("NCCL version {}+plexus{} compiled with CUDA 0.0\n", PLEXUS_NCCL_VERSION, PLEXUS_VERSION);
    add("CUDA runtime version 0, driver version 0\n\n");
    add("Job summary\n===========\n\n");
    add_summary();
    add("\nCommunicators... ({:.3f}s)\n=============\n\n", job_.seconds);
    add_table();
    add("\nErrors\n======\n\n");
    add_process_errors();
    for (const View& view : views_) {
      add_incomplete(view);
      add_failures(view);
    }
    add("Warnings\n========\n\n");
    if (job_.timeouts > 0) {
      add("TIMEOUT\n  Encountered {} while gathering communicator data\n\n",
          counted(job_.timeouts, "communication timeout"));
    }
    for (const View& view : views_) {
      add_mismatch(view);
    }
    add_verdicts();
    return std::move(out_);
  }

 private:
  template <class... Values>
  void add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Values>(values)...);
  }
  void add_summary();
  void add_table();
  void add_process_errors();
  void add_processes(const std::vector<const RasProcess*>& processes);
  void add_incomplete(const View& view);
  void add_failures(const View& view);
  void add_mismatch(const View& view);
  void add_verdicts();
  void add_rank(const RasRank& rank, std::string_view says);
  using Groups = std::map<uint64_t, std::vector<const RasRank*>>;
  void add_groups(const View& view,
                  const Groups& groups,
                  const std::function<std::string(uint64_t value, bool is_one)>& describe);
  [[nodiscard]] bool is_listed(size_t count, size_t of) const {
    constexpr size_t kListedMax = 10;
    return count == 1 || (is_verbose_ ? 2 * count < of : count <= kListedMax && 4 * count <= of);
  }

  const RasJob& job_;
  const bool is_verbose_;
  const std::vector<View> views_;
  std::string out_;
};

void Report::add_summary() {
  std::map<std::string, std::vector<const RasProcess*>> nodes;
  std::set<int> devices;
  int all_devices = 0;
  size_t all = 0;
  for (const RasProcess& process : job_.processes) {
    if (job_.is_counted(process)) {
      nodes[process.host].push_back(&process);
      devices.insert(process.devices);
      all_devices += process.devices;
      ++all;
    }
  }
  std::map<size_t, std::vector<std::string>> by_size;  // number of processes -> nodes
  for (const auto& [host, processes] : nodes) {
    by_size[processes.size()].push_back(host);
  }
  if (by_size.size() == 1 && devices.size() == 1) {
    add("  Nodes  Processes         GPUs  Processes     GPUs\n"
        "(total)   per node  per process    (total)  (total)\n"
        "{:7}  {:9}  {:11}  {:9}  {:7}\n",
        nodes.size(), by_size.begin()->first, *devices.begin(), all, all_devices);
    return;
  }
  add("  Nodes  Processes\n          per node\n");
  for (const auto& [size, hosts] : by_size) {
    add("{:7}  {:9}\n", hosts.size(), size);
  }
  std::map<int, int> by_devices;
  for (const RasProcess& process : job_.processes) {
    by_devices[process.devices] += job_.is_counted(process) ? 1 : 0;
  }
  add("\n         Processes         GPUs\n                    per process\n");
  for (const auto& [count, processes] : by_devices) {
    add("         {:9}  {:11}\n", processes, count);
  }
  add("\n  Nodes  Processes         GPUs\n(total)    (total)      (total)\n{:7}  {:9}  {:11}\n",
      nodes.size(), all, all_devices);
  for (const auto& [size, hosts] : by_size) {
    if (by_size.size() == 1 || !is_listed(hosts.size(), nodes.size())) {
      continue;
    }
    add("\nThe outlier node{}:\n", hosts.size() > 1 ? "s" : "");
    for (const std::string& host : hosts) {
      std::vector<int> pids;
      for (const RasProcess* const process : nodes[host]) {
        pids.push_back(process->pid);
      }
      add("  Node {} running process{} {}\n", host, pids.size() > 1 ? "es" : "",
          fmt::join(pids, ","));
    }
  }
}

void Report::add_table() {
  if (views_.empty()) {
    add("No communicator data collected!\n");
    return;
  }
  add("Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
      "    #  in group  per comm  per node  per comm  in group\n");
  int group = 0;
  for (auto first = views_.begin(); first != views_.end();) {
    const auto end = std::find_if(first, views_.end(),
                                  [&](const View& each) { return each.key() != first->key(); });
    const auto comms = end - first;
    add("{:5}  {:8}  {:8}  {:>8}  {:8}  {:8}  {:>8}  {:>6}\n", group++, comms, first->nodes,
        first->per_node_min == first->per_node_max
            ? std::to_string(first->per_node_min)
            : fmt::format("{}-{}", first->per_node_min, first->per_node_max),
        first->comm->nranks, comms * first->comm->nranks, kStatusNames[first->status],
        describe_errors(first->errors));
    first = end;
  }
}

void Report::add_processes(const std::vector<const RasProcess*>& processes) {
  for (const RasProcess* const process : processes) {
    std::vector<int> devices;
    for (int i = 0; i < process->devices; ++i) {
      devices.push_back(process->first_device + i);
    }
    add("  Process {} on node {} managing GPU{} {}\n", process->pid, process->host,
        devices.size() > 1 ? "s" : "", fmt::join(devices, ","));
  }
  add("\n");
}

void Report::add_process_errors() {
  std::vector<const RasProcess*> silent;
  std::vector<const RasProcess*> dead;
  for (const RasProcess& process : job_.processes) {
    if (process.is_dead) {
      dead.push_back(&process);
    } else if (!process.has_answered && !process.is_gone) {
      silent.push_back(&process);
    }
  }
  if (!silent.empty()) {
    add("INCOMPLETE\n  Missing communicator data from {} job process{}\n", silent.size(),
        silent.size() > 1 ? "es" : "");
    add_processes(silent);
  }
  if (!dead.empty()) {
    add("DEAD\n  {} job process{} considered dead (unreachable via the RAS network)\n", dead.size(),
        dead.size() > 1 ? "es are" : " is");
    add_processes(dead);
  }
}

/// `says`: what follows "Rank 3", with its blank in front.
void Report::add_rank(const RasRank& rank, std::string_view says) {
  const RasProcess* const process = job_.process_of(rank);
  if (process == nullptr) {
    add("  Rank {}{} -- [process information not found]\n", rank.rank, says);
    return;
  }
  add("  Rank {}{} -- GPU {} managed by process {} on node {}\n", rank.rank, says, rank.device,
      process->pid, process->host);
}

void Report::add_incomplete(const View& view) {
  if (view.silent.empty()) {
    return;
  }
  add("{} INCOMPLETE\n  Missing communicator data from {}\n", view.name,
      counted(view.silent.size(), "rank"));
  for (const RasRank* const rank : view.silent) {
    add_rank(*rank, "");
  }
  add("\n");
}

/// Groups of ranks that differ, the largest first, which is not listed by name.
void Report::add_groups(const View& view,
                        const Groups& groups,
                        const std::function<std::string(uint64_t, bool)>& describe) {
  std::vector<const Groups::value_type*> sorted;
  for (const auto& each : groups) {
    sorted.push_back(&each);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto* a, const auto* b) {
    return a->second.size() > b->second.size();
  });
  for (const auto* const each : sorted) {
    const auto& [value, ranks] = *each;
    if (ranks.size() == 1) {
      add_rank(*ranks.front(), " " + describe(value, true));
      continue;
    }
    add("  {} ranks {}\n", ranks.size(), describe(value, false));
    if (each != sorted.front() && is_listed(ranks.size(), view.comm->ranks.size())) {
      for (const RasRank* const rank : ranks) {
        add_rank(*rank, "");
      }
    }
  }
}

void Report::add_failures(const View& view) {
  Groups groups;
  size_t count = 0;
  for (const RasRank& rank : view.comm->ranks) {
    if (has_failed(rank)) {
      groups[rank.said->state.error].push_back(&rank);
      ++count;
    }
  }
  if (count == 0) {
    return;
  }
  add("{} ERROR\n  Asynchronous error{} on {}\n", view.name, count > 1 ? "s" : "",
      counted(count, "rank"));
  add_groups(view, groups, [](uint64_t error, bool /*is_one*/) {
    return fmt::format("reported {}", describe_error(static_cast<uint8_t>(error)));
  });
  add("\n");
}

void Report::add_mismatch(const View& view) {
  if ((view.errors & kMismatch) == 0) {
    return;
  }
  add("{} MISMATCH\n", view.name);
  if (view.by_status.size() > 1) {
    add("  Communicator ranks have different status\n");
    Groups groups;
    for (const auto& [status, ranks] : view.by_status) {
      groups[status] = ranks;
    }
    add_groups(view, groups, [](uint64_t status, bool is_one) {
      return fmt::format("{} status {}", is_one ? "has" : "have", kStatusNames[status]);
    });
  }
  for (size_t kind = 0; kind < CallLog::kCollectiveKinds; ++kind) {
    Groups groups;
    for (const RasRank& rank : view.comm->ranks) {
      groups[rank.said->counts[kind]].push_back(&rank);
    }
    if (groups.size() < 2) {
      continue;
    }
    add("  Communicator ranks have different {} operation counts\n", kRasCollectives[kind]);
    add_groups(view, groups, [](uint64_t count, bool is_one) {
      const char* const verb = is_one ? "has" : "have";
      return count == 0 ? fmt::format("{} not launched any operations", verb)
                        : fmt::format("{} launched up to operation {}", verb, count);
    });
  }
  add("\n");
}

void Report::add_verdicts() {
  if (job_.verdicts.empty()) {
    return;
  }
  add("Verdicts\n========\n\n");
  for (const RasVerdict& verdict : job_.verdicts) {
    const auto view = std::find_if(views_.begin(), views_.end(), [&](const View& each) {
      return each.comm->group == verdict.group;
    });
    std::string cause = verdict.cause;
    std::transform(cause.begin(), cause.end(), cause.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    add("{} {}\n  {}\n  What to do: {}\n\n", view->name, cause, verdict.sentence, verdict.advice);
  }
}

}  // namespace

std::string make_ras_text(const RasJob& job, bool is_verbose) {
  return Report(job, is_verbose).make();
}

std::string make_ras_diagnostics(const RasJob& job, const std::string& self) {
  std::string out;
  const auto add = [&](const std::string& text) {
    out += fmt::format("{} NCCL DIAG {}\n", self, text);
  };
  size_t answered = 0;
  std::vector<std::string> silent;
  for (const RasProcess& process : job.processes) {
    if (process.has_answered) {
      ++answered;
    } else if (process.is_dead || !process.is_gone) {
      silent.push_back(fmt::format("process {} on node {}", process.pid, process.host));
    }
  }
  add("=== RAS Diagnostics ===");
  add(silent.empty() ? fmt::format("[OK]   all {} answer", counted(answered, "process"))
                     : fmt::format("[INFO] no answer of {}", fmt::join(silent, ", ")));
  for (const RasVerdict& verdict : job.verdicts) {
    add(fmt::format("[INFO] {}", verdict.sentence));
  }
  if (job.verdicts.empty()) {
    add("[OK]   no rank keeps others waiting");
  }
  constexpr double kMs = 1000;
  add(fmt::format("RAS diagnostics completed in {:.1f} ms across {} RAS peers", job.seconds * kMs,
                  answered));
  return out;
}

}  // namespace plexus
