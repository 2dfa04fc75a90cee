// SPDX-License-Identifier: Apache-2.0
// Starts the processes of a job (this program with --process), watches them, and ends them. Has no
// threads, so that it can fork safely.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/soak/fault_watch.hpp"
#include "tests/soak/network.hpp"
#include "tests/soak/program.hpp"
#include "tests/soak/progress.hpp"
#include "tests/soak/verdict.hpp"

namespace plexus::soak {

struct WatchOptions {
  std::chrono::seconds still_max{60};  // this long without progress is a hang
  long memory_kib_max = 0;             // per process; 0: unlimited
  bool has_stacks = true;              // get stacks from gdb when it hangs
  std::vector<std::string> features;   // options that processes need to make the same job
};

struct Finding {
  std::string kind;   // HANG, ERROR, WRONG DATA, CRASH, MEMORY, LEFTOVER, SETUP
  std::string about;  // one line, equal for equal causes
  std::string detail;
};

struct Outcome {
  bool is_over = false;
  std::vector<Finding> findings;  // the first one is the cause, as far as known
  uint64_t ncalls = 0;
  uint64_t nchecked = 0;
  long memory_kib = 0;  // the largest process's
  std::optional<FaultResult> fault;
};

/// A running job.
class Running {
 public:
  Running(Job job, const WatchOptions& options);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// Checks the job; never waits for it.
  void look();
  [[nodiscard]] const Outcome& outcome() const { return outcome_; }
  [[nodiscard]] const Job& job() const { return job_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Child {
    pid_t pid = 0;
    bool is_running = true;
  };

  void start(int process);
  void prepare_child(int process) const;
  [[nodiscard]] std::vector<std::string> arguments_of(int process) const;
  void reap();
  void note_end(int process, int status);
  [[nodiscard]] uint64_t sum_of_progress() const;
  [[nodiscard]] bool has_failed() const;
  [[nodiscard]] bool are_all_over() const;
  void look_at_fault();
  void give_order(Order order);
  [[nodiscard]] std::chrono::seconds patience() const;
  void find_hang();
  void find_leftovers();
  void judge();
  void judge_logs();
  [[nodiscard]] bool is_reported() const;
  [[nodiscard]] std::string where_all_are(bool running_only) const;
  [[nodiscard]] std::string last_outputs() const;
  void read_reports();
  void end();
  void kill_all();

  Job job_;
  const WatchOptions& options_;
  std::string folder_;
  std::vector<Child> children_;  // by process; then the fresh one, if any
  std::vector<ProgressPage> pages_;
  std::unique_ptr<Network> network_;  // nullptr: that of this host
  std::optional<FaultWatch> watch_;   // in a job with a fault
  Order order_ = Order::kRun;
  Outcome outcome_;
  uint64_t progress_ = 0;
  Clock::time_point progress_at_;
  Clock::time_point failed_at_;
  bool is_failing_ = false;
};

}  // namespace plexus::soak
