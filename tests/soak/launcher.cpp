// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/launcher.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <set>
#include <sstream>
#include <string_view>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/soak/container.hpp"
#include "tests/soak/stacks.hpp"
#include "tests/soak/worker.hpp"

namespace plexus::soak {
namespace {

// Time for further reports after the first one.
constexpr auto kGrace = std::chrono::milliseconds(2500);
constexpr size_t kOutputLinesMax = 20;
// Where a process may end before it was known to anybody: it is missed after that.
constexpr int kJoinSeconds = 8;
constexpr int kStallSeconds = 2;           // where ranks may wait for long
constexpr int kJoinSecondsOfNetwork = 40;  // later than a network that vanished is noticed

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string last_lines(const std::string& text, size_t nlines) {
  size_t at = text.size();
  for (size_t seen = 0; at > 0; --at) {
    if (text[at - 1] == '\n' && at != text.size() && ++seen == nlines) {
      break;
    }
  }
  return text.substr(at);
}

/// A line without what differs between runs: numbers and text in parentheses. Equal causes give
/// equal lines.
std::string without_details(std::string_view text) {
  std::string result;
  int depth = 0;
  for (const char character : text) {
    depth += character == '(' ? 1 : 0;
    const bool is_digit = std::isdigit(static_cast<unsigned char>(character)) != 0;
    if (depth == 0 && !(is_digit && !result.empty() && result.back() == '#')) {
      result += is_digit ? '#' : character;
    }
    depth -= character == ')' && depth > 0 ? 1 : 0;
  }
  return result;
}

/// The sentence of a report `TIME ms: thread T (...) step S: SENTENCE`.
std::string sentence_of(const std::string& report) {
  const size_t step = report.find(" step ");
  const size_t at = report.find(": ", step == std::string::npos ? 0 : step);
  return without_details(report.substr(at == std::string::npos ? 0 : at + 2));
}

/// The operation in `... WRONG DATA: what, in N:all_reduce ...`.
std::string wrong_operation_of(const std::string& report) {
  const size_t at = report.rfind(", in ");
  const size_t name = at == std::string::npos ? std::string::npos : report.find(':', at);
  return name == std::string::npos ? report
                                   : report.substr(name + 1, report.find(' ', name) - name - 1);
}

/// Whether the process belongs to this job. Ids of ended processes are reused.
bool is_in_group(pid_t pid, pid_t group) {
  const std::string text = read_file(fmt::format("/proc/{}/stat", pid));
  const size_t at = text.rfind(')');
  int parent = 0;
  int found = -1;
  char state = 0;
  return at != std::string::npos &&
         std::sscanf(text.c_str() + at + 1, " %c %d %d", &state, &parent, &found) == 3 &&
         found == group;
}

bool uses_ofi(const Job& job) {
  return std::any_of(job.environment.begin(), job.environment.end(), [](const auto& setting) {
    return setting.first == "NCCL_NET_PLUGIN" && setting.second == "ofi";
  });
}

/// libfabric never closes the connections of unauthenticated peers, nor frees what it keeps of
/// them.
bool keeps_unauthenticated(const Job& job) {
  return uses_ofi(job) && job.fault.has_value() && job.fault->kind == FaultKind::kUnauthenticated;
}

std::vector<std::string> environment_of(const Job& job, int process, const std::string& folder) {
  std::vector<std::string> environment;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view entry = *at;
    const bool is_ours = entry.starts_with("NCCL_") ||
                         (entry.starts_with("PLEXUS_") && !entry.starts_with("PLEXUS_TEST_"));
    if (!is_ours) {
      environment.emplace_back(entry);
    }
  }
  environment.emplace_back("PLEXUS_DEVICE=host");
  const bool has_full_log = job.fault.has_value() && job.fault->process == process &&
                            job.fault->kind == FaultKind::kFullLog;
  environment.emplace_back(has_full_log ? "NCCL_DEBUG=INFO" : "NCCL_DEBUG=WARN");
  if (job.fault.has_value() && !expectation_of(job.fault->kind).is_harmless) {
    environment.emplace_back(fmt::format(
        "PLEXUS_BOOTSTRAP_TIMEOUT={}",
        (is_of_network(job.fault->kind) ? kJoinSecondsOfNetwork : kJoinSeconds) * time_factor()));
  }
  if (job.fault.has_value() && !expectation_of(job.fault->kind).waits.empty()) {
    environment.emplace_back(fmt::format("PLEXUS_STALL_S={}", kStallSeconds));
  }
  if (job.measures_rates) {
    environment.emplace_back(fmt::format("PLEXUS_RATES_FILE={}/rates", folder));
  }
  if (has_full_log) {
    environment.emplace_back("NCCL_DEBUG_FILE=/dev/full");
  }
  if (keeps_unauthenticated(job)) {
    environment.emplace_back("LSAN_OPTIONS=exitcode=0");
  }
  for (const auto& [name, value] : job.environment) {
    environment.push_back(name + "=" + value);
  }
  const std::string host = static_cast<size_t>(process) < job.processes.size()
                               ? job.processes[static_cast<size_t>(process)].host_id
                               : "";
  if (!host.empty()) {
    environment.push_back("NCCL_HOSTID=" + host);
  }
  return environment;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) {
    result.push_back(text.data());
  }
  result.push_back(nullptr);
  return result;
}

