// SPDX-License-Identifier: Apache-2.0
// The answers of NCCL's RAS protocol as text and as JSON: NCCL's fields, and beside them who keeps
// whom waiting. NCCL's client copies them, and monitoring programs parse them. Pure.
#pragma once

#include <string>

#include "core/ras/ras_job.hpp"

namespace plexus {

/// STATUS, or VERBOSE STATUS, which lists more ranks by name.
std::string make_ras_text(const RasJob& job, bool is_verbose);
/// STATUS after SET FORMAT json. `timestamp`: of now, in local time.
std::string make_ras_json(const RasJob& job, const std::string& timestamp);
/// `self`: host and process id of this process.
std::string make_ras_diagnostics(const RasJob& job, const std::string& self);

/// What clients that monitor are sent about a process.
struct RasEvent {
  const char* name;  // PEER_NEW or PEER_DEAD
  std::string host;
  int32_t pid;
  std::string details;
};
std::string make_ras_event(const RasEvent& event, bool is_json, const std::string& timestamp);

/// "2026-11-27 19:00:00"
std::string local_timestamp();

}  // namespace plexus
