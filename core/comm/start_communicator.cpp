// SPDX-License-Identifier: Apache-2.0
#include "core/comm/start_communicator.hpp"

#include <cstddef>
#include <exception>
#include <pthread.h>
#include <utility>

#include "core/base/log.hpp"
#include "core/base/memory.hpp"
#include "core/base/thread.hpp"
#include "core/comm/process.hpp"
#include "core/device/choose_device.hpp"
#include "core/os/caller.hpp"
#include "core/selftest/self_test.hpp"
#include "core/setup/set_up.hpp"

namespace plexus {
namespace {

/// The body of the thread that makes a non-blocking communicator. Nothing is thrown out of it.
void run_initializer(Communicator& comm, const std::function<Result<void>()>& make) noexcept {
  try {
    if (const int device = comm.comm_config().device; device != kHostDevice) {
      comm.process().devices()->adopt_thread(device);
    }
    if (const auto made = make(); made.has_error()) {
      PLEXUS_WARN("{}", made.error().message());
      comm.stop_with(made.error());
    }
  } catch (const std::exception&) {  // no memory for the error
    comm.fail_for_memory();
  }
  comm.initialized.store(true, std::memory_order_release);  // pairs with abort's load
}

/// Making a communicator calls resolvers, loaders and parsers, which are not written for the small
/// stacks that a program may give its threads.
bool has_small_stack() noexcept {
  constexpr std::ptrdiff_t kHeadroomBytes = std::ptrdiff_t{256} * 1024;
  pthread_attr_t attributes;
  void* lowest = nullptr;
  size_t size_bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
    return false;
  }
  (void)pthread_attr_getstack(&attributes, &lowest, &size_bytes);
  pthread_attr_destroy(&attributes);
  // Not a variable's: AddressSanitizer may keep those elsewhere.
  const auto* const here = static_cast<const std::byte*>(__builtin_frame_address(0));
  return lowest != nullptr && here - static_cast<const std::byte*>(lowest) < kHeadroomBytes;
}

/// Calls `make` here, or in a thread with a larger stack.
Result<void> make_with_stack(const Communicator& comm, const std::function<Result<void>()>& make) {
  if (!has_small_stack()) {
    return make();
  }
  Result<void> made = ok();
  std::exception_ptr thrown;
  PLEXUS_TRY(thread, start_thread("making a communicator", [&]() noexcept {
               try {
                 if (const int device = comm.comm_config().device; device != kHostDevice) {
                   comm.process().devices()->adopt_thread(device);
                 }
                 made = make();
               } catch (...) {
                 thrown = std::current_exception();
               }
             }));
  thread.join();
  if (thrown != nullptr) {
    std::rethrow_exception(thrown);
  }
  return made;
}

/// PLEXUS_SELFTEST=1.
Result<void> try_links(Process& process, const CommSetup& setup, const std::atomic<bool>* give_up) {
  const CommTopology& topology = *setup.topology;
  return run_self_test(
      {.exchange = setup.exchange.get(),
       .transport = {.rank = setup.rank,
                     .infos = setup.infos.get(),
                     .rendezvous = &process.rendezvous,
                     .nets = setup.nets.get(),
                     .slot_bytes = setup.slot_bytes},
       .channels = setup.channels_max,
       .datacenters = {topology.datacenter_of.begin(), topology.datacenter_of.end()},
       .is_crowded = setup.ranks_per_core > 1,
       .file = setup.config.selftest_file,
       .give_up = give_up});
}

/// It could not be made. Others that found it in the table may still look at it.
void withdraw(Process& process, Communicator& comm) {
  process.communicators.remove(&comm);
  comm.wait_unvisited();
}

}  // namespace

Result<void> start_communicator(Process& process,
                                Communicator** slot,
                                const CommConfig& config,
                                std::function<Result<void>(Communicator&)> make) {
  auto owner = Communicator::make(process, config);
  Communicator* const comm = owner.get();
  process.communicators.add(comm);
  const Allowing all(process.devices(), DriverCalls::kAll);  // and in the thread that makes it:
  const std::function<Result<void>()> try_make = [comm, make = std::move(make)] {
    const Allowing all_there(comm->process().devices(), DriverCalls::kAll);
    return catch_lack_of_memory([&] { return make(*comm); });
  };
  if (!config.blocking) {
    *slot = comm;
    comm->initialized.store(false, std::memory_order_relaxed);
    auto thread = start_thread("a non-blocking communicator",
                               [comm, try_make]() noexcept { run_initializer(*comm, try_make); });
    if (thread.has_error()) {
      *slot = nullptr;
      withdraw(process, *comm);
      return std::move(thread).error();
    }
    comm->initializer = std::move(thread).value();
    (void)owner.release();
    return fail(Code::kInProgress, "in progress");
  }
  *slot = nullptr;
  const auto made_or_threw = [&] {
    try {
      return make_with_stack(*comm, try_make);
    } catch (...) {  // no memory for the error
      withdraw(process, *comm);
      throw;
    }
  };
  auto made = made_or_threw();
  if (made.has_error()) {
    if (comm->setup().exchange != nullptr) {
      comm->setup().exchange->announce_failure(made.error());
    }
    withdraw(process, *comm);
    return made;
  }
  *slot = owner.release();
  return ok();
}

Result<void> start_with_exchange(Communicator& made,
                                 const Config& config,
                                 std::unique_ptr<Exchange> exchange,
                                 std::chrono::steady_clock::time_point started,
                                 const std::atomic<bool>* give_up) {
  PLEXUS_TRY(setup, set_up(made.process().setup_context(), config, made.comm_config(),
                           std::move(exchange), started, give_up));
  if (setup.config.selftest && setup.nranks > 1) {
    if (auto tried = try_links(made.process(), setup, give_up); tried.has_error()) {
      setup.exchange->announce_failure(tried.error());
      return tried;
    }
  }
  open_input_check(setup, made);
  return made.start(std::move(setup));
}

void open_input_check(const CommSetup& setup, Communicator& comm) {
  if (!setup.config.check_nan) {
    return;
  }
  if (setup.mine().on_cuda()) {
    PLEXUS_WARN(
        "PLEXUS_CHECK_NAN looks at the input of host ranks only: rank {} computes on a device",
        setup.rank);
    return;
  }
  comm.input_check = std::make_unique<InputCheck>(
      InputCheck::Member{.group = setup.group, .rank = setup.rank, .nranks = setup.nranks});
}

void note_maker(Process& process, CommConfig* config) {
  config->maker = pthread_self();
  config->made_at = process.check() == nullptr ? nullptr : find_caller();
}

Result<void> run_lifecycle_job(LifecycleJob job) {
  if (!Group::open()) {
    return job();
  }
  Group::current().add(std::move(job));
  return ok();
}

}  // namespace plexus
