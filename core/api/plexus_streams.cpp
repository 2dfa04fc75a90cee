// SPDX-License-Identifier: Apache-2.0
// plexus.h: host streams, their events, and what is known of a communicator.
#include <algorithm>
#include <optional>

#include "core/api/arguments.hpp"
#include "core/api/guard.hpp"
#include "core/comm/lifecycle.hpp"
#include "core/comm/process.hpp"
#include "core/control/exchange.hpp"

namespace plexus {
namespace {

Result<HostStream*> check_host_stream(cudaStream_t stream) {
  HostStream* const found = Process::instance().find_stream(stream);
  if (found == nullptr) {
    return unknown_stream(stream);
  }
  return found;
}

/// The result of a mark that was reached; nullptr stands for an event that was never recorded.
Result<void> result_of(const StreamMark* mark) {
  if (mark != nullptr && mark->error() != nullptr) {
    return mark->error()->clone();
  }
  return ok();
}

/// What comes before the next work on a stream, or before an event, to be told to end().
std::optional<StreamOrder::Clock> mark(const void* name) {
  UseCheck* const check = Process::instance().check();
  return check == nullptr ? std::nullopt : std::optional(check->buffers.mark(name));
}
/// The program has waited for that.
void end(const std::optional<StreamOrder::Clock>& mark) {
  if (mark.has_value()) {
    Process::instance().check()->buffers.end(*mark);
  }
}

}  // namespace
}  // namespace plexus

using plexus::guard;
using plexus::Process;
using plexus::Result;

PLEXUS_EXTENSION ncclResult_t plexusStreamCreate(cudaStream_t* stream) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(plexus::check_pointer(stream, "stream"));
    PLEXUS_TRY(made, Process::instance().create_stream());
    *stream = reinterpret_cast<cudaStream_t>(made);
    return plexus::ok();
  });
}

PLEXUS_EXTENSION ncclResult_t plexusStreamDestroy(cudaStream_t stream) {
  return guard([&]() -> Result<void> {
    if (Process::instance().parent_of_stream(stream) != 0) {
      return plexus::ok();
    }
    PLEXUS_TRY(found, plexus::check_host_stream(stream));
    const auto mark = plexus::mark(stream);
    auto destroyed = Process::instance().destroy_stream(found);
    if (plexus::virtual_devices() == nullptr) {  // else the program does not wait for that
      plexus::end(mark);
    }
    return destroyed;
  });
}

PLEXUS_EXTENSION ncclResult_t plexusStreamSynchronize(cudaStream_t stream) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(found, plexus::check_host_stream(stream));
    const auto mark = plexus::mark(stream);
    auto waited = found->wait();
    plexus::end(mark);
    return waited;
  });
}

PLEXUS_EXTENSION ncclResult_t plexusStreamQuery(cudaStream_t stream) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(found, plexus::check_host_stream(stream));
    const auto mark = plexus::mark(stream);
    PLEXUS_TRY(done, found->query());
    if (!done) {
      return plexus::fail(plexus::Code::kInProgress, "in progress");
    }
    plexus::end(mark);
    return plexus::ok();
  });
}

PLEXUS_EXTENSION ncclResult_t plexusStreamWaitEvent(cudaStream_t stream, plexusEvent_t event) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(waits, plexus::check_host_stream(stream));
    PLEXUS_TRY(found, Process::instance().find_event(event));
    Process::instance().make_wait(waits, *found);
    if (auto* const check = Process::instance().check(); check != nullptr) {
      check->buffers.wait(stream, event);
    }
    return plexus::ok();
  });
}

PLEXUS_EXTENSION ncclResult_t plexusLaunchHostFunc(cudaStream_t stream,
                                                   plexusHostFn_t function,
                                                   void* user) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(found, plexus::check_host_stream(stream));
    if (function == nullptr) {
      return plexus::fail(plexus::Code::kInvalidArgument, "function is NULL");
    }
    Process::instance().launch_host_function(found, [function, user, mark = plexus::mark(stream)] {
      plexus::end(mark);
      function(user);
    });
    return plexus::ok();
  });
}

PLEXUS_EXTENSION ncclResult_t plexusEventCreate(plexusEvent_t* event) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(plexus::check_pointer(event, "event"));
    *event = reinterpret_cast<plexusEvent_t>(Process::instance().create_event());
    return plexus::ok();
  });
}

PLEXUS_EXTENSION ncclResult_t plexusEventDestroy(plexusEvent_t event) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(Process::instance().destroy_event(event));
    if (auto* const check = Process::instance().check(); check != nullptr) {
      check->buffers.forget(event);
    }
    return plexus::ok();
  });
}

PLEXUS_EXTENSION ncclResult_t plexusEventRecord(plexusEvent_t event, cudaStream_t stream) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(found, Process::instance().find_event(event));
    PLEXUS_TRY(recorded, plexus::check_host_stream(stream));
    found->record(*recorded);
    if (auto* const check = Process::instance().check(); check != nullptr) {
      check->buffers.record(event, stream);
    }
    return plexus::ok();
  });
}

PLEXUS_EXTENSION ncclResult_t plexusEventQuery(plexusEvent_t event) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(found, Process::instance().find_event(event));
    const auto before = plexus::mark(event);
    const auto mark = found->last();
    if (mark != nullptr && !mark->reached()) {
      return plexus::fail(plexus::Code::kInProgress, "in progress");
    }
    plexus::end(before);
    return plexus::result_of(mark.get());
  });
}

PLEXUS_EXTENSION ncclResult_t plexusEventSynchronize(plexusEvent_t event) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(found, Process::instance().find_event(event));
    const auto before = plexus::mark(event);
    const auto mark = found->last();
    if (mark != nullptr) {
      mark->wait();
    }
    plexus::end(before);
    return plexus::result_of(mark.get());
  });
}

PLEXUS_EXTENSION ncclResult_t plexusGetLastChoice(ncclComm_t comm,
                                                  const char** algorithm,
                                                  const char** protocol,
                                                  int* channels) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(visit, plexus::enter(comm));
    const plexus::LastChoice choice = visit->last_choice();
    if (algorithm != nullptr) {
      *algorithm = choice.algorithm;
    }
    if (protocol != nullptr) {
      *protocol = choice.protocol;
    }
    if (channels != nullptr) {
      *channels = choice.channels;
    }
    return plexus::ok();
  });
}

PLEXUS_EXTENSION ncclResult_t plexusCommGoneRanks(ncclComm_t comm, int* ranks, int* count) {
  return guard([&]() -> Result<void> {
    PLEXUS_TRY(plexus::check_pointer(ranks, "ranks"));
    PLEXUS_TRY(plexus::check_pointer(count, "count"));
    *count = 0;
    PLEXUS_TRY(visit, plexus::enter(comm));
    PLEXUS_TRY(plexus::check_shrinkable(*visit));
    const std::vector<int> gone = visit->setup().exchange->gone_ranks();
    std::copy(gone.begin(), gone.end(), ranks);
    *count = static_cast<int>(gone.size());
    return plexus::ok();
  });
}

PLEXUS_EXTENSION const char* plexusGetVersionString(void) { return PLEXUS_VERSION; }
