// SPDX-License-Identifier: Apache-2.0
// The C table of tuner-default. All decisions are in cost_model.cpp.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "plugins/support/abi_boundary.hpp"
#include "plugins/tuner-default/calibration.hpp"
#include "plugins/tuner-default/cuda_model.hpp"

using plexus::plugin::guard;
using plexus::plugin::Log;
using plexus::plugin::ok;
using plexus::plugin::Result;
using plexus::tuner_default::CalibrationFile;
using plexus::tuner_default::CudaAnswer;
using plexus::tuner_default::is_cuda;
using plexus::tuner_default::kDefaultCalibration;
using plexus::tuner_default::predict_cuda;
using plexus::tuner_default::predict_us;
using plexus::tuner_default::read_calibration;

struct plexus_tuner_context {
  Log log;
  plexus_tuner_comm_t comm;
  bool is_measured;  // `calibration` is the user's
  CalibrationFile calibration;
};

namespace {

/// One year: longer times are no predictions.
constexpr double kTimeUsMost = 365.0 * 24 * 3600 * 1e6;

/// What the model uses of a communicator. `is_measured`: by the user, with collectives, which is
/// more exact than what the host reports.
plexus_tuner_comm_t read_comm(const plexus_tuner_comm_t& comm, bool is_measured) {
  plexus_tuner_comm_t known{};  // an older host provides fewer fields
  std::memcpy(&known, &comm, std::min<size_t>(comm.struct_size, sizeof(known)));
  if (is_measured && !is_cuda(known)) {
    known.links[PLEXUS_LINK_HOST].latency_ns = 0;
    known.links[PLEXUS_LINK_HOST].bandwidth_mbit_per_s = 0;
  }
  return known;
}

int32_t init(plexus_tuner_context_t** context,
             const plexus_tuner_comm_t* comm,
             plexus_log_fn callback,
             plexus_log_sink_t* sink) {
  const Log log(callback, sink);
  return guard(log, [&]() -> Result<void> {
    CalibrationFile calibration = {.model = kDefaultCalibration, .measured = {}};
    const char* const file = std::getenv("PLEXUS_TUNE_FILE");
    const bool is_named = file != nullptr && *file != '\0';
    if (is_named) {
      PLEXUS_TRY(read, read_calibration(file));
      calibration = std::move(read);
      log.info("tuner-default: calibration {}", file);
    }
    *context =
        std::make_unique<plexus_tuner_context>(
            plexus_tuner_context{log, read_comm(*comm, is_named), is_named, std::move(calibration)})
            .release();
    return ok();
  });
}

int32_t get_times(plexus_tuner_context_t* context,
                  const plexus_tuner_call_t* call,
                  plexus_tuner_candidate_t* candidates,
                  uint32_t count,
                  uint32_t stride) {
  auto* const bytes = reinterpret_cast<std::byte*>(candidates);
  for (uint32_t i = 0; i < count; ++i) {
    auto& candidate = *reinterpret_cast<plexus_tuner_candidate_t*>(bytes + size_t{i} * stride);
    double time_us = 0;
    if (is_cuda(context->comm)) {
      const CudaAnswer answer =
          predict_cuda(context->calibration.model, context->comm, *call, candidate);
      time_us = answer.time_us;
      candidate.channels = answer.channels;
    } else {
      time_us = predict_us(context->calibration.model, context->calibration.measured, context->comm,
                           *call, candidate);
    }
    // An impossible communicator or size gives no time; also rejects NaN.
    const bool is_time = time_us >= 0 && time_us < kTimeUsMost;
    candidate.time_ns = is_time ? std::llround(time_us * 1e3) : -1;
  }
  return PLEXUS_OK;
}

int32_t links_changed(plexus_tuner_context_t* context, const plexus_tuner_comm_t* comm) {
  context->comm = read_comm(*comm, context->is_measured);
  return PLEXUS_OK;
}

int32_t finalize(plexus_tuner_context_t* context) {
  const std::unique_ptr<plexus_tuner_context_t> owner(context);
  return PLEXUS_OK;
}

constexpr plexus_tuner_ops_t kOps = {
    .struct_size = sizeof(plexus_tuner_ops_t),
    .reserved = 0,
    .init = init,
    .get_times = get_times,
    .finalize = finalize,
    .links_changed = links_changed,
};

constexpr plexus_plugin_t kPlugin = {
    .magic = PLEXUS_PLUGIN_MAGIC,
    .struct_size = sizeof(plexus_plugin_t),
    .abi_major = PLEXUS_ABI_MAJOR,
    .abi_minor = PLEXUS_ABI_MINOR,
    .kind = PLEXUS_KIND_TUNER,
    .reserved = 0,
    .name = "tuner-default",
    .version = PLEXUS_VERSION,
    .net = nullptr,
    .tuner = &kOps,
};

}  // namespace

const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) {
  return host_abi >> 16 == PLEXUS_ABI_MAJOR ? &kPlugin : nullptr;
}
