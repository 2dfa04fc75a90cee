// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/json_members.hpp"
#include "core/base/text.hpp"
#include "core/programs/mscclpp.hpp"

namespace plexus {
namespace {

using PlanJson = nlohmann::json;

constexpr int kPlanBlocksMax = 32;  // each has two of the 64 connections between two ranks

/// The list; empty where there is none.
const PlanJson& list_in(const PlanJson& object, const char* key) {
  static const PlanJson kEmpty = PlanJson::array();
  const PlanJson* const at = find_member(object, key);
  return at == nullptr || !at->is_array() ? kEmpty : *at;
}

/// -1: there is none, or it is beyond what any plan has.
int number_in(const PlanJson& object, const char* key) {
  const PlanJson* const at = find_member(object, key);
  return at != nullptr && at->is_number_unsigned() && at->get<uint64_t>() <= kFileChunksMax
             ? at->get<int>()
             : -1;
}

std::optional<Buffer> buffer_of(const std::string& type) {
  return type == "i"   ? std::optional(Buffer::kInput)
         : type == "o" ? std::optional(Buffer::kOutput)
         : type == "s" ? std::optional(Buffer::kScratch)
                       : std::nullopt;
}

class PlanReader {
 public:
  Result<PlanFile> read(const PlanJson& json) {
    const PlanJson& gpus = list_in(json, "gpus");
    if (gpus.size() < 2 || gpus.size() > static_cast<size_t>(kFileRanksMax)) {
      return fail(Code::kInvalidArgument, "a plan of MSCCL++: expects 2 to {} \"gpus\", not {}",
                  kFileRanksMax, gpus.size());
    }
    if (find_member(gpus[0], "inputChunks") != nullptr) {
      return fail(Code::kInvalidArgument,
                  "a plan of MSCCL++ in the schema of its first releases (\"inputChunks\"): write "
                  "it again with MSCCL++ 0.7 or later");
    }
    nranks_ = static_cast<int>(gpus.size());
    PLEXUS_TRY(read_head(json));
    PLEXUS_TRY(find_split(gpus));
    for (const PlanJson& gpu : gpus) {
      PLEXUS_TRY(read_gpu(gpu));
    }
    return std::move(plan_);
  }

 private:
  struct Remote {
    int rank = -1;
    Buffer buffer = Buffer::kNone;
  };

  Result<void> read_head(const PlanJson& json) {
    constexpr std::array<std::pair<const char*, Collective>, 5> kNames = {{
        {"allreduce", Collective::kAllReduce},
        {"allgather", Collective::kAllGather},
        {"reducescatter", Collective::kReduceScatter},
        {"broadcast", Collective::kBroadcast},
        {"alltoall", Collective::kAllToAll},
    }};
    const std::string named = text_of(json, "collective");
    const auto known = std::find_if(kNames.begin(), kNames.end(),
                                    [&](const auto& each) { return named == each.first; });
    if (known == kNames.end()) {
      return fail(Code::kInvalidArgument,
                  "a plan of MSCCL++ for '{}', which says no collective whose result could be "
                  "proved: expects allreduce, allgather, reducescatter, broadcast or alltoall",
                  printable(named));
    }
    constexpr size_t kNameMax = 100;
    plan_.use.name = text_of(json, "name").substr(0, kNameMax);
    plan_.use.name = plan_.use.name.empty() ? "mscclpp" : printable(plan_.use.name);
    plan_.use.collective = known->second;
    const PlanJson* const in_place = find_member(json, "inplace");
    const bool is_in_place = in_place != nullptr && in_place->is_boolean() && in_place->get<bool>();
    plan_.use.in_place = is_in_place;
    plan_.use.out_of_place = !is_in_place;
    for (const auto& [key, target] : {std::pair("min_message_size", &plan_.use.bytes_min),
                                      {"max_message_size", &plan_.use.bytes_max}}) {
      const PlanJson* const size = find_member(json, key);
      *target = size != nullptr && size->is_number_unsigned() ? size->get<uint64_t>() : *target;
    }
    return ok();
  }

  /// Where thread blocks share an operation, chunks are divided so that each has its own.
  Result<void> find_split(const PlanJson& gpus) {
    constexpr int kSplitMax = 64;
    for (const PlanJson& gpu : gpus) {
      for (const PlanJson& block : list_in(gpu, "threadblocks")) {
        for (const PlanJson& operation : list_in(block, "ops")) {
          const PlanJson* const shared = find_member(operation, "tbg_info");
          const int size = shared == nullptr ? 1 : number_in(*shared, "tbg_size");
          split_ = size > 0 ? std::lcm(split_, size) : kSplitMax + 1;
          if (split_ > kSplitMax) {
            return fail(Code::kInvalidArgument,
                        "a plan of MSCCL++: groups of thread blocks (\"tbg_size\") divide chunks "
                        "into more than {} parts",
                        kSplitMax);
          }
        }
      }
    }
    return ok();
  }

