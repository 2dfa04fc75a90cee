// SPDX-License-Identifier: Apache-2.0
// From thread blocks to lanes. A file names buffers as it likes: in place, its only buffer is input
// before it is written and output afterwards. One execution tells which (Resolver); the verifier
// then proves the result without trusting it.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/programs/msccl_xml.hpp"
#include "core/programs/resolve.hpp"
#include "kernels/program/definition.hpp"
#include "kernels/program/expressions.hpp"
#include "kernels/program/lane_network.hpp"

namespace plexus {
namespace {

bool receives(MscclVerb verb) {
  return verb == MscclVerb::kRecv || verb == MscclVerb::kRcs || verb == MscclVerb::kRrs ||
         verb == MscclVerb::kRrc || verb == MscclVerb::kRrcs;
}

bool sends(MscclVerb verb) {
  return verb == MscclVerb::kSend || verb == MscclVerb::kRcs || verb == MscclVerb::kRrs ||
         verb == MscclVerb::kRrcs;
}

// ---- lanes ----

/// Makes a rank's lanes: a step of k chunks becomes k steps, which share a message. Nops become
/// steps that only wait.
class LaneMaker {
 public:
  LaneMaker(const MscclGpu& gpu, int rank, Program* program)
      : gpu_(gpu), rank_(rank), program_(*program) {}

  Result<void> make() {
    for (const MscclBlock& block : gpu_.blocks) {
      number(block);
    }
    for (size_t id = 0; id < gpu_.blocks.size(); ++id) {
      Lane& lane = program_.lanes.emplace_back();
      lane.connection = gpu_.blocks[id].channel;
      for (size_t at = 0; at < ends_[id].size(); ++at) {
        PLEXUS_TRY(add(id, at, lane));
      }
    }
    return ok();
  }

 private:
  /// Executors drop nops at the end of a block.
  void number(const MscclBlock& block) {
    size_t length = block.steps.size();
    while (length > 0 && block.steps[length - 1].verb == MscclVerb::kNop) {
      --length;
    }
    std::vector<int>& ends = ends_.emplace_back();
    int end = 0;
    for (size_t at = 0; at < length; ++at) {
      end += std::max(block.steps[at].count, 1);
      ends.push_back(end);
    }
  }

  Result<void> add(size_t id, size_t at, Lane& lane) {
    const MscclBlock& block = gpu_.blocks[id];
    const MscclStep& step = block.steps[at];
    const std::string where = fmt::format("gpu {}, tb {}, step {}", rank_, id, at);
    PLEXUS_TRY(check_neighbours(block, at, where));
    PLEXUS_TRY(after, find_after(step, id, at, where));
    if (step.verb == MscclVerb::kNop) {
      lane.steps.push_back({.after = after});
      return ok();
    }
    for (int i = 0; i < step.count; ++i) {
      Step one{.source = step.source.buffer,
               .target = step.target.buffer,
               .by_address = false,
               .accumulates = step.verb == MscclVerb::kReduce,
               .with_next = i + 1 < step.count && (receives(step.verb) || sends(step.verb)),
               .source_chunk = step.source.chunk + i,
               .target_chunk = step.target.chunk + i,
               .peers_first = static_cast<int>(program_.peers.size()),
               .receives = receives(step.verb) ? 1 : 0,
               .sends = sends(step.verb) ? 1 : 0,
               .after = i == 0 ? after : After{}};
      if (one.receives > 0) {
        program_.peers.push_back(block.recv);
      }
      if (one.sends > 0) {
        program_.peers.push_back(block.send);
      }
      lane.steps.push_back(one);
    }
    return ok();
  }

  /// Where executors and the file's text differ.
  static Result<void> check_neighbours(const MscclBlock& block,
                                       size_t at,
                                       const std::string& where) {
    const MscclStep& step = block.steps[at];
    if (at == 0) {
      return ok();
    }
    const MscclStep& before = block.steps[at - 1];
    if (before.verb == MscclVerb::kNop && step.wait_block < 0) {
      return fail(Code::kInvalidArgument,
                  "{}: follows a nop and has no condition itself, which executors refuse", where);
    }
    const bool is_fused =
        step.verb == MscclVerb::kReduce && before.verb == MscclVerb::kReduce &&
        step.wait_block < 0 && !before.announces && step.target.buffer == before.target.buffer &&
        step.target.chunk == before.target.chunk && step.source.buffer == before.source.buffer;
    if (is_fused && step.count != before.count) {
      return fail(Code::kInvalidArgument,
                  "{}: executors fuse it with the 're' before it, whose cnt {} then becomes {}",
                  where, before.count, step.count);
    }
    return ok();
  }

