// SPDX-License-Identifier: Apache-2.0
#include "core/selftest/link_trial.hpp"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <immintrin.h>
#include <string>
#include <thread>
#include <utility>

#include "core/base/hash.hpp"
#include "guest/file.hpp"

namespace plexus {
namespace {

using Micros = std::chrono::duration<double, std::micro>;

constexpr uint32_t kCallHash = 0x5e1f7e57;  // of messages that belong to no call
constexpr int kPingsMin = 3;
constexpr int kPingsMax = 1024;
constexpr auto kPingTime = std::chrono::milliseconds(15);
constexpr int kBurstsMin = 3;  // of the last size
constexpr auto kRateTime = std::chrono::milliseconds(30);
constexpr auto kRateTimeMax = std::chrono::milliseconds(120);  // where few bursts are good
constexpr auto kBurstTime = std::chrono::milliseconds(1);      // a shorter burst says little
// A burst says something when the two ranks wanted a core in vain for less of its time, and is good
// when it was for less than the second.
constexpr double kWaitedMax = 0.8;
constexpr double kWaitedGood = 0.2;
constexpr uint32_t kFirstBytes = 16 * 1024;  // a very slow link takes no more
constexpr uint32_t kCountMax = 64;           // messages of a burst
constexpr double kBytesPerMicroAtGb = 1000;  // of 1 GB/s

/// Word `index` of the pattern of message `count`: neighbours differ in many bits.
uint64_t pattern(uint32_t count, uint64_t index) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
  return ((uint64_t{count} << 32) + index + 1) * kOdd;
}

void write_pattern(std::byte* to, uint32_t count, size_t size_bytes) {
  for (size_t at = 0; at + sizeof(uint64_t) <= size_bytes; at += sizeof(uint64_t)) {
    const uint64_t word = pattern(count, at);
    std::memcpy(to + at, &word, sizeof(word));
  }
}

bool has_pattern(const std::byte* from, uint32_t count, size_t size_bytes) {
  uint64_t differences = 0;
  for (size_t at = 0; at + sizeof(uint64_t) <= size_bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, from + at, sizeof(word));
    differences |= word ^ pattern(count, at);
  }
  return differences == 0;
}

/// For how long this thread has wanted a core in vain so far. 0: the kernel does not say.
double waited_us() {
  constexpr size_t kTextMax = 128;
  constexpr double kNanosPerMicro = 1000;
  const std::string text = read_regular_file("/proc/thread-self/schedstat", kTextMax).text;
  uint64_t waited_ns = 0;
  return std::sscanf(text.c_str(), "%*u %" SCNu64, &waited_ns) == 1
             ? static_cast<double>(waited_ns) / kNanosPerMicro
             : 0;
}

}  // namespace

LinkTrial::LinkTrial(const Options& options)
    : options_(options), end_(Deadline::after(kPatience)) {}

uint32_t LinkTrial::check_of(const Head& head) {
  Fnv1a hash;
  hash.mix(uint64_t{static_cast<uint32_t>(head.kind)} << 32 | head.count);
  hash.mix(uint64_t{head.size_bytes});
  return static_cast<uint32_t>(hash.value());
}

void LinkTrial::run(LinkSample& sample) {
  const auto began = Clock::now();
  const double waited = waited_us();
  const auto done = run_all();
  sample.waited = (waited_us() - waited) / Micros(Clock::now() - began).count();
  sample.latency_us = seen_.latency_us;
  sample.gb_per_s = seen_.gb_per_s;
  sample.gb_per_s_most = seen_.gb_per_s_most;
  // What cannot leave because nothing connects is as lost as what does not arrive.
  sample.sent = std::max<uint64_t>(seen_.sent, options_.send->connected() ? 0 : 1);
  sample.received = seen_.received;
  sample.corrupt = seen_.corrupt;
  if (done.has_error()) {
    sample.error = done.error().message();
  }
}

Result<void> LinkTrial::run_all() {
  PLEXUS_TRY(wait_until("does not connect", [this] {
    return options_.send->connected() && options_.recv->connected();
  }));
  options_.send->connection().begin_call(CallRecord{});
  if (options_.leads) {
    PLEXUS_TRY(measure());
    PLEXUS_TRY(answer());
  } else {
    PLEXUS_TRY(answer());
    PLEXUS_TRY(measure());
  }
  // The last message is still this end's to move.
  SendConnection& sends = options_.send->connection();
  return wait_until("does not take the last message", [&sends] {
    return sends.fifo().taken.load(std::memory_order_acquire) == sends.sent();
  });
}

