// SPDX-License-Identifier: Apache-2.0
#include "core/comm/watched.hpp"

#include <utility>

#include "core/comm/communicator.hpp"
#include "core/comm/process.hpp"

namespace plexus {
namespace {

MemberState describe_state(const Communicator& comm) {
  const Code code = comm.state();
  MemberState state{.error = static_cast<uint8_t>(code),
                    .is_finalized = comm.finalized.load(std::memory_order_relaxed),
                    .is_aborted = comm.give_up.load(std::memory_order_relaxed),
                    .failovers = comm.link_counts.failovers.load(std::memory_order_relaxed),
                    .resent = comm.link_counts.resent.load(std::memory_order_relaxed)};
  if (comm.input_check != nullptr) {
    state.bad_input = comm.input_check->found();
  }
  if (code != Code::kSuccess && code != Code::kInProgress) {
    state.why = comm.stop_reason().message();
  }
  return state;
}

StallMember describe_member(Communicator& comm) {
  const CommSetup& setup = comm.setup();
  return {.group = setup.group,
          .rank = setup.rank,
          .nranks = setup.nranks,
          .exchange = setup.exchange.get(),
          .calls = comm.runner().context().log,
          .thread = &comm.calling_thread,
          .fail = [&comm](const Error& error) { comm.fail(error); },
          .is_busy = [&comm] { return comm.is_busy(); },
          .look = [&comm] { return describe_state(comm); },
          .device = comm.shown_device(),
          .host = setup.exchange->host_of(setup.rank),
          .address = setup.exchange->place_of(setup.rank).address,
          .patience = std::chrono::seconds(setup.config.stall_s),
          .file = setup.config.stall_file};
}

}  // namespace

void watch_for_stalls(Communicator& comm) {
  StallWatch& stalls = comm.process().stalls;
  stalls.add(describe_member(comm));
  comm.find_culprit = [&stalls, group = comm.setup().group,
                       rank = comm.rank()](Standstill standstill) {
    return stalls.find_culprit(group, rank, std::move(standstill));
  };
}

}  // namespace plexus
