// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/executor.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kernels/host/poll.hpp"

namespace plexus {
namespace {

constexpr uint64_t kTurnBytes = uint64_t{512} * 1024;  // about 100 us; then other lanes get a turn
// a call with more steps is long enough to compute them in each loop
constexpr size_t kExtentsMax = 64;
// the most short chunks that travel together
constexpr size_t kJoinedExtentsMax = 4096;
// so that intermediate values of a reduction stay in L1
constexpr size_t kBlockBytes = size_t{8} * 1024;
// Operands in peers' memory are read in parts that stay in L2: one of this size, many of less, but
// not of so few pages that the system calls count.
constexpr size_t kFetchBytes = size_t{64} * 1024;
constexpr size_t kFetchBytesMin = size_t{16} * 1024;
constexpr uint64_t kAheadBytesMax = uint64_t{512} * 1024;  // stored by one system call

// A peer that ended or whose call failed cannot be read any more. The other ranks are told of that
// with the reason, which is a better error; if not even that comes, after seconds of such reads.
constexpr uint32_t kLostReadsMax = 2'000'000;

/// The most bytes of an operand that are fetched at once: whole cache lines, as the operands'
/// parts lie one behind the other.
size_t fetch_bytes(const Step& step) {
  const size_t share = kFetchBytes / static_cast<size_t>(step.receives);
  return std::max(share - share % kCacheLine, kFetchBytesMin);
}

/// Combines `count` equally long operands in order into `target`, block by block. `target` may be
/// one of the operands, because intermediate values have a block of their own.
void reduce_many(std::byte* target,
                 const std::byte* const* operands,
                 int count,
                 size_t elements,
                 const Work& work) noexcept {
  alignas(kCacheLine) std::byte block[kBlockBytes];
  const size_t block_elements = kBlockBytes / work.element_bytes;
  for (size_t first = 0; first < elements; first += block_elements) {
    const size_t some = std::min(block_elements, elements - first);
    const size_t offset = first * work.element_bytes;
    const std::byte* value = operands[0] + offset;
    for (int i = 1; i < count; ++i) {
      std::byte* const to = i == count - 1 ? target + offset : block;
      work.reduce(to, value, operands[i] + offset, some);
      value = to;
    }
  }
}

/// Whether what arrives in this step is combined with more.
bool combines(const Step& step) { return step.receives > 0 && step.source != Buffer::kNone; }

/// Whether steps of a message are one where their chunks lie one behind the other.
bool moves_alike(const Step& one, const Step& other) {
  return one.source == other.source && one.target == other.target &&
         one.completes == other.completes && one.own_position == other.own_position;
}

/// Whether the data that arrives in this step is only stored, and possibly forwarded.
bool stores_arrival(const Step& step) {
  return step.receives == 1 && step.source == Buffer::kNone && step.target != Buffer::kNone;
}

}  // namespace

Span span_of(const Work& work, Buffer buffer, int chunk, uint32_t loop) noexcept {
  const Geometry& geometry = work.geometry;
  const bool is_scratch = buffer == Buffer::kScratch;
  const bool is_input = buffer == Buffer::kInput;
  const uint64_t in_scratch = static_cast<uint64_t>(chunk) * geometry.chunk_count;
  if (!work.blocks.empty()) {
    const int rank = work.program->block_of(buffer, chunk);
    PLEXUS_DCHECK(rank >= 0 && static_cast<size_t>(rank) < work.blocks.size(), rank, chunk);
    const BlockPart& block = work.blocks[static_cast<size_t>(rank)];
    const uint64_t done = std::min(loop * geometry.chunk_count, block.count);
    return {is_scratch ? in_scratch : (is_input ? block.input : block.output) + done,
            std::min(block.count - done, geometry.chunk_count)};
  }
  if (is_scratch) {
    const Span like =
        span_of(geometry, 0, geometry.blocked ? 0 : static_cast<uint32_t>(chunk), loop);
    return {in_scratch, like.count};
  }
  return span_of(geometry, is_input ? geometry.input_stride : geometry.output_stride,
                 static_cast<uint32_t>(chunk), loop);
}

Span span_of(const Work& work, const Step& step, uint32_t loop) noexcept {
  if (step.source != Buffer::kNone) {
    return span_of(work, step.source, step.source_chunk, loop);
  }
  return span_of(work, step.target != Buffer::kNone ? step.target : Buffer::kOutput,
                 step.target_chunk, loop);
}

// ---- RunQueue ----

void RunQueue::add(LaneRun* lane) {
  lane->index = static_cast<uint32_t>(lanes_.size());
  lanes_.push_back(lane);
}

void RunQueue::clear() noexcept {
  lanes_.clear();
  head_ = tail_ = nullptr;
}

void RunQueue::push(LaneRun* lane) noexcept {
  PLEXUS_DCHECK(lane->index < lanes_.size() && lanes_[lane->index] == lane, lane->index,
                lanes_.size());
  if (lane->queued) {
    return;
  }
  lane->queued = true;
  lane->next = nullptr;
  (head_ == nullptr ? head_ : tail_->next) = lane;
  tail_ = lane;
}

LaneRun* RunQueue::pop() noexcept {
  PLEXUS_DCHECK(!empty());
  LaneRun* const lane = head_;
  head_ = lane->next;
  lane->queued = false;
  return lane;
}

void RunQueue::notify(FifoEnd& end) noexcept {
  // No fence between the slot's store and this load: a sleeper that is missed here wakes at its
  // timeout.
  if (end.sleeping.load(std::memory_order_relaxed) != 0) {
    end.sleeping.store(0, std::memory_order_relaxed);
    syscall(SYS_futex, &end.sleeping, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  if (engine_ == 0 || end.engine.load(std::memory_order_relaxed) != engine_) {
    return;
  }
  const uint32_t waiter = end.waiter.load(std::memory_order_relaxed);
  if (waiter != 0) {
    end.waiter.store(0, std::memory_order_relaxed);
    PLEXUS_DCHECK(waiter <= lanes_.size(), waiter, lanes_.size());
    push(lanes_[waiter - 1]);
  }
}

// ---- LaneRun ----

LaneRun::LaneRun(Work* work, int lane, LaneRun* siblings)
    : work_(work), lane_(&work->program->lanes[static_cast<size_t>(lane)]), siblings_(siblings) {
  PLEXUS_ASSERT(static_cast<size_t>(lane) < work->program->lanes.size(), lane);
  PLEXUS_ASSERT(std::has_single_bit(work->element_bytes), work->element_bytes);
  PLEXUS_ASSERT(
      work->slot_bytes >= work->element_bytes && work->slot_bytes % work->element_bytes == 0,
      work->slot_bytes, work->element_bytes);
  const bool joins = std::any_of(lane_->steps.begin(), lane_->steps.end(),
                                 [](const Step& step) { return step.with_next; });
  if (work_->geometry.loops <= 1 &&
      lane_->steps.size() <= (joins ? kJoinedExtentsMax : kExtentsMax)) {
    for (const Step& step : lane_->steps) {
      extents_.push_back(extent_of(step));
    }
  }
  if (uses_lines(work_->protocol)) {
    int payloads = 0;
    for (const Step& step : lane_->steps) {
      payloads = std::max(payloads, step.receives + 1);
    }
    staging_.resize(static_cast<size_t>(payloads) * payload_bytes_max(work_->protocol));
  }
  size_t fetched_bytes = 0;
  for (const Step& step : lane_->steps) {
    if (work_->fetches && combines(step)) {
      fetched_bytes =
          std::max(fetched_bytes, static_cast<size_t>(step.receives) * fetch_bytes(step));
    }
  }
  fetched_.resize(fetched_bytes);
}

void LaneRun::restart() noexcept {
  step_ = 0;
  loop_ = 0;
  slice_bytes_done_ = 0;
  wait_recv_ = nullptr;
  wait_send_ = nullptr;
  lost_reads_ = 0;
  failure_.kind = LaneFailure::Kind::kNone;
}

Progress LaneRun::advance(RunQueue& queue) noexcept {
  return uses_lines(work_->protocol) ? advance_lane<true>(queue) : advance_lane<false>(queue);
}

template <bool kByLines>
Progress LaneRun::advance_lane(RunQueue& queue) noexcept {
  PLEXUS_DCHECK(failure_.kind == LaneFailure::Kind::kNone, failure_.kind);
  wait_recv_ = nullptr;
  wait_send_ = nullptr;
  bytes_this_turn_ = 0;
  moved_ = false;
  for (; loop_ < work_->geometry.loops; ++loop_, step_ = 0) {
    if (step_ == 0 && work_->program->shares_scratch && !may_begin_loop()) {
      return Progress::kPending;
    }
    while (step_ < lane_->steps.size()) {
      if (bytes_this_turn_ >= kTurnBytes) {
        return Progress::kYielded;
      }
      const Step& step = lane_->steps[step_];
      if (slice_bytes_done_ == 0 && !may_start(step)) {
        return Progress::kPending;
      }
      if (only_waits(step)) {
        ++step_;
        moved_ = true;
        continue;
      }
      joins_ = step.with_next;
      const Progress progress =
          joins_ ? advance_message<kByLines>(&step, queue) : advance_step<kByLines>(step, queue);
      if (progress != Progress::kDone) {
        return progress;
      }
      slice_bytes_done_ = 0;
      step_ += joins_ ? steps_of_message(&step) : 1;
      moved_ = true;
    }
  }
  return Progress::kDone;
}

bool LaneRun::may_begin_loop() const noexcept {
  const LaneRun* const first = siblings_;
  return std::all_of(first, first + work_->program->lanes.size(),
                     [this](const LaneRun& other) { return other.loop_ >= loop_; });
}

bool LaneRun::may_start(const Step& step) const noexcept {
  if (step.after.lane < 0) {
    return true;
  }
  PLEXUS_DCHECK(static_cast<size_t>(step.after.lane) < work_->program->lanes.size(),
                step.after.lane);
  const LaneRun& other = siblings_[step.after.lane];
  return other.loop_ > loop_ ||
         (other.loop_ == loop_ && other.step_ > static_cast<size_t>(step.after.step));
}

std::byte* LaneRun::at(Buffer buffer, uint64_t offset_bytes) const noexcept {
  switch (buffer) {
    case Buffer::kInput:
      return work_->input.address + offset_bytes;
    case Buffer::kOutput:
      return work_->output.address + offset_bytes;
    case Buffer::kScratch:
      PLEXUS_DCHECK(offset_bytes <= work_->scratch.size(), offset_bytes, work_->scratch.size());
      return work_->scratch.data() + offset_bytes;
    case Buffer::kNone:
      break;
  }
  return nullptr;
}

LaneRun::Extent LaneRun::extent_of(const Step& step) const noexcept {
  const Span source = span_of(*work_, step, loop_);
  const Span target = step.target == Buffer::kNone
                          ? source
                          : span_of(*work_, step.target, step.target_chunk, loop_);
  const uint64_t element_bytes = work_->element_bytes;
  return {source.offset * element_bytes, target.offset * element_bytes,
          source.count * element_bytes};
}

template <bool kByLines>
Progress LaneRun::advance_step(const Step& step, RunQueue& queue) noexcept {
  const Extent extent = extents_.empty() ? extent_of(step) : extents_[step_];
  const uint64_t size_bytes = extent.size_bytes;
  bool more = size_bytes > 0 || work_->exchanges_empty;
  while (more) {
    const Slice slice{extent.source_bytes + slice_bytes_done_,
                      extent.target_bytes + slice_bytes_done_,
                      static_cast<uint32_t>(
                          std::min<uint64_t>(size_bytes - slice_bytes_done_, work_->slot_bytes))};
    if (!acquire<kByLines>(step, slice, queue.polls())) {
      return failure_.kind == LaneFailure::Kind::kNone ? Progress::kPending : Progress::kFailed;
    }
    if (!move<kByLines>(step, slice, queue)) {
      return failure_.kind == LaneFailure::Kind::kNone ? Progress::kPending : Progress::kFailed;
    }
    slice_bytes_done_ += slice.size_bytes;
    moved_ = true;
    bytes_this_turn_ += slice.size_bytes;
    more = slice_bytes_done_ < size_bytes;
    if (more && bytes_this_turn_ >= kTurnBytes) {
      return Progress::kYielded;
    }
  }
  return Progress::kDone;
}

template <bool kByLines>
Progress LaneRun::advance_message(const Step* steps, RunQueue& queue) noexcept {
  const size_t count = steps_of_message(steps);
  const auto extent = [&](size_t i) {
    return extents_.empty() ? extent_of(steps[i]) : extents_[step_ + i];
  };
  uint64_t bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    bytes += extent(i).size_bytes;
  }
  PLEXUS_DCHECK(bytes <= work_->slot_bytes, bytes, work_->slot_bytes);
  if (bytes == 0) {
    return Progress::kDone;
  }
  const auto size_bytes = static_cast<uint32_t>(bytes);
  if (!acquire<kByLines>(*steps, {0, 0, size_bytes}, queue.polls())) {
    return failure_.kind == LaneFailure::Kind::kNone ? Progress::kPending : Progress::kFailed;
  }
  part_bytes_ = 0;
  for (size_t i = 0; i < count;) {
    const Step& step = steps[i];
    Extent part = extent(i);
    for (++i; i < count && moves_alike(steps[i], step); ++i) {
      const Extent more = extent(i);
      if (more.source_bytes != part.source_bytes + part.size_bytes ||
          more.target_bytes != part.target_bytes + part.size_bytes) {
        break;
      }
      part.size_bytes += more.size_bytes;
    }
    const auto part_bytes = static_cast<uint32_t>(part.size_bytes);
    move_part<kByLines>(step, {part.source_bytes, part.target_bytes, part_bytes}, size_bytes);
    part_bytes_ += part_bytes;
  }
  part_bytes_ = 0;
  SendConnection* const* const sends =
      work_->sends.data() + static_cast<size_t>(steps->peers_first + steps->receives);
  for (int i = 0; i < steps->sends; ++i) {
    std::byte* const made = place_to_send<kByLines>(*steps, *sends[i], size_bytes);
    hand_over<kByLines>(*sends[i], {made, Buffer::kNone, 0, false}, size_bytes);
    queue.notify(sends[i]->fifo().receiver);
  }
  release(*steps, queue);
  bytes_this_turn_ += size_bytes;
  return Progress::kDone;
}

template <bool kByLines>
void LaneRun::move_part(const Step& step, const Slice& slice, uint32_t message_bytes) noexcept {
  if (slice.size_bytes == 0) {
    return;
  }
  SendConnection* const* const sends =
      work_->sends.data() + static_cast<size_t>(step.peers_first + step.receives);
  const auto place = [&](int i) {
    return place_to_send<kByLines>(step, *sends[i], message_bytes) + part_bytes_;
  };
  std::byte* const made =
      step.target != Buffer::kNone ? at(step.target, slice.target_bytes) : place(0);
  Value value{made, Buffer::kNone, 0, false};
  const bool is_made = make<kByLines>(step, slice, made, &value);
  PLEXUS_DCHECK(is_made);  // an arrival is not in a peer's memory
  static_cast<void>(is_made);
  for (int i = 0; i < step.sends; ++i) {
    if (std::byte* const to = place(i); to != value.made) {
      copy(to, value.made, slice.size_bytes);
    }
  }
}

/// Buffer for the payload of arrival `number` of a step that comes by lines; after those, one for a
/// payload that is sent by lines.
std::byte* LaneRun::staging(int number) noexcept {
  PLEXUS_DCHECK(
      static_cast<size_t>(number + 1) * payload_bytes_max(work_->protocol) <= staging_.size(),
      number, staging_.size());
  return staging_.data() + static_cast<size_t>(number) * payload_bytes_max(work_->protocol);
}

template <bool kByLines>
bool LaneRun::acquire(const Step& step, const Slice& slice, uint32_t polls) noexcept {
  attached_ = false;
  for (int i = 0; i < step.receives; ++i) {
    if (!acquire_arrival<kByLines>(step, slice, i, polls)) {
      return false;
    }
  }
  SendConnection* const* const sends = work_->sends.data() + step.peers_first + step.receives;
  for (int i = 0; i < step.sends; ++i) {
    SendConnection& send = *sends[i];
    const auto acquire = [&] {
      return kByLines && send.has_lines() ? send.try_acquire() : send.try_acquire(slice.size_bytes);
    };
    if (!acquire() && !poll(acquire, polls)) {
      wait_send_ = &send;
      return false;
    }
  }
  return true;
}

template <bool kByLines>
bool LaneRun::acquire_arrival(const Step& step,
                              const Slice& slice,
                              int number,
                              uint32_t polls) noexcept {
  RecvConnection& recv =
      *work_->recvs[static_cast<size_t>(step.peers_first) + static_cast<size_t>(number)];
  if (kByLines && recv.has_lines()) {
    // Data that is only stored is received at its final address.
    std::byte* const payload =
        stores_arrival(step) && !joins_ ? at(step.target, slice.target_bytes) : staging(number);
    const auto read = [&] {
      return recv.try_read_lines(work_->protocol, payload, slice.size_bytes, work_->call.hash);
    };
    const bool is_there = read() || poll(read, polls);
    if (recv.arrival().is_other_call) {
      fail(LaneFailure::Kind::kOtherCall, recv, slice.size_bytes);
      failure_.hash_arrived = recv.arrival().other_hash;
      failure_.size_arrived = slice.size_bytes;
    }
    wait_recv_ = is_there ? nullptr : &recv;
    return is_there;
  }
  if (!recv.try_peek() && !poll([&] { return recv.try_peek(); }, polls)) {
    recv.wait_for(stores_arrival(step) && !joins_ ? at(step.target, slice.target_bytes) : nullptr,
                  slice.size_bytes);
    wait_recv_ = &recv;
    return false;
  }
  return check_arrival(recv, slice.size_bytes);
}

/// Checks that a slot contains the message that this call expects.
bool LaneRun::check_arrival(RecvConnection& recv, uint32_t size_bytes) noexcept {
  const SlotHeader& slot = recv.header();
  const bool is_mine = slot.call_hash == work_->call.hash && slot.size_bytes == size_bytes;
  if (is_mine && !joins_ && recv.is_attached() && recv.reads_attached()) {
    attached_ = true;
    return true;
  }
  if (is_mine && recv.payload() != nullptr) {
    return true;
  }
  fail(slot.call_hash != work_->call.hash ? LaneFailure::Kind::kOtherCall
       : !is_mine                         ? LaneFailure::Kind::kOtherSize
                                          : LaneFailure::Kind::kUnmapped,
       recv, size_bytes);
  return false;
}

void LaneRun::fail(LaneFailure::Kind kind, RecvConnection& recv, uint32_t size_bytes) noexcept {
  failure_ = {.kind = kind,
              .connection = &recv,
              .size_expected = size_bytes,
              .hash_arrived = recv.header().call_hash,
              .size_arrived = recv.header().size_bytes};
}

template <bool kByLines>
const std::byte* LaneRun::arrived(const Step& step, int number) noexcept {
  const RecvConnection& recv =
      *work_->recvs[static_cast<size_t>(step.peers_first) + static_cast<size_t>(number)];
  return (kByLines && recv.has_lines() ? staging(number) : recv.payload()) + part_bytes_;
}

bool LaneRun::fetch(RecvConnection& recv,
                    std::byte* target,
                    size_t offset,
                    size_t size_bytes) noexcept {
  const int error = recv.read_attached(target, offset, size_bytes);
  if (error == 0) {
    return true;
  }
  if ((error == ESRCH || error == ECANCELED) && ++lost_reads_ < kLostReadsMax) {
    wait_recv_ = &recv;  // for ever: it is told soon who is to blame
    return false;
  }
  fail(LaneFailure::Kind::kUnread, recv, static_cast<uint32_t>(size_bytes));
  failure_.error = error;
  return false;
}

/// Reads the slices of the step that have arrived behind this one along with it: a system call for
/// each would cost as much as several pages.
[[gnu::noinline]] bool LaneRun::store_attached(const Step& step,
                                               RecvConnection& recv,
                                               std::byte* made) noexcept {
  const SlotHeader& slot = recv.header();
  if (slice_bytes_done_ == 0 || slot.payload.address != ahead_address_) {
    ahead_bytes_ = 0;
  }
  if (ahead_bytes_ < slot.size_bytes) {
    const Extent extent = extents_.empty() ? extent_of(step) : extents_[step_];
    const uint64_t left = std::min(extent.size_bytes - slice_bytes_done_, kAheadBytesMax);
    ahead_bytes_ = step.target == Buffer::kNone || left <= slot.size_bytes
                       ? slot.size_bytes
                       : recv.attached_bytes(left);
    if (!fetch(recv, made, 0, ahead_bytes_)) {
      return false;
    }
  }
  PLEXUS_DCHECK(ahead_bytes_ >= slot.size_bytes, ahead_bytes_, slot.size_bytes);
  ahead_bytes_ -= slot.size_bytes;
  ahead_address_ = slot.payload.address + slot.size_bytes;
  return true;
}

/// Copies an arrival to where the value is made, unless it was received there: by lines, or in
/// place.
template <bool kByLines>
bool LaneRun::store(const Step& step, std::byte* made, uint32_t size_bytes) noexcept {
  RecvConnection& recv = *work_->recvs[static_cast<size_t>(step.peers_first)];
  if (kByLines && stores_arrival(step) && !joins_ && recv.has_lines()) {
    return true;
  }
  if (attached_) {
    return store_attached(step, recv, made);
  }
  const std::byte* const from = arrived<kByLines>(step, 0);
  if (from != made) {
    const bool streams = work_->streaming && step.sends == 0;
    (streams ? copy_streaming : copy)(made, from, size_bytes);
  }
  return true;
}

template <bool kByLines>
std::byte* LaneRun::place_to_send(const Step& step,
                                  SendConnection& send,
                                  uint32_t size_bytes) noexcept {
  return kByLines && send.has_lines() ? staging(step.receives) : send.payload(size_bytes);
}

template <bool kByLines>
[[gnu::always_inline]] inline bool LaneRun::make(const Step& step,
                                                 const Slice& slice,
                                                 std::byte* made,
                                                 Value* value) noexcept {
  const uint32_t size_bytes = slice.size_bytes;
  PLEXUS_DCHECK(size_bytes % work_->element_bytes == 0, size_bytes, work_->element_bytes);
  // element sizes are powers of two
  const size_t elements = size_bytes >> std::countr_zero(work_->element_bytes);
  const bool scales = step.source == Buffer::kInput && work_->op.scales_input();
  if (step.accumulates) {
    const std::byte* const stored = made;
    combine_many(step, made, at(step.source, slice.source_bytes), {&stored, 1}, elements, scales);
  } else if (step.receives == 0) {
    const std::byte* const source = at(step.source, slice.source_bytes);
    if (scales) {
      scale(made, source, elements, work_->type, work_->op.scalar_bits);
    } else if (step.target == Buffer::kNone) {
      // a plain send: the value is the source itself
      *value = {source, step.source, slice.source_bytes, false};
    } else if (made != source) {
      (work_->streaming ? copy_streaming : copy)(made, source, size_bytes);
    }
  } else if (step.source == Buffer::kNone
                 ? !store<kByLines>(step, made, size_bytes)
                 : !combine<kByLines>(step, made, at(step.source, slice.source_bytes), elements,
                                      scales)) {
    return false;
  }
  if (step.completes && work_->op.divides_output()) {
    divide(made, made, elements, work_->type, work_->op.divisor);
  }
  return true;
}

template <bool kByLines>
bool LaneRun::move(const Step& step, const Slice& slice, RunQueue& queue) noexcept {
  const uint32_t size_bytes = slice.size_bytes;
  SendConnection* const* const sends =
      work_->sends.data() + static_cast<size_t>(step.peers_first + step.receives);
  // The value is made in the target buffer, or else in the first slot that it is sent through.
  std::byte* const made = step.target != Buffer::kNone
                              ? at(step.target, slice.target_bytes)
                              : place_to_send<kByLines>(step, *sends[0], size_bytes);
  Value value{made, step.target, slice.target_bytes, work_->opens_output && delivers(step)};
  for (int i = 0; value.delivers && i < step.sends; ++i) {
    sends[i]->prefetch_output();
  }
  if (!make<kByLines>(step, slice, made, &value)) {
    return false;
  }
  if (!step.by_address && !(work_->keeps_input && value.home == Buffer::kInput)) {
    value.home = Buffer::kNone;
  }
  if (value.delivers) {  // so that the peers need not wait for that when they have the result
    release(step, queue);
  }
  for (int i = 0; i < step.sends; ++i) {
    hand_over<kByLines>(*sends[i], value, size_bytes);
  }
  if (!value.delivers) {
    release(step, queue);
  }
  for (int i = 0; i < step.sends; ++i) {
    queue.notify(sends[i]->fifo().receiver);
  }
  return true;
}

template <bool kByLines>
bool LaneRun::combine(const Step& step,
                      std::byte* made,
                      const std::byte* own,
                      size_t elements,
                      bool scales) noexcept {
  if (attached_) {
    return combine_attached<kByLines>(step, made, own, elements, scales);
  }
  if (step.receives == 1 && !scales) {
    work_->reduce(made, own, arrived<kByLines>(step, 0), elements);
    return true;
  }
  PLEXUS_DCHECK(step.receives < kOperandsMax, step.receives);
  const std::byte* arrivals[kOperandsMax];
  for (int i = 0; i < step.receives; ++i) {
    arrivals[i] = arrived<kByLines>(step, i);
  }
  combine_many(step, made, own, {arrivals, static_cast<size_t>(step.receives)}, elements, scales);
  return true;
}

/// Fetches and combines part by part, so that what was fetched is combined while it is in a cache.
template <bool kByLines>
[[gnu::noinline]] bool LaneRun::combine_attached(const Step& step,
                                                 std::byte* made,
                                                 const std::byte* own,
                                                 size_t elements,
                                                 bool scales) noexcept {
  const std::byte* arrivals[kOperandsMax];
  const size_t part_bytes = fetch_bytes(step);
  const size_t part_elements = part_bytes / work_->element_bytes;
  for (size_t done = 0; done < elements; done += part_elements) {
    const size_t some = std::min(part_elements, elements - done);
    const size_t offset = done * work_->element_bytes;
    for (int i = 0; i < step.receives; ++i) {
      RecvConnection& recv =
          *work_->recvs[static_cast<size_t>(step.peers_first) + static_cast<size_t>(i)];
      if ((kByLines && recv.has_lines()) || !recv.is_attached()) {
        arrivals[i] = arrived<kByLines>(step, i) + offset;
        continue;
      }
      if (fetched_.empty()) {  // no rank sends so in this call
        fail(LaneFailure::Kind::kUnmapped, recv, static_cast<uint32_t>(elements));
        return false;
      }
      PLEXUS_DCHECK(static_cast<size_t>(i + 1) * part_bytes <= fetched_.size(), i, part_bytes,
                    fetched_.size());
      std::byte* const part = fetched_.data() + static_cast<size_t>(i) * part_bytes;
      if (!fetch(recv, part, offset, some * work_->element_bytes)) {
        return false;
      }
      arrivals[i] = part;
    }
    if (step.receives == 1 && !scales) {
      work_->reduce(made + offset, own + offset, arrivals[0], some);
    } else {
      combine_many(step, made + offset, own + offset,
                   {arrivals, static_cast<size_t>(step.receives)}, some, scales);
    }
  }
  return true;
}

/// Not inlined, because its blocks on the stack need a checked frame.
[[gnu::noinline]] void LaneRun::combine_many(const Step& step,
                                             std::byte* made,
                                             const std::byte* own,
                                             std::span<const std::byte* const> arrivals,
                                             size_t elements,
                                             bool scales) noexcept {
  // One block of all operands at a time, so that a scaled own input needs only one block of memory.
  alignas(kCacheLine) std::byte scaled[kBlockBytes];
  const std::byte* operands[kOperandsMax];
  const size_t block_elements = kBlockBytes / work_->element_bytes;
  for (size_t done = 0; done < elements; done += block_elements) {
    const size_t some = std::min(block_elements, elements - done);
    const size_t offset = done * work_->element_bytes;
    const std::byte* own_block = own + offset;
    if (scales) {
      scale(scaled, own_block, some, work_->type, work_->op.scalar_bits);
      own_block = scaled;
    }
    int count = 0;
    const auto before_own = static_cast<size_t>(step.own_position);
    for (size_t i = 0; i < arrivals.size(); ++i) {
      if (i == before_own) {
        operands[count++] = own_block;
      }
      operands[count++] = arrivals[i] + offset;
    }
    if (before_own >= arrivals.size()) {
      operands[count++] = own_block;
    }
    reduce_many(made + offset, operands, count, some, *work_);
  }
}

template <bool kByLines>
void LaneRun::hand_over(SendConnection& send, const Value& value, uint32_t size_bytes) noexcept {
  const uint32_t hash = work_->call.hash;
  if (kByLines && send.has_lines()) {
    send.commit_lines(work_->protocol, value.made, size_bytes, hash);
    return;
  }
  if (size_bytes >= work_->borrow_bytes_min && value.delivers) {
    if (std::byte* const place = send.try_begin_write(value.home_bytes, size_bytes)) {
      (work_->streaming ? copy_streaming : copy)(place, value.made, size_bytes);
      send.commit_written(value.home_bytes, size_bytes, hash);
      return;
    }
  }
  if (size_bytes >= work_->address_bytes_min(send) && value.home != Buffer::kNone) {
    if (send.reach() == Reach::kProcess) {
      send.commit_pointer(value.made, size_bytes, hash);
      return;
    }
    if (send.reach() == Reach::kMapped && value.home != Buffer::kScratch) {
      MappedPlace place = (value.home == Buffer::kInput ? work_->input : work_->output).place;
      if (place.segment != 0) {
        place.offset += value.home_bytes;
        send.commit_place(place, size_bytes, hash);
        return;
      }
    }
  }
  if (size_bytes >= work_->attach_bytes_min && value.home != Buffer::kNone && send.attaches()) {
    send.commit_address(value.made, size_bytes, hash);
    return;
  }
  std::byte* const payload = send.payload(size_bytes);
  if (payload != value.made) {
    copy(payload, value.made, size_bytes);
  }
  send.commit(size_bytes, hash);
}

/// What arrived has been used.
void LaneRun::release(const Step& step, RunQueue& queue) noexcept {
  RecvConnection* const* const recvs = work_->recvs.data() + step.peers_first;
  for (int i = 0; i < step.receives; ++i) {
    recvs[i]->release();
    queue.notify(recvs[i]->fifo().sender);
  }
}

bool LaneRun::can_go_on() const noexcept {
  if (wait_recv_ != nullptr) {
    return uses_lines(work_->protocol) && wait_recv_->has_lines()
               ? wait_recv_->try_peek_line(work_->protocol)
               : wait_recv_->try_peek();
  }
  return wait_send_ == nullptr || wait_send_->try_acquire();
}

}  // namespace plexus