  Result<void> read_gpu(const PlanJson& gpu) {
    const size_t rank = plan_.ranks.size();
    where_ = fmt::format("gpu {}", rank);
    inputs_ = number_in(gpu, "input_chunks") * split_;
    outputs_ = number_in(gpu, "output_chunks") * split_;
    scratch_ = number_in(gpu, "scratch_chunks") * split_;
    if (plan_.use.in_place && outputs_ == 0) {
      outputs_ = inputs_;  // the plan has one buffer
    }
    const int chunks = std::max(inputs_, outputs_);
    const int blocks = plan_.use.collective == Collective::kAllGather ||
                               plan_.use.collective == Collective::kReduceScatter
                           ? nranks_
                           : 1;
    if (number_in(gpu, "id") != static_cast<int>(rank) || std::min(inputs_, outputs_) <= 0 ||
        scratch_ < 0 || std::max(chunks, scratch_) > kFileChunksMax ||
        (plan_.chunks != 0 && plan_.chunks != chunks) ||
        std::min(inputs_, outputs_) * blocks != chunks) {
      return fail(Code::kInvalidArgument,
                  "{}: expects \"id\" {}, and \"input_chunks\" and \"output_chunks\" (up to {}) as "
                  "the collective and the other gpus have them",
                  where_, rank, kFileChunksMax);
    }
    plan_.chunks = chunks;
    plan_.scratch_chunks = std::max(plan_.scratch_chunks, scratch_);
    PLEXUS_TRY(read_remotes(gpu));
    number_channels(gpu);
    std::vector<int>& semaphores = plan_.semaphores.emplace_back();
    for (const PlanJson& semaphore : list_in(gpu, "semaphores")) {
      semaphores.push_back(std::max(0, number_in(semaphore, "init_value")));
    }
    auto& made = plan_.ranks.emplace_back();
    const PlanJson& list = list_in(gpu, "threadblocks");
    if (list.size() > static_cast<size_t>(kPlanBlocksMax)) {
      return fail(Code::kInvalidArgument, "{}: has {} thread blocks, expects at most {}", where_,
                  list.size(), kPlanBlocksMax);
    }
    for (const PlanJson& block : list) {
      const std::string gpu_where = where_;
      where_ = fmt::format("{}, tb {}", gpu_where, made.size());
      std::vector<PlanOperation>& operations = made.emplace_back();
      PLEXUS_TRY(read_operations(list_in(block, "ops"), block, operations));
      where_ = gpu_where;
    }
    return ok();
  }

  Result<void> read_remotes(const PlanJson& gpu) {
    remotes_.clear();
    for (const PlanJson& remote : list_in(gpu, "remote_buffers")) {
      const int rank = number_in(remote, "rank");
      const auto buffer = buffer_of(text_of(remote, "type"));
      if (rank < 0 || rank >= nranks_ || rank == static_cast<int>(plan_.ranks.size()) ||
          !buffer.has_value()) {
        return fail(Code::kInvalidArgument,
                    "{}: expects \"remote_buffers\" with another \"rank\" and \"type\" i, o or s",
                    where_);
      }
      remotes_.push_back({rank, *buffer});
    }
    return ok();
  }

  Result<void> read_operations(const PlanJson& list,
                               const PlanJson& block,
                               std::vector<PlanOperation>& operations) {
    for (const PlanJson& operation : list) {
      if (text_of(operation, "name") == "pipeline") {
        for (const PlanJson& inner : list_in(operation, "ops")) {
          PLEXUS_TRY(read_operation(inner, block, operations));
        }
      } else {
        PLEXUS_TRY(read_operation(operation, block, operations));
      }
      if (++steps_ > kFileStepsMax) {
        return fail(Code::kInvalidArgument, "a plan of MSCCL++ with more than {} operations",
                    kFileStepsMax);
      }
    }
    return ok();
  }

