// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/verdict.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>
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
                                         "the process that made the unique id",
                                         "the process that made the first unique id"};
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

bool has_any(const std::string& text, std::span<const std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view each) { return text.find(each) != std::string::npos; });
}

/// As in "rank 3 (host:4711)".
bool names_process(const std::string& text, pid_t process) {
  return text.find(fmt::format(":{})", process)) != std::string::npos;
}

std::string repeat(std::string_view text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) {
    result += text;
  }
  return result;
}

/// "median, most"
std::string describe(const std::vector<double>& seconds) {
  return seconds.empty() ? ""
                         : fmt::format("{:.3f}, {:.3f}", median_of(seconds),
                                       *std::max_element(seconds.begin(), seconds.end()));
}

/// Times that are not -1.
std::vector<double> times_of(const std::vector<FaultResult>& results, double FaultResult::*which) {
  std::vector<double> times;
  for (const FaultResult& result : results) {
    if (result.*which >= 0) {
      times.push_back(result.*which);
    }
  }
  return times;
}

int sum_of(const std::vector<FaultResult>& results, int FaultResult::*which) {
  return std::accumulate(results.begin(), results.end(), 0,
                         [&](int sum, const FaultResult& result) { return sum + result.*which; });
}

int count_of(const std::vector<FaultResult>& results, bool FaultResult::*which) {
  return static_cast<int>(std::count_if(results.begin(), results.end(),
                                        [&](const FaultResult& result) { return result.*which; }));
}

std::string describe_row(FaultKind kind, const std::vector<FaultResult>& results) {
  const std::vector<double> first = times_of(results, &FaultResult::first_s);
  const std::vector<double> went_on = times_of(results, &FaultResult::went_on_s);
  return fmt::format(
      "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
      kFaultNames[static_cast<size_t>(kind)], results.size(),
      count_of(results, &FaultResult::has_struck), first.size(),
      sum_of(results, &FaultResult::nerrors), sum_of(results, &FaultResult::nnamed),
      sum_of(results, &FaultResult::ncaused), describe(first),
      describe(times_of(results, &FaultResult::last_s)), sum_of(results, &FaultResult::nreported),
      sum_of(results, &FaultResult::nreported_named),
      sum_of(results, &FaultResult::nreported_caused), count_of(results, &FaultResult::waits),
      went_on.size(), describe(went_on));
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
  const bool is_caused = has_any(text, expectation.causes);
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

LogVerdict judge_log(const std::string& log, pid_t guilty, FaultKind kind) {
  constexpr std::string_view kWaited = " has waited for ";
  LogVerdict best;
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(kWaited) == std::string::npos) {
      continue;
    }
    const Reported reported = !names_process(line, guilty)                ? Reported::kSomeRank
                              : has_any(line, expectation_of(kind).waits) ? Reported::kCause
                                                                          : Reported::kGuiltyRank;
    if (reported > best.reported) {
      best = {.reported = reported, .line = line};
    }
  }
  return best;
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
      "error, "
      "s | last error, s | logs of long waits | name the rank | and the cause | wait for good | "
      "went on | after, s |\n"
      "|" +
      repeat(" --- |", 15) + "\n";
  for (const auto& [kind, results] : results_) {
    text += describe_row(kind, results);
  }
  for (const auto& [sentence, seeds] : unnamed_) {
    text += fmt::format("lacks the rank or the cause, {} x, seed {}: {}\n", seeds.size(),
                        seeds.front(), sentence);
  }
  return text;
}

}  // namespace plexus::soak
