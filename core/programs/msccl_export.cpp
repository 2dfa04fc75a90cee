// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/programs/msccl_xml.hpp"

namespace plexus {
namespace {

const char* letter_of(Buffer buffer) {
  return buffer == Buffer::kInput ? "i" : buffer == Buffer::kOutput ? "o" : "s";
}

const char* collective_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "allreduce";
    case Collective::kAllGather:
      return "allgather";
    case Collective::kReduceScatter:
      return "reducescatter";
    case Collective::kAllToAll:
      return "alltoall";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kReduce:
      return "reduce";
    default:
      return nullptr;
  }
}

/// A step of XML, and what it waits for.
struct XmlStep {
  std::string type;
  At source;
  At target;
  int wait_block = -1;
  int wait_step = -1;
  bool announces = false;
};

struct XmlBlock {
  int send = -1;
  int recv = -1;
  int channel = 0;
  std::vector<XmlStep> steps = {};
};

/// The thread blocks of one rank.
class XmlRank {
 public:
  explicit XmlRank(const Program& program)
      : program_(program), scratch_chunks_(program.scratch_chunks) {}

  Result<std::string> format(int chunks_in, int chunks_out) {
    ends_.resize(program_.lanes.size());
    for (const Lane& lane : program_.lanes) {
      const std::set<int> sends = peers_of(lane, true);
      const std::set<int> recvs = peers_of(lane, false);
      auto& only = only_peers_.emplace_back();
      if (sends.size() <= 1 && recvs.size() <= 1) {
        only.emplace(sends.empty() ? -1 : *sends.begin(), recvs.empty() ? -1 : *recvs.begin());
      }
    }
    // lanes in turn, each as far as what it waits for is there: numbers of steps must be known
    bool moves = true;
    std::vector<size_t> next(program_.lanes.size());
    while (moves) {
      moves = false;
      for (size_t lane = 0; lane < next.size(); ++lane) {
        while (next[lane] < program_.lanes[lane].steps.size() && is_known(lane, next[lane])) {
          PLEXUS_TRY(add(lane, next[lane]));
          ++next[lane];
          moves = true;
        }
      }
    }
    std::string text =
        fmt::format("  <gpu id=\"{}\" i_chunks=\"{}\" o_chunks=\"{}\" s_chunks=\"{}\">\n",
                    program_.rank, chunks_in, chunks_out, scratch_chunks_);
    for (size_t id = 0; id < blocks_.size(); ++id) {
      text += format_block(id);
    }
    return text + "  </gpu>\n";
  }

 private:
  struct Place {
    int block = -1;
    int step = -1;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  using Places = std::vector<Place>;

  [[nodiscard]] bool is_known(size_t lane, size_t at) const {
    const After after = program_.lanes[lane].steps[at].after;
    return after.lane < 0 ||
           ends_[static_cast<size_t>(after.lane)].size() > static_cast<size_t>(after.step);
  }

  [[nodiscard]] std::set<int> peers_of(const Lane& lane, bool sends) const {
    std::set<int> peers;
    for (const Step& step : lane.steps) {
      const int first = step.peers_first + (sends ? step.receives : 0);
      for (int i = 0; i < (sends ? step.sends : step.receives); ++i) {
        peers.insert(program_.peers[static_cast<size_t>(first + i)]);
      }
    }
    return peers;
  }

  /// The block for a peer of a lane; a lane with one of each needs only one block.
  int block_for(size_t lane, int send, int recv) {
    if (only_peers_[lane].has_value()) {
      std::tie(send, recv) = *only_peers_[lane];
    }
    const auto [at, is_new] =
        made_.try_emplace({lane, send, recv}, static_cast<int>(blocks_.size()));
    if (is_new) {
      blocks_.push_back({.send = send, .recv = recv, .channel = program_.lanes[lane].connection});
    }
    return at->second;
  }

  Result<void> add(size_t lane, size_t at) {
    const Step& step = program_.lanes[lane].steps[at];
    if (step.with_next) {
      return fail(Code::kInvalidArgument,
                  "rank {}, lane {}, step {}: is part of a message of several chunks, which are "
                  "not written here: export it without --joined",
                  program_.rank, lane, at);
    }
    Places waits;
    if (step.after.lane >= 0) {
      waits = ends_[static_cast<size_t>(step.after.lane)][static_cast<size_t>(step.after.step)];
    }
    if (at > 0) {
      waits.insert(waits.end(), ends_[lane].back().begin(), ends_[lane].back().end());
    }
    if (only_waits(step)) {
      ends_[lane].push_back(std::move(waits));  // the next step waits for all of it
      return ok();
    }
    const At source{step.source, step.source_chunk};
    const At target{step.target, step.target_chunk};
    const int recv = step.receives == 1 ? peer_of(step, 0) : -1;
    const int send = step.sends == 1 ? peer_of(step, step.receives) : -1;
    const bool combines = source.buffer != Buffer::kNone;
    const bool stores = target.buffer != Buffer::kNone;
    if (recv >= 0 && send >= 0 && (combines || stores) &&
        block_for(lane, -1, recv) == block_for(lane, send, -1)) {
      const char* const type = !combines ? "rcs" : stores ? "rrcs" : "rrs";
      ends_[lane].push_back({append(block_for(lane, send, recv), {type, source, target}, waits)});
    } else {
      ends_[lane].push_back(add_apart(lane, step, std::move(waits)));
    }
    return ok();
  }