  Result<After> find_after(const MscclStep& step,
                           size_t id,
                           size_t at,
                           const std::string& where) const {
    if (step.wait_block < 0) {
      if (step.verb == MscclVerb::kNop) {
        return fail(Code::kInvalidArgument,
                    "{}: a nop without a condition, which executors do not count", where);
      }
      return After{};
    }
    const auto awaited = static_cast<size_t>(step.wait_block);
    if (awaited >= gpu_.blocks.size() || step.wait_step < 0 ||
        static_cast<size_t>(step.wait_step) >= gpu_.blocks[awaited].steps.size()) {
      return fail(Code::kInvalidArgument, "{}: waits for step {} of tb {}, which is not there",
                  where, step.wait_step, step.wait_block);
    }
    // Only some steps announce that they are done; an executor waits for the next of them.
    const std::vector<MscclStep>& steps = gpu_.blocks[awaited].steps;
    auto end = static_cast<size_t>(step.wait_step);
    while (end < ends_[awaited].size() &&
           (!steps[end].announces || steps[end].verb == MscclVerb::kNop)) {
      ++end;
    }
    if (end == ends_[awaited].size()) {
      return fail(Code::kInvalidArgument,
                  "{}: waits forever (a deadlock): step {} of tb {} does not announce that it is "
                  "done (hasdep=\"0\"), and no later one does",
                  where, step.wait_step, step.wait_block);
    }
    if (awaited == id) {
      return end < at ? Result<After>(After{})
                      : Result<After>(fail(Code::kInvalidArgument,
                                           "{}: waits forever (a deadlock) for a later step of its "
                                           "own thread block",
                                           where));
    }
    return After{.lane = step.wait_block, .step = ends_[awaited][end] - 1};
  }

  const MscclGpu& gpu_;
  int rank_;
  Program& program_;
  std::vector<std::vector<int>> ends_;  // [block][step] number of the lane's steps up to it
};

/// A message of `cnt` chunks is one at both ends.
Result<void> check_counts(const MscclFile& file) {
  struct Counts {
    std::vector<int> sent;
    std::vector<int> received;
  };
  std::map<std::tuple<int, int, int>, Counts> connections;  // by source, target, channel
  for (size_t rank = 0; rank < file.gpus.size(); ++rank) {
    const int self = static_cast<int>(rank);
    for (const MscclBlock& block : file.gpus[rank].blocks) {
      for (const MscclStep& step : block.steps) {
        if (sends(step.verb)) {
          connections[{self, block.send, block.channel}].sent.push_back(step.count);
        }
        if (receives(step.verb)) {
          connections[{block.recv, self, block.channel}].received.push_back(step.count);
        }
      }
    }
  }
  for (const auto& [key, counts] : connections) {
    const auto [sent, received] = std::mismatch(counts.sent.begin(), counts.sent.end(),
                                                counts.received.begin(), counts.received.end());
    if (sent != counts.sent.end() && received != counts.received.end()) {
      return fail(Code::kInvalidArgument,
                  "gpu {} sends message {} to gpu {} on channel {} with cnt {}, where cnt {} is "
                  "received: matching steps differ in cnt",
                  std::get<0>(key), sent - counts.sent.begin(), std::get<1>(key), std::get<2>(key),
                  *sent, *received);
    }
  }
  return ok();
}

// ---- buffers ----

/// Runs the programs once on symbolic values to tell what each step reads: the caller's input, or
/// what was stored; and which steps complete a value.
class Resolver {
 public:
  Resolver(const ProgramFile& use, int chunks, std::span<const Program> raw, LaneNetwork* network)
      : chunks_(chunks),
        nranks_(static_cast<int>(raw.size())),
        collective_(use.collective),
        in_place_(!use.out_of_place),
        share_(chunks / nranks_),
        file_scratch_chunks_(raw.front().scratch_chunks),
        scratch_chunks_(file_scratch_chunks_),
        network_(*network),
        expressions_(nranks_, chunks, true),
        messages_(network->connections().size()),
        places_(network->lanes().size()),
        stored_(raw.size()) {
    for (const Program& program : raw) {
      Program& made = programs_.emplace_back(program);
      for (Lane& lane : made.lanes) {
        lane.steps.clear();
      }
      auto& cells = cells_.emplace_back(static_cast<size_t>(2 * chunks_ + made.scratch_chunks));
      for (int chunk = 0; chunk < inputs(); ++chunk) {
        cells[place_of(made.rank, Buffer::kInput, chunk)].value =
            expressions_.contribution(made.rank, chunk);
      }
    }
  }

