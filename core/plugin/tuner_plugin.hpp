// SPDX-License-Identifier: Apache-2.0
// A communicator's tuner: finds and checks a library of `plexus_tuner.h` or of NCCL's tuner ABI.
// Its answers are checked here, so that callers get no value out of range.
//
// Reads no environment: the name comes in `TunerOptions`.
//
//   PLEXUS_TRY(tuner, Tuner::open({.plugin = "online", .folders = {}, .net_plugins = {}}, comm));
//   const bool has_tuner = tuner != nullptr;
//   return ok();
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "plugin-api/plexus_tuner.h"

#include "core/base/result.hpp"
#include "core/plugin/library.hpp"
#include "core/plugin/tuner_source.hpp"

namespace plexus {

struct TunerOptions {
  /// NCCL_TUNER_PLUGIN: a name, a file name or a path; empty: Plexus's own; `none`: no tuner.
  std::string plugin;
  /// PLEXUS_PLUGIN_PATH: folders, separated by ':'.
  std::string folders;
  /// NCCL_NET_PLUGIN: its libraries may also contain a tuner of NCCL's ABI, which is used when
  /// `plugin` is empty or no library has that name.
  std::string net_plugins;
  /// Plexus's own tuner: that of who names none, and whose times tuners of NCCL's ABI begin with.
  /// Empty: there is none.
  std::string own = "tuner-default";
  /// The folder of Plexus's own plugins.
  std::filesystem::path own_folder = find_own_folder();
};

/// A tuner of one communicator. Threads: one at a time.
class Tuner {
 public:
  /// The tuner that the options name, initialised for `comm`. nullptr: none (switched off, or
  /// Plexus's own is not installed). An Error only for a tuner that the user named.
  [[nodiscard]] static Result<std::unique_ptr<Tuner>> open(const TunerOptions& options,
                                                           const plexus_tuner_comm_t& comm);
  ~Tuner() = default;
  Tuner(const Tuner&) = delete;
  Tuner& operator=(const Tuner&) = delete;

  /// Asks for times; `built_in`: index of the candidate that would be used without a tuner. False:
  /// the tuner has no opinion, or (with a WARN the first time) it failed or gave no usable answer.
  /// True: at least one time is >= 0, and channels and chunk_bytes are within the candidate's
  /// bounds.
  bool get_times(const plexus_tuner_call_t& call,
                 std::span<plexus_tuner_candidate_t> candidates,
                 size_t built_in);
  /// The links of the communicator have changed; `comm` is as for open(), with the new ones.
  void change_links(const plexus_tuner_comm_t& comm);
  /// "tuner-default 0.1.0", for logs.
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  explicit Tuner(std::unique_ptr<TunerSource> source);
  [[nodiscard]] static Result<std::unique_ptr<Tuner>> load(const TunerOptions& options,
                                                           const plexus_tuner_comm_t& comm);
  bool complain(const std::string& why);

  std::unique_ptr<TunerSource> source_;
  std::string name_;
  bool complained_ = false;
};

}  // namespace plexus
