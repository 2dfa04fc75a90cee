// SPDX-License-Identifier: Apache-2.0
#include "core/programs/program_file.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/file_kind.hpp"
#include "core/programs/msccl_xml.hpp"
#include "core/programs/mscclpp.hpp"
#include "core/programs/program_json.hpp"
#include "kernels/program/lane_network.hpp"

namespace plexus {
namespace {

/// Lets receivers read sent chunks of user memory in place, but for those of messages of several.
void set_by_address(std::vector<Program>& programs, bool by_address) {
  for (Program& program : programs) {
    for (Lane& lane : program.lanes) {
      for (Step& step : lane.steps) {
        const Buffer home = step.target != Buffer::kNone ? step.target : step.source;
        step.by_address = by_address && home != Buffer::kScratch && !step.with_next &&
                          !continues_message(lane, step);
      }
    }
  }
}

/// A message for each chunk. False: the programs have no others.
bool take_apart(std::vector<Program>& programs) {
  bool had_several = false;
  for (Program& program : programs) {
    for (Lane& lane : program.lanes) {
      for (Step& step : lane.steps) {
        had_several = had_several || step.with_next;
        step.with_next = false;
      }
    }
  }
  return had_several;
}

bool is_by_address(const std::vector<Program>& programs) {
  for (const Program& program : programs) {
    for (const Lane& lane : program.lanes) {
      for (const Step& step : lane.steps) {
        if (step.sends > 0 && step.by_address) {
          return true;
        }
      }
    }
  }
  return false;
}

VerifyResult prove_form(const ProgramFile& file, int root, bool in_place) {
  VerifyResult result = verify_programs(file.programs, file.collective, root, in_place, kSlots);
  if (result.proved || !LaneNetwork(file.programs).problem().empty()) {
    return result;
  }
  // Published files that send many chunks at once end with more slots than a connection has.
  const VerifyResult unlimited =
      verify_programs(file.programs, file.collective, root, in_place, LaneNetwork::kNoLimit);
  if (unlimited.proved) {
    result.reason = fmt::format("needs {} slots of a connection, which has {}: {}",
                                unlimited.slots_needed, kSlots, result.reason);
  }
  return result;
}

/// The proof for one root, of the forms that are there.
ProgramProof prove_root(const ProgramFile& file, int root) {
  ProgramProof proof;
  proof.root = root;
  const bool has_both = has_in_place(file.collective);
  proof.out_of_place = prove_form(file, root, false);
  if (has_both) {
    proof.in_place = prove_form(file, root, true);
  }
  // Without a form in place the file's claim cannot be looked at; it is proved out of place.
  const bool wants_out = file.out_of_place || !has_both;
  const bool wants_in = file.in_place && has_both;
  proof.proved = (!wants_out || proof.out_of_place.proved) && (!wants_in || proof.in_place.proved);
  if (!proof.proved) {
    const bool out_is_wrong = wants_out && !proof.out_of_place.proved;
    proof.reason = out_is_wrong ? proof.out_of_place.reason : "in place: " + proof.in_place.reason;
  }
  if (!proof.any().same_order) {
    proof.unfit = "ranks combine in different orders, so that their results may differ in bits";
  } else if (!proof.out_of_place.proved) {
    proof.unfit = "it is only right in place, but ranks of one call may differ in that";
  } else if (has_both && !proof.in_place.proved) {
    proof.unfit = "it is only right out of place, but ranks of one call may differ in that";
  }
  return proof;
}

/// The only rank that can be the root: the first that uses the buffer which only the root has.
int find_root(const ProgramFile& file) {
  const bool root_has_input =
      file.collective == Collective::kBroadcast || file.collective == Collective::kScatter;
  for (const Program& program : file.programs) {
    for (const Lane& lane : program.lanes) {
      for (const Step& step : lane.steps) {
        if (root_has_input ? step.source == Buffer::kInput : step.target == Buffer::kOutput) {
          return program.rank;
        }
      }
    }
  }
  return 0;
}

ProgramProof prove_whole(const ProgramFile& file) {
  return prove_root(file, file.root.value_or(is_rooted(file.collective) ? find_root(file) : 0));
}

}  // namespace

Result<ProgramFile> parse_program_file(std::string_view text) {
  if (find_file_kind(text) == FileKind::kMscclppPlan) {
    PLEXUS_TRY(plan, parse_plan(text));
    return programs_of(plan);
  }
  PLEXUS_TRY(check_file_kind(text, FileKind::kProgram));
  const size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (text.substr(first).starts_with('<')) {
    PLEXUS_TRY(file, parse_msccl(text));
    return programs_of(file);
  }
  return parse_program_json(text);
}

Result<void> check_proof_size(const ProgramFile& file) {
  constexpr int64_t kCellsMax = 1 << 22;
  constexpr int64_t kReadsMax = 1 << 26;
  constexpr int64_t kClocksMax = 1 << 27;
  int64_t lanes = 0;
  int64_t lanes_most = 1;
  int64_t steps = 0;
  for (const Program& program : file.programs) {
    lanes += static_cast<int64_t>(program.lanes.size());
    lanes_most = std::max(lanes_most, static_cast<int64_t>(program.lanes.size()));
    steps += static_cast<int64_t>(program.step_count());
  }
  const Program& one = file.programs.front();
  const int64_t cells = int64_t{file.nranks()} * (int64_t{2} * one.chunks + one.scratch_chunks);
  if (steps > kFileStepsMax || cells > kCellsMax || cells * lanes_most > kReadsMax ||
      (steps + lanes) * lanes > kClocksMax) {
    return fail(Code::kInvalidArgument,
                "{} steps in {} lanes on {} chunks of memory are more than a proof may take", steps,
                lanes, cells);
  }
  return ok();
}

static ProgramProof prove_messages(ProgramFile& file) {
  if (!is_by_address(file.programs)) {
    set_by_address(file.programs, true);
    ProgramProof proof = prove_whole(file);
    if (proof.proved && proof.unfit.empty()) {
      return proof;
    }
    set_by_address(file.programs, false);
  }
  return prove_whole(file);
}

ProgramProof prove(ProgramFile& file) {
  ProgramFile apart = file;
  if (!take_apart(apart.programs)) {
    return prove_messages(file);
  }
  ProgramProof proof = prove_messages(file);
  const ProgramProof proof_apart = prove_messages(apart);
  if (proof.proved && proof.unfit.empty()) {
    file.apart = proof_apart.proved && proof_apart.unfit.empty() ? std::move(apart.programs)
                                                                 : std::vector<Program>();
    return proof;
  }
  file.programs = proof_apart.proved ? std::move(apart.programs) : std::move(file.programs);
  return proof_apart.proved ? proof_apart : proof;
}

}  // namespace plexus