  Result<void> read_operation(const PlanJson& operation,
                              const PlanJson& block,
                              std::vector<PlanOperation>& operations) {
    const std::string named = text_of(operation, "name");
    PlanOperation made{.where = fmt::format("{}, op {} ({})", where_, operations.size(),
                                            printable(named.substr(0, 20)))};
    if (named == "nop" || named == "flush") {
      return ok();  // orders threads of a block, or what a port has sent
    }
    if (named == "signal" || named == "rlxsignal" || named == "wait" || named == "rlxwait") {
      made.kind = named.ends_with("wait") ? PlanKind::kWait : PlanKind::kSignal;
      PLEXUS_TRY(read_channels(operation, block, made));
    } else if (named == "sem_acquire" || named == "sem_release") {
      made.kind = named == "sem_acquire" ? PlanKind::kAcquire : PlanKind::kRelease;
      PLEXUS_TRY(read_semaphores(operation, made));
    } else if (named == "barrier") {
      made.kind = PlanKind::kBarrier;
      made.semaphores.push_back(number_in(operation, "barrier_id"));
      made.blocks = number_in(operation, "num_threadblocks");
      if (made.blocks < 1 || made.semaphores[0] < 0) {
        return fail(Code::kInvalidArgument, "{}: expects \"barrier_id\" and \"num_threadblocks\"",
                    made.where);
      }
    } else {
      PLEXUS_TRY(read_data(operation, named, block, made));
    }
    operations.push_back(std::move(made));
    return ok();
  }

  Result<void> read_data(const PlanJson& operation,
                         const std::string& named,
                         const PlanJson& block,
                         PlanOperation& made) {
    constexpr std::array kCopies = {"copy", "put",   "pws",  "pwsf", "get",
                                    "ppkt", "rppkt", "upkt", "cpkt"};
    constexpr std::array kReductions = {"re", "res", "rre", "rres", "repkt", "respkt", "recspkt"};
    const auto is_one = [&](const auto& names) {
      return std::find(names.begin(), names.end(), named) != names.end();
    };
    if (!is_one(kCopies) && !is_one(kReductions)) {
      const bool is_switch = named.starts_with("gl") || named.starts_with("gs");
      return fail(Code::kInvalidArgument, "{}: {}", made.where,
                  is_switch ? "a switch computes it (NVLS), which a program of ours cannot say"
                            : "is not an operation that can be read as messages");
    }
    made.reduces = is_one(kReductions);
    made.packets = named.ends_with("pkt");
    made.signals = named == "pws" || named == "pwsf";
    const std::string reduction = text_of(operation, "reduce_op");
    if (!reduction.empty() && reduction != "sum") {
      return fail(Code::kInvalidArgument, "{}: reduces by '{}', expects sum", made.where,
                  printable(reduction));
    }
    PLEXUS_TRY(read_places(operation, "src_buff", block, made, made.sources));
    PLEXUS_TRY(read_places(operation, "dst_buff", block, made, made.targets));
    if (made.signals) {
      PLEXUS_TRY(read_channels(operation, block, made));
    }
    const bool fits = made.reduces
                          ? made.targets.front().rank < 0
                          : made.sources.size() == made.targets.size() || made.sources.size() == 1;
    if (!fits) {
      return fail(Code::kInvalidArgument, "{}: expects {}", made.where,
                  made.reduces ? "its first target in memory of its own gpu"
                               : "one source, or one for each target");
    }
    return ok();
  }

  /// Places of one operation, all as long.
  Result<void> read_places(const PlanJson& operation,
                           const char* key,
                           const PlanJson& block,
                           const PlanOperation& made,
                           std::vector<PlanPlace>& places) {
    for (const PlanJson& each : list_in(operation, key)) {
      PlanPlace place{.first = number_in(each, "index") * split_,
                      .count = number_in(each, "size") * split_};
      if (find_member(each, "buffer_id") != nullptr) {
        const int id =
            remote_of(number_in(each, "buffer_id"), text_of(operation, "channel_type"), block);
        if (id >= 0) {
          place.rank = remotes_[static_cast<size_t>(id)].rank;
          place.buffer = remotes_[static_cast<size_t>(id)].buffer;
        }
      } else {
        place.buffer = buffer_of(text_of(each, "type")).value_or(Buffer::kNone);
      }
      share(operation, place);
      const int end = place.buffer == Buffer::kInput    ? inputs_
                      : place.buffer == Buffer::kOutput ? outputs_
                      : place.buffer == Buffer::kNone   ? 0
                      : place.rank < 0                  ? scratch_
                                                        : kFileChunksMax;
      const std::vector<PlanPlace>& first = made.sources.empty() ? places : made.sources;
      if (place.first < 0 || place.count <= 0 || place.at(place.count - 1) >= end ||
          (!first.empty() && first.front().count != place.count)) {
        return fail(Code::kInvalidArgument,
                    "{}: \"{}\": expects chunks of a buffer of its gpu or of one of its remote "
                    "buffers, as many as elsewhere in the operation",
                    made.where, key);
      }
      if (place.buffer == Buffer::kScratch) {
        plan_.scratch_chunks = std::max(plan_.scratch_chunks, place.at(place.count - 1) + 1);
      }
      places.push_back(place);
    }
    return places.empty()
               ? Result<void>(fail(Code::kInvalidArgument, "{}: has no \"{}\"", made.where, key))
               : ok();
  }

