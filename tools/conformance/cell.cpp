// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/cell.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace plexus::conformance {
namespace {

/// Stores the check's result in the status of its process.
void leave_result(ProcessStatus& status, const Result<void>& result) {
  if (result.has_value()) {
    status.state = ProcessState::kPassed;
    return;
  }
  status.text.set(result.error().message());
  switch (result.error().code()) {
    case kSkipCode:
      status.state = ProcessState::kSkipped;
      return;
    case kLeftAloneCode:
      status.state = ProcessState::kLeftAlone;
      return;
    default:
      status.state = ProcessState::kFailed;
  }
}

void become_quiet(int output) {
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  if (output > STDERR_FILENO) {
    ::close(output);
  }
  const rlimit no_core{0, 0};  // crashes are expected here
  ::setrlimit(RLIMIT_CORE, &no_core);
}

/// Loaded before the plugin, so that its symbols are available to it.
void preload(const std::vector<std::filesystem::path>& files, ProcessStatus& status) {
  for (const std::filesystem::path& file : files) {
    if (::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      status.text.set("the kit cannot load a stub of CUDA before the plugin");
      status.state = ProcessState::kFailed;
      ::_exit(0);
    }
  }
}

/// In the forked process.
[[noreturn]] void run_check(const Check& check,
                            Fixture::Options options,
                            ProcessStatus& status,
                            int output) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::setpgid(0, 0);
  become_quiet(output);
  status.pid = ::getpid();
  preload(options.subject.preload, status);
  {
    Fixture fixture(std::move(options), status);
    leave_result(status, check.run(fixture));
  }
  if (check.options.exits) {
    status.place = Place::kExit;
    std::exit(0);  // NOLINT(concurrency-mt-unsafe): what is checked is the plugin's part of it
  }
  ::_exit(0);
}

/// The last line that a process wrote, as the reason of an abort.
std::string last_line(int output) {
  constexpr size_t kBytes = 400;
  std::array<char, kBytes> text{};
  const off_t size = ::lseek(output, 0, SEEK_END);
  const off_t begin = std::max<off_t>(0, size - static_cast<off_t>(kBytes));
  const ssize_t n = ::pread(output, text.data(), kBytes, begin);
  std::string all(text.data(), n > 0 ? static_cast<size_t>(n) : 0);
  while (!all.empty() && all.back() == '\n') {
    all.pop_back();
  }
  return all.substr(all.rfind('\n') + 1);
}

}  // namespace

Result<Cell> Cell::start(const Subject& subject, const Check& check) {
  PLEXUS_TRY(page, make_status_page());
  PLEXUS_TRY(peer_links, PeerLink::make_pair());
  Cell cell(check, std::move(page), check.options.limit * subject.patience);
  std::fflush(nullptr);  // otherwise the children would write the buffered output again
  for (uint32_t role = 0; role < check.options.processes; ++role) {
    const int output = ::memfd_create("plexus-check", MFD_CLOEXEC);
    const pid_t pid = output < 0 ? -1 : ::fork();
    if (pid < 0) {
      return fail(Code::kSystemError, "cannot start a process for check {}: {}", check.id,
                  std::strerror(errno));
    }
    if (pid == 0) {
      PeerLink own = std::move(peer_links[role]);
      peer_links[1 - role] = PeerLink();  // close, so that each process sees the end of the other
      for (const Process& other : cell.processes_) {
        ::close(other.output);
      }
      run_check(check, {subject, role, std::move(own), &cell.page_->statuses[1 - role]},
                cell.page_->statuses[role], output);
    }
    cell.page_->statuses[role].pid = pid;
    ::setpgid(pid, pid);  // in both processes, because either may come first
    cell.processes_.push_back({pid, false, 0, output});
    constexpr int kTimesMost = 10;  // limits inside the process end earlier
    cell.deadlines_.emplace_back(cell.limit_, pid, kTimesMost);
  }
  return cell;
}

Cell& Cell::operator=(Cell&& other) noexcept {
  std::swap(check_, other.check_);
  std::swap(page_, other.page_);
  std::swap(begin_, other.begin_);
  std::swap(limit_, other.limit_);
  std::swap(deadlines_, other.deadlines_);
  std::swap(processes_, other.processes_);
  return *this;
}

