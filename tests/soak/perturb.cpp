// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "tests/soak/generate.hpp"

namespace plexus::soak {
namespace {

constexpr size_t kGroupCallsMax = 12;

bool is_calls(const Step& step) { return step.kind == StepKind::kCalls; }

/// Merges step `at` and the next one into a group.
bool merge(std::vector<Step>& steps, size_t at) {
  if (at + 1 >= steps.size() || !is_calls(steps[at]) || !is_calls(steps[at + 1]) ||
      steps[at].calls.size() + steps[at + 1].calls.size() > kGroupCallsMax) {
    return false;
  }
  steps[at].is_grouped = true;
  const auto& more = steps[at + 1].calls;
  steps[at].calls.insert(steps[at].calls.end(), more.begin(), more.end());
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  return true;
}

/// Moves the last calls of a group to a step of their own. A thread with several ranks must keep
/// their calls in one group.
bool divide(Random& random, Thread& thread, size_t at) {
  auto& steps = thread.steps;
  if (thread.ranks.size() > 1 || !is_calls(steps[at]) || steps[at].calls.size() < 2) {
    return false;
  }
  Step rest = steps[at];
  const auto first = random.between(1, static_cast<int>(rest.calls.size()) - 1);
  rest.calls.erase(rest.calls.begin(), rest.calls.begin() + first);
  steps[at].calls.resize(static_cast<size_t>(first));
  steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at) + 1, std::move(rest));
  return true;
}

bool move(Random& random, std::vector<Step>& steps, size_t at) {
  const size_t to = std::min(at + static_cast<size_t>(random.between(1, 4)), steps.size() - 1);
  const auto first = steps.begin() + static_cast<std::ptrdiff_t>(at);
  const auto last = steps.begin() + static_cast<std::ptrdiff_t>(to);
  if (first == last) {
    return false;
  }
  if (random.chance(50)) {
    std::rotate(first, first + 1, last + 1);
  } else {
    std::rotate(first, last, last + 1);
  }
  return true;
}

bool change_streams(Random& random, Thread& thread, size_t at) {
  Step& step = thread.steps[at];
  if (thread.nstreams == 0 || !is_calls(step)) {
    return false;
  }
  const int one = random.between(kNoStream, thread.nstreams - 1);
  const bool is_one = random.chance(60);
  for (Call& call : step.calls) {
    call.stream = is_one ? one : random.between(kNoStream, thread.nstreams - 1);
  }
  return true;
}

bool change(Random& random, Thread& thread) {
  if (thread.steps.empty()) {
    return false;
  }
  const size_t at = random.next() % thread.steps.size();
  const int way = random.below(10);
  if (way < 3) {
    return move(random, thread.steps, at);
  }
  if (way < 5) {
    return merge(thread.steps, at);
  }
  if (way < 6) {
    return divide(random, thread, at);
  }
  if (way < 8) {
    if (!is_calls(thread.steps[at]) || thread.steps[at].calls.size() < 2) {
      return false;
    }
    random.shuffle(thread.steps[at].calls);
    return true;
  }
  return change_streams(random, thread, at);
}

}  // namespace

void perturb(Job& job, Random& random) {
  const int ntries = random.below(60) * static_cast<int>(job.threads.size()) / 4;
  for (int i = 0; i < ntries; ++i) {
    Thread& thread = job.threads[random.next() % job.threads.size()];
    const std::vector<Step> before = thread.steps;
    if (!change(random, thread)) {
      continue;
    }
    if (judge(model_of(job)).is_legal) {
      ++job.nperturbed;
    } else {
      ++job.nrefused;
      thread.steps = before;
    }
  }
}

}  // namespace plexus::soak