/// In a mount namespace of its own.
void fill_shared_memory_folder() {
  if (unshare(CLONE_NEWNS) != 0 ||
      mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("none", "/dev/shm", "tmpfs", 0, "size=4k") != 0) {
    std::perror("a full /dev/shm");
    _exit(2);
  }
  const int file = open("/dev/shm/full", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  const std::array<char, 4096> page{};
  while (write(file, page.data(), page.size()) > 0) {
  }
  close(file);
}

}  // namespace

Running::Running(Job job, const WatchOptions& options) : job_(std::move(job)), options_(options) {
  const char* const base = std::getenv("TMPDIR");
  folder_ = fmt::format("{}/plexus-soak-{}-XXXXXX", base == nullptr ? "/tmp" : base, job_.seed);
  if (mkdtemp(folder_.data()) == nullptr) {
    std::perror(folder_.c_str());
    std::exit(2);
  }
  progress_at_ = Clock::now();
  children_.resize(job_.processes.size());
  for (size_t process = 0; process < children_.size(); ++process) {
    pages_.push_back(map_progress(progress_path(folder_, static_cast<int>(process))));
  }
  if (job_.fault.has_value()) {
    if (is_of_network(job_.fault->kind)) {
      network_ = Network::make(job_.seed, static_cast<int>(job_.processes.size()));
    }
    watch_.emplace(*job_.fault, job_.seed, network_.get());
  }
  for (size_t process = 0; process < children_.size(); ++process) {
    start(static_cast<int>(process));
  }
}

Running::~Running() {
  kill_all();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::vector<std::string> Running::arguments_of(int process) const {
  std::vector<std::string> arguments = {
      "soak_driver", "--process", std::to_string(process),  "--folder",
      folder_,       "--seed",    std::to_string(job_.seed)};
  arguments.insert(arguments.end(), options_.features.begin(), options_.features.end());
  return arguments;
}

/// Between fork and exec.
void Running::prepare_child(int process) const {
  if (network_ != nullptr) {
    network_->enter(process);
  }
  if (job_.fault.has_value() && job_.fault->kind == FaultKind::kFullShm &&
      job_.fault->process == process) {
    fill_shared_memory_folder();
  }
}

void Running::start(int process) {
  std::vector<std::string> arguments = arguments_of(process);
  std::vector<std::string> environment = environment_of(job_, process, folder_);
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> environment_pointers = pointers(environment);
  const std::string output = output_path(folder_, process);
  const pid_t group = children_.front().pid;  // the first one's, 0 for itself
  // Started by its name: executed as /proc/self/exe from another mount namespace it would not know
  // where it is, and find no library.
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const bool is_fresh = static_cast<size_t>(process) >= job_.processes.size();
  const Container container =
      is_fresh ? Container::kNone : job_.processes[static_cast<size_t>(process)].container;
  const pid_t pid = fork_into(container);
  if (pid < 0) {
    std::perror("fork");
    std::exit(2);
  }
  if (pid == 0) {
    setpgid(0, group);
    const int file = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(file, STDOUT_FILENO);
    dup2(file, STDERR_FILENO);
    prepare_child(process);
    if (!enter(container)) {
      std::perror("a container");
      _exit(2);
    }
    execve(self.c_str(), argument_pointers.data(), environment_pointers.data());
    _exit(127);
  }
  setpgid(pid, group == 0 ? pid : group);
  children_[static_cast<size_t>(process)].pid = pid;
}

void Running::note_end(int process, int status) {
  const bool is_guilty = job_.fault.has_value() && job_.fault->process == process;
  const bool was_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || (is_guilty && was_killed)) {
    return;
  }
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("signal {}", strsignal(WTERMSIG(status)))
                              : fmt::format("exit code {}", WEXITSTATUS(status));
  const std::string output = last_lines(read_file(output_path(folder_, process)), 60);
  const std::string at = where_all_are(false);
  outcome_.findings.push_back({.kind = "CRASH",
                               .about = fmt::format("a process ended by {}", how),
                               .detail = fmt::format("process {}\n{}{}", process, at, output)});
}

