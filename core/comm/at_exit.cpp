// SPDX-License-Identifier: Apache-2.0
#include "core/comm/at_exit.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/clock.hpp"
#include "core/base/thread.hpp"
#include "core/comm/process.hpp"
#include "core/comm/visit.hpp"

namespace plexus {
namespace {

constexpr auto kCallPatience = std::chrono::seconds(1);       // for calls on streams to end
constexpr auto kDeparturePatience = std::chrono::seconds(5);  // for everything
constexpr auto kLook = std::chrono::milliseconds(1);

void wait_for_calls(const std::vector<Communicator*>& comms) {
  const auto deadline = Deadline::after(kCallPatience);
  const auto is_left = [](const Communicator* comm) { return comm->is_left(); };
  while (!std::all_of(comms.begin(), comms.end(), is_left) && !deadline.expired()) {
    std::this_thread::sleep_for(kLook);
  }
}

/// A rank with a call that does not end, or that is not ready yet, is missed by the others: they
/// hear that the process died.
void leave_all(Process& process) {
  const std::vector<Visit> visits =
      Visit::begin_all(process, [](const Communicator&) { return true; });
  std::vector<Communicator*> comms;
  for (const Visit& visit : visits) {
    if (visit->state() != Code::kInProgress) {
      comms.push_back(&*visit);
    }
  }
  wait_for_calls(comms);
  std::erase_if(comms, [](const Communicator* comm) { return !comm->is_left(); });
  for (Communicator* const comm : comms) {
    comm->settle();
  }
  for (Communicator* const comm : comms) {
    comm->setup().exchange->wait_dropped(&comm->stop);
  }
  for (Communicator* const comm : comms) {
    comm->announce_departure(Departure::kProcessEnded);
  }
}

}  // namespace

void leave_at_exit(Process& process) noexcept {
  try {
    if (!process.communicators.any([](const Communicator&) { return true; })) {
      return;
    }
    const auto done = std::make_shared<std::promise<void>>();
    auto thread = start_thread("the departure of this process", [&process, done] {
      try {
        leave_all(process);
      } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the others see it end
      }
      done->set_value();
    });
    if (thread.has_value()) {
      thread.value().detach();  // touches only what lives as long as the process
      done->get_future().wait_for(kDeparturePatience);
    }
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the others see it end
  }
}

}  // namespace plexus
