// SPDX-License-Identifier: Apache-2.0
#include "core/programs/msccl_xml.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <pugixml.hpp>

#include "core/base/text.hpp"

namespace plexus {
namespace {

struct CollectiveName {
  const char* name;
  Collective collective;
};
constexpr CollectiveName kCollectives[] = {
    {"allreduce", Collective::kAllReduce},         {"allgather", Collective::kAllGather},
    {"alltoall", Collective::kAllToAll},           {"reduce_scatter", Collective::kReduceScatter},
    {"reducescatter", Collective::kReduceScatter}, {"reduce", Collective::kReduce},
    {"broadcast", Collective::kBroadcast}};

struct VerbRow {
  const char* name;
  MscclVerb verb;
  bool receives;
  bool sends;
  bool reads;   // the local source
  bool writes;  // the local target
};
constexpr VerbRow kVerbs[] = {{"s", MscclVerb::kSend, false, true, true, false},
                              {"r", MscclVerb::kRecv, true, false, false, true},
                              {"rcs", MscclVerb::kRcs, true, true, false, true},
                              {"rrs", MscclVerb::kRrs, true, true, true, false},
                              {"rrc", MscclVerb::kRrc, true, false, true, true},
                              {"rrcs", MscclVerb::kRrcs, true, true, true, true},
                              {"cpy", MscclVerb::kCopy, false, false, true, true},
                              {"re", MscclVerb::kReduce, false, false, true, true},
                              {"nop", MscclVerb::kNop, false, false, false, false}};

/// Attribute values as numbers, of an element that `where` names for messages.
class Attributes {
 public:
  Attributes(pugi::xml_node node, std::string where) : node_(node), where_(std::move(where)) {}

  Result<int64_t> number(const char* key, int64_t low, int64_t high) const {
    const std::string_view text = node_.attribute(key).value();
    if (text.empty()) {
      return fail(Code::kInvalidArgument, "{}: the attribute '{}' is missing", where_, key);
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
      return fail(Code::kInvalidArgument, "{}: {}=\"{}\" is not a number from {} to {}", where_,
                  key, shown(text), low, high);
    }
    return value;
  }
  Result<int> integer(const char* key, int64_t low, int64_t high) const {
    PLEXUS_TRY(value, number(key, low, high));
    return static_cast<int>(value);
  }
  Result<int64_t> number_or(const char* key, int64_t low, int64_t high, int64_t otherwise) const {
    return node_.attribute(key).empty() ? Result<int64_t>(otherwise) : number(key, low, high);
  }
  [[nodiscard]] std::string_view text(const char* key) const {
    return node_.attribute(key).value();
  }
  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] static std::string shown(std::string_view text) {
    constexpr size_t kShown = 40;
    return printable(text.substr(0, kShown));
  }

 private:
  pugi::xml_node node_;
  std::string where_;
};

class Reader {
 public:
  Result<MscclFile> read(pugi::xml_node algo) {
    PLEXUS_TRY(read_algo(Attributes(algo, "<algo>")));
    file_.gpus.resize(static_cast<size_t>(nranks_));
    std::vector<bool> is_there(file_.gpus.size());
    for (const pugi::xml_node& node : algo.children("gpu")) {
      const Attributes attributes(node, "<gpu>");
      PLEXUS_TRY(rank, attributes.integer("id", 0, nranks_ - 1));
      if (is_there[static_cast<size_t>(rank)]) {
        return fail(Code::kInvalidArgument, "<gpu id=\"{}\"> is there twice", rank);
      }
      is_there[static_cast<size_t>(rank)] = true;
      PLEXUS_TRY(read_gpu(node, rank));
    }
    const auto missing = std::find(is_there.begin(), is_there.end(), false);
    if (missing != is_there.end()) {
      return fail(Code::kInvalidArgument, "ngpus=\"{}\", but <gpu id=\"{}\"> is missing", nranks_,
                  missing - is_there.begin());
    }
    return std::move(file_);
  }

