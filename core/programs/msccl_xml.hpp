// SPDX-License-Identifier: Apache-2.0
// Files in the XML format of MSCCL, as its executors understand them: thread blocks are lanes,
// steps become verbs. What an executor would do other than what the file says is refused with a
// sentence.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/programs/program_file.hpp"

namespace plexus {

enum class MscclVerb : uint8_t { kSend, kRecv, kRcs, kRrs, kRrc, kRrcs, kCopy, kReduce, kNop };

struct MscclPlace {
  Buffer buffer = Buffer::kNone;
  int chunk = 0;
};

struct MscclStep {
  MscclVerb verb = MscclVerb::kNop;
  MscclPlace source;
  MscclPlace target;
  int count = 0;
  int wait_block = -1;  // the step waits for step `wait_step` of this thread block; -1: for none
  int wait_step = -1;
  bool announces = false;
};

struct MscclBlock {
  int send = -1;
  int recv = -1;
  int channel = 0;
  std::vector<MscclStep> steps;
};

struct MscclGpu {
  int scratch_chunks = 0;
  std::vector<MscclBlock> blocks;
};

struct MscclFile {
  ProgramFile use;  // all but its programs
  int chunks = 0;   // of the larger buffer
  std::vector<MscclGpu> gpus;
};

/// Reads the text, and refuses what is wrong in a single element.
Result<MscclFile> parse_msccl(std::string_view text);
/// Its programs. Refuses what is wrong between elements.
Result<ProgramFile> programs_of(const MscclFile& file);

/// A file as XML of MSCCL, which programs_of(parse_msccl()) reads again. A thread block has one
/// peer to send to and one to receive from, so that a lane with more becomes several blocks, which
/// wait for each other. An Error: a step has several peers at once.
Result<std::string> format_msccl(const ProgramFile& file);

}  // namespace plexus
