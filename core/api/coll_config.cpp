// SPDX-License-Identifier: Apache-2.0
#include "core/api/coll_config.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/base/log.hpp"
#include "core/comm/communicator.hpp"
#include "core/tuning/algorithm_selection.hpp"

namespace plexus {
namespace {

constexpr int kVendorIdsEnd = 1 << 24;
constexpr int kCtasMax = 64;

Result<bool> read_switch(const ncclConfigExt_t& option, const char* name) {
  if (option.val.i != 0 && option.val.i != 1) {
    return fail(Code::kInvalidArgument, "{} is {}; it must be 0 or 1", name, option.val.i);
  }
  return option.val.i == 1;
}

Result<void> read_option(const ncclConfigExt_t& option, CollConfig& config) {
  switch (option.key.optionId) {
    case PLEXUS_OPTION_DETERMINISTIC: {
      PLEXUS_TRY(is_on, read_switch(option, "PLEXUS_OPTION_DETERMINISTIC"));
      config.deterministic = is_on;
      return ok();
    }
    case PLEXUS_OPTION_CHECKSUM: {
      PLEXUS_TRY(is_on, read_switch(option, "PLEXUS_OPTION_CHECKSUM"));
      config.checksum = is_on;
      return ok();
    }
    case PLEXUS_OPTION_DEADLINE_MS:
      if (option.val.i < 1) {
        return fail(Code::kInvalidArgument, "PLEXUS_OPTION_DEADLINE_MS is {}; it must be 1 or more",
                    option.val.i);
      }
      config.deadline_ms = static_cast<uint32_t>(option.val.i);
      return ok();
    case PLEXUS_OPTION_EXPLAIN: {
      const auto* const explain = static_cast<const plexusExplain_t*>(option.val.raw);
      if (explain == nullptr || explain->told == nullptr) {
        return fail(Code::kInvalidArgument,
                    "PLEXUS_OPTION_EXPLAIN needs a plexusExplain_t with a function in val.raw");
      }
      config.on_choice = {explain->told, explain->user};
      return ok();
    }
    default:
      PLEXUS_INFO(kTuning, "option {} of Plexus is unknown to this release and has no effect",
                  option.key.optionId);
      return ok();
  }
}

/// Options of other vendors are passed over, without a look at their values.
Result<void> read_extensions(const ncclConfigExt_t* option, CollConfig& config) {
  for (int i = 0; option != nullptr; option = option->next, ++i) {
    if (i == kExtensionsMax) {
      return fail(Code::kInvalidArgument,
                  "the list ncclCollConfig_t.ext has more than {} options: is it circular?",
                  kExtensionsMax);
    }
    if (option->key.vendorId <= 0 || option->key.vendorId >= kVendorIdsEnd) {
      return fail(Code::kInvalidArgument,
                  "option {} of ncclCollConfig_t.ext has vendorId {}; it must be in 1..{}", i,
                  option->key.vendorId, kVendorIdsEnd - 1);
    }
    if (option->key.vendorId == PLEXUS_VENDOR_ID) {
      PLEXUS_TRY(read_option(*option, config));
    }
  }
  return ok();
}

/// What a caller means by a number of channels; 0: the communicator's.
int read_ctas(int ctas) { return ctas >= 1 && ctas <= kCtasMax ? ctas : 0; }

}  // namespace

Result<CollConfig> check_coll_config(const ncclCollConfig_t& config) {
  if (config.size < offsetof(ncclCollConfig_t, ext) || config.magic != NCCL_API_MAGIC) {
    return fail(Code::kInvalidArgument,
                "ncclCollConfig_t is not initialised: start from NCCL_COLLCONFIG_INITIALIZER");
  }
  ncclCollConfig_t mine = NCCL_COLLCONFIG_INITIALIZER;
  std::memcpy(&mine, &config, copied_bytes<ncclCollConfig_t>(config.size));
  if (mine.forceAlgSelection != 0 && mine.forceAlgSelection != 1) {
    return fail(Code::kInvalidArgument,
                "ncclCollConfig_t.forceAlgSelection is {}; it must be 0 or 1",
                mine.forceAlgSelection);
  }
  constexpr int kPoliciesMax = NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO;
  if (mine.CTAPolicy != NCCL_CONFIG_UNDEF_INT &&
      (mine.CTAPolicy < 0 || mine.CTAPolicy > kPoliciesMax)) {
    return fail(Code::kInvalidArgument, "ncclCollConfig_t.CTAPolicy is {}; it must be in 0..{}",
                mine.CTAPolicy, kPoliciesMax);
  }
  CollConfig result;
  result.selection = mine.algSelection == nullptr ? "" : mine.algSelection;
  result.is_forced = mine.forceAlgSelection == 1;
  result.min_ctas = read_ctas(mine.minCTAs);
  result.max_ctas = read_ctas(mine.maxCTAs);
  if (result.max_ctas != 0 && result.min_ctas > result.max_ctas) {
    result.min_ctas = 1;
  }
  result.tag = mine.userProfilerTag;
  result.launch_event = mine.launchCompletionEvent;
  PLEXUS_TRY(read_extensions(mine.ext, result));
  return result;
}

Result<void> apply_coll_config(const CollConfig& config, Task& task) {
  const CommSetup& setup = task.comm->setup();
  CallSettings& settings = task.shape.settings;
  if (config.launch_event != nullptr) {
    return fail(Code::kInvalidUsage,
                "launchCompletionEvent is not available: pass NULL, and record an event on the "
                "stream after the call");
  }
  // The environment wins over the call, which wins over the communicator's config.
  settings.channels_min = static_cast<uint8_t>(setup.config.min_ctas > 0 ? 0 : config.min_ctas);
  settings.channels_max = static_cast<uint8_t>(setup.config.max_ctas > 0 ? 0 : config.max_ctas);
  settings.is_deterministic = config.deterministic;
  settings.explains = config.on_choice.function != nullptr;
  settings.has_checksum = config.checksum;
  settings.deadline_ms = config.deadline_ms;
  task.tag = config.tag;
  task.on_choice = config.on_choice;
  if (config.selection.empty() || setup.filter.decides(task.shape.collective)) {
    return ok();
  }
  auto selection = parse_selection(config.selection, task.shape.collective);
  if (selection.has_error()) {
    if (config.is_forced) {
      return std::move(selection).error();
    }
    PLEXUS_INFO(kTuning, "{}: any algorithm is taken", selection.error().message());
    return ok();
  }
  settings.selection = selection.value();
  settings.is_forced = config.is_forced;
  return ok();
}

}  // namespace plexus
