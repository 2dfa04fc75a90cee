// SPDX-License-Identifier: Apache-2.0
// The introducer on TCP: one listening port and one thread in the process that made the unique id.
// It ends when every process has the table, or when the time for joining is over. Of several unique
// ids, those after the first pass the ranks on to the first one's (Relay).
#pragma once

#include <chrono>
#include <string_view>

#include "core/base/result.hpp"
#include "core/control/link_set.hpp"
#include "core/control/unique_id.hpp"
#include "core/os/socket.hpp"

namespace plexus {

inline constexpr std::string_view kFirstIdPurpose = "first id";  // of what kFirstId seals

struct IntroducerOptions {
  security::Mode mode = security::Mode::kAuth;
  std::chrono::milliseconds join_time{std::chrono::seconds(300)};  // for all ranks to join, counted
                                                                   // from the first one
  LinkSet::Times times = {};
  bool stays = false;  // serve until the time is over, even if the job has failed and those that
                       // joined have left: late ones get an error
};

/// Serves `id` at `listener` in a thread of its own, which ends by itself.
Result<void> start_introducer(const UniqueId& id,
                              Socket listener,
                              const IntroducerOptions& options);

}  // namespace plexus