  [[nodiscard]] int peer_of(const Step& step, int place) const {
    return program_.peers[static_cast<size_t>(step.peers_first + place)];
  }

  /// Receives one by one, or a copy, and then sends, each in the block of its peer.
  Places add_apart(size_t lane, const Step& step, Places waits) {
    const At source{step.source, step.source_chunk};
    const At target{step.target, step.target_chunk};
    At value = source;
    // what is only passed on or combined needs a place
    const bool needs_place = step.receives > 0 && target.buffer == Buffer::kNone;
    const At to = needs_place ? At{Buffer::kScratch, scratch_chunks_++} : target;
    for (int i = 0; i < step.receives; ++i) {
      const char* const type = value.buffer == Buffer::kNone ? "r" : "rrc";
      waits = {append(block_for(lane, -1, peer_of(step, i)), {type, value, to}, waits)};
      value = to;
    }
    if (step.receives == 0 && target.buffer != Buffer::kNone) {
      const char* const type = step.accumulates ? "re" : "cpy";
      waits = {append(block_for(lane, -1, -1), {type, source, target}, waits)};
      value = target;
    }
    Places ends = waits;
    for (int i = 0; i < step.sends; ++i) {
      const int peer = peer_of(step, step.receives + i);
      const Place end = append(block_for(lane, peer, -1), {"s", value, {}}, waits);
      ends.resize(static_cast<size_t>(i));
      ends.push_back(end);
    }
    return ends;
  }

  /// All but the last of what it waits for in nops before it.
  Place append(int block, XmlStep step, const Places& waits) {
    Places others;
    for (const Place& wait : waits) {
      if (wait.block != block && std::find(others.begin(), others.end(), wait) == others.end()) {
        blocks_[static_cast<size_t>(wait.block)].steps[static_cast<size_t>(wait.step)].announces =
            true;
        others.push_back(wait);
      }
    }
    std::vector<XmlStep>& steps = blocks_[static_cast<size_t>(block)].steps;
    for (size_t i = 0; i + 1 < others.size(); ++i) {
      steps.push_back({.type = "nop",
                       .source = {},
                       .target = {},
                       .wait_block = others[i].block,
                       .wait_step = others[i].step});
    }
    if (!others.empty()) {
      step.wait_block = others.back().block;
      step.wait_step = others.back().step;
    }
    steps.push_back(std::move(step));
    return {block, static_cast<int>(steps.size()) - 1};
  }

  [[nodiscard]] std::string format_block(size_t id) const {
    const XmlBlock& block = blocks_[id];
    std::string text = fmt::format("    <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">\n", id,
                                   block.send, block.recv, block.channel);
    for (size_t at = 0; at < block.steps.size(); ++at) {
      const XmlStep& step = block.steps[at];
      // what has no source or target names the other one
      const At source = step.source.buffer == Buffer::kNone ? step.target : step.source;
      const At target = step.target.buffer == Buffer::kNone ? step.source : step.target;
      const bool is_nop = step.type == "nop";
      text += fmt::format(
          "      <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" "
          "dstoff=\"{}\" "
          "cnt=\"{}\" depid=\"{}\" deps=\"{}\" hasdep=\"{}\"/>\n",
          at, step.type, is_nop ? "i" : letter_of(source.buffer), is_nop ? -1 : source.chunk,
          is_nop ? "o" : letter_of(target.buffer), is_nop ? -1 : target.chunk, is_nop ? 0 : 1,
          step.wait_block, step.wait_step, step.announces ? 1 : 0);
    }
    return text + "    </tb>\n";
  }

  const Program& program_;
  std::vector<XmlBlock> blocks_;
  // by lane: the only one that it sends to and the only one that it receives from
  std::vector<std::optional<std::pair<int, int>>> only_peers_;
  std::map<std::tuple<size_t, int, int>, int> made_;  // by lane, peer to send to, to receive from
  std::vector<std::vector<Places>> ends_;             // [lane][step]
  int scratch_chunks_;
};

}  // namespace

Result<std::string> format_msccl(const ProgramFile& file) {
  const char* const collective = collective_of(file.collective);
  if (collective == nullptr) {
    return fail(Code::kInvalidArgument, "MSCCL has no {}: write JSON", name(file.collective));
  }
  const int chunks = file.programs.front().chunks;
  const int share = chunks / file.nranks();
  const bool gathers = file.collective == Collective::kAllGather;
  const bool scatters = file.collective == Collective::kReduceScatter;
  int channels = 1;
  std::string gpus;
  for (const Program& program : file.programs) {
    for (const Lane& lane : program.lanes) {
      channels = std::max(channels, lane.connection + 1);
    }
    PLEXUS_TRY(gpu, XmlRank(program).format(gathers ? share : chunks, scatters ? share : chunks));
    gpus += gpu;
  }
  return fmt::format(
      "<algo name=\"{}\" proto=\"Simple\" nchannels=\"{}\" nchunksperloop=\"{}\" ngpus=\"{}\" "
      "coll=\"{}\" inplace=\"0\" outofplace=\"1\" minBytes=\"0\" maxBytes=\"0\">\n{}</algo>\n",
      file.name, channels, chunks, file.nranks(), collective, gpus);
}

}  // namespace plexus
