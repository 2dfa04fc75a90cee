// SPDX-License-Identifier: Apache-2.0
// PyTorch's profiler traces (Kineto) of one rank: kernels by stream. Kernels of NCCL are calls, the
// others computing. What waits for what is not recorded; it is taken from the times: a call waits
// for the computing that ended last before it began, and computing that begins after a call and not
// right behind its own stream's last kernel waits for the call.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "tools/workload/builder.hpp"

namespace plexus {
namespace {

/// What an event says of a call; bytes 0: nothing.
struct KinetoCall {
  std::optional<Collective> collective;
  uint64_t bytes = 0;
  int nranks = 0;
  int stride = 0;
  std::string group;
  int distance = 0;  // of a message; not 0
};

struct KinetoKernel {
  double begin_us = 0;
  double time_us = 0;
  uint64_t stream = 0;
  bool is_call = false;
  std::string name;
  uint64_t external = 0;
  KinetoCall about;
};

uint64_t bytes_of_dims(const WorkloadJson& about) {
  const WorkloadJson* const dims = find_member(about, "Input Dims");
  const WorkloadJson* const types = find_member(about, "Input type");
  double sum = 0;
  for (size_t i = 0; dims != nullptr && dims->is_array() && i < dims->size(); ++i) {
    if (types == nullptr || !types->is_array() || i >= types->size() || !(*types)[i].is_string() ||
        !(*dims)[i].is_array() || (*dims)[i].empty()) {
      continue;
    }
    auto bytes = static_cast<double>(element_bytes_of((*types)[i].get<std::string>()));
    for (const WorkloadJson& extent : (*dims)[i]) {
      bytes *= extent.is_number() ? extent.get<double>() : 0;
    }
    sum += bytes;
  }
  return sum > 0 && sum <= static_cast<double>(kWorkloadBytesMax) ? static_cast<uint64_t>(sum) : 0;
}

/// From the arguments of an event; `name`: its name, where they do not say the collective.
KinetoCall call_of(const WorkloadJson& about, const std::string& name, int own_rank) {
  KinetoCall call;
  std::string named = text_of(about, "Collective name");
  named = named.empty() ? name : named;
  const std::string word = lower(named.substr(named.find(':') + 1));
  call.collective = find_collective(named);
  const uint64_t element = element_bytes_of(text_of(about, "dtype"));
  const uint64_t elements =
      std::max(number_of(about, "In msg nelems"), number_of(about, "Out msg nelems"));
  call.bytes = element > 0 && elements <= kWorkloadBytesMax / element ? elements * element : 0;
  call.bytes = call.bytes > 0 ? call.bytes : bytes_of_dims(about);
  call.nranks =
      static_cast<int>(std::min<uint64_t>(number_of(about, "Group size"), kWorkloadRanksMax));
  call.group = text_of(about, "Process Group Name");
  call.stride = stride_of(ranks_of(about, "Process Group Ranks"));
  if (word.starts_with("send") || word.starts_with("recv")) {
    const uint64_t peer =
        number_of(about, word.starts_with("send") ? "Dst Rank" : "Src Rank", kWorkloadRanksMax);
    const int distance =
        peer < kWorkloadRanksMax && own_rank >= 0 ? static_cast<int>(peer) - own_rank : 0;
    call.distance = word.starts_with("send") ? distance : -distance;
  }
  return call;
}

class KinetoReader {
 public:
  explicit KinetoReader(const WorkloadJson& json) {
    const WorkloadJson* const job = find_member(json, "distributedInfo");
    const uint64_t none = kWorkloadRanksMax;
    const uint64_t rank = job == nullptr ? none : number_of(*job, "rank", none);
    const uint64_t world = job == nullptr ? 0 : number_of(*job, "world_size");
    builder_.work.rank = rank_ = rank < none ? static_cast<int>(rank) : -1;
    builder_.work.nranks = world <= none ? static_cast<int>(world) : 0;
  }

  void take(const WorkloadJson& event) {
    const std::string name = text_of(event, "name");
    const std::string kind = lower(text_of(event, "cat"));
    if (name.starts_with("ProfilerStep#") && kind != "gpu_user_annotation") {
      steps_ += 1;
      return;
    }
    const WorkloadJson* const about = find_member(event, "args");
    static const WorkloadJson kNothing;
    const WorkloadJson& args = about == nullptr ? kNothing : *about;
    if (kind == "kernel" || kind == "gpu_memcpy" || kind == "gpu_memset") {
      take_kernel(event, args, name);
      return;
    }
    const bool announces = name == "record_param_comms" || name.starts_with("nccl:") ||
                           name.starts_with("gloo:") || name.starts_with("mpi:");
    if (!announces || kind == "gpu_user_annotation") {
      return;
    }
    KinetoCall call = call_of(args, name, rank_);
    const uint64_t external = number_of(args, "External id");
    const bool has_kind = call.collective.has_value() || call.distance != 0;
    if (call.bytes > 0 && has_kind && announced_.size() < kWorkloadCallsMax) {
      if (external > 0) {
        by_external_[external] = call;
      }
      announced_.emplace_back(real_of(event, "ts"), std::move(call));
    }
  }

