// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tests/soak/generate.hpp"

namespace plexus::soak {
namespace {

constexpr uint64_t kSalt = 0x50112d;

class Surroundings {
 public:
  Surroundings(Job& job, const Features& features)
      : job_(job), random_(mix(job.seed, kSalt)), features_(features) {}

  void choose() {
    const bool has_containers = has(Feature::kContainers, 12);
    const bool has_endings = has(Feature::kEndings, 25);
    for (size_t process = 0; process < job_.processes.size(); ++process) {
      Process& of = job_.processes[process];
      const int container = random_.between(1, static_cast<int>(Container::kCount) - 1);
      const int ending = random_.between(1, 2);
      if (has_containers && random_.chance(60)) {
        of.container = static_cast<Container>(container);
      }
      if (of.container == Container::kSmallFiles) {  // its ranks use the network, without LL
        std::erase_if(job_.environment,
                      [](const auto& setting) { return setting.first == "NCCL_PROTO"; });
      }
      of.closes_stdio = has(Feature::kStdio, 8) && !lends_stdio();
      if (has_endings && random_.chance(60)) {
        of.ending = hears_of_deaths() || ends_with_making(static_cast<int>(process))
                        ? Ending::kReturns
                        : static_cast<Ending>(ending);
        destroy_nothing(static_cast<int>(process));
      }
    }
    job_.measures_rates = has(Feature::kRates, 4);
    if (has(Feature::kLate, 2)) {
      call_late();
    }
  }

 private:
  /// libfabric's own sockets take descriptors 0 to 2 where they are free, and what the program
  /// prints goes into them (plugins/net-ofi/README.md).
  [[nodiscard]] bool lends_stdio() const {
    return std::any_of(job_.environment.begin(), job_.environment.end(), [](const auto& setting) {
      return setting.first == "NCCL_NET_PLUGIN" && setting.second == "ofi";
    });
  }
  bool has(Feature feature, int percent) {
    return random_.chance(percent) && features_.has(feature);
  }

  /// _exit is a death: non-blocking callers are told of it whatever they poll for, and who shrinks
  /// a communicator afterwards ends the calls of the others on it.
  [[nodiscard]] bool hears_of_deaths() const {
    return job_.is_nonblocking ||
           std::any_of(job_.makings.begin(), job_.makings.end(),
                       [](const Making& making) { return making.kind == MakingKind::kShrink; });
  }

  /// Others may not have got yet what the process passes on while a communicator is made.
  [[nodiscard]] bool ends_with_making(int process) const {
    return std::any_of(job_.threads.begin(), job_.threads.end(), [process](const Thread& thread) {
      const auto last =
          std::find_if(thread.steps.rbegin(), thread.steps.rend(), [](const Step& step) {
            return step.kind == StepKind::kCalls || step.kind == StepKind::kMake;
          });
      return thread.process == process && last != thread.steps.rend() &&
             last->kind == StepKind::kMake;
    });
  }

  /// Keeps what the process's threads destroy at their ends.
  void destroy_nothing(int process) {
    for (Thread& thread : job_.threads) {
      if (thread.process == process) {
        auto& steps = thread.steps;
        const auto last = std::find_if(steps.rbegin(), steps.rend(), [](const Step& step) {
          return step.kind == StepKind::kCalls || step.kind == StepKind::kMake;
        });
        steps.erase(std::remove_if(last.base(), steps.end(), is_destroying), steps.end());
      }
    }
  }

  static bool is_destroying(const Step& step) {
    return step.kind == StepKind::kDestroy || step.kind == StepKind::kFinalize;
  }

  /// A thread is late after the communicator of all was made: its first step.
  void call_late() {
    Thread& thread = job_.threads[random_.next() % job_.threads.size()];
    const auto made = std::find_if(thread.steps.begin(), thread.steps.end(),
                                   [](const Step& step) { return step.kind == StepKind::kMake; });
    if (made != thread.steps.end()) {
      thread.steps.insert(made + 1, {.kind = StepKind::kDelay,
                                     .delay_us = random_.between(kLateUsMin, kLateUsMax)});
    }
  }

  Job& job_;
  Random random_;
  const Features& features_;
};

}  // namespace

void choose_surroundings(Job& job, const Features& features) {
  if (!job.fault.has_value()) {  // what a fault must lead to would differ
    Surroundings(job, features).choose();
  }
}

}  // namespace plexus::soak
