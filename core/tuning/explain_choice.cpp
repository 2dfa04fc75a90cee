// SPDX-License-Identifier: Apache-2.0
#include "core/tuning/explain_choice.hpp"

#include <cstring>

#include <fmt/format.h>

#include "core/base/text.hpp"

namespace plexus {
namespace {

std::string describe(const Choice& choice) {
  return fmt::format("{} {}", choice.algorithm->family, name(choice.protocol));
}

/// The candidate with the second shortest time; nullptr: none has one.
const Candidate* find_next(const Decision& decision) {
  const Candidate* next = nullptr;
  for (const Candidate& candidate : decision.candidates) {
    if (candidate.predicted_us >= 0 && &candidate != &decision.candidates[decision.chosen] &&
        (next == nullptr || candidate.predicted_us < next->predicted_us)) {
      next = &candidate;
    }
  }
  return next;
}

}  // namespace

std::string explain_choice(const Choice& choice, const ChoiceInput& input, const char* by) {
  return fmt::format("{} of {} bytes on {}: {}, {}, by {}", name(input.collective),
                     input.size_bytes, counted(static_cast<size_t>(input.nranks), "rank"),
                     describe(choice), counted(static_cast<size_t>(choice.channels), "channel"),
                     by);
}

std::string explain_choice(const Decision& decision, const ChoiceInput& input) {
  const Candidate& chosen = decision.candidates[decision.chosen];
  std::string text =
      explain_choice(chosen.choice, input, decision.by_tuner ? "the tuner" : "the built-in rules");
  if (chosen.predicted_us >= 0) {
    text += fmt::format(", {:.1f} us expected", chosen.predicted_us);
  }
  if (const Candidate* const next = find_next(decision); next != nullptr) {
    text += fmt::format("; next: {} {:.1f} us", describe(next->choice), next->predicted_us);
  }
  const char* before = "; not possible: ";
  for (size_t i = 0; i < decision.candidates.size(); ++i) {
    const Candidate& candidate = decision.candidates[i];
    const bool is_repeated = i > 0 && decision.candidates[i - 1].reason == candidate.reason &&
                             std::strcmp(decision.candidates[i - 1].choice.algorithm->family,
                                         candidate.choice.algorithm->family) == 0;
    if (candidate.possible || is_repeated) {
      continue;
    }
    text += fmt::format("{}{} ({})", before, describe(candidate.choice), candidate.reason);
    before = ", ";
  }
  return text;
}

}  // namespace plexus
