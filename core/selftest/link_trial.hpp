// SPDX-License-Identifier: Apache-2.0
// The trial of one link by its two ranks, over two connections of core/transport: one of them
// measures while the other one answers, then the other way round, each for some 50 ms.
// Short messages there and back give the latency; bursts of messages with a pattern, which the
// receiver checks and acknowledges, the rate. Of both the best counts: a machine that is busy
// spoils some, a bad link all.
//
//   LinkTrial trial({.send = &connections.find_or_make_send(peer, 0),
//                    .recv = &connections.find_or_make_recv(peer, 0),
//                    .leads = rank < peer,
//                    .slot_bytes = context.slot_bytes});
//   trial.run(sample);
#pragma once

#include <atomic>
#include <chrono>

#include "core/base/clock.hpp"
#include "core/selftest/link_sample.hpp"
#include "core/transport/connection.hpp"

namespace plexus {

/// Threads: one.
class LinkTrial {
 public:
  /// From its start to its end. A link that needs longer counts as failed.
  static constexpr std::chrono::seconds kPatience{15};

  struct Options {
    SendEnd* send;
    RecvEnd* recv;
    bool leads;               // this rank measures first: one of the two
    uint32_t slot_bytes;      // no message is longer
    bool is_crowded = false;  // ranks share cores: do not spin
    const std::atomic<bool>* give_up = nullptr;
  };
  explicit LinkTrial(const Options& options);

  /// Fills in what was measured, and why no more was.
  void run(LinkSample& sample);

 private:
  enum class Kind : uint32_t { kPing = 1, kPong, kBurst, kReady, kData, kTaken, kYourTurn };
  struct Head {
    Kind kind;
    uint32_t count;  // kBurst: messages that follow; kData: which of them; kTaken: see Burst
    uint32_t size_bytes;
    uint32_t check;
  };
  [[nodiscard]] static uint32_t check_of(const Head& head);

  Result<void> run_all();
  Result<void> measure();
  Result<void> ping();
  Result<void> measure_rate();
  struct Burst {
    double time_us;
    double waited_us;  // by both ends, for a core
  };
  Result<Burst> send_burst(uint32_t count, uint32_t size_bytes);
  Result<void> answer();
  Result<void> take_burst(const Head& head);
  Result<void> send(Kind kind, uint32_t count = 0, uint32_t size_bytes = sizeof(Head));
  Result<Head> receive();
  Result<Head> receive(Kind kind);
  Result<bool> pump();
  template <class Condition>
  Result<void> wait_until(const char* what, const Condition& is_done);

  Options options_;
  Deadline end_;
  LinkSample seen_;
};

}  // namespace plexus