 private:
  Result<void> read_algo(const Attributes& algo) {
    ProgramFile& use = file_.use;
    use.name = Attributes::shown(algo.text("name"));
    PLEXUS_TRY(read_protocol(algo.text("proto")));
    PLEXUS_TRY(read_collective(algo.text("coll")));
    PLEXUS_TRY(nranks, algo.integer("ngpus", 2, kFileRanksMax));
    nranks_ = nranks;
    PLEXUS_TRY(chunks, algo.integer("nchunksperloop", 1, kFileChunksMax));
    file_.chunks = chunks;
    if (has_shares() && chunks % nranks != 0) {
      return fail(Code::kInvalidArgument,
                  "nchunksperloop=\"{}\" does not give each of the {} ranks as many chunks", chunks,
                  nranks);
    }
    PLEXUS_TRY(in_place, algo.number_or("inplace", 0, 1, 0));
    PLEXUS_TRY(out_of_place, algo.number_or("outofplace", 0, 1, 1 - in_place));
    if (in_place + out_of_place == 0) {
      return fail(Code::kInvalidArgument,
                  "the file is for calls neither in place nor out of place");
    }
    use.in_place = in_place == 1;
    use.out_of_place = out_of_place == 1;
    PLEXUS_TRY(bytes_min, algo.number_or("minBytes", 0, INT64_MAX, 0));
    PLEXUS_TRY(bytes_max, algo.number_or("maxBytes", 0, INT64_MAX, 0));
    use.bytes_min = static_cast<uint64_t>(bytes_min);
    use.bytes_max = bytes_max == 0 ? UINT64_MAX : static_cast<uint64_t>(bytes_max);
    return ok();
  }

  Result<void> read_protocol(std::string_view text) {
    for (const Protocol protocol : kProtocols) {
      if (text == name(protocol)) {
        file_.use.protocol = protocol;
        return ok();
      }
    }
    return fail(Code::kInvalidArgument, "proto=\"{}\" is not Simple, LL or LL128",
                Attributes::shown(text));
  }

  Result<void> read_collective(std::string_view text) {
    for (const CollectiveName& row : kCollectives) {
      if (text == row.name) {
        file_.use.collective = row.collective;
        return ok();
      }
    }
    if (text == "custom") {
      return fail(Code::kInvalidArgument,
                  "coll=\"custom\" does not say what the algorithm should do, so that nothing can "
                  "be proved");
    }
    return fail(Code::kInvalidArgument,
                "coll=\"{}\" is not allreduce, allgather, alltoall, reduce_scatter, reduce or "
                "broadcast",
                Attributes::shown(text));
  }

  [[nodiscard]] bool has_shares() const {
    const Collective collective = file_.use.collective;
    return collective == Collective::kAllGather || collective == Collective::kReduceScatter ||
           collective == Collective::kAllToAll;
  }

  /// Chunks of a buffer of the collective.
  [[nodiscard]] int size_of(Buffer buffer) const {
    const Collective collective = file_.use.collective;
    const bool is_one_share =
        (collective == Collective::kAllGather && buffer == Buffer::kInput) ||
        (collective == Collective::kReduceScatter && buffer == Buffer::kOutput);
    return is_one_share ? file_.chunks / nranks_ : file_.chunks;
  }

  Result<void> read_gpu(const pugi::xml_node& node, int rank) {
    const Attributes gpu(node, fmt::format("gpu {}", rank));
    PLEXUS_TRY(inputs, gpu.integer("i_chunks", 0, kFileChunksMax));
    PLEXUS_TRY(outputs, gpu.integer("o_chunks", 0, kFileChunksMax));
    PLEXUS_TRY(scratch, gpu.integer("s_chunks", 0, kFileChunksMax));
    sizes_[0] = inputs == 0 ? size_of(Buffer::kInput) : std::min(inputs, size_of(Buffer::kInput));
    sizes_[1] =
        outputs == 0 ? size_of(Buffer::kOutput) : std::min(outputs, size_of(Buffer::kOutput));
    sizes_[2] = scratch;
    MscclGpu& target = file_.gpus[static_cast<size_t>(rank)];
    target.scratch_chunks = scratch;
    std::vector<pugi::xml_node> blocks;
    for (const pugi::xml_node& child : node.children("tb")) {
      blocks.push_back(child);
    }
    std::vector<bool> is_there(blocks.size());
    target.blocks.resize(blocks.size());
    for (const pugi::xml_node& child : blocks) {
      const Attributes block(child, fmt::format("gpu {}: <tb>", rank));
      PLEXUS_TRY(id, block.integer("id", 0, static_cast<int64_t>(blocks.size()) - 1));
      if (is_there[static_cast<size_t>(id)]) {
        return fail(Code::kInvalidArgument, "gpu {}: <tb id=\"{}\"> is there twice", rank, id);
      }
      is_there[static_cast<size_t>(id)] = true;
      PLEXUS_TRY(read_block(child, rank, id, target.blocks[static_cast<size_t>(id)]));
    }
    return ok();
  }