// ---- measuring ----

Result<void> LinkTrial::measure() {
  PLEXUS_TRY(ping());
  PLEXUS_TRY(measure_rate());
  return send(Kind::kYourTurn);
}

Result<void> LinkTrial::ping() {
  const auto began = Clock::now();
  for (int i = 0; i < kPingsMax && (i < kPingsMin || Clock::now() - began < kPingTime); ++i) {
    const auto sent_at = Clock::now();
    PLEXUS_TRY(send(Kind::kPing));
    PLEXUS_TRY(pong, receive(Kind::kPong));
    (void)pong;
    const double one_way_us = Micros(Clock::now() - sent_at).count() / 2;
    seen_.latency_us = i == 0 ? one_way_us : std::min(seen_.latency_us, one_way_us);
  }
  return ok();
}

/// The rate at the last size, since what a link takes at once says nothing: of the burst for which
/// the ranks waited least for their cores. None is known where they waited for nearly all of it.
Result<void> LinkTrial::measure_rate() {
  uint32_t count = 1;
  uint32_t size_bytes = std::min(kFirstBytes, options_.slot_bytes);
  double least = kWaitedMax;
  int good = 0;
  const auto began = Clock::now();
  const auto lasts = [began](auto time) { return Clock::now() - began < time; };
  while (lasts(kRateTime) || (good < kBurstsMin && lasts(kRateTimeMax))) {
    PLEXUS_TRY(burst, send_burst(count, size_bytes));
    const double waited = burst.waited_us / burst.time_us;
    const bool is_short = burst.time_us - burst.waited_us < Micros(kBurstTime).count() ||
                          (waited >= kWaitedMax && burst.time_us < Micros(kRateTime).count());
    if (is_short && count < kCountMax) {
      const bool is_longest = size_bytes == options_.slot_bytes;
      count = is_longest ? 2 * count : count;
      size_bytes = std::min(2 * size_bytes, options_.slot_bytes);
      seen_.gb_per_s = seen_.gb_per_s_most = 0;
      least = kWaitedMax;
      good = 0;
      continue;
    }
    if (waited > std::max(least, kWaitedGood)) {
      continue;
    }
    // Less what a message and its answer take whatever they carry.
    const double moving_us = std::max(burst.time_us - 2 * seen_.latency_us, burst.time_us / 4);
    const double rate = count * (size_bytes / moving_us) / kBytesPerMicroAtGb;
    const bool is_better =
        waited < kWaitedGood ? rate > seen_.gb_per_s || least > kWaitedGood : waited < least;
    if (is_better) {
      seen_.gb_per_s = rate;
      seen_.gb_per_s_most = rate / (1 - waited);
    }
    good += waited < kWaitedGood ? 1 : 0;
    least = std::min(least, waited);
  }
  return ok();
}

/// Timed from here until the receiver has all of it, so that what waits on the way while the
/// receiver does not look cannot make a slow link fast.
Result<LinkTrial::Burst> LinkTrial::send_burst(uint32_t count, uint32_t size_bytes) {
  PLEXUS_TRY(send(Kind::kBurst, count, size_bytes));
  PLEXUS_TRY(ready, receive(Kind::kReady));
  (void)ready;
  const double waited = waited_us();
  const auto began = Clock::now();
  for (uint32_t i = 0; i < count; ++i) {
    PLEXUS_TRY(send(Kind::kData, i, size_bytes));
  }
  PLEXUS_TRY(taken, receive(Kind::kTaken));
  const double time_us = Micros(Clock::now() - began).count();
  return Burst{.time_us = time_us, .waited_us = waited_us() - waited + taken.count};
}

// ---- answering ----

Result<void> LinkTrial::answer() {
  for (;;) {
    PLEXUS_TRY(head, receive());
    if (head.kind == Kind::kYourTurn) {
      return ok();
    }
    if (head.kind == Kind::kPing) {
      PLEXUS_TRY(send(Kind::kPong));
    } else if (head.kind == Kind::kBurst && head.count <= kCountMax &&
               head.size_bytes >= sizeof(Head) && head.size_bytes <= options_.slot_bytes) {
      PLEXUS_TRY(take_burst(head));
    } else {
      return fail(Code::kRemoteError, "a message of the trial arrived that makes no sense");
    }
  }
}

