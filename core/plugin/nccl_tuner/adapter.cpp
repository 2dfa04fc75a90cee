// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/nccl_tuner/adapter.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/log.hpp"
#include "core/plugin/guarded.hpp"
#include "core/plugin/nccl_net/log.hpp"

namespace plexus::nccl_tuner {
namespace {

struct Name {
  const char* ours;
  int nccl;
};
constexpr Name kAlgorithms[] = {
    {"tree", NCCL_TUNER_TREE}, {"ring", NCCL_TUNER_RING}, {"pat", NCCL_TUNER_PAT}};
constexpr Name kProtocols[] = {
    {"LL", NCCL_TUNER_LL}, {"LL128", NCCL_TUNER_LL128}, {"Simple", NCCL_TUNER_SIMPLE}};
constexpr Name kCollectives[] = {{"broadcast", NCCL_TUNER_BROADCAST},
                                 {"reduce", NCCL_TUNER_REDUCE},
                                 {"all_gather", NCCL_TUNER_ALL_GATHER},
                                 {"reduce_scatter", NCCL_TUNER_REDUCE_SCATTER},
                                 {"all_reduce", NCCL_TUNER_ALL_REDUCE}};

template <size_t count>
std::optional<int> id_of(const Name (&names)[count], std::string_view ours) {
  const auto* const at = std::find_if(std::begin(names), std::end(names),
                                      [&](const Name& row) { return ours == row.ours; });
  return at == std::end(names) ? std::nullopt : std::optional(at->nccl);
}

/// Position of a candidate in the cost table.
struct Entry {
  int algorithm;
  int protocol;
};

/// nullopt: NCCL has no name for the candidate.
std::optional<Entry> entry_of(const plexus_tuner_candidate_t& candidate) {
  const auto algorithm = id_of(kAlgorithms, candidate.algorithm);
  const auto protocol = id_of(kProtocols, candidate.protocol);
  if (!algorithm.has_value() || !protocol.has_value()) {
    return std::nullopt;
  }
  return Entry{*algorithm, *protocol};
}

constexpr double kNsOfUs = 1e3;
int64_t to_ns(double us) { return std::llround(us * kNsOfUs); }

/// A machine-independent cost where there is no model: 1 us per round plus 1 ns per byte.
double plain_cost_us(const plexus_tuner_call_t& call, const plexus_tuner_candidate_t& candidate) {
  constexpr double kUsPerByte = 1e-3;
  const double chunks = std::max(candidate.chunks_per_loop, 1U);
  return candidate.rounds +
         static_cast<double>(call.size_bytes) / chunks * candidate.chunks_moved * kUsPerByte;
}

/// Times without a model. The built-in choice is made the cheapest, so that a tuner that changes
/// nothing, or only excludes candidates, leaves the built-in order.
void set_plain_times(const plexus_tuner_call_t& call,
                     std::span<plexus_tuner_candidate_t> candidates,
                     size_t built_in) {
  constexpr double kCheaper = 0.99;
  double least_us = std::numeric_limits<double>::max();
  for (plexus_tuner_candidate_t& candidate : candidates) {
    const double cost_us = plain_cost_us(call, candidate);
    candidate.time_ns = to_ns(cost_us);
    least_us = std::min(least_us, cost_us);
  }
  if (built_in < candidates.size()) {
    candidates[built_in].time_ns = to_ns(least_us * kCheaper);
  }
}

class NcclTuner final : public TunerSource {
 public:
  NcclTuner(Choice choice, std::unique_ptr<TunerSource> model)
      : choice_(std::move(choice)), model_(std::move(model)) {}
  ~NcclTuner() override {
    if (is_started_) {
      const nccl_net::LogScope scope(log_target());
      (void)guarded([this] {
        choice_.tuner->finalize(context_);
        return PLEXUS_OK;
      });
    }
  }
  NcclTuner(const NcclTuner&) = delete;
  NcclTuner& operator=(const NcclTuner&) = delete;