void Running::reap() {
  for (size_t process = 0; process < children_.size(); ++process) {
    Child& child = children_[process];
    int status = 0;
    rusage usage{};
    if (child.is_running && wait4(child.pid, &status, WNOHANG, &usage) == child.pid) {
      child.is_running = false;
      outcome_.memory_kib = std::max(outcome_.memory_kib, usage.ru_maxrss);
      note_end(static_cast<int>(process), status);
    }
  }
}

uint64_t Running::sum_of_progress() const {
  uint64_t sum = 0;
  for (const ProgressPage& page : pages_) {
    for (const ThreadProgress& thread : page->threads) {
      sum += static_cast<uint64_t>(thread.step.load()) + thread.ncalls.load() +
             thread.nchecked.load() + static_cast<uint64_t>(thread.phase.load()) * 1000003;
    }
  }
  for (const Child& child : children_) {
    sum += child.is_running ? 0 : 1;
  }
  return sum;
}

bool Running::has_failed() const {
  return !outcome_.findings.empty() ||
         std::any_of(pages_.begin(), pages_.end(),
                     [](const ProgressPage& page) { return page->has_failed.load() != 0; });
}

bool Running::are_all_over() const {
  return std::none_of(children_.begin(), children_.end(),
                      [](const Child& child) { return child.is_running; });
}

void Running::look() {
  reap();
  const auto now = Clock::now();
  const uint64_t progress = sum_of_progress();
  if (progress != progress_) {
    progress_ = progress;
    progress_at_ = now;
  }
  if (are_all_over()) {
    return end();
  }
  if (watch_.has_value()) {
    look_at_fault();
  }
  if (has_failed()) {
    if (!is_failing_) {
      is_failing_ = true;
      failed_at_ = now;
    }
    if (now - failed_at_ > kGrace) {
      end();
    }
  } else if (now - progress_at_ > patience()) {
    if (!is_reported()) {
      find_hang();
    }
    end();
  }
}

/// Calls that differ may look as if a rank were only late: then they wait for good, and the log
/// says for whom.
bool Running::is_reported() const {
  if (!job_.fault.has_value() || job_.fault->kind != FaultKind::kMismatch) {
    return false;
  }
  const pid_t guilty = children_[static_cast<size_t>(job_.fault->process)].pid;
  for (size_t process = 0; process < children_.size(); ++process) {
    if (judge_log(read_file(output_path(folder_, static_cast<int>(process))), guilty,
                  job_.fault->kind)
            .reported >= Reported::kGuiltyRank) {
      return true;
    }
  }
  return false;
}

void Running::judge_logs() {
  for (size_t process = 0; process < job_.processes.size(); ++process) {
    if (static_cast<int>(process) != job_.fault->process) {
      const std::string log = read_file(output_path(folder_, static_cast<int>(process)));
      const auto [reported, line] =
          judge_log(log, children_[static_cast<size_t>(job_.fault->process)].pid, job_.fault->kind);
      outcome_.fault->nreported += reported >= Reported::kSomeRank ? 1 : 0;
      outcome_.fault->nreported_named += reported >= Reported::kGuiltyRank ? 1 : 0;
      outcome_.fault->nreported_caused += reported == Reported::kCause ? 1 : 0;
      if (reported == Reported::kSomeRank || reported == Reported::kGuiltyRank) {
        outcome_.fault->unnamed.push_back(line.substr(line.find(" has waited for ")));
      }
    }
  }
  outcome_.fault->waits = !are_all_over() && outcome_.findings.empty();
}

std::chrono::seconds Running::patience() const {
  if (!watch_.has_value() || watch_->struck_us() == 0) {
    return options_.still_max;
  }
  const double bound_s = expectation_of(job_.fault->kind).bound_s * time_factor();
  return std::chrono::seconds(static_cast<int>(bound_s));
}

void Running::give_order(Order order) {
  order_ = order;
  for (const ProgressPage& page : pages_) {
    page->order.store(order);
  }
}