  /// The part of a thread block that shares the operation with others.
  void share(const PlanJson& operation, PlanPlace& place) const {
    const PlanJson* const shared = find_member(operation, "tbg_info");
    if (shared == nullptr) {
      return;
    }
    const int size = std::max(1, number_in(*shared, "tbg_size"));
    const int id = number_in(*shared, "tb_id");
    place.run = id >= 0 && id < size ? split_ / size : 0;
    place.jump = split_;
    place.first += place.run * id;
    place.count = place.run * (place.count / split_);  // 0 is refused
  }

  /// -1: none.
  [[nodiscard]] int remote_of(int id, const std::string& type, const PlanJson& block) const {
    const PlanJson& ids = of_type(list_in(block, "remote_buffer_refs"), "access_channel_type", type,
                                  "remote_buffer_ids");
    const auto place = static_cast<size_t>(std::max(id, 0));
    return id >= 0 && place < ids.size() && ids[place].is_number_unsigned() &&
                   ids[place].get<uint64_t>() < remotes_.size()
               ? ids[place].get<int>()
               : -1;
  }

  /// A list of the member for a type of channels; of these there are a few.
  static const PlanJson& of_type(const PlanJson& list,
                                 const char* type_key,
                                 const std::string& type,
                                 const char* key) {
    constexpr size_t kTypesMax = 16;
    for (size_t i = 0; i < std::min(list.size(), kTypesMax); ++i) {
      if (text_of(list[i], type_key) == type) {
        return list_in(list[i], key);
      }
    }
    return list_in(PlanJson(), key);
  }

  /// The gpu's channels, each with its number among those of its type to the same peer.
  void number_channels(const PlanJson& gpu) {
    constexpr size_t kTypesMax = 16;
    channels_.clear();
    const PlanJson& types = list_in(gpu, "channels");
    for (size_t i = 0; i < std::min(types.size(), kTypesMax); ++i) {
      const std::string type = text_of(types[i], "channel_type");
      std::map<uint64_t, int> counts;
      std::vector<PlanChannel>& made = channels_[type];
      for (const PlanJson& peer : list_in(types[i], "connected_to")) {
        const uint64_t rank = peer.is_number_unsigned() ? peer.get<uint64_t>() : UINT64_MAX;
        const bool is_rank = rank < static_cast<uint64_t>(nranks_);
        made.push_back({.peer = is_rank ? static_cast<int>(rank) : -1,
                        .type = type,
                        .number = counts[rank]++});
      }
    }
  }

  /// From a block's list of channels to the gpu's.
  Result<void> read_channels(const PlanJson& operation,
                             const PlanJson& block,
                             PlanOperation& made) {
    const std::string type = text_of(operation, "channel_type");
    const PlanJson& own = of_type(list_in(block, "channels"), "channel_type", type, "channel_ids");
    const std::vector<PlanChannel>& all = channels_[type];
    for (const PlanJson& each : list_in(operation, "channel_ids")) {
      const size_t id = each.is_number_unsigned() ? each.get<size_t>() : own.size();
      const size_t channel =
          id < own.size() && own[id].is_number_unsigned() ? own[id].get<size_t>() : all.size();
      if (channel >= all.size() || all[channel].peer < 0 ||
          made.channels.size() == static_cast<size_t>(kFileRanksMax)) {
        return fail(Code::kInvalidArgument,
                    "{}: expects \"channel_ids\" of its thread block, of channels to other gpus",
                    made.where);
      }
      made.channels.push_back(all[channel]);
    }
    return ok();
  }

  Result<void> read_semaphores(const PlanJson& operation, PlanOperation& made) const {
    for (const PlanJson& id : list_in(operation, "semaphore_ids")) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= plan_.semaphores.back().size()) {
        return fail(Code::kInvalidArgument, "{}: expects \"semaphore_ids\" of its gpu", made.where);
      }
      made.semaphores.push_back(id.get<int>());
    }
    return ok();
  }

  PlanFile plan_;
  int nranks_ = 0;
  int split_ = 1;  // parts of a chunk of the file
  int64_t steps_ = 0;
  std::string where_;
  int inputs_ = 0;
  int outputs_ = 0;
  int scratch_ = 0;
  std::vector<Remote> remotes_;                               // of the gpu
  std::map<std::string, std::vector<PlanChannel>> channels_;  // likewise, by type
};

}  // namespace

Result<PlanFile> parse_plan(std::string_view text) {
  const PlanJson json = PlanJson::parse(text, nullptr, false);
  if (!json.is_object()) {
    return fail(Code::kInvalidArgument, "a plan of MSCCL++ that is no whole JSON");
  }
  return PlanReader().read(json);
}

}  // namespace plexus