  Result<void> read_block(const pugi::xml_node& node, int rank, int id, MscclBlock& block) {
    const Attributes attributes(node, fmt::format("gpu {}, tb {}", rank, id));
    PLEXUS_TRY(send, attributes.integer("send", -1, nranks_ - 1));
    PLEXUS_TRY(recv, attributes.integer("recv", -1, nranks_ - 1));
    PLEXUS_TRY(channel, attributes.integer("chan", 0, kConnectionsMax - 1));
    if (send == rank || recv == rank) {
      return fail(Code::kInvalidArgument, "{}: it is its own peer", attributes.where());
    }
    block.send = send;
    block.recv = recv;
    block.channel = channel;
    for (const pugi::xml_node& child : node.children("step")) {
      PLEXUS_TRY(step, read_step(Attributes(child, fmt::format("gpu {}, tb {}, step {}", rank, id,
                                                               block.steps.size())),
                                 block));
      steps_ += std::max(step.count, 1);
      if (steps_ > kFileStepsMax) {
        return fail(Code::kInvalidArgument, "the file has more than {} steps", kFileStepsMax);
      }
      block.steps.push_back(step);
    }
    return ok();
  }

  Result<MscclStep> read_step(const Attributes& attributes, const MscclBlock& block) const {
    const std::string_view type = attributes.text("type");
    const auto* const row = std::find_if(std::begin(kVerbs), std::end(kVerbs),
                                         [&](const VerbRow& each) { return type == each.name; });
    if (row == std::end(kVerbs)) {
      return fail(Code::kInvalidArgument, "{}: type=\"{}\" is not one that executors run",
                  attributes.where(), Attributes::shown(type));
    }
    if ((row->sends && block.send < 0) || (row->receives && block.recv < 0)) {
      return fail(Code::kInvalidArgument, "{}: '{}', but its tb has no peer to {}",
                  attributes.where(), row->name,
                  row->sends && block.send < 0 ? "send to" : "receive from");
    }
    MscclStep step;
    step.verb = row->verb;
    PLEXUS_TRY(attributes.number("s", 0, kFileStepsMax));
    const bool is_nop = row->verb == MscclVerb::kNop;
    PLEXUS_TRY(count, attributes.integer("cnt", is_nop ? 0 : 1, is_nop ? 0 : kFileChunksMax));
    step.count = count;
    PLEXUS_TRY(source, read_place(attributes, "srcbuf", "srcoff", row->reads ? count : 0));
    PLEXUS_TRY(target, read_place(attributes, "dstbuf", "dstoff", row->writes ? count : 0));
    step.source = source;
    step.target = target;
    PLEXUS_TRY(wait_block, attributes.integer("depid", -1, INT32_MAX));
    PLEXUS_TRY(wait_step, attributes.integer("deps", -1, INT32_MAX));
    step.wait_block = wait_block;
    step.wait_step = wait_step;
    PLEXUS_TRY(announces, attributes.number("hasdep", 0, 1));
    step.announces = announces == 1;
    return step;
  }

  /// `count` 0: the attributes are a comment of the file.
  Result<MscclPlace> read_place(const Attributes& attributes,
                                const char* buffer_key,
                                const char* chunk_key,
                                int count) const {
    PLEXUS_TRY(chunk, attributes.integer(chunk_key, INT32_MIN, INT32_MAX));
    if (count == 0) {
      return MscclPlace{};
    }
    constexpr std::pair<std::string_view, Buffer> kBuffers[] = {
        {"i", Buffer::kInput}, {"o", Buffer::kOutput}, {"s", Buffer::kScratch}};
    for (size_t i = 0; i < std::size(kBuffers); ++i) {
      if (attributes.text(buffer_key) != kBuffers[i].first) {
        continue;
      }
      if (chunk < 0 || int64_t{chunk} + count > sizes_[i]) {
        return fail(Code::kInvalidArgument, "{}: chunks {} to {} of '{}', which has {}",
                    attributes.where(), chunk, int64_t{chunk} + count - 1, kBuffers[i].first,
                    sizes_[i]);
      }
      return MscclPlace{.buffer = kBuffers[i].second, .chunk = chunk};
    }
    return fail(Code::kInvalidArgument, "{}: {}=\"{}\" is not i, o or s", attributes.where(),
                buffer_key, Attributes::shown(attributes.text(buffer_key)));
  }

  MscclFile file_;
  int nranks_ = 0;
  int64_t steps_ = 0;
  int sizes_[3] = {};  // of the current gpu's buffers i, o, s
};

}  // namespace

Result<MscclFile> parse_msccl(std::string_view text) {
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(text.data(), text.size());
  if (!parsed) {
    // counted in what the text was converted to, which may be longer
    const auto size = static_cast<ptrdiff_t>(text.size());
    const auto end = text.begin() + std::clamp<ptrdiff_t>(parsed.offset, 0, size);
    return fail(Code::kInvalidArgument, "line {}: {}", 1 + std::count(text.begin(), end, '\n'),
                parsed.description());
  }
  const pugi::xml_node algo = document.child("algo");
  if (algo.empty()) {
    return fail(Code::kInvalidArgument, "there is no <algo> in it");
  }
  return Reader().read(algo);
}

}  // namespace plexus
