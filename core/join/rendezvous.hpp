// SPDX-License-Identifier: Apache-2.0
// How ranks find each other: the unique id holds the address of an introducer; every process
// connects to it, proves that it knows the id's secret, and registers its ranks.
//
//   PLEXUS_TRY(id, start_root(config));  // in one process; the 128 bytes go to all ranks
//   std::atomic<bool> stop{false};
//   PLEXUS_TRY(exchange, join(agents, config, std::span(&id, 1), rank, nranks, &stop));
//   PLEXUS_TRY(names, exchange->all_gather("name of this rank"));
//   return ok();
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "core/base/config.hpp"
#include "core/control/exchange.hpp"
#include "core/control/unique_id.hpp"
#include "core/os/host.hpp"
#include "core/os/socket.hpp"
#include "guest/port_range.hpp"

namespace plexus {

class AgentServer;

/// The agents of one process, one for each unique id in use. Threads: any.
class Agents {
 public:
  explicit Agents(uint64_t process = process_id(), AgentHooks hooks = {})
      : process_(process), hooks_(std::move(hooks)) {}
  Agents(const Agents&) = delete;
  Agents& operator=(const Agents&) = delete;
  [[nodiscard]] uint64_t id() const noexcept { return process_; }

 private:
  friend class Joining;
  /// Making an agent takes as long as connecting does, so no lock is held meanwhile.
  struct Slot {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_busy = false;               // a rank is making the agent or joining it
    std::weak_ptr<AgentServer> server;  // changed by that rank
  };
  std::shared_ptr<Slot> slot_of(uint64_t job);

  const uint64_t process_;
  const AgentHooks hooks_;
  std::mutex mutex_;
  std::map<uint64_t, std::shared_ptr<Slot>> slots_;  // guarded by mutex_
};

/// PLEXUS_PORT_RANGE, "low-high" or empty.
Result<PortRange> parse_port_range(const std::string& text);

/// The address of the interface that the settings give, by which the other ranks reach this one.
Result<SocketAddress> find_own_address(const Config& config);

/// Listens at that interface, and the port that the settings give.
Result<Socket> listen_for_members(const Config& config);

/// Makes a unique id and starts its introducer in this process. With NCCL_COMM_ID: only the id;
/// rank 0's join starts the introducer.
Result<UniqueId> start_root(const Config& config);

/// Joins as `rank` of `nranks`. Blocks until the introducer is reached; the first all_gather waits
/// for the other ranks. Returns early when `*stop` becomes true. There may be several `ids`
/// (the same on all ranks, at most one per rank): each rank registers with one of them.
Result<std::unique_ptr<Exchange>> join(Agents& agents,
                                       const Config& config,
                                       std::span<const UniqueId> ids,
                                       int rank,
                                       int nranks,
                                       const std::atomic<bool>* stop);

}  // namespace plexus
