// SPDX-License-Identifier: Apache-2.0
// Exports a tuner to NCCL: PLEXUS_EXPORT_NCCL_TUNER(Tuner, name) defines ncclTunerPlugin_v2 to v6.
// NCCL tells a tuner its own predictions and the numbers of ranks and nodes, but no link, no GPU
// and no time of a call, so this is not a form of plexus_tuner_ops_t. In the plugin's .cpp:
//
//   struct Tuner {
//     static Result<Tuner> open(size_t nranks, size_t nnodes, const Log& log);
//     void adjust(const NcclCall& call, const NcclCosts& costs) const;
//     std::optional<NcclChoice> choose(const NcclCall& call) const;  // v2, which has no costs
//   };
//   PLEXUS_EXPORT_NCCL_TUNER(Tuner, "tuner-default")
//
// Threads: as NCCL's: one at a time per communicator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "plugin-api/nccl/tuner.h"
#include "plugin-api/plexus_plugin.h"

#include "plugins/support/abi_boundary.hpp"
#include "plugins/support/handle.hpp"

namespace plexus::plugin {

struct NcclCall {
  int collective;  // NCCL_TUNER_BROADCAST, ...
  uint64_t size_bytes;
};

/// NCCL's predictions, us; [algorithms][protocols].
struct NcclCosts {
  float* first;
  size_t algorithms;
  size_t protocols;
  template <class Use>
  void for_each(const Use& use) const {
    for (size_t i = 0; i < algorithms * protocols; ++i) {
      if (first[i] >= 0) {  // else it is not possible, or the user has excluded it
        use(i / protocols, i % protocols, first[i]);
      }
    }
  }
};

struct NcclChoice {
  int algorithm;
  int protocol;
};

template <class Tuner>
class NcclTunerTable {
 public:
  template <class Table>
  static constexpr Table make(const char* name) {
    Table table{};
    table.name = name;
    table.init = &init;
    table.info = &info;
    table.finalize = &finalize;
    return table;
  }

 private:
  struct Host {
    nccl_log_fn log;
  };
  struct Held {
    std::unique_ptr<Host> host;  // where the tuner's Log writes to
    Tuner tuner;
  };

  static void write_line(
      plexus_log_sink_t* sink, int32_t level, const char* file, int32_t line, const char* text) {
    constexpr unsigned long kSubsystemTuning = 0x40;
    const int nccl_level = level == PLEXUS_LOG_ERROR ? NCCL_LOG_WARN : level;
    reinterpret_cast<const Host*>(sink)->log(nccl_level, kSubsystemTuning, file, line, "%s", text);
  }
  static Log log_of(Host& host) noexcept {
    return {&write_line, reinterpret_cast<plexus_log_sink_t*>(&host)};
  }
  template <class Body>
  static int32_t with(void* context, const Body& body) noexcept {
    Held& held = *static_cast<Held*>(context);
    return guard(log_of(*held.host), [&]() -> Result<void> {
      body(std::as_const(held.tuner));
      return ok();
    });
  }

  static int32_t init(size_t nranks, size_t nnodes, nccl_log_fn log, void** context) {
    Host to{log};
    return guard(log_of(to), [&]() -> Result<void> {
      auto host = std::make_unique<Host>(to);
      const Log lasting = log_of(*host);
      PLEXUS_TRY(tuner, Tuner::open(nranks, nnodes, lasting));
      *context = give_to_host(std::make_unique<Held>(Held{std::move(host), std::move(tuner)}));
      return ok();
    });
  }
  static int32_t init(void** context,
                      uint64_t /*comm_id*/,
                      size_t nranks,
                      size_t nnodes,
                      nccl_log_fn log,
                      nccl_tuner_domains_v5_t* /*domains*/,
                      nccl_tuner_constants_v5_t* /*constants*/) {
    return init(nranks, nnodes, log, context);
  }
  static int32_t info(void* context,
                      int collective,
                      size_t size,
                      int /*has_collnet*/,
                      int /*has_nvls*/,
                      int /*calls_in_group*/,
                      int* algorithm,
                      int* protocol,
                      int* channels) {
    return with(context, [&](const Tuner& tuner) {
      const std::optional<NcclChoice> choice = tuner.choose({collective, size});
      *algorithm = choice.has_value() ? choice->algorithm : NCCL_TUNER_UNDEFINED;
      *protocol = choice.has_value() ? choice->protocol : NCCL_TUNER_UNDEFINED;
      *channels = 0;
    });
  }
  static int32_t info(void* context,
                      int collective,
                      size_t size,
                      int /*calls_in_group*/,
                      float** costs,
                      int algorithms,
                      int protocols,
                      int* channels) {
    return with(context, [&](const Tuner& tuner) {
      *channels = 0;
      tuner.adjust({collective, size}, {reinterpret_cast<float*>(costs),
                                        static_cast<size_t>(algorithms < 0 ? 0 : algorithms),
                                        static_cast<size_t>(protocols < 0 ? 0 : protocols)});
    });
  }
  static int32_t info(void* context,
                      int collective,
                      size_t size,
                      int calls_in_group,
                      float** costs,
                      int algorithms,
                      int protocols,
                      int /*is_registered*/,
                      int* channels) {
    return info(context, collective, size, calls_in_group, costs, algorithms, protocols, channels);
  }
  static int32_t finalize(void* context) {
    take_from_host(static_cast<Held*>(context));
    return PLEXUS_OK;
  }
};

}  // namespace plexus::plugin

/// A table of NCCL's ABI `version`.
#define PLEXUS_EXPORT_NCCL_TUNER_TABLE(version, Tuner, name)                            \
  extern PLEXUS_PLUGIN_EXPORT const nccl_tuner_##version##_t ncclTunerPlugin_##version; \
  constexpr nccl_tuner_##version##_t ncclTunerPlugin_##version =                        \
      ::plexus::plugin::NcclTunerTable<Tuner>::make<nccl_tuner_##version##_t>(name);

/// For a plugin's .cpp, outside of namespaces, once.
#define PLEXUS_EXPORT_NCCL_TUNER(Tuner, name)     \
  extern "C" {                                    \
  PLEXUS_EXPORT_NCCL_TUNER_TABLE(v2, Tuner, name) \
  PLEXUS_EXPORT_NCCL_TUNER_TABLE(v3, Tuner, name) \
  PLEXUS_EXPORT_NCCL_TUNER_TABLE(v4, Tuner, name) \
  PLEXUS_EXPORT_NCCL_TUNER_TABLE(v5, Tuner, name) \
  PLEXUS_EXPORT_NCCL_TUNER_TABLE(v6, Tuner, name) \
  }