Cell::~Cell() {
  kill_all();
  for (const Process& process : processes_) {
    ::close(process.output);
  }
}

void Cell::kill_all() noexcept {
  for (Process& process : processes_) {
    // Also kills its group, because a check may have children. The group id stays valid until the
    // process is waited for, and its children keep it afterwards.
    ::kill(-process.pid, SIGKILL);
    if (!process.has_ended) {
      ::waitpid(process.pid, &process.status, 0);
      process.has_ended = true;
    }
  }
}

/// Whether the deadline has passed for every process: one may wait for another that got no CPU
/// time.
bool Cell::is_late() {
  return std::all_of(deadlines_.begin(), deadlines_.end(),
                     [](FairDeadline& deadline) { return deadline.is_over(); });
}

std::optional<Verdict> Cell::poll() {
  bool all_ended = true;
  for (Process& process : processes_) {
    if (!process.has_ended && ::waitpid(process.pid, &process.status, WNOHANG) == process.pid) {
      process.has_ended = true;
    }
    all_ended = all_ended && process.has_ended;
  }
  const bool is_over = !all_ended && is_late();
  if (!all_ended && !is_over) {
    return std::nullopt;
  }
  return judge(is_over);
}

std::optional<std::string> Cell::find_crash(size_t role) const {
  const Process& process = processes_[role];
  const ProcessStatus& status = page_->statuses[role];
  const std::string who =
      processes_.size() > 1 ? fmt::format("process {} of the check", role) : "the process";
  const char* const place = place_name(status.place.load());
  if (!process.has_ended) {
    return fmt::format("{} did not end in time: it is in {}", who, place);
  }
  if (status.state == ProcessState::kDiedOnPurpose) {
    return std::nullopt;
  }
  if (WIFSIGNALED(process.status)) {
    const int number = WTERMSIG(process.status);
    const char* const name = ::sigabbrev_np(number);
    const std::string words = last_line(process.output);
    return fmt::format("{} was killed by SIG{} in {}{}{}", who, name == nullptr ? "?" : name, place,
                       words.empty() ? "" : "; its last output: ", words);
  }
  if (status.state == ProcessState::kRunning || WEXITSTATUS(process.status) != 0) {
    const std::string words = last_line(process.output);
    return fmt::format("{} exited with code {} in {}{}{}", who, WEXITSTATUS(process.status), place,
                       words.empty() ? "" : "; its last output: ", words);
  }
  return std::nullopt;
}

Verdict Cell::judge(bool is_late) {
  Verdict verdict{.check = check_,
                  .outcome = Outcome::kPass,
                  .detail = page_->statuses[0].text.get(),
                  .seconds = std::chrono::duration<double>(Clock::now() - begin_).count()};
  // In order of weight: a crash, a rule broken on the way, the check's own message.
  std::array<std::string, 4> reasons;
  std::string skipped;
  for (size_t role = 0; role < processes_.size(); ++role) {
    const ProcessStatus& status = page_->statuses[role];
    const bool has_story =
        status.state == ProcessState::kFailed || status.state == ProcessState::kLeftAlone;
    if (const auto crash = find_crash(role); crash.has_value() && reasons[0].empty()) {
      reasons[0] = *crash;
    }
    if (status.has_broken_text && reasons[1].empty()) {
      reasons[1] = status.broken.get();
    }
    const size_t rank = status.state == ProcessState::kFailed ? 2 : 3;
    if (has_story && reasons[rank].empty()) {
      reasons[rank] = status.text.get();
    }
    if (status.state == ProcessState::kSkipped) {
      skipped = status.text.get();
    }
  }
  if (is_late && !reasons[2].empty()) {
    // the other process knew the reason; the first one only waited for it
    std::swap(reasons[0], reasons[2]);
  }
  const auto reason = std::find_if(reasons.begin(), reasons.end(),
                                   [](const std::string& text) { return !text.empty(); });
  if (!skipped.empty() && reasons[0].empty() && reasons[1].empty()) {
    verdict.outcome = Outcome::kSkip;
    verdict.detail = skipped;
  } else if (reason != reasons.end()) {
    verdict.outcome = Outcome::kFail;
    verdict.detail = *reason;
  }
  kill_all();
  return verdict;
}

}  // namespace plexus::conformance
