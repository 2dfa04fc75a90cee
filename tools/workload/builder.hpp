// SPDX-License-Identifier: Apache-2.0
// What the readers of formats share: calls are added within bounds, names and groups once.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/base/json_members.hpp"
#include "tools/workload/workload.hpp"

namespace plexus {

using WorkloadJson = nlohmann::json;

class WorkloadBuilder {
 public:
  explicit WorkloadBuilder(const char* format) {
    work.format = format;
    work.groups.push_back({.name = "all"});
    work.names.emplace_back();
  }
  uint32_t name(std::string_view text);
  /// Of so many ranks (0: all by `divisor`), `stride` apart.
  uint32_t group(std::string_view name, int nranks, int divisor = 1, int stride = 0);
  /// An Error: a number is beyond its bound, or there are too many calls. Calls that move nothing
  /// are left out, and the last call's number is returned.
  Result<uint32_t> add(WorkloadCall call);
  void leave_out(const std::string& what) {
    ++left_out_[left_out_.size() < kReasonsMax || left_out_.contains(what) ? what : "other things"];
  }
  void note(std::string what) { work.notes.push_back(std::move(what)); }
  void note_taken_for_all(std::string what) {
    work.taken_for_all = work.notes.size();
    note(std::move(what));
  }
  /// An Error: nothing was understood.
  Result<Workload> finish();

  Workload work;

 private:
  static constexpr size_t kReasonsMax = 8;
  std::unordered_map<std::string, uint32_t> names_;
  std::map<std::string, uint64_t> left_out_;
};

/// A collective as anyone writes it: all_reduce, AllReduce, nccl:_all_gather_base, REDUCESCATTER.
/// A barrier is none.
std::optional<Collective> find_collective(std::string_view text);
/// By the number that Chakra gives them.
inline constexpr std::array<std::pair<const char*, std::optional<Collective>>, 10>
    kChakraCollectives = {{
        {"ALL_REDUCE", Collective::kAllReduce},
        {"REDUCE", Collective::kReduce},
        {"ALL_GATHER", Collective::kAllGather},
        {"GATHER", Collective::kGather},
        {"SCATTER", Collective::kScatter},
        {"BROADCAST", Collective::kBroadcast},
        {"ALL_TO_ALL", Collective::kAllToAll},
        {"REDUCE_SCATTER", Collective::kReduceScatter},
        {"REDUCE_SCATTER_BLOCK", Collective::kReduceScatter},
        {"BARRIER", std::nullopt},
    }};
/// And of nodes.
enum ChakraType : uint64_t {
  kMetadata = 1,
  kComputing = 4,
  kSending = 5,
  kReceiving = 6,
  kTogether = 7
};
/// Bytes of an element: Float, ncclBfloat16, c10::Half, "signed char"; 0: unknown.
uint64_t element_bytes_of(std::string_view type);

// Further members of objects, as core/base/json_members.hpp has them.
/// Also of a text that is a number. `otherwise`: absent, negative or above 2^53.
uint64_t number_of(const WorkloadJson& object, std::string_view key, uint64_t otherwise = 0);
double real_of(const WorkloadJson& object, std::string_view key, double otherwise = 0);
/// "[0, 1, 2]" or a list; of at most kWorkloadRanksMax ranks, else empty.
std::vector<int> ranks_of(const WorkloadJson& object, std::string_view key);
/// The distance between ranks of a list that are evenly apart; 0: they are not, or one alone.
int stride_of(const std::vector<int>& ranks);

/// A line at a time, without its end.
std::string_view take_line(std::string_view& text);
std::optional<uint64_t> whole_number(std::string_view word);
std::optional<double> real_number(std::string_view word);

// The readers.
Result<Workload> read_plexus(const WorkloadJson& json);
Result<Workload> read_goal(std::string_view text);
Result<Workload> read_simai(std::string_view text);
Result<Workload> read_aicb(std::string_view text);
Result<Workload> read_chakra(std::string_view bytes);
Result<Workload> read_chakra_json(const WorkloadJson& json);
Result<Workload> read_execution_trace(const WorkloadJson& json);
Result<Workload> read_kineto(const WorkloadJson& json);
Result<Workload> read_flight_recorder(const WorkloadJson& json);
Result<Workload> read_inspector(std::string_view text);
Result<Workload> read_nccl_tests(std::string_view text);
Result<Workload> read_htsim(std::string_view text);

/// A pickle of Python, of what JSON has too; nothing is imported or called.
Result<WorkloadJson> read_pickle(std::string_view bytes);
/// Whether the bytes are messages of protobuf, one after the other, each with its length before it.
bool is_delimited_protobuf(std::string_view bytes);

}  // namespace plexus