void Running::look_at_fault() {
  const auto guilty = static_cast<size_t>(job_.fault->process);
  FaultWatch::Processes processes;
  for (const Child& child : children_) {
    if (child.is_running) {
      processes.running.push_back(child.pid);
    }
  }
  if (children_[guilty].is_running) {
    processes.guilty = children_[guilty].pid;
    for (size_t at = 0; at < job_.threads.size(); ++at) {
      processes.is_at_work =
          processes.is_at_work || (job_.threads[at].process == job_.fault->process &&
                                   pages_[guilty]->threads[at].phase.load() != Phase::kEnded);
    }
  }
  watch_->look(pages_[guilty]->struck_us.load(), processes);
  if (order_ == Order::kRun && processes.running.size() < children_.size()) {
    give_order(Order::kSomebodyLeft);
  }
  if (job_.fault->recovery == Recovery::kNone || order_ >= Order::kGoOn) {
    return;
  }
  bool do_all_wait = true;  // those that are left
  bool does_one_lack = false;
  for (size_t at = 0; at < job_.threads.size(); ++at) {
    const auto process = static_cast<size_t>(job_.threads[at].process);
    const Phase phase = pages_[process]->threads[at].phase.load();
    if (process != guilty || children_[guilty].is_running) {
      does_one_lack = does_one_lack || phase == Phase::kEnded || !children_[process].is_running;
      do_all_wait = do_all_wait && (phase == Phase::kWaiting || phase == Phase::kEnded ||
                                    !children_[process].is_running);
    }
  }
  if (!do_all_wait) {
    return;
  }
  if (children_[guilty].is_running || does_one_lack) {
    return give_order(Order::kLeave);
  }
  if (job_.fault->grows) {
    const auto fresh = static_cast<int>(children_.size());
    children_.emplace_back();
    pages_.push_back(map_progress(progress_path(folder_, fresh)));
    start(fresh);
  }
  give_order(Order::kGoOn);
}

std::string Running::where_all_are(bool running_only) const {
  std::string text;
  for (size_t at = 0; at < job_.threads.size(); ++at) {
    const Thread& thread = job_.threads[at];
    const auto& progress = pages_[static_cast<size_t>(thread.process)]->threads[at];
    const Phase phase = progress.phase.load();
    if (running_only && phase == Phase::kEnded) {
      continue;
    }
    const auto step = static_cast<size_t>(progress.step.load());
    text += fmt::format("  thread {} (process {}, world ranks {}) step {}/{}, {}: {}\n", at,
                        thread.process, fmt::join(thread.ranks, ","), step, thread.steps.size(),
                        name_of(phase),
                        step < thread.steps.size() ? describe(job_, thread.steps[step]) : "end");
  }
  return text;
}

std::string Running::last_outputs() const {
  std::string text;
  for (size_t process = 0; process < children_.size(); ++process) {
    text += last_lines(read_file(output_path(folder_, static_cast<int>(process))), kOutputLinesMax);
  }
  return text;
}

void Running::find_hang() {
  std::set<std::string> kinds;
  for (size_t at = 0; at < job_.threads.size(); ++at) {
    const Thread& thread = job_.threads[at];
    const auto& progress = pages_[static_cast<size_t>(thread.process)]->threads[at];
    const auto step = static_cast<size_t>(progress.step.load());
    if (progress.phase.load() == Phase::kEnded) {
      kinds.insert("ended");
    } else if (step >= thread.steps.size()) {
      kinds.insert("last synchronize");
    } else {
      const Step& stuck = thread.steps[step];
      const std::string text = describe(job_, stuck);
      kinds.insert(stuck.kind == StepKind::kCalls && !stuck.is_grouped
                       ? text.substr(text.find(':') + 1, text.find(' ') - text.find(':') - 1)
                       : text.substr(0, text.find_first_of(" :")));
    }
  }
  std::string detail = where_all_are(true);
  if (options_.has_stacks) {
    for (const Child& child : children_) {
      detail += child.is_running ? stacks_of(child.pid, folder_) : "";
    }
  }
  detail += last_outputs();
  outcome_.findings.push_back({.kind = "HANG",
                               .about = fmt::format("in {}", fmt::join(kinds, " | ")),
                               .detail = std::move(detail)});
}

void Running::read_reports() {
  std::vector<Finding> reported;
  for (size_t process = 0; process < children_.size(); ++process) {
    const std::string text = read_file(finding_path(folder_, static_cast<int>(process)));
    if (text.empty()) {
      continue;
    }
    const std::string first = text.substr(0, text.find('\n'));
    const bool is_wrong = first.find("WRONG DATA: ") != std::string::npos;
    reported.push_back({.kind = is_wrong ? "WRONG DATA" : "ERROR",
                        .about = is_wrong ? wrong_operation_of(first) : sentence_of(first),
                        .detail = text});
  }
  // Reports begin with the time, so sorting puts the first one first.
  std::sort(reported.begin(), reported.end(), [](const Finding& left, const Finding& right) {
    return std::atoll(left.detail.c_str()) < std::atoll(right.detail.c_str());
  });
  outcome_.findings.insert(outcome_.findings.end(), reported.begin(), reported.end());
  std::stable_partition(outcome_.findings.begin(), outcome_.findings.end(),
                        [](const Finding& finding) { return finding.kind != "HANG"; });
}

