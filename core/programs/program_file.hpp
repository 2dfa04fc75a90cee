// SPDX-License-Identifier: Apache-2.0
// `ProgramFile`: an algorithm for a certain number of ranks from a file, and its proof. The file is
// JSON of ours (docs/programs.md) or XML in the format of MSCCL. It is hostile input: what is read
// is bounded, and nothing runs that was not proved.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "kernels/layout/collective.hpp"
#include "kernels/layout/protocol.hpp"
#include "kernels/program/program.hpp"
#include "kernels/program/verify.hpp"

namespace plexus {

struct ProgramFile {
  std::string name;
  Collective collective = Collective::kAllReduce;
  std::vector<Program> programs;  // by rank; they divide the buffer
  // The same with a message for each chunk, for calls whose messages of several chunks do not fit a
  // slot. Empty: the programs have none, or are only right with them. prove() makes it.
  std::vector<Program> apart;
  std::optional<int> root;           // nullopt: the file does not say, the proof finds it
  std::optional<Protocol> protocol;  // the only one to run it with
  uint64_t bytes_min = 0;            // of a call's larger buffer
  uint64_t bytes_max = UINT64_MAX;
  bool in_place = true;  // the forms of a call for which the file says it is
  bool out_of_place = true;

  [[nodiscard]] int nranks() const { return static_cast<int>(programs.size()); }
};

// Bounds of what is read. Published files have 16 MB at most and 23,000 steps.
inline constexpr size_t kFileBytesMax = size_t{32} << 20;
inline constexpr int kFileRanksMax = 1024;
inline constexpr int kFileChunksMax = 1 << 16;
inline constexpr int64_t kFileStepsMax = 1 << 20;

/// The programs of a file's text, whichever of the two formats it has. Not proved yet.
Result<ProgramFile> parse_program_file(std::string_view text);
/// Keeps the bounds of memory and time that a proof may take.
Result<void> check_proof_size(const ProgramFile& file);

/// What is proved of a file, form by form.
struct ProgramProof {
  int root = 0;
  VerifyResult out_of_place;
  VerifyResult in_place;  // not proved, without a reason: the collective has no such form
  /// Proved in the forms that the file names.
  bool proved = false;
  /// The first sentence that says why not.
  std::string reason;
  /// Why the file is no candidate of a communicator, whose ranks may differ in form; empty: it is.
  std::string unfit;

  [[nodiscard]] const VerifyResult& any() const {
    return out_of_place.proved ? out_of_place : in_place;
  }
};

/// Proves a file. Lets receivers read sent chunks in place where that is proved safe for all of
/// them. Messages of several chunks that are only right one by one become that.
ProgramProof prove(ProgramFile& file);

}  // namespace plexus
