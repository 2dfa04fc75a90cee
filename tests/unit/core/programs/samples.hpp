// SPDX-License-Identifier: Apache-2.0
// Files in the format of MSCCL beside this one, whole or with a defect.
#pragma once

#include <string>

#include <gtest/gtest.h>

#include "core/base/file.hpp"
#include "core/programs/program_file.hpp"

namespace plexus {

inline std::string sample(const std::string& name) {
  auto text = read_file(std::string(PLEXUS_MSCCL_SAMPLES) + "/" + name + ".xml");
  EXPECT_TRUE(text.has_value()) << name;
  return text.has_value() ? std::move(text).value() : std::string();
}

/// `text` with the first `what` replaced.
inline std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), by);
}

struct Verdict {
  ProgramProof proof;
  std::string refusal;  // the sentence, of the reader or of the proof; empty: proved
};

inline Verdict judge(const std::string& text) {
  auto parsed = parse_program_file(text);
  if (parsed.has_error()) {
    return {.proof = {}, .refusal = parsed.error().message()};
  }
  ProgramFile file = std::move(parsed).value();
  Verdict verdict{.proof = prove(file), .refusal = ""};
  verdict.refusal = verdict.proof.reason;
  return verdict;
}

}  // namespace plexus