  Result<std::vector<Program>> resolve() {
    const bool ended =
        network_.run(LaneNetwork::kNoLimit, [this](uint32_t lane) { return run_step(lane); });
    if (!problem_.empty()) {
      return fail(Code::kInvalidArgument, "{}", problem_);
    }
    if (!ended) {
      return fail(Code::kInvalidArgument, "deadlock: {}",
                  network_.describe_deadlock(LaneNetwork::kNoLimit));
    }
    if (in_place_) {
      add_missing_copies();
    }
    if (collective_ == Collective::kReduce) {
      leave_output_to_root();
    }
    for (Program& program : programs_) {
      program.scratch_chunks = scratch_chunks_;
    }
    return std::move(programs_);
  }

 private:
  struct Cell {
    uint32_t value = Expressions::kUndefined;
    bool is_written = false;
    int scratch = -1;  // the chunk that stands for it once it is written
  };

  [[nodiscard]] bool gathers() const { return collective_ == Collective::kAllGather; }
  [[nodiscard]] bool scatters() const { return collective_ == Collective::kReduceScatter; }
  [[nodiscard]] int inputs() const { return gathers() ? share_ : chunks_; }

  /// In place, input and output share cells; scratch follows two buffers.
  [[nodiscard]] size_t place_of(int rank, Buffer buffer, int chunk) const {
    int place = chunk;
    if (buffer == Buffer::kScratch) {
      place += 2 * chunks_;
    } else if (!in_place_) {
      place += buffer == Buffer::kOutput ? chunks_ : 0;
    } else if (buffer == (scatters() ? Buffer::kOutput : Buffer::kInput)) {
      place += gathers() || scatters() ? rank * share_ : 0;
    }
    return static_cast<size_t>(place);
  }

  /// The chunk of the output in a cell; -1: there is none.
  [[nodiscard]] int output_at(int rank, size_t place) const {
    const int chunk = static_cast<int>(place) - (in_place_ ? 0 : chunks_) -
                      (scatters() && in_place_ ? rank * share_ : 0);
    return chunk < 0 || (scatters() && chunk >= share_) ? -1 : chunk;
  }

  /// What a read of the cell is called: input as long as it is the caller's.
  [[nodiscard]] At name_of(int rank, Buffer buffer, int chunk) const {
    const size_t place = place_of(rank, buffer, chunk);
    if (buffer == Buffer::kScratch || !in_place_) {
      return {buffer, chunk};
    }
    const Cell& cell = cells_[static_cast<size_t>(rank)][place];
    if (cell.is_written) {
      return cell.scratch >= 0 ? At{Buffer::kScratch, cell.scratch}
                               : At{Buffer::kOutput, output_at(rank, place)};
    }
    const int input = static_cast<int>(place) - (gathers() ? rank * share_ : 0);
    return input >= 0 && input < inputs() ? At{Buffer::kInput, input}
                                          : At{Buffer::kOutput, static_cast<int>(place)};
  }

  bool run_step(uint32_t index) {
    const LaneNetwork::LaneState& lane = network_.lanes()[index];
    Program& program = programs_[static_cast<size_t>(lane.rank)];
    std::vector<Step>& made = program.lanes[static_cast<size_t>(lane.lane)].steps;
    const Step& raw = network_.next_step(lane);
    Step step = raw;
    if (step.after.lane >= 0) {
      const uint32_t other =
          network_.first_lane(lane.rank) + static_cast<uint32_t>(step.after.lane);
      step.after.step = places_[other][static_cast<size_t>(step.after.step)];
    }
    if (!only_waits(raw)) {
      run_verb(lane, raw, step, made);
    }
    places_[index].push_back(static_cast<int>(made.size()));
    made.push_back(step);
    return problem_.empty();
  }