  Result<Workload> finish() {
    std::stable_sort(announced_.begin(), announced_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    builder_.work.steps = std::max(1U, steps_);
    if (kernels_.size() > kWorkloadCallsMax) {
      return fail(Code::kInvalidArgument, "has more than {} kernels: record fewer steps",
                  kWorkloadCallsMax);
    }
    const bool has_calls = std::any_of(kernels_.begin(), kernels_.end(),
                                       [](const KinetoKernel& kernel) { return kernel.is_call; });
    if (!has_calls) {
      return finish_without_kernels();
    }
    std::stable_sort(
        kernels_.begin(), kernels_.end(),
        [](const KinetoKernel& a, const KinetoKernel& b) { return a.begin_us < b.begin_us; });
    match_in_order();
    for (const KinetoKernel& kernel : kernels_) {
      if (kernel.is_call) {
        begins_us_.push_back(kernel.begin_us);
      }
    }
    for (KinetoKernel& kernel : kernels_) {
      PLEXUS_TRY(kernel.is_call ? add_call(kernel) : add_computing(kernel));
    }
    for (auto& [stream, state] : streams_) {
      PLEXUS_TRY(end_computing(state));
    }
    builder_.note("what waits for what is taken from the times");
    builder_.note_taken_for_all("one rank's trace, taken for all");
    return builder_.finish();
  }

 private:
  /// Computing that goes on until a call begins or ends.
  struct Stream {
    uint32_t number = 0;
    double end_us = 0;
    double busy_us = 0;
    double added_us = -1;  // when `last` ended
    std::vector<uint32_t> after = {};
    std::optional<uint32_t> last = {};  // what was added last
  };

  void take_kernel(const WorkloadJson& event, const WorkloadJson& args, const std::string& name) {
    KinetoKernel kernel;
    kernel.begin_us = real_of(event, "ts");
    kernel.time_us = std::max(0.0, real_of(event, "dur"));
    kernel.stream = number_of(args, "stream", number_of(event, "tid"));
    kernel.is_call = name.find("nccl") != std::string::npos;
    kernel.external = number_of(args, "External id");
    if (kernel.is_call) {
      kernel.name = name.substr(0, name.find('('));
      kernel.about = call_of(args, name, rank_);
    }
    if (kernels_.size() <= kWorkloadCallsMax) {
      kernels_.push_back(std::move(kernel));
    }
  }

  /// Kernels that do not say their bytes, by the host's calls: the n-th of a kind is the n-th, if
  /// there are as many.
  void match_in_order() {
    std::map<Collective, std::pair<std::vector<KinetoCall*>, std::vector<const KinetoCall*>>> kinds;
    for (KinetoKernel& kernel : kernels_) {
      // NCCL does an all-to-all by sends and receives
      const Collective kind = kernel.about.collective.value_or(Collective::kAllToAll);
      if (kernel.is_call && kernel.about.bytes == 0 && !by_external_.contains(kernel.external)) {
        kinds[kind].first.push_back(&kernel.about);
      }
    }
    for (const auto& [begin_us, call] : announced_) {
      if (call.collective.has_value()) {
        kinds[*call.collective].second.push_back(&call);
      }
    }
    for (auto& [kind, both] : kinds) {
      for (size_t i = 0; both.first.size() == both.second.size() && i < both.first.size(); ++i) {
        *both.first[i] = *both.second[i];
      }
    }
  }

  Stream& stream_of(uint64_t number) {
    constexpr size_t kStreamsMax = 256;
    const auto known = streams_.find(number);
    if (known != streams_.end() || streams_.size() == kStreamsMax) {
      return known != streams_.end() ? known->second : streams_.begin()->second;
    }
    return streams_.emplace(number, Stream{.number = static_cast<uint32_t>(streams_.size())})
        .first->second;
  }

  Result<void> end_computing(Stream& stream) {
    if (stream.busy_us <= 0) {
      return ok();
    }
    PLEXUS_TRY(number, builder_.add({.kind = WorkKind::kCompute,
                                     .time_us = stream.busy_us,
                                     .name = builder_.name("kernels"),
                                     .stream = stream.number,
                                     .after = std::exchange(stream.after, {})}));
    stream.last = number;
    stream.added_us = stream.end_us;
    stream.busy_us = 0;
    return ok();
  }

  Result<void> add_computing(const KinetoKernel& kernel) {
    Stream& stream = stream_of(kernel.stream);
    if (ended_.has_value() && ended_us_ <= kernel.begin_us && ended_us_ > stream.end_us) {
      PLEXUS_TRY(end_computing(stream));
      stream.after.push_back(*ended_);
    }
    // a call that begins beside this kernel may wait for those before it
    const auto next = std::lower_bound(begins_us_.begin(), begins_us_.end(), stream.end_us);
    if (next != begins_us_.end() && *next <= kernel.begin_us + kernel.time_us) {
      PLEXUS_TRY(end_computing(stream));
    }
    stream.busy_us += kernel.time_us;
    stream.end_us = std::max(stream.end_us, kernel.begin_us + kernel.time_us);
    return ok();
  }

  Result<void> add_call(KinetoKernel& kernel) {
    Stream& own = stream_of(kernel.stream);
    WorkloadCall call{.stream = own.number};
    double latest_us = -1;
    std::optional<uint32_t> latest;
    for (auto& [number, stream] : streams_) {
      if (stream.end_us <= kernel.begin_us) {
        PLEXUS_TRY(end_computing(stream));
      }
      const bool is_before = stream.last.has_value() && stream.added_us <= kernel.begin_us;
      if (is_before && &stream != &own && stream.added_us > latest_us) {
        latest_us = stream.added_us;
        latest = stream.last;
      }
    }
    PLEXUS_TRY(end_computing(own));
    if (latest.has_value()) {
      call.after.push_back(*latest);
    }
    const auto external = by_external_.find(kernel.external);
    const KinetoCall& about =
        kernel.about.bytes > 0 || external == by_external_.end() ? kernel.about : external->second;
    builder_.work.recorded_us += kernel.time_us;
    PLEXUS_TRY(add(about, kernel, std::move(call)));
    own.end_us = std::max(own.end_us, kernel.begin_us + kernel.time_us);
    own.last = static_cast<uint32_t>(builder_.work.calls.size() - 1);
    own.added_us = own.end_us;
    if (own.end_us > ended_us_) {
      ended_us_ = own.end_us;
      ended_ = own.last;
    }
    return ok();
  }

  Result<void> add(const KinetoCall& about, const KinetoKernel& kernel, WorkloadCall call) {
    call.bytes = about.bytes;
    if (about.bytes > 0 && about.distance != 0) {
      call.exchanges = {{.distance = about.distance, .wraps = true, .bytes = about.bytes}};
    } else if (about.bytes > 0 && about.collective.has_value()) {
      call.collective = *about.collective;
      const bool is_part = about.nranks > 0 && about.nranks < builder_.work.nranks;
      call.group = is_part || (about.nranks > 0 && builder_.work.nranks == 0)
                       ? builder_.group("process group", about.nranks, 1, about.stride)
                       : 0;
      call.communicator = builder_.name(about.group);
    } else {
      call.bytes = 0;
      call.time_us = std::max(kernel.time_us, 1e-3);
      call.name = builder_.name(kernel.name);
      builder_.leave_out("call without its bytes, taken as long as recorded");
    }
    PLEXUS_TRY(builder_.add(std::move(call)));
    return ok();
  }

  /// A trace of the host alone has what was called, and no times of computing.
  Result<Workload> finish_without_kernels() {
    for (const auto& [begin_us, call] : announced_) {
      PLEXUS_TRY(add(call, {}, {}));
    }
    builder_.note("has no kernels of NCCL: its calls as the host made them, computing left out");
    return builder_.finish();
  }

  WorkloadBuilder builder_{"PyTorch profiler trace (Kineto)"};
  int rank_ = -1;
  uint32_t steps_ = 0;
  std::vector<KinetoKernel> kernels_;
  std::vector<double> begins_us_;  // of calls
  std::map<uint64_t, KinetoCall> by_external_;
  std::vector<std::pair<double, KinetoCall>> announced_;  // by the host, at its times
  std::map<uint64_t, Stream> streams_;
  std::optional<uint32_t> ended_;  // the call that ended last
  double ended_us_ = 0;
};

}  // namespace

Result<Workload> read_kineto(const WorkloadJson& json) {
  KinetoReader reader(json);
  for (const WorkloadJson& event : *find_member(json, "traceEvents")) {
    reader.take(event);
  }
  return reader.finish();
}

}  // namespace plexus