void Running::kill_all() {
  const pid_t group = children_.front().pid;
  std::istringstream forked(read_file(children_path(folder_)));
  for (pid_t pid = 0; forked >> pid;) {
    if (is_in_group(pid, group)) {
      kill(pid, SIGKILL);
    }
  }
  for (Child& child : children_) {
    if (child.is_running) {
      kill(child.pid, SIGKILL);
      rusage usage{};
      wait4(child.pid, nullptr, 0, &usage);
      outcome_.memory_kib = std::max(outcome_.memory_kib, usage.ru_maxrss);
      child.is_running = false;
    }
  }
}

/// Processes of this job that are neither its own nor children that its program made.
void Running::find_leftovers() {
  const pid_t group = children_.front().pid;
  std::set<pid_t> known;
  std::istringstream forked(read_file(children_path(folder_)));
  for (pid_t pid = 0; forked >> pid;) {
    known.insert(pid);
  }
  for (const Child& child : children_) {
    known.insert(child.pid);
  }
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid > 0 && known.count(pid) == 0 && is_in_group(pid, group)) {
      outcome_.findings.push_back(
          {.kind = "LEFTOVER",
           .about = "a process that the job does not know",
           .detail = fmt::format("process {}: {}\n", pid, read_file(entry.path() / "cmdline"))});
    }
  }
}

void Running::judge() {
  const auto guilty = static_cast<size_t>(job_.fault->process);
  // What strikes in the process itself may end the job before anybody looks.
  const bool strikes_itself =
      network_ == nullptr && job_.fault->kind != FaultKind::kUnauthenticated;
  const int64_t struck_us = watch_->struck_us() == 0 && strikes_itself
                                ? pages_[guilty]->struck_us.load()
                                : watch_->struck_us();
  outcome_.fault = judge_fault(job_, pages_, children_[guilty].pid, struck_us);
  if (watch_->has_failed() || (network_ == nullptr && is_of_network(job_.fault->kind))) {
    outcome_.findings.push_back(
        {.kind = "SETUP", .about = "the fault cannot be made", .detail = ""});
  }
  for (const std::string& error : outcome_.fault->findings) {
    outcome_.findings.push_back(
        {.kind = "ERROR", .about = sentence_of(error), .detail = error + "\n"});
  }
  judge_logs();
  find_leftovers();
  // libfabric keeps some until the process ends.
  constexpr int kOfiDescriptors = 5;
  const int descriptors_max = uses_ofi(job_) ? kOfiDescriptors : 0;
  if (keeps_unauthenticated(job_)) {
    return;
  }
  if (outcome_.fault->ndescriptors > descriptors_max || outcome_.fault->nthreads > 0) {
    outcome_.findings.push_back(
        {.kind = "LEFTOVER",
         .about = "descriptors or threads are left when all communicators have ended",
         .detail = fmt::format("{} descriptors, {} threads\n{}", outcome_.fault->ndescriptors,
                               outcome_.fault->nthreads, last_outputs())});
  }
}

void Running::end() {
  const std::string at = is_failing_ ? where_all_are(true) : "";
  read_reports();  // what comes after is what those see that are ended last
  if (job_.fault.has_value()) {
    judge();
  }
  kill_all();
  if (!outcome_.findings.empty()) {
    outcome_.findings.back().detail += at;
  }
  // An end over libfabric's tcp;ofi_rxm takes 6 MB (plugins/net-ofi/README.md), one over sockets
  // 0.1: six ranks in a process with three communicators of three channels have 400.
  constexpr long kOfiFactor = 4;
  const long memory_kib_max = options_.memory_kib_max * (uses_ofi(job_) ? kOfiFactor : 1);
  if (memory_kib_max > 0 && outcome_.memory_kib > memory_kib_max) {
    outcome_.findings.push_back(
        {.kind = "MEMORY",
         .about = "a process used more than allowed",
         .detail = fmt::format("{} MiB in the largest process\n", outcome_.memory_kib / 1024)});
  }
  for (const ProgressPage& page : pages_) {
    for (const ThreadProgress& thread : page->threads) {
      outcome_.ncalls += thread.ncalls.load();
      outcome_.nchecked += thread.nchecked.load();
    }
  }
  outcome_.is_over = true;
}

}  // namespace plexus::soak
