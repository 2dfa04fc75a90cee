// SPDX-License-Identifier: Apache-2.0
// The files of PLEXUS_PROGRAM_PATH that suit a communicator, as algorithms beside those of the
// table. All ranks must have the same files.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "kernels/program/algorithms.hpp"

namespace plexus {

struct ProgramText {
  std::string path;
  std::string text;
};

/// All *.json and *.xml of the folders (separated by ':'), in the order of the folders, then of the
/// names; an entry may be a file as well. Fails for a folder that is not there.
Result<std::vector<ProgramText>> read_program_folders(std::string_view folders);
/// Of names and texts, without folders; 0: there are none.
uint64_t hash_of(std::span<const ProgramText> texts);

/// Threads: any, once made.
class ProgramSet {
 public:
  ProgramSet() = default;
  /// Those for `nranks` ranks that are proved. Logs why another file is refused.
  ProgramSet(std::span<const ProgramText> texts, int nranks);

  [[nodiscard]] std::span<const Algorithm> algorithms() const { return algorithms_; }
  /// As NCCL_ALGO takes them: also of files for another number of ranks, so that a setting for all
  /// communicators of a job may name them.
  [[nodiscard]] const std::vector<std::string>& families() const { return families_; }

 private:
  struct Entry {
    std::string family;
    RecordedAlgorithm recorded;
  };
  void add(const ProgramText& file, int nranks);

  std::vector<std::unique_ptr<Entry>> entries_;  // what `algorithms_` borrows
  std::vector<Algorithm> algorithms_;
  std::vector<std::string> families_;
};

}  // namespace plexus
