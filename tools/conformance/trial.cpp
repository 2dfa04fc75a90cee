// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/trial.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern "C" {
int plexus_repeat_native(const char* library,
                         int version,
                         const plexus::conformance::repeat::step* const* steps,
                         int processes);
int plexus_repeat_nccl(const char* library,
                       int version,
                       const plexus::conformance::repeat::step* const* steps,
                       int processes);
}

namespace plexus::conformance {
namespace {

using repeat::step;

/// With pauses before some waits for a request, so that it is done when it is tested first.
std::vector<step> with_pauses(const std::vector<step>& steps) {
  constexpr size_t kMost = 16;
  constexpr int kPauseMs = 20;
  const auto is_wait = [](const step& each) { return each.what == repeat::kDone; };
  const auto waits = static_cast<size_t>(std::count_if(steps.begin(), steps.end(), is_wait));
  const size_t distance = waits / kMost + 1;
  std::vector<step> slower;
  size_t wait = 0;
  for (const step& each : steps) {
    if (is_wait(each) && wait++ % distance == 0) {
      slower.emplace_back(make_step(repeat::kPause, "pause")).number = kPauseMs;
    }
    slower.push_back(each);
  }
  return slower;
}

/// In the forked process.
[[noreturn]] void run_program(const Subject& subject,
                              const Identity& identity,
                              const Program& program,
                              uint32_t paused) {
  ::setpgid(0, 0);
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(nowhere, STDERR_FILENO);
  for (const std::filesystem::path& file : subject.preload) {
    ::dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  std::vector<const step*> steps;
  std::vector<std::vector<step>> all = program.processes;
  for (size_t process = 0; process < all.size(); ++process) {
    std::vector<step>& own = all[process];
    if ((paused >> process & 1u) != 0) {
      own = with_pauses(own);
    }
    own.push_back(make_step(repeat::kEnd, "the end"));
    steps.push_back(own.data());
  }
  auto* const repeat = is_native(identity) ? &plexus_repeat_native : &plexus_repeat_nccl;
  ::_exit(repeat(subject.file.c_str(), abi_version(identity), steps.data(),
                 static_cast<int>(steps.size())) == 0
              ? 0
              : 1);
}

/// A run of a program in a group of processes of its own, which ends with its owner. Process p of
/// the program pauses if bit p of `paused` is set.
class Run {
 public:
  Run(const Subject& subject, const Identity& identity, const Program& program, uint32_t paused)
      : end_(std::chrono::steady_clock::now() + std::chrono::seconds(60) * subject.patience) {
    pid_ = ::fork();
    if (pid_ == 0) {
      run_program(subject, identity, program, paused);
    }
    ::setpgid(pid_, pid_);
    state_ = pid_ > 0 ? State::kRuns : State::kPassed;
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    if (pid_ > 0) {
      ::kill(-pid_, SIGKILL);  // a process of it may be left
    }
    if (state_ == State::kRuns) {
      ::waitpid(pid_, nullptr, 0);
    }
  }

  void look() {
    int status = 0;
    if (state_ != State::kRuns) {
      return;
    }
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      state_ = status == 0 ? State::kPassed : State::kFailed;
    } else if (std::chrono::steady_clock::now() > end_) {
      ::kill(-pid_, SIGKILL);
      ::waitpid(pid_, &status, 0);
      state_ = State::kFailed;
    }
  }
  [[nodiscard]] bool goes_on() const noexcept { return state_ == State::kRuns; }
  [[nodiscard]] bool has_passed() const noexcept { return state_ == State::kPassed; }

 private:
  enum class State { kRuns, kPassed, kFailed };
  std::chrono::steady_clock::time_point end_;
  pid_t pid_ = -1;
  State state_ = State::kRuns;
};

/// Whether all runs of the program fail, which go on at the same time.
bool all_fail(std::deque<Run>& runs) {
  constexpr auto kLook = std::chrono::milliseconds(2);
  while (true) {
    for (Run& run : runs) {
      run.look();
      if (run.has_passed()) {
        return false;
      }
    }
    if (std::none_of(runs.begin(), runs.end(), [](const Run& run) { return run.goes_on(); })) {
      return true;
    }
    std::this_thread::sleep_for(kLook);
  }
}

uint64_t count_bytes(const Program& program) {
  uint64_t bytes = 0;
  for (const auto& steps : program.processes) {
    for (const step& each : steps) {
      for (int i = 0; i < each.count; ++i) {
        bytes += each.buffers[i].bytes;
      }
    }
  }
  return bytes;
}

}  // namespace

repeat::step make_step(int what, const char* name) {
  step made{};
  made.what = what;
  made.name = name;
  return made;
}

int abi_version(const Identity& identity) {
  const size_t at = identity.abi.rfind("_v");
  return is_native(identity) || at == std::string::npos ? 0
                                                        : std::atoi(identity.abi.c_str() + at + 2);
}

bool fails(const Subject& subject, const Identity& identity, const Program& program) {
  std::deque<Run> runs;
  runs.emplace_back(subject, identity, program, 0);
  return all_fail(runs);
}

bool always_fails(const Subject& subject, const Identity& identity, const Program& program) {
  constexpr int kRounds = 2;
  constexpr uint64_t kBytesAtOnce = uint64_t{64} << 20;
  const bool is_small = count_bytes(program) <= kBytesAtOnce;
  std::deque<Run> runs;
  for (int round = 0; round < kRounds; ++round) {
    for (uint32_t paused = 0; paused < 1u << program.processes.size(); ++paused) {
      runs.emplace_back(subject, identity, program, paused);
      if (!is_small) {
        if (!all_fail(runs)) {
          return false;
        }
        runs.clear();
      }
    }
  }
  return all_fail(runs);
}

}  // namespace plexus::conformance
