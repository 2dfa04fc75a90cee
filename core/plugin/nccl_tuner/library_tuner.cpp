// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/nccl_tuner/library_tuner.hpp"

#include <algorithm>

#include "core/plugin/nccl_net/log.hpp"
#include "core/plugin/nccl_table.hpp"

namespace plexus::nccl_tuner {
namespace {

using nccl_net::log_from_nccl_plugin;

/// The ABI's float** in fact points to one block of floats.
float** as_abi(CostTable& costs) { return reinterpret_cast<float**>(costs.data()); }

nccl_tuner_domains_v5_t domains_of(const plexus_tuner_comm_t& comm) {
  const int most = static_cast<int>(comm.ranks_per_node_max);
  const int least =
      static_cast<int>(comm.nranks) - (static_cast<int>(std::max(comm.nnodes, 1U)) - 1) * most;
  return {static_cast<int>(comm.nnodes), std::max(least, 1), most};
}

/// What a tuner writes here has no effect, because Plexus does not use NCCL's model. The values are
/// message costs between host ranks, for tuners that compute with them.
nccl_tuner_constants_v5_t make_constants() {
  constexpr double kHostUs = 0.2;
  constexpr double kNetUs = 6;
  constexpr double kHostGbPerS = 20;
  nccl_tuner_constants_v5_t constants{};
  for (auto& hardware : constants.hardware_latency) {
    const double latency_us = &hardware == &constants.hardware_latency[2] ? kNetUs : kHostUs;
    for (auto& algorithm : hardware) {
      std::fill(std::begin(algorithm), std::end(algorithm), latency_us);
    }
  }
  for (auto* const table :
       {&constants.ll_bandwidth, &constants.channel_ring_ll128_bandwidth,
        &constants.channel_tree_ll128_bandwidth, &constants.channel_tree_bandwidth,
        &constants.channel_nvls_tree_bandwidth}) {
    for (auto& generation : *table) {
      std::fill(std::begin(generation), std::end(generation), kHostGbPerS);
    }
  }
  return constants;
}

/// `Table` is one version's table; differences are selected at compile time by `version`.
template <class Table, int version>
class TunerOf final : public LibraryTuner {
 public:
  explicit TunerOf(const void* table) : table_(static_cast<const Table*>(table)) {}

  [[nodiscard]] const char* name() const override {
    return table_->name == nullptr ? "unnamed" : table_->name;
  }

  int32_t init(const plexus_tuner_comm_t& comm, void** context) const override {
    if constexpr (version >= 5) {
      nccl_tuner_domains_v5_t domains = domains_of(comm);
      nccl_tuner_constants_v5_t constants = make_constants();
      return table_->init(context, comm.comm_id, comm.nranks, comm.nnodes, log_from_nccl_plugin,
                          &domains, &constants);
    } else {
      return table_->init(comm.nranks, comm.nnodes, log_from_nccl_plugin, context);
    }
  }

  int32_t ask(void* context,
              const Question& question,
              CostTable& costs,
              int& channels) const override {
    if constexpr (version == 2) {
      return ask_for_pair(context, question, costs, channels);
    } else if constexpr (version == 3) {
      return table_->info(context, question.collective, question.size_bytes,
                          question.calls_in_group, as_abi(costs), NCCL_TUNER_ALGORITHMS,
                          NCCL_TUNER_PROTOCOLS, &channels);
    } else {
      return table_->info(context, question.collective, question.size_bytes,
                          question.calls_in_group, as_abi(costs), NCCL_TUNER_ALGORITHMS,
                          NCCL_TUNER_PROTOCOLS, question.is_registered, &channels);
    }
  }

  int32_t ask_chunk(void* context,
                    const Question& question,
                    int algorithm,
                    int protocol,
                    int channels,
                    size_t& chunk_bytes) const override {
    if constexpr (version >= 6) {
      if (table_->chunk != nullptr) {
        return table_->chunk(context, question.collective, question.size_bytes, algorithm, protocol,
                             channels, &chunk_bytes);
      }
    }
    return 0;
  }

  void finalize(void* context) const override { (void)table_->finalize(context); }

  static bool is_whole(const void* table) {
    const auto& it = *static_cast<const Table*>(table);
    return it.init != nullptr && it.info != nullptr && it.finalize != nullptr;
  }

 private:
  /// v2 names one pair of algorithm and protocol, which gets cost 0 if it is possible.
  int32_t ask_for_pair(void* context,
                       const Question& question,
                       CostTable& costs,
                       int& channels) const {
    if constexpr (version == 2) {
      int algorithm = NCCL_TUNER_UNDEFINED;
      int protocol = NCCL_TUNER_UNDEFINED;
      const int32_t code = table_->info(context, question.collective, question.size_bytes, 0, 0,
                                        question.calls_in_group, &algorithm, &protocol, &channels);
      const bool is_pair = algorithm >= 0 && algorithm < NCCL_TUNER_ALGORITHMS && protocol >= 0 &&
                           protocol < NCCL_TUNER_PROTOCOLS;
      if (is_pair && costs[place_of(algorithm, protocol)] >= 0) {
        costs[place_of(algorithm, protocol)] = 0;
      }
      return code;
    }
    return 0;
  }

  const Table* table_;  // in the library, which is never unloaded
};

struct Version {
  size_t table_bytes;
  std::unique_ptr<const LibraryTuner> (*make)(const void* table);
  bool (*is_whole)(const void* table);
};

template <class Table, int version>
constexpr Version version_of() {
  using Made = TunerOf<Table, version>;
  return {sizeof(Table),
          [](const void* table) -> std::unique_ptr<const LibraryTuner> {
            return std::make_unique<Made>(table);
          },
          &Made::is_whole};
}

/// The supported versions, starting with kVersionLeast.
constexpr std::array<Version, kVersionMost - kVersionLeast + 1> kVersions = {
    version_of<nccl_tuner_v2_t, 2>(), version_of<nccl_tuner_v3_t, 3>(),
    version_of<nccl_tuner_v4_t, 4>(), version_of<nccl_tuner_v5_t, 5>(),
    version_of<nccl_tuner_v6_t, 6>()};

}  // namespace

Result<std::optional<Choice>> choose_tuner(const Library& library) {
  constexpr const char* kStem = "ncclTunerPlugin";
  if (const auto table = find_newest_table(library, kStem, {kVersionLeast, kVersionMost})) {
    const Version& version = kVersions[static_cast<size_t>(table->version - kVersionLeast)];
    if (auto checked = table->check_size(version.table_bytes); checked.has_error()) {
      return std::move(checked.error()).with_context(library.path().string());
    }
    if (!version.is_whole(table->object.address)) {
      return fail(Code::kInvalidUsage,
                  "{}: its {} lacks init, getCollInfo or destroy: use another build of it",
                  library.path().string(), table->symbol);
    }
    return std::optional(Choice{version.make(table->object.address), table->symbol});
  }
  if (const auto other = find_newest_table(library, kStem, kAnyNcclVersion)) {
    return fail(Code::kInvalidUsage,
                "{} has {}, expected plexus_plugin_query or ncclTunerPlugin_v{} to v{}: use a "
                "build of it for an NCCL version in that range",
                library.path().string(), other->symbol, kVersionLeast, kVersionMost);
  }
  return std::optional<Choice>();
}

}  // namespace plexus::nccl_tuner
