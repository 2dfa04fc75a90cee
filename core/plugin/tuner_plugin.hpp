// SPDX-License-Identifier: Apache-2.0
// C++ face of `plexus_tuner.h`: a tuner library, checked, and its context for one communicator.
// What a tuner answers is checked here; nothing that it says can be out of range beyond this file.
//
// Reads no environment: the name comes in `TunerOptions`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "plugin-api/plexus_tuner.h"

#include "core/base/result.hpp"
#include "core/plugin/registry.hpp"

namespace plexus {

struct TunerOptions {
  /// NCCL_TUNER_PLUGIN: a name, a file name or a path; empty: Plexus's own; `none`: no tuner.
  std::string plugin;
  /// PLEXUS_PLUGIN_PATH: folders, separated by ':'.
  std::string folders;
  /// Where Plexus's own plugins are.
  std::filesystem::path own_folder = NetPluginOptions::find_own_plugin_folder();
};

/// A tuner of one communicator. Threads: one at a time.
class Tuner {
 public:
  /// The tuner that the options name, initialized for `comm`. nullptr: none (switched off, or
  /// Plexus's own is not there). An Error only for one that the user named.
  [[nodiscard]] static Result<std::unique_ptr<Tuner>> open(const TunerOptions& options,
                                                           const plexus_tuner_comm_t& comm);
  ~Tuner();
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// Asks for times. False, with a WARN the first time: it failed, or gave no usable answer. After
  /// true, at least one time is >= 0, and channels and chunk_bytes are within the candidate's
  /// bounds.
  bool get_times(const plexus_tuner_call_t& call, std::span<plexus_tuner_candidate_t> candidates);
  /// "tuner-default 0.1.0", for logs.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  Tuner() = default;
  bool complain(const std::string& why);

  std::string name_;
  plexus_tuner_ops_t ops_{};
  plexus_tuner_context_t* context_ = nullptr;
  bool complained_ = false;
};

}  // namespace plexus