  void run_verb(const LaneNetwork::LaneState& lane,
                const Step& raw,
                Step& step,
                std::vector<Step>& made) {
    auto& cells = cells_[static_cast<size_t>(lane.rank)];
    uint32_t value = Expressions::kUndefined;
    for (const uint32_t at : network_.recv_connections(lane.rank, raw)) {
      value = messages_[at][network_.connections()[at].taken];
    }
    if (raw.source != Buffer::kNone) {
      const At source = name_of(lane.rank, raw.source, raw.source_chunk);
      step.source = source.buffer;
      step.source_chunk = source.chunk;
      const uint32_t own = cells[place_of(lane.rank, raw.source, raw.source_chunk)].value;
      value = combine(value, own, step);
    }
    if (raw.target != Buffer::kNone) {
      const size_t place = place_of(lane.rank, raw.target, raw.target_chunk);
      const At old = name_of(lane.rank, raw.target, raw.target_chunk);
      if (!set_target(lane, raw, place, step)) {
        return;
      }
      if (raw.accumulates && old.buffer == Buffer::kInput) {
        made.push_back({.source = old.buffer,
                        .target = step.target,
                        .by_address = false,
                        .source_chunk = old.chunk,
                        .target_chunk = step.target_chunk,
                        .after = std::exchange(step.after, {})});
      }
      value = raw.accumulates ? combine(value, cells[place].value, step) : value;
      cells[place].value = value;
      cells[place].is_written = true;
    }
    for (const uint32_t at : network_.send_connections(lane.rank, raw)) {
      messages_[at].push_back(value);
    }
  }

  /// A reduce-scatter in place may store sums in all of the caller's buffer. Here it is scratch
  /// that they go to, and the input stays as it is.
  bool set_target(const LaneNetwork::LaneState& lane, const Step& raw, size_t place, Step& step) {
    if (raw.target == Buffer::kScratch) {
      return true;
    }
    const int chunk = output_at(lane.rank, place);
    step.target = chunk < 0 ? Buffer::kScratch : Buffer::kOutput;
    step.target_chunk = chunk;
    if (chunk >= 0) {
      return true;
    }
    if (!in_place_) {
      problem_ = fmt::format(
          "rank {}, lane {}, step {}: stores in chunk {} of the input, which belongs to the caller",
          lane.rank, lane.lane, lane.next, raw.target_chunk);
      return false;
    }
    step.target_chunk = scratch_for(lane.rank, place);
    return true;
  }

  /// The chunk of scratch that stands for a cell of the caller's buffer.
  int scratch_for(int rank, size_t place) {
    Cell& cell = cells_[static_cast<size_t>(rank)][place];
    if (cell.scratch < 0) {
      cell.scratch = file_scratch_chunks_ + stored_[static_cast<size_t>(rank)]++;
      scratch_chunks_ = std::max(scratch_chunks_, cell.scratch + 1);
    }
    return cell.scratch;
  }

  /// The file of a reduce does not say its root: it is the rank that ends with the sums. Only that
  /// one has an output, so that what others store in theirs, or in place, goes to scratch.
  void leave_output_to_root() {
    const int root = find_rank_with_sums();
    for (Program& program : programs_) {
      for (Lane& lane : program.lanes) {
        for (Step& step : lane.steps) {
          if (program.rank != root) {
            move_to_scratch(program.rank, step.source, step.source_chunk);
            move_to_scratch(program.rank, step.target, step.target_chunk);
          }
        }
      }
    }
  }

  void move_to_scratch(int rank, Buffer& buffer, int& chunk) {
    if (buffer == Buffer::kOutput) {
      buffer = Buffer::kScratch;
      chunk = scratch_for(rank, place_of(rank, Buffer::kOutput, chunk));
    }
  }

  /// The first of those that have most of the sums where the output is.
  int find_rank_with_sums() {
    int first = 0;
    int most = 0;
    for (int rank = 0; rank < nranks_; ++rank) {
      int sums = 0;
      for (int chunk = 0; chunk < chunks_; ++chunk) {
        const auto place = place_of(rank, Buffer::kOutput, chunk);
        const uint32_t value = cells_[static_cast<size_t>(rank)][place].value;
        sums += value != Expressions::kUndefined && expressions_.find_whole_block(value) == chunk;
      }
      if (sums > most) {
        first = rank;
        most = sums;
      }
    }
    return first;
  }