  Result<void> init(const plexus_tuner_comm_t& comm) {
    PLEXUS_TRY(run("init", [&] { return choice_.tuner->init(comm, &context_); }));
    is_started_ = true;
    return ok();
  }

  Result<bool> get_times(const plexus_tuner_call_t& call,
                         std::span<plexus_tuner_candidate_t> candidates,
                         size_t built_in) override;
  Result<bool> change_links(const plexus_tuner_comm_t& comm) override {
    return model_ == nullptr ? Result<bool>(false) : model_->change_links(comm);
  }

  [[nodiscard]] std::string name() const override {
    return fmt::format("{} ({})", choice_.tuner->name(), choice_.entry);
  }

 private:
  /// Destination of the plugin's lines; the reason of a failure is kept for its Error.
  nccl_net::LogTarget log_target() {
    const auto write = [](plexus_log_sink_t* sink, int32_t level, const char* file, int32_t line,
                          const char* text) {
      if (level == PLEXUS_LOG_ERROR) {
        reinterpret_cast<NcclTuner*>(sink)->reason_ = text;
        return;
      }
      const LogLevel ours = level == PLEXUS_LOG_WARN ? LogLevel::kWarn : LogLevel::kInfo;
      if (log_enabled(ours, Subsystem::kTuning)) {
        log(ours, Subsystem::kTuning, file, line, text);
      }
    };
    return {write, reinterpret_cast<plexus_log_sink_t*>(this)};
  }

  template <class Call>
  Result<void> run(const char* what, const Call& call) {
    nccl_net::LogScope scope(log_target());
    if (scope.finish(what, guarded(call)) != PLEXUS_OK) {
      return fail(Code::kSystemError, "{}", reason_);
    }
    return ok();
  }

  Result<void> ask_chunk(const Question& question,
                         const Entry& entry,
                         plexus_tuner_candidate_t& candidate);

  /// True: by the model.
  Result<bool> set_times(const plexus_tuner_call_t& call,
                         std::span<plexus_tuner_candidate_t> candidates,
                         size_t built_in);

  Choice choice_;
  std::unique_ptr<TunerSource> model_;
  void* context_ = nullptr;  // the plugin's; may be null
  bool is_started_ = false;
  std::string reason_;  // why the last call failed
};

/// The candidate that NCCL would take: smallest time, then smallest algorithm, then smallest
/// protocol. Other candidates with that time are made slightly slower, because the host does not
/// break ties that way.
std::optional<size_t> settle_ties(std::span<plexus_tuner_candidate_t> candidates,
                                  std::span<const std::optional<Entry>> entries) {
  std::optional<size_t> first;
  const auto rank_of = [&](size_t i) {
    const size_t place = entries[i].has_value()
                             ? place_of(entries[i]->algorithm, entries[i]->protocol)
                             : CostTable().size();
    return std::pair(candidates[i].time_ns, place);
  };
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].time_ns >= 0 && (!first.has_value() || rank_of(i) < rank_of(*first))) {
      first = i;
    }
  }
  for (size_t i = 0; first.has_value() && i < candidates.size(); ++i) {
    const bool ties = i != *first && candidates[i].time_ns == candidates[*first].time_ns;
    candidates[i].time_ns += ties ? 1 : 0;
  }
  return first;
}

Result<bool> NcclTuner::set_times(const plexus_tuner_call_t& call,
                                  std::span<plexus_tuner_candidate_t> candidates,
                                  size_t built_in) {
  if (model_ != nullptr) {
    PLEXUS_TRY(known, model_->get_times(call, candidates, built_in));
    if (known) {
      return true;
    }
  }
  set_plain_times(call, candidates, built_in);
  return false;
}

