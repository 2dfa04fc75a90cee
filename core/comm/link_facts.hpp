// SPDX-License-Identifier: Apache-2.0
// A communicator's part in LinkAgreement: what its cross-DC connections report goes to rank 0, by
// control messages; what all have agreed on is told before the call from which on it counts.
//
// Threads: report() and admit(): as the communicator's calls. The rest is locked.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>

#include "core/comm/link_agreement.hpp"
#include "core/schedule/call_log.hpp"

namespace plexus {

class LinkFacts {
 public:
  struct Options {
    Exchange* exchange;
    const CallLog* calls;
    uint32_t datacenter;  // this rank's
    uint32_t datacenters;
    std::function<bool()> gives_up;  // nothing is waited for any more
  };
  /// All borrowed, until leave() and then the exchange's own leave() have returned.
  explicit LinkFacts(const Options& options);
  LinkFacts(const LinkFacts&) = delete;
  LinkFacts& operator=(const LinkFacts&) = delete;

  /// `share` of the way to that datacenter is left to this rank: see XdcRoutes::Changed.
  void report(uint32_t datacenter, uint32_t share);
  [[nodiscard]] const std::atomic<uint64_t>& due() const noexcept { return agreement_.due(); }
  /// What is new for the call with this number; nullopt: nothing. Waits until all will know it, at
  /// most for an answer of rank 0, or until the rank is stopped.
  Result<std::optional<LinkShares>> admit(uint64_t call);
  /// This rank makes no further calls.
  void leave();

 private:
  LinkAgreement::Posts take(const Exchange::Posted& message);
  void post(LinkAgreement::Posts posts);

  const Options options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  LinkAgreement agreement_;     // guarded by mutex_, but due()
  std::optional<Error> error_;  // guarded by mutex_: what a message broke
};

}  // namespace plexus
