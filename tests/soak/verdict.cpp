// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/verdict.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

namespace plexus::soak {
namespace {

constexpr double kMicrosPerSecond = 1e6;

/// Communicators of what a thread does in a step; all of its streams' calls when it waits for them.
std::set<int> comms_of(const Job& job, const Thread& thread, size_t index) {
  std::set<int> comms;
  const auto add_calls = [&](const Step& step) {
    for (const Call& call : step.calls) {
      comms.insert(job.operations[static_cast<size_t>(call.operation)].comm);
    }
  };
  const bool is_end = index >= thread.steps.size();
  if (is_end || thread.steps[index].kind == StepKind::kSync) {
    for (size_t before = 0; before < std::min(index, thread.steps.size()); ++before) {
      add_calls(thread.steps[before]);
    }
    return comms;
  }
  const Step& step = thread.steps[index];
  add_calls(step);
  for (const Place& place : step.places) {
    comms.insert(place.comm);
  }
  if (step.kind == StepKind::kMake) {
    const Making& making = job.makings[static_cast<size_t>(step.making)];
    comms.insert(making.comms.begin(), making.comms.end());
    if (making.parent >= 0) {
      comms.insert(making.parent);
    }
  }
  return comms;
}

/// The communicator of a fault that is a call; nullopt: the fault is one of the whole process.
std::optional<int> comm_of_fault(const Job& job) {
  const Fault& fault = *job.fault;
  if (fault.kind == FaultKind::kMismatch && fault.operation >= 0) {
    return job.operations[static_cast<size_t>(fault.operation)].comm;
  }
  const auto& steps = job.threads[static_cast<size_t>(fault.thread)].steps;
  const auto& calls = steps[static_cast<size_t>(fault.step)].calls;
  if (fault.kind == FaultKind::kAbort && !calls.empty()) {
    const int operation = calls[static_cast<size_t>(fault.rank)].operation;
    return job.operations[static_cast<size_t>(operation)].comm;
  }
  return std::nullopt;
}

/// Has the thread's rank left the communicator in order, before the step that it has reached?
bool has_left(const Thread& thread, size_t reached, const Place& place) {
  return std::any_of(
      thread.steps.begin(),
      thread.steps.begin() + static_cast<std::ptrdiff_t>(std::min(reached, thread.steps.size())),
      [&](const Step& step) {
        return std::find(step.places.begin(), step.places.end(), place) != step.places.end();
      });
}

/// The numbers that the guilty ranks have in those of these communicators that the fault breaks,
/// and in the world; empty: it breaks none of them.
std::vector<int> guilty_numbers(const Job& job,
                                const std::vector<ProgressPage>& pages,
                                const std::set<int>& comms) {
  const auto guilty = static_cast<size_t>(job.fault->process);
  const std::optional<int> only = comm_of_fault(job);
  std::vector<int> numbers;
  std::vector<int> world;
  for (size_t at = 0; at < job.threads.size(); ++at) {
    const Thread& thread = job.threads[at];
    if (static_cast<size_t>(thread.process) != guilty) {
      continue;
    }
    const auto reached = static_cast<size_t>(pages[guilty]->threads[at].step.load());
    world.insert(world.end(), thread.ranks.begin(), thread.ranks.end());
    for (const int comm : comms) {
      for (const int world_rank : thread.ranks) {
        const int rank = rank_in(job.comms[static_cast<size_t>(comm)], world_rank);
        if (rank >= 0 && only.value_or(comm) == comm &&
            !has_left(thread, reached, {.comm = comm, .rank = rank})) {
          numbers.push_back(rank);
        }
      }
    }
  }
  if (!numbers.empty()) {
    numbers.insert(numbers.end(), world.begin(), world.end());
  }
  return numbers;
}

/// Before all have joined nobody knows the ranks of a process, but who made the unique id is known
/// by that.
bool names_maker(const Job& job, const std::string& text) {
  constexpr std::string_view kMaker[] = {"the one that called ncclGetUniqueId",
                                         "the process that made the unique id"};
  const bool is_maker =
      std::any_of(job.makings.begin(), job.makings.end(), [&](const Making& making) {
        return making.parent < 0 && making.process_of_id == job.fault->process;
      });
  return is_maker && std::any_of(std::begin(kMaker), std::end(kMaker), [&](std::string_view words) {
           return text.find(words) != std::string::npos;
         });
}

std::string without_numbers(std::string_view text) {
  std::string result;
  for (const char character : text.substr(0, 260)) {
    const bool is_digit = std::isdigit(static_cast<unsigned char>(character)) != 0;
    if (!is_digit || result.empty() || result.back() != '#') {
      result += is_digit ? '#' : character;
    }
  }
  return result;
}

double median_of(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// As in "rank 3 (host:4711)".
bool names_process(const std::string& text, pid_t process) {
  return text.find(fmt::format(":{})", process)) != std::string::npos;
}

void judge_error(const Job& job,
                 const std::vector<ProgressPage>& pages,
                 size_t index,
                 pid_t guilty,
                 FaultResult& result) {
  const Thread& thread = job.threads[index];
  const ErrorReport& error = pages[static_cast<size_t>(thread.process)]->threads[index].error;
  const std::string text = error.text.data();
  const auto comms = comms_of(job, thread, static_cast<size_t>(error.step));
  const std::vector<int> numbers = guilty_numbers(job, pages, comms);
  if (numbers.empty()) {
    ++result.nfollowing;
    return;
  }
  const Expectation& expectation = expectation_of(job.fault->kind);
  const bool is_named = names(text, numbers, guilty) || names_maker(job, text);
  const bool is_caused =
      std::any_of(expectation.causes.begin(), expectation.causes.end(),
                  [&](std::string_view cause) { return text.find(cause) != std::string::npos; });
  // Somebody who had no call with the guilty rank has left because of another error.
  if (job.fault->kind != FaultKind::kAbort && !names_process(text, guilty) &&
      text.find("called ncclCommAbort") != std::string::npos) {
    ++result.nfollowing;
    return;
  }
  ++result.nerrors;
  result.nnamed += is_named ? 1 : 0;
  result.ncaused += is_named && is_caused ? 1 : 0;
  if (!is_named || !is_caused) {
    result.unnamed.push_back(text);
  }
}

}  // namespace

bool names(const std::string& text, const std::vector<int>& ranks, pid_t process) {
  if (names_process(text, process)) {
    return true;
  }
  constexpr std::string_view kWord = "rank";
  for (size_t at = text.find(kWord); at != std::string::npos; at = text.find(kWord, at + 1)) {
    const char* rest = text.c_str() + at + kWord.size();
    rest += *rest == 's' ? 1 : 0;
    while (*rest == ' ' && std::isdigit(static_cast<unsigned char>(rest[1])) != 0) {
      char* end = nullptr;
      if (std::find(ranks.begin(), ranks.end(), std::strtol(rest, &end, 10)) != ranks.end()) {
        return true;
      }
      rest = end;
      rest += *rest == ',' ? 1 : 0;
      rest += std::string_view(rest).starts_with(" and") ? 4 : 0;
    }
  }
  return false;
}

FaultResult judge_fault(const Job& job,
                        const std::vector<ProgressPage>& pages,
                        pid_t guilty,
                        int64_t struck_us) {
  FaultResult result{.kind = job.fault->kind, .has_struck = struck_us != 0};
  const auto since = [&](int64_t at_us) {
    return static_cast<double>(at_us - struck_us) / kMicrosPerSecond;
  };
  for (size_t index = 0; index < job.threads.size(); ++index) {
    const auto process = static_cast<size_t>(job.threads[index].process);
    const ThreadProgress& progress = pages[process]->threads[index];
    const int64_t went_on_us = progress.went_on_us.load();
    result.went_on_s =
        went_on_us == 0 ? result.went_on_s : std::max(result.went_on_s, since(went_on_us));
    const int64_t at_us = progress.error.at_us.load();
    if (at_us == 0) {
      continue;
    }
    result.errors.push_back(fmt::format("{:.3f} s: process {} thread {} step {}: {}", since(at_us),
                                        process, index, progress.error.step,
                                        progress.error.text.data()));
    const bool is_early = struck_us == 0 || at_us < struck_us;
    if (is_early || expectation_of(result.kind).is_harmless) {
      result.findings.push_back(fmt::format("thread {} step {}: {}{}", index, progress.error.step,
                                            is_early ? "(before the fault) " : "",
                                            progress.error.text.data()));
    } else if (static_cast<int>(process) != job.fault->process) {
      judge_error(job, pages, index, guilty, result);
      const double seconds = since(at_us);
      result.first_s = result.first_s < 0 ? seconds : std::min(result.first_s, seconds);
      result.last_s = std::max(result.last_s, seconds);
    }
  }
  for (const ProgressPage& page : pages) {
    result.ndescriptors = std::max(result.ndescriptors, page->ndescriptors.load());
    result.nthreads = std::max(result.nthreads, page->nthreads.load());
  }
  return result;
}

void FaultTally::add(FaultResult result, uint64_t seed) {
  for (const std::string& text : result.unnamed) {
    unnamed_[fmt::format("{}: {}", kFaultNames[static_cast<size_t>(result.kind)],
                         without_numbers(text))]
        .push_back(seed);
  }
  results_[result.kind].push_back(std::move(result));
}

std::string FaultTally::describe() const {
  std::string text =
      "| fault | runs | struck | with errors | errors | name the rank | and the cause | first "
      "error s "
      "(median, most) | last error s (median, most) | went on | s (median, most) |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const auto& [kind, results] : results_) {
    int nstruck = 0;
    int nerrors = 0;
    int nnamed = 0;
    int ncaused = 0;
    std::vector<double> first;
    std::vector<double> last;
    std::vector<double> went_on;
    for (const FaultResult& result : results) {
      nstruck += result.has_struck ? 1 : 0;
      nerrors += result.nerrors;
      nnamed += result.nnamed;
      ncaused += result.ncaused;
      if (result.first_s >= 0) {
        first.push_back(result.first_s);
        last.push_back(result.last_s);
      }
      if (result.went_on_s >= 0) {
        went_on.push_back(result.went_on_s);
      }
    }
    const auto most = [](const std::vector<double>& values) {
      return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
    };
    text += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} | {:.3f}, {:.3f} | {:.3f}, {:.3f} | {} | {:.3f}, "
        "{:.3f} |\n",
        kFaultNames[static_cast<size_t>(kind)], results.size(), nstruck, first.size(), nerrors,
        nnamed, ncaused, median_of(first), most(first), median_of(last), most(last), went_on.size(),
        median_of(went_on), most(went_on));
  }
  for (const auto& [sentence, seeds] : unnamed_) {
    text += fmt::format("lacks the rank or the cause, {} x, seed {}: {}\n", seeds.size(),
                        seeds.front(), sentence);
  }
  return text;
}

}  // namespace plexus::soak
