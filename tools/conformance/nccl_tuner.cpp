// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/nccl_tuner.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "core/plugin/nccl_net/log.hpp"

namespace plexus::conformance {
namespace {

constexpr size_t kGuards = 16;
constexpr float kGuard = -77.25F;

template <class Call>
int32_t call(Monitor& monitor, Place place, const char* name, const Call& made) {
  return monitor.call(place, [&] {
    nccl_net::LogScope scope({&Monitor::write_line, monitor.sink()});
    return scope.finish(name, made());
  });
}

/// Fills in plausible numbers for a machine.
void fill(nccl_tuner_constants_v5_t& constants) {
  constexpr double kPlain = 12.5;
  auto* const first = reinterpret_cast<double*>(&constants);
  std::fill(first, first + sizeof constants / sizeof(double), kPlain);
}

template <class Table>
const Table& as(const NcclTuner& tuner) {
  return *static_cast<const Table*>(tuner.table());
}

}  // namespace

TunerCosts::TunerCosts(int rows, int columns)
    : algorithms_(rows),
      protocols_(columns),
      floats_(2 * kGuards + static_cast<size_t>(rows) * static_cast<size_t>(columns), kGuard) {
  std::fill(floats_.begin() + kGuards, floats_.end() - kGuards, NCCL_TUNER_NOT_POSSIBLE);
}

float& TunerCosts::at(int row, int column) {
  return floats_[kGuards + static_cast<size_t>(row) * static_cast<size_t>(protocols_) +
                 static_cast<size_t>(column)];
}

float TunerCosts::at(int row, int column) const {
  return floats_[kGuards + static_cast<size_t>(row) * static_cast<size_t>(protocols_) +
                 static_cast<size_t>(column)];
}

float** TunerCosts::raw() noexcept {
  // The ABI's float** in fact points to one block of floats.
  return reinterpret_cast<float**>(floats_.data() + kGuards);
}

bool TunerCosts::are_guards_whole() const noexcept {
  const auto is_guard = [](float value) { return value == kGuard; };
  return std::all_of(floats_.begin(), floats_.begin() + kGuards, is_guard) &&
         std::all_of(floats_.end() - kGuards, floats_.end(), is_guard);
}

TunerCosts make_costs(const TunerQuestion& question) {
  TunerCosts costs;
  const auto bytes = static_cast<float>(question.size_bytes);
  for (const int algorithm : {NCCL_TUNER_TREE, NCCL_TUNER_RING}) {
    for (int protocol = 0; protocol < costs.protocols(); ++protocol) {
      const float latency_us = algorithm == NCCL_TUNER_TREE ? 12 : 28;
      const float bytes_per_us = 4000.0F * static_cast<float>(1 + protocol);
      costs.at(algorithm, protocol) =
          latency_us * static_cast<float>(1 + protocol) + bytes / bytes_per_us;
    }
  }
  return costs;
}

Result<NcclTuner> NcclTuner::load(Fixture& fixture) {
  PLEXUS_TRY(table, load_table(fixture, "ncclTunerPlugin", {2, 6}));
  return NcclTuner(fixture, std::move(table));
}

std::string NcclTuner::name() const {
  const char* const text = as<nccl_tuner_v3_t>(*this).name;
  return text == nullptr ? "" : text;
}

bool NcclTuner::has_entries() const noexcept {
  const auto& table = as<nccl_tuner_v3_t>(*this);
  return table.name != nullptr && table.init != nullptr && table.info != nullptr &&
         table.finalize != nullptr;
}

NcclTunerSession::NcclTunerSession(const NcclTuner& tuner)
    : tuner_(&tuner),
      constants_(std::make_unique<nccl_tuner_constants_v5_t>()),
      domains_(std::make_unique<nccl_tuner_domains_v5_t>()) {}

Result<NcclTunerSession> NcclTunerSession::open(const NcclTuner& tuner, const Comm& comm) {
  if (!tuner.has_entries()) {
    return wrong("name, init, getCollInfo or destroy of its {} is null", tuner.entry());
  }
  NcclTunerSession session(tuner);
  fill(*session.constants_);
  const auto per_node = static_cast<int>(comm.nranks / comm.nnodes);
  *session.domains_ = {static_cast<int>(comm.nnodes), per_node, per_node};
  const int32_t code = call(session.monitor(), Place::kInit, "init", [&] {
    if (tuner.version() >= 5) {
      return as<nccl_tuner_v5_t>(tuner).init(&session.raw_, comm.id, comm.nranks, comm.nnodes,
                                             nccl_net::log_from_nccl_plugin, session.domains_.get(),
                                             session.constants_.get());
    }
    return as<nccl_tuner_v3_t>(tuner).init(comm.nranks, comm.nnodes, nccl_net::log_from_nccl_plugin,
                                           &session.raw_);
  });
  if (code != PLEXUS_OK) {
    return wrong("init for {} ranks on {} hosts failed with code {}: {}", comm.nranks, comm.nnodes,
                 code, session.monitor().last_failure());
  }
  session.is_open_ = true;
  return session;
}

int32_t NcclTunerSession::close() {
  if (!std::exchange(is_open_, false)) {
    return PLEXUS_OK;
  }
  return call(monitor(), Place::kFinalize, "finalize",
              [&] { return as<nccl_tuner_v3_t>(*tuner_).finalize(raw_); });
}

int32_t NcclTunerSession::try_ask(const TunerQuestion& question, TunerCosts& costs) {
  return call(monitor(), Place::kGetTimes, "getCollInfo", [&] {
    if (tuner_->version() == 2) {
      return as<nccl_tuner_v2_t>(*tuner_).info(raw_, question.collective, question.size_bytes, 0, 0,
                                               question.calls_in_group, &costs.algorithm,
                                               &costs.protocol, &costs.channels);
    }
    if (tuner_->version() == 3) {
      return as<nccl_tuner_v3_t>(*tuner_).info(
          raw_, question.collective, question.size_bytes, question.calls_in_group, costs.raw(),
          costs.algorithms(), costs.protocols(), &costs.channels);
    }
    return as<nccl_tuner_v4_t>(*tuner_).info(
        raw_, question.collective, question.size_bytes, question.calls_in_group, costs.raw(),
        costs.algorithms(), costs.protocols(), question.is_registered, &costs.channels);
  });
}

Result<void> NcclTunerSession::ask(const TunerQuestion& question, TunerCosts& costs) {
  const int32_t code = try_ask(question, costs);
  if (code != PLEXUS_OK) {
    return wrong("getCollInfo of collective {}, {} bytes, failed with code {}: {}",
                 question.collective, question.size_bytes, code, monitor().last_failure());
  }
  return ok();
}

Result<bool> NcclTunerSession::ask_chunk(const TunerQuestion& question,
                                         int algorithm,
                                         int protocol,
                                         size_t& chunk_bytes) {
  const bool has_size =
      tuner_->size_bytes() == 0 || tuner_->size_bytes() >= sizeof(nccl_tuner_v6_t);
  if (tuner_->version() < 6 || !has_size || as<nccl_tuner_v6_t>(*tuner_).chunk == nullptr) {
    return false;
  }
  constexpr int kChannels = 4;
  const int32_t code = call(monitor(), Place::kGetTimes, "getChunkSize", [&] {
    return as<nccl_tuner_v6_t>(*tuner_).chunk(raw_, question.collective, question.size_bytes,
                                              algorithm, protocol, kChannels, &chunk_bytes);
  });
  if (code != PLEXUS_OK) {
    return wrong("getChunkSize failed with code {}: {}", code, monitor().last_failure());
  }
  return true;
}

void NcclTunerSession::take_back() {
  constexpr int kGarbage = 0xEE;
  std::memset(constants_.get(), kGarbage, sizeof *constants_);
  std::memset(domains_.get(), kGarbage, sizeof *domains_);
}

}  // namespace plexus::conformance