Result<void> LinkTrial::take_burst(const Head& head) {
  PLEXUS_TRY(send(Kind::kReady));
  const double waited = waited_us();
  RecvConnection& receives = options_.recv->connection();
  options_.recv->expect(head.count);
  for (uint32_t i = 0; i < head.count; ++i) {
    PLEXUS_TRY(wait_until("does not send all of a burst", [&receives] {
      receives.wait_for(nullptr, 0);
      return receives.try_peek();
    }));
    ++seen_.received;
    const bool is_right = receives.header().size_bytes == head.size_bytes &&
                          has_pattern(receives.payload(), i, head.size_bytes);
    seen_.corrupt += is_right ? 0 : 1;
    receives.release();
  }
  return send(Kind::kTaken, static_cast<uint32_t>(waited_us() - waited));
}

// ---- messages ----

/// kData of `size_bytes`; all others say what they are.
Result<void> LinkTrial::send(Kind kind, uint32_t count, uint32_t size_bytes) {
  SendConnection& sends = options_.send->connection();
  const auto length = kind == Kind::kData ? size_bytes : static_cast<uint32_t>(sizeof(Head));
  PLEXUS_TRY(
      wait_until("takes no message", [&sends, length] { return sends.try_acquire(length); }));
  std::byte* const payload = sends.payload(length);
  if (kind == Kind::kData) {
    write_pattern(payload, count, length);
  } else {
    Head head{.kind = kind, .count = count, .size_bytes = size_bytes, .check = 0};
    head.check = check_of(head);
    std::memcpy(payload, &head, sizeof(head));
  }
  sends.commit(length, kCallHash);
  ++seen_.sent;
  PLEXUS_TRY(moved, pump());
  (void)moved;
  return ok();
}

Result<LinkTrial::Head> LinkTrial::receive() {
  RecvConnection& receives = options_.recv->connection();
  options_.recv->expect(1);
  PLEXUS_TRY(wait_until("does not answer", [&receives] {
    receives.wait_for(nullptr, 0);
    return receives.try_peek();
  }));
  ++seen_.received;
  Head head{};
  if (receives.header().size_bytes == sizeof(head)) {
    std::memcpy(&head, receives.payload(), sizeof(head));
  }
  receives.release();
  if (head.kind == Kind{} || head.check != check_of(head)) {
    ++seen_.corrupt;
    return fail(Code::kRemoteError, "a message of the trial arrived changed");
  }
  return head;
}

Result<LinkTrial::Head> LinkTrial::receive(Kind kind) {
  PLEXUS_TRY(head, receive());
  if (head.kind != kind) {
    return fail(Code::kRemoteError, "a message of the trial arrived out of turn");
  }
  return head;
}

/// Connects, or moves messages; true when something moved.
Result<bool> LinkTrial::pump() {
  bool moved = false;
  for (ConnectionEnd* const end : std::array<ConnectionEnd*, 2>{options_.send, options_.recv}) {
    if (!end->connected()) {
      PLEXUS_TRY(connected, end->progress_connect());
      moved = moved || connected;
    } else if (end->has_pump()) {
      PLEXUS_TRY(pumped, end->progress_pump());
      moved = moved || pumped;
    }
    if (const Error* const broken = end->broken(); broken != nullptr) {
      return broken->clone();
    }
  }
  return moved;
}

/// `what` the peer does not do otherwise.
template <class Condition>
Result<void> LinkTrial::wait_until(const char* what, const Condition& is_done) {
  // Never yields: on a core that others want as well, that costs a whole turn of each of them,
  // while who has slept is woken at once.
  constexpr int kSpins = 2000;
  constexpr int kSpinsCrowded = 50;
  constexpr auto kPause = std::chrono::microseconds(20);
  constexpr int kPart = 8;  // of the time so far: who wakes seldom waits seldom for a core
  int idle = 0;
  Clock::time_point since{};
  while (!is_done()) {
    PLEXUS_TRY(moved, pump());
    if (moved) {
      idle = 0;
      since = {};
      continue;
    }
    if (options_.give_up != nullptr && options_.give_up->load(std::memory_order_acquire)) {
      return fail(Code::kInvalidUsage, "the communicator was aborted");
    }
    if (end_.expired()) {
      return fail(Code::kRemoteError, "{} within {} s", what, kPatience.count());
    }
    if (++idle < (options_.is_crowded ? kSpinsCrowded : kSpins)) {
      _mm_pause();
    } else {
      const auto now = Clock::now();
      since = since == Clock::time_point{} ? now : since;
      std::this_thread::sleep_for(std::max<Clock::duration>(kPause, (now - since) / kPart));
    }
  }
  return ok();
}

}  // namespace plexus
