// SPDX-License-Identifier: Apache-2.0
// What a job with a fault showed: who got which error and when, and whether it names the guilty
// rank and the cause. The sums over many jobs by kind of fault.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tests/soak/program.hpp"
#include "tests/soak/progress.hpp"

namespace plexus::soak {

struct FaultResult {
  FaultKind kind = FaultKind::kKill;
  bool has_struck = false;
  // Errors of other processes' threads, in calls on communicators with the guilty rank, and how
  // many of them name it, and the cause.
  int nerrors = 0;
  int nnamed = 0;
  int ncaused = 0;
  int nfollowing = 0;     // errors in other calls: somebody else has left because of an error
  double first_s = -1;    // from the fault to the first error; -1: none
  double last_s = -1;     // to the last of all
  double went_on_s = -1;  // from the fault to the last right result without the guilty rank
  // Processes that logged who keeps them waiting (PLEXUS_STALL_S), those that named the guilty, and
  // those that named the cause, too.
  int nreported = 0;
  int nreported_named = 0;
  int nreported_caused = 0;
  bool waits = false;    // some calls have not ended, and will not
  int ndescriptors = 0;  // most that a process had more in the end than in the beginning
  int nthreads = 0;
  std::vector<std::string> unnamed{};   // texts that lack the rank or the cause
  std::vector<std::string> findings{};  // errors that are none of the fault's
  std::vector<std::string> errors{};    // all, readable
};

/// `guilty`: the guilty process's id. `struck_us` 0: it did not strike.
FaultResult judge_fault(const Job& job,
                        const std::vector<ProgressPage>& pages,
                        pid_t guilty,
                        int64_t struck_us);

/// What a process that is not guilty has logged of who keeps its ranks waiting: the best of its
/// lines.
enum class Reported { kNothing, kSomeRank, kGuiltyRank, kCause };
struct LogVerdict {
  Reported reported = Reported::kNothing;
  std::string line = {};
};
LogVerdict judge_log(const std::string& log, pid_t guilty, FaultKind kind);

/// Does a sentence say "rank N", "ranks M and N" or the like, of one of these, or name the process?
bool names(const std::string& text, const std::vector<int>& ranks, pid_t process);

class FaultTally {
 public:
  void add(FaultResult result, uint64_t seed);
  [[nodiscard]] bool is_empty() const { return results_.empty(); }
  /// A table in Markdown, and texts that lack something.
  [[nodiscard]] std::string describe() const;

 private:
  std::map<FaultKind, std::vector<FaultResult>> results_;
  std::map<std::string, std::vector<uint64_t>> unnamed_;  // text without numbers: seeds
};

}  // namespace plexus::soak