  /// The value of both, and whether it is complete with this step.
  uint32_t combine(uint32_t value, uint32_t operand, Step& step) {
    if (value == Expressions::kUndefined || operand == Expressions::kUndefined) {
      return value == Expressions::kUndefined ? operand : value;
    }
    uint32_t both = expressions_.combine(value, operand);
    if (is_reduction(collective_) && !expressions_.is_complete(value) &&
        !expressions_.is_complete(operand) && expressions_.find_whole_block(both) >= 0) {
      step.completes = true;
      both = expressions_.complete(both);
    }
    return both;
  }

  /// What is its own output in place has to be copied out of place.
  void add_missing_copies() {
    for (Program& program : programs_) {
      const auto& cells = cells_[static_cast<size_t>(program.rank)];
      const bool stores = std::any_of(cells.begin(), cells.begin() + chunks_,
                                      [](const Cell& cell) { return cell.is_written; });
      int first = program.rank * share_;
      int count = share_;
      if (collective_ == Collective::kBroadcast) {
        first = 0;
        count = stores ? 0 : chunks_;  // the root stores nothing
      } else if (!gathers() && collective_ != Collective::kAllToAll) {
        count = 0;
      }
      Lane lane;
      for (int chunk = first; chunk < first + count; ++chunk) {
        if (!cells[static_cast<size_t>(chunk)].is_written) {
          lane.steps.push_back({.source = Buffer::kInput,
                                .target = Buffer::kOutput,
                                .source_chunk = gathers() ? chunk - first : chunk,
                                .target_chunk = chunk});
        }
      }
      if (!lane.steps.empty()) {
        program.lanes.push_back(std::move(lane));
      }
    }
  }

  int chunks_;
  int nranks_;
  Collective collective_;
  bool in_place_;
  int share_;  // chunks of a rank's block
  int file_scratch_chunks_;
  int scratch_chunks_;  // with those that stand for chunks of the caller's buffer
  LaneNetwork& network_;
  Expressions expressions_;
  std::vector<Program> programs_;
  std::vector<std::vector<Cell>> cells_;         // [rank][place]
  std::vector<std::vector<uint32_t>> messages_;  // [connection]
  std::vector<std::vector<int>> places_;         // [lane][step before] step
  std::vector<int> stored_;                      // [rank] chunks of scratch that were added
  std::string problem_;
};

/// Whether two lanes use the same chunk of scratch.
bool shares_scratch(const Program& program) {
  std::vector<size_t> users(static_cast<size_t>(program.scratch_chunks));
  bool shares = false;
  for (size_t lane = 0; lane < program.lanes.size(); ++lane) {
    for (const Step& step : program.lanes[lane].steps) {
      for (const At at : {At{step.source, step.source_chunk}, At{step.target, step.target_chunk}}) {
        if (at.buffer == Buffer::kScratch) {
          size_t& user = users[static_cast<size_t>(at.chunk)];
          shares = shares || (user != 0 && user != 1 + lane);
          user = 1 + lane;
        }
      }
    }
  }
  return shares;
}

}  // namespace

Result<ProgramFile> programs_of(const MscclFile& file) {
  ProgramFile made = file.use;
  int scratch_chunks = 0;
  for (const MscclGpu& gpu : file.gpus) {
    scratch_chunks = std::max(scratch_chunks, gpu.scratch_chunks);
  }
  for (size_t rank = 0; rank < file.gpus.size(); ++rank) {
    Program& program = made.programs.emplace_back();
    program.rank = static_cast<int>(rank);
    program.nranks = static_cast<int>(file.gpus.size());
    program.chunks = file.chunks;
    program.scratch_chunks = scratch_chunks;
    program.divides_buffer = true;
    PLEXUS_TRY(LaneMaker(file.gpus[rank], program.rank, &program).make());
  }
  PLEXUS_TRY(check_counts(file));
  return resolve_programs(std::move(made), file.chunks);
}

Result<ProgramFile> resolve_programs(ProgramFile file, int chunks) {
  PLEXUS_TRY(check_proof_size(file));
  LaneNetwork network(file.programs);
  if (!network.problem().empty()) {
    return fail(Code::kInvalidArgument, "{}", network.problem());
  }
  PLEXUS_TRY(programs, Resolver(file, chunks, file.programs, &network).resolve());
  file.programs = std::move(programs);
  PLEXUS_TRY(check_proof_size(file));
  const bool shares = std::any_of(file.programs.begin(), file.programs.end(), shares_scratch);
  for (Program& program : file.programs) {
    program.shares_scratch = shares;
  }
  return file;
}

}  // namespace plexus