Result<bool> NcclTuner::get_times(const plexus_tuner_call_t& call,
                                  std::span<plexus_tuner_candidate_t> candidates,
                                  size_t built_in) {
  PLEXUS_TRY(by_model, set_times(call, candidates, built_in));
  const auto collective = id_of(kCollectives, call.collective);
  std::vector<std::optional<Entry>> entries(candidates.size());
  std::transform(candidates.begin(), candidates.end(), entries.begin(), entry_of);
  const bool any_offered = std::any_of(entries.begin(), entries.end(),
                                       [](const auto& entry) { return entry.has_value(); });
  if (!collective.has_value() || !any_offered) {
    return by_model;
  }
  CostTable asked;
  asked.fill(NCCL_TUNER_NOT_POSSIBLE);
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (entries[i].has_value() && candidates[i].time_ns >= 0) {
      asked[place_of(entries[i]->algorithm, entries[i]->protocol)] =
          static_cast<float>(static_cast<double>(candidates[i].time_ns) / kNsOfUs);
    }
  }
  const Question question = {*collective, call.size_bytes, static_cast<int>(call.calls_in_group),
                             static_cast<int>(call.registered)};
  CostTable answer = asked;
  int channels = 0;
  PLEXUS_TRY(
      run("getCollInfo", [&] { return choice_.tuner->ask(context_, question, answer, channels); }));
  // Only offered candidates count: what the tuner wrote cannot override NCCL_ALGO and NCCL_PROTO.
  bool has_opinion = by_model || channels > 0;
  constexpr double kTimeMaxUs = 1e12;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const size_t place =
        entries[i].has_value() ? place_of(entries[i]->algorithm, entries[i]->protocol) : 0;
    if (const float cost = answer[place]; entries[i].has_value() && !(cost == asked[place])) {
      if (!std::isfinite(cost) || cost > kTimeMaxUs) {
        return fail(Code::kInvalidUsage,
                    "its getCollInfo returned an invalid cost of {} us for {} with {}", cost,
                    candidates[i].algorithm, candidates[i].protocol);
      }
      candidates[i].time_ns = cost < 0 ? -1 : to_ns(double{cost});
      has_opinion = true;
    }
    if (channels > 0) {
      candidates[i].channels = static_cast<uint32_t>(channels);
    }
  }
  const auto first = settle_ties(candidates, entries);
  if (first.has_value() && entries[*first].has_value()) {
    const uint32_t before = candidates[*first].chunk_bytes;
    PLEXUS_TRY(ask_chunk(question, *entries[*first], candidates[*first]));
    has_opinion = has_opinion || candidates[*first].chunk_bytes != before;
  }
  return has_opinion;
}

/// NCCL accepts any chunk up to its buffer, so zero, too large and unaligned sizes are adjusted to
/// usable ones.
Result<void> NcclTuner::ask_chunk(const Question& question,
                                  const Entry& entry,
                                  plexus_tuner_candidate_t& candidate) {
  constexpr size_t kGrain = 64;
  const auto channels =
      static_cast<int>(std::clamp(candidate.channels, candidate.channels_min,
                                  std::max(candidate.channels_min, candidate.channels_max)));
  size_t chunk_bytes = candidate.chunk_bytes;
  PLEXUS_TRY(run("getChunkSize", [&] {
    return choice_.tuner->ask_chunk(context_, question, entry.algorithm, entry.protocol, channels,
                                    chunk_bytes);
  }));
  if (chunk_bytes > 0 && chunk_bytes < candidate.chunk_bytes) {
    candidate.chunk_bytes =
        static_cast<uint32_t>(std::max(chunk_bytes / kGrain, size_t{1}) * kGrain);
  }
  return ok();
}

}  // namespace

Result<std::unique_ptr<TunerSource>> start(Choice choice,
                                           const plexus_tuner_comm_t& comm,
                                           std::unique_ptr<TunerSource> model) {
  auto tuner = std::make_unique<NcclTuner>(std::move(choice), std::move(model));
  PLEXUS_TRY(tuner->init(comm));
  return std::unique_ptr<TunerSource>(std::move(tuner));
}

}  // namespace plexus::nccl_tuner
