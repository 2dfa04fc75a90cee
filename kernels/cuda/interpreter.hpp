// SPDX-License-Identifier: Apache-2.0
// The device executor: a block of threads interprets one lane of a recorded Program, step by step
// and slice by slice. It does what LaneRun does on the host, but waits where LaneRun returns: all
// blocks of a launch are resident, so the block that one waits for runs.
//
// `Block` provides thread(), threads(), sync() (a barrier of the block that also orders memory) and
// any(bool) (a sync that returns whether any thread passed true). It is a thread block on the
// device, and one or a few host threads in tests. A slice is processed as follows: thread i serves
// peer i (waits, checks, notes where the bytes are); sync; all threads move the bytes (pass.hpp);
// sync; thread i notifies peer i. The release with which it notifies covers the other threads'
// writes because of that sync.
#pragma once

#include "kernels/cuda/pass.hpp"

namespace plexus {

/// State that the threads of a block share.
struct BlockState {
  Pass pass;
  // addresses were sent, so their bytes must not change until they are taken
  uint32_t addresses_out;
};

/// The bytes of a step in its buffers, and the part of them that one slot carries.
struct StepExtent {
  uint64_t source_bytes;  // offset
  uint64_t target_bytes;  // offset
  uint64_t size_bytes;
};

PLEXUS_DEVICE inline uint32_t log2_of_element(DataType type) {
  switch (type) {
    case DataType::kFloat16:
    case DataType::kBfloat16:
      return 1;
    case DataType::kInt32:
    case DataType::kUint32:
    case DataType::kFloat32:
      return 2;
    case DataType::kInt64:
    case DataType::kUint64:
    case DataType::kFloat64:
      return 3;
    default:
      return 0;
  }
}

PLEXUS_DEVICE inline Span chunk_span(const DeviceWork& work,
                                     Buffer buffer,
                                     int chunk,
                                     uint32_t loop) {
  const Geometry& geometry = work.geometry;
  const auto index = static_cast<uint32_t>(chunk);
  // a chunk of scratch is as long as the buffer's chunk with the same index
  if (buffer == Buffer::kScratch) {
    const Span like = span_of(geometry, 0, geometry.blocked ? 0 : index, loop);
    return {index * geometry.chunk_count, like.count};
  }
  return span_of(geometry,
                 buffer == Buffer::kInput ? geometry.input_stride : geometry.output_stride, index,
                 loop);
}

PLEXUS_DEVICE inline StepExtent extent_of(const DeviceWork& work, const Step& step, uint32_t loop) {
  // Verbs without a local buffer forward as many bytes as their output chunk would hold.
  const bool has_source = step.source != Buffer::kNone;
  const Span source = chunk_span(work, has_source ? step.source : Buffer::kOutput,
                                 has_source ? step.source_chunk : step.target_chunk, loop);
  const Span target = step.target == Buffer::kNone
                          ? source
                          : chunk_span(work, step.target, step.target_chunk, loop);
  const uint32_t shift = log2_of_element(work.type);
  return {source.offset << shift, target.offset << shift, source.count << shift};
}

PLEXUS_DEVICE inline std::byte* place_of(const DeviceWork& work, Buffer buffer, uint64_t offset) {
  switch (buffer) {
    case Buffer::kInput:
      return work.input + offset;
    case Buffer::kOutput:
      return work.output + offset;
    case Buffer::kScratch:
      return work.scratch + offset;
    case Buffer::kNone:
      break;
  }
  return nullptr;
}

template <class Block>
class Interpreter {
 public:
  PLEXUS_DEVICE Interpreter(const Block& block, BlockState& state) : block_(block), state_(state) {}

  PLEXUS_DEVICE void run(const DeviceBlock& block) {
    if (block_.thread() == 0) {
      state_.pass.stopped = 0;
      state_.addresses_out = 0;
    }
    block_.sync();
    if (block.in_turn != 0) {
      run_in_turn(*block.queue);
    } else {
      if (block.lane == 0) {
        note_time(*block.queue, 0);
      }
      run_lanes(*block.queue, block.lane);
      if (block.lane == 0) {
        note_time(*block.queue, 1);
      }
    }
  }

 private:
  /// Recorded by the first lane only, because the lanes of a work begin and end at about the same
  /// time.
  PLEXUS_DEVICE void note_time(const DeviceQueue& queue, uint32_t which) {
    if (queue.times != nullptr && block_.thread() == 0) {
      store_relaxed(queue.times + which, read_clock());
    }
  }

  /// Runs lane `lane` of every work of `queue`.
  PLEXUS_DEVICE void run_lanes(const DeviceQueue& queue, uint32_t lane) {
    for (uint32_t i = 0; i < queue.work_count; ++i) {
      const DeviceWork& work = *queue.works[i];
      if ((lane < work.lane_count && !run_lane(work, lane)) || !meet(queue, work, i)) {
        return;
      }
    }
    drain(queue, lane);
  }

  /// A sync after which all threads agree on whether one of them has given up.
  PLEXUS_DEVICE bool is_stopped_anywhere() {
    return block_.any(load_relaxed(&state_.pass.stopped) != 0);
  }

  /// One slice of a step.
  struct Slice {
    const DeviceWork& work;
    const Step& step;
    std::byte* source;  // own contribution; nullptr: none
    std::byte* target;  // location of the value; nullptr: none
    uint32_t size_bytes;
    bool scales;
  };

  PLEXUS_DEVICE bool run_lane(const DeviceWork& work, uint32_t lane) {
    const DeviceLane& mine = work.lanes[lane];
    uint64_t done = 0;
    for (uint32_t loop = 0; loop < work.geometry.loops; ++loop) {
      if (work.shares_scratch && loop > 0 && !await_lanes(work, loop)) {
        return false;
      }
      for (uint32_t i = 0; i < mine.step_count; ++i) {
        const Step& step = mine.steps[i];
        if ((step.after.lane >= 0 && !await_lane(work, step.after, loop)) ||
            !run_step(work, step, loop)) {
          return false;
        }
        ++done;
        if (mine.awaited != 0 && block_.thread() == 0) {
          store_release(work.progress + lane, done);  // pairs with await_lane()
        }
      }
    }
    return true;
  }

  /// Waits until all lanes have ended the loop before `loop`.
  PLEXUS_DEVICE bool await_lanes(const DeviceWork& work, uint32_t loop) {
    for (uint32_t lane = 0; lane < work.lane_count; ++lane) {
      const auto steps = static_cast<int>(work.lanes[lane].step_count);
      if (steps > 0 && !await_lane(work, {static_cast<int>(lane), steps - 1}, loop - 1)) {
        return false;
      }
    }
    return true;
  }

  PLEXUS_DEVICE bool await_lane(const DeviceWork& work, const After& after, uint32_t loop) {
    const DeviceLane& other = work.lanes[after.lane];
    const uint64_t wanted =
        uint64_t{loop} * other.step_count + static_cast<uint64_t>(after.step) + 1;
    if (block_.thread() == 0) {
      const uint64_t* const progress = work.progress + after.lane;
      if (!wait_until(*work.control, [&] { return load_acquire(progress) >= wanted; })) {
        store_relaxed(&state_.pass.stopped, 1U);
      }
    }
    return !is_stopped_anywhere();
  }

  PLEXUS_DEVICE bool run_step(const DeviceWork& work, const Step& step, uint32_t loop) {
    if (only_waits(step)) {
      return true;
    }
    const StepExtent extent = extent_of(work, step, loop);
    std::byte* source = place_of(work, step.source, extent.source_bytes);
    std::byte* target = place_of(work, step.target, extent.target_bytes);
    const bool scales = step.source == Buffer::kInput && work.op.scales_input();
    uint64_t left_bytes = extent.size_bytes;
    bool more = left_bytes > 0 || work.exchanges_empty;
    while (more) {
      const auto size_bytes =
          static_cast<uint32_t>(left_bytes < work.slot_bytes ? left_bytes : work.slot_bytes);
      if (!run_slice({work, step, source, target, size_bytes, scales})) {
        return false;
      }
      left_bytes -= size_bytes;
      source += source == nullptr ? 0 : size_bytes;
      target += target == nullptr ? 0 : size_bytes;
      more = left_bytes > 0;
    }
    block_.sync();  // another thread may serve the same peer in the next step
    return true;
  }

  PLEXUS_DEVICE bool run_slice(const Slice& slice) {
    const Step& step = slice.step;
    const auto receives = static_cast<uint32_t>(step.receives);
    const uint32_t peers = receives + static_cast<uint32_t>(step.sends);
    for (uint32_t i = block_.thread(); i < peers; i += block_.threads()) {
      const auto index = static_cast<uint32_t>(step.peers_first) + i;
      const bool good =
          i < receives ? begin_receive(slice, index, i) : begin_send(slice, index, i - receives);
      if (!good) {
        store_relaxed(&state_.pass.stopped, 1U);
        break;
      }
    }
    if (block_.thread() == 0) {
      begin_pass(slice);
    }
    if (is_stopped_anywhere()) {
      return false;
    }
    run_pass(block_, state_.pass, slice.work.type, slice.work.op.kind);
    if (is_stopped_anywhere()) {
      return false;
    }
    if (slice.work.protocol == Protocol::kLL128) {
      finish_lines();
      block_.sync();  // the next slice overwrites these targets
    }
    for (uint32_t i = block_.thread(); i < peers; i += block_.threads()) {
      const auto index = static_cast<uint32_t>(step.peers_first) + i;
      i < receives ? finish_receive(slice.work, index) : finish_send(slice.work, index);
    }
    return true;
  }

  // ---- many queues, one block ----

  /// Serves more queues than the device has room for blocks. The block never waits for a single
  /// peer: it goes round and moves a slice of every queue whose slots are ready. Whatever the order
  /// of the peers' blocks and the boundaries of their launches, it moves as long as any of its
  /// queues can move; and a message can always move at one of its ends, since its slot is either
  /// full (the receiver can proceed) or free (the sender can). It waits for the receivers of
  /// addresses only after everything was sent and received.
  PLEXUS_DEVICE_NOINLINE void run_in_turn(DeviceQueue& first) {
    for (DeviceQueue* queue = &first; queue != nullptr; queue = queue->next) {
      note_time(*queue, 0);
    }
    bool left = true;
    uint32_t idle_rounds = 0;
    for (uint32_t round = 1; left; ++round) {
      bool moved = false;
      left = false;
      for (DeviceQueue* queue = &first; queue != nullptr; queue = queue->next) {
        const TurnEnd end = take_turn(*queue, round);
        moved = moved || end == TurnEnd::kMoved;
        left = left || end != TurnEnd::kDone;
      }
      idle_rounds = moved ? 0 : idle_rounds + 1;
      if (!moved) {
        pause_between_polls(idle_rounds);
      }
    }
    for (DeviceQueue* queue = &first; queue != nullptr; queue = queue->next) {
      drain(*queue, 0);
      block_.sync();
      if (block_.thread() == 0) {
        queue->barrier->turn = {0, 0, 0, 0, 0};
      }
    }
  }

  enum class TurnEnd : uint8_t { kDone, kWaits, kMoved };

  /// All threads of the block get the same result.
  PLEXUS_DEVICE TurnEnd take_turn(DeviceQueue& queue, uint32_t round) {
    const DeviceTurn turn = queue.barrier->turn;
    if (turn.work == queue.work_count) {
      return TurnEnd::kDone;
    }
    const DeviceWork& work = *queue.works[turn.work];
    const DeviceLane& lane = work.lanes[0];
    if (work.geometry.loops > 0 && lane.step_count > 0) {
      const Step& step = lane.steps[turn.step];
      const StepExtent extent = extent_of(work, step, turn.loop);
      const uint64_t left_bytes = extent.size_bytes - turn.done_bytes;
      const auto size_bytes =
          static_cast<uint32_t>(left_bytes < work.slot_bytes ? left_bytes : work.slot_bytes);
      if (extent.size_bytes > 0 || work.exchanges_empty) {
        if (!is_ready(work, step)) {
          return may_go_on(queue, work, round) ? TurnEnd::kWaits : TurnEnd::kDone;
        }
        std::byte* const source =
            place_of(work, step.source, extent.source_bytes + turn.done_bytes);
        std::byte* const target =
            place_of(work, step.target, extent.target_bytes + turn.done_bytes);
        const bool scales = step.source == Buffer::kInput && work.op.scales_input();
        if (!run_slice({work, step, source, target, size_bytes, scales})) {
          return give_up(queue);
        }
      }
      if (size_bytes < left_bytes) {
        end_turn(queue, {turn.work, turn.loop, turn.step, 0, turn.done_bytes + size_bytes});
        return TurnEnd::kMoved;
      }
    }
    end_step(queue, turn);
    return TurnEnd::kMoved;
  }

  /// Advances to the next step, loop or work.
  PLEXUS_DEVICE void end_step(DeviceQueue& queue, const DeviceTurn& turn) {
    const DeviceWork& work = *queue.works[turn.work];
    DeviceTurn next{turn.work, turn.loop, turn.step + 1, 0, 0};
    if (next.step >= work.lanes[0].step_count) {
      next.step = 0;
      ++next.loop;
    }
    if (next.loop >= work.geometry.loops) {
      next = {turn.work + 1, 0, 0, 0, 0};
    }
    end_turn(queue, next);
    if (next.work == queue.work_count) {
      note_time(queue, 1);
    }
    if (block_.thread() == 0 && next.work != turn.work) {
      store_release(queue.done, uint64_t{next.work});
    }
  }

  PLEXUS_DEVICE void end_turn(DeviceQueue& queue, const DeviceTurn& next) {
    block_.sync();  // all threads have read the turn
    if (block_.thread() == 0) {
      queue.barrier->turn = next;
    }
    block_.sync();
  }

  /// Whether every peer of the step has provided what the next slice needs. No other block uses
  /// these ends, so that this stays true until the slice begins.
  PLEXUS_DEVICE bool is_ready(const DeviceWork& work, const Step& step) {
    const auto receives = static_cast<uint32_t>(step.receives);
    const uint32_t peers = receives + static_cast<uint32_t>(step.sends);
    bool lacks = false;
    for (uint32_t i = block_.thread(); i < peers; i += block_.threads()) {
      const auto index = static_cast<uint32_t>(step.peers_first) + i;
      if (i < receives) {
        const DeviceRecv& end = *work.recvs[index];
        const uint64_t* const ready = word_of(&end.fifo->headers[end.step % kHeaders].ready);
        lacks = lacks || load_acquire(ready) != end.step + 1;
      } else {
        const DeviceSend& end = *work.sends[index];
        const uint64_t until = end.step < kSlots ? 0 : end.step - kSlots + 1;
        lacks = lacks || (end.taken < until && load_acquire(word_of(&end.fifo->taken)) < until);
      }
    }
    return !block_.any(lacks);
  }

  /// False: the rank was stopped, and its queue ends.
  PLEXUS_DEVICE bool may_go_on(DeviceQueue& queue, const DeviceWork& work, uint32_t round) {
    if (round % kRoundsPerLook != 0) {
      return true;
    }
    if (!block_.any(block_.thread() == 0 && is_stopped(*work.control))) {
      return true;
    }
    give_up(queue);
    return false;
  }

  /// Ends this queue; the queues of other ranks continue.
  PLEXUS_DEVICE TurnEnd give_up(DeviceQueue& queue) {
    end_turn(queue, {queue.work_count, 0, 0, 0, 0});
    if (block_.thread() == 0) {
      state_.pass.stopped = 0;
    }
    block_.sync();
    return TurnEnd::kDone;
  }

  /// Sets the pass's fields that do not depend on peers: own contribution, target, arithmetic.
  PLEXUS_DEVICE void begin_pass(const Slice& slice) {
    const Step& step = slice.step;
    const DeviceWork& work = slice.work;
    const auto receives = static_cast<uint32_t>(step.receives);
    Pass& pass = state_.pass;
    pass.control = work.control;
    pass.hash = work.call.hash;
    pass.size_bytes = slice.size_bytes;
    pass.operand_count = receives;
    pass.scaled = Pass::kUnscaled;
    pass.scalar_bits = work.op.scalar_bits;
    pass.divisor = step.completes && work.op.divides_output() ? work.op.divisor : 0;
    pass.target_count = 1 + static_cast<uint32_t>(step.sends);
    pass.targets[0] = {slice.target, Carrier::kMemory, 0};
    if (slice.source != nullptr) {
      const uint32_t own = own_position(step);
      pass.operands[own] = {slice.source, Carrier::kMemory, 0};
      pass.operand_count = receives + 1;
      pass.scaled = slice.scales ? own : Pass::kUnscaled;
      if (step.accumulates) {
        pass.operands[1] = {slice.target, Carrier::kMemory, 0};
        pass.operand_count = 2;
      }
      const bool in_place =
          receives == 0 && !step.accumulates && slice.target == slice.source && !slice.scales;
      if (in_place && pass.divisor == 0) {
        pass.targets[0].bytes = nullptr;
      }
    }
  }

  PLEXUS_DEVICE static uint32_t own_position(const Step& step) {
    return static_cast<uint32_t>(step.own_position < step.receives ? step.own_position
                                                                   : step.receives);
  }

  PLEXUS_DEVICE static bool by_lines(const DeviceWork& work, const std::byte* lines) {
    return work.protocol != Protocol::kSimple && lines != nullptr;
  }
  /// Offset of the lines of slot `step`: all slots of LL come first, then all of LL128.
  PLEXUS_DEVICE static uint64_t lines_offset(Protocol protocol, uint64_t step) {
    return protocol == Protocol::kLL ? step % kSlots * kSlotBytesLL
                                     : kSlots * kSlotBytesLL + step % kSlots * kSlotBytesLL128;
  }
  PLEXUS_DEVICE static Carrier carrier_of(Protocol protocol) {
    return protocol == Protocol::kLL ? Carrier::kLL : Carrier::kLL128;
  }

  // ---- receiving ----

  /// Waits for arrival `number` of the step, checks it, and makes it an operand.
  PLEXUS_DEVICE bool begin_receive(const Slice& slice, uint32_t index, uint32_t number) {
    const DeviceWork& work = slice.work;
    const DeviceRecv& end = *work.recvs[index];
    const bool after_own = slice.source != nullptr && number >= own_position(slice.step);
    Operand& operand = state_.pass.operands[number + (after_own ? 1 : 0)];
    return by_lines(work, end.lines) ? begin_receive_lines(slice, index, end, operand)
                                     : begin_receive_slot(slice, index, end, operand);
  }

  PLEXUS_DEVICE bool begin_receive_lines(const Slice& slice,
                                         uint32_t index,
                                         const DeviceRecv& end,
                                         Operand& operand) {
    const Protocol protocol = slice.work.protocol;
    const std::byte* const lines = end.lines + lines_offset(protocol, end.step);
    const uint32_t flag = flag_of_step(end.step);
    operand = {lines, carrier_of(protocol), flag};
    if (lines_of(protocol, slice.size_bytes) == 0) {
      return true;  // an empty LL128 message has no line
    }
    const auto* const word = reinterpret_cast<const uint64_t*>(
        protocol == Protocol::kLL ? lines : lines + kDataBytesOfLineLL128);
    uint64_t value = 0;
    if (!wait_until(*slice.work.control, [&] {
          value = load_acquire(word);
          return value >> 32 == flag;  // NOLINT(readability-magic-numbers): the upper half
        })) {
      return false;
    }
    const auto hash = static_cast<uint32_t>(value);
    return hash == slice.work.call.hash ||
           fail(slice, index, DeviceFault::kOtherCall, hash, slice.size_bytes);
  }

  PLEXUS_DEVICE bool begin_receive_slot(const Slice& slice,
                                        uint32_t index,
                                        const DeviceRecv& end,
                                        Operand& operand) {
    SlotHeader& slot = end.fifo->headers[end.step % kHeaders];
    const uint64_t* const ready = word_of(&slot.ready);
    if (!wait_until(*slice.work.control, [&] { return load_acquire(ready) == end.step + 1; })) {
      return false;
    }
    const uint32_t hash = slot.call_hash;
    const uint32_t size_bytes = slot.size_bytes;
    if (hash != slice.work.call.hash) {
      return fail(slice, index, DeviceFault::kOtherCall, hash, size_bytes);
    }
    if (size_bytes != slice.size_bytes) {
      return fail(slice, index, DeviceFault::kOtherSize, hash, size_bytes);
    }
    const std::byte* bytes = nullptr;
    switch (slot.kind) {
      case SlotKind::kInline:
        bytes = slot.payload.bytes;
        break;
      case SlotKind::kSmall:
        bytes = end.fifo->small[end.step % kHeaders];
        break;
      case SlotKind::kData:
        bytes = end.data + end.step % kSlots * end.slot_stride;
        break;
      case SlotKind::kPointer:
        bytes = end.reads_pointers != 0 ? slot.payload.pointer : nullptr;
        break;
      case SlotKind::kMapped:
      case SlotKind::kAttached:
        break;
    }
    if (bytes == nullptr && size_bytes > 0) {
      return fail(slice, index, DeviceFault::kUnmapped, hash, size_bytes);
    }
    operand = {bytes, Carrier::kMemory, 0};
    return true;
  }

  PLEXUS_DEVICE void finish_receive(const DeviceWork& work, uint32_t index) {
    DeviceRecv& end = *work.recvs[index];
    ++end.step;
    store_release(word_of(&end.fifo->taken), end.step);  // pairs with await_taken() of the sender
  }

  /// Records the failure, unless another block was first, and stops the work.
  PLEXUS_DEVICE bool fail(
      const Slice& slice, uint32_t index, DeviceFault fault, uint32_t hash, uint32_t size_bytes) {
    const DeviceWork& work = slice.work;
    if (exchange(work.claimed, 1) == 0) {
      DeviceControl& control = *work.control;
      control.failure = {.fault = fault,
                         .peer = work.recvs[index]->peer,
                         .recv_index = index,
                         .size_expected = slice.size_bytes,
                         .size_arrived = size_bytes,
                         .hash_expected = work.call.hash,
                         .hash_arrived = hash,
                         .unused = 0,
                         .sequence = work.call.sequence};
      store_release(&control.stop, DeviceStop::kFailed);
    }
    return false;
  }

  // ---- sending ----

  /// Waits until the first `until` slots of the end were taken.
  PLEXUS_DEVICE static bool await_taken(const DeviceWork& work, DeviceSend& end, uint64_t until) {
    if (end.taken >= until) {
      return true;
    }
    const uint64_t* const word = word_of(&end.fifo->taken);
    uint64_t taken = 0;
    const bool came = wait_until(*work.control, [&] {
      taken = load_acquire(word);
      return taken >= until;
    });
    end.taken = taken;
    return came;
  }

  /// Like SharedCall::store(), because a network's pump may read the records at the same time.
  PLEXUS_DEVICE static void tell_call(Fifo& fifo, const CallRecord& call) {
    uint64_t values[SharedCall::kWords];
    memcpy(values, &call, sizeof(call));
    SharedCall& told = fifo.calls[record_of_call(call.sequence)];
    for (size_t i = 0; i < SharedCall::kWords; ++i) {
      store_relaxed(word_of(&told.words[i]), values[i]);
    }
  }

  /// Waits for a free slot and makes it a target, or stores the value's address in it.
  PLEXUS_DEVICE bool begin_send(const Slice& slice, uint32_t index, uint32_t number) {
    const DeviceWork& work = slice.work;
    DeviceSend& end = *work.sends[index];
    if (end.step >= kSlots && !await_taken(work, end, end.step - kSlots + 1)) {
      return false;
    }
    if (end.told != work.call.sequence + 1) {
      tell_call(*end.fifo, work.call);
      end.told = work.call.sequence + 1;
    }
    if (end.lines != nullptr && needs_cleaning(end.step, kSlots)) {
      clean(end);
    }
    Target& target = state_.pass.targets[1 + number];
    if (by_lines(work, end.lines)) {
      std::byte* const lines = end.lines + lines_offset(work.protocol, end.step);
      target = {lines, carrier_of(work.protocol), flag_of_step(end.step)};
      if (work.protocol == Protocol::kLL) {
        store_relaxed(reinterpret_cast<uint64_t*>(lines), line_word(work.call.hash, target.flag));
      }
      return true;
    }
    SlotHeader& slot = end.fifo->headers[end.step % kHeaders];
    slot.size_bytes = slice.size_bytes;
    slot.call_hash = work.call.hash;
    slot.call = record_of_call(work.call.sequence);
    if (const std::byte* const mapped = mapped_address(slice, index, end); mapped != nullptr) {
      slot.kind = SlotKind::kPointer;
      slot.payload.pointer = mapped;
      target = {nullptr, Carrier::kMemory, 0};
      end.borrowed_until = end.step + 1;
      store_relaxed(&state_.addresses_out, 1U);
      return true;
    }
    const bool in_header = slice.size_bytes <= end.inline_bytes_max;
    slot.kind = in_header ? SlotKind::kInline : SlotKind::kData;
    target = {in_header ? slot.payload.bytes : end.data + end.step % kSlots * end.slot_stride,
              Carrier::kMemory, 0};
    return true;
  }

  /// Address of the value in this rank's memory after the pass; nullptr: it is not stored there.
  PLEXUS_DEVICE static const std::byte* home_of(const Slice& slice) {
    if (slice.target != nullptr) {
      return slice.target;
    }
    return slice.step.receives == 0 && !slice.scales ? slice.source : nullptr;
  }

  /// Address at which the peer has the value mapped; nullptr: its bytes must be sent.
  PLEXUS_DEVICE static const std::byte* mapped_address(const Slice& slice,
                                                       uint32_t index,
                                                       const DeviceSend& end) {
    const DeviceWork& work = slice.work;
    const bool possible = end.by_address != 0 || work.loans != nullptr;
    if (!possible || !slice.step.by_address || slice.size_bytes < work.borrow_bytes_min) {
      return nullptr;
    }
    const std::byte* const home = home_of(slice);
    if (end.by_address != 0 || home == nullptr) {
      return home;
    }
    const Buffer buffer = slice.target != nullptr ? slice.step.target : slice.step.source;
    const DeviceLoan& loan = work.loans[index];
    const uint64_t shift = buffer == Buffer::kInput    ? loan.input
                           : buffer == Buffer::kOutput ? loan.output
                                                       : kNotMapped;
    return shift == kNotMapped
               ? nullptr
               : reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(home) + shift);
  }

  PLEXUS_DEVICE void finish_send(const DeviceWork& work, uint32_t index) {
    DeviceSend& end = *work.sends[index];
    ++end.step;
    if (!by_lines(work, end.lines)) {
      SlotHeader& slot = end.fifo->headers[(end.step - 1) % kHeaders];
      store_release(word_of(&slot.ready), end.step);  // pairs with the receiver's acquire
    }
  }

  /// For LL128: writes the last words of all lines of the pass. Other threads of the block wrote
  /// the data; this release covers it because of the sync in between.
  PLEXUS_DEVICE void finish_lines() {
    const Pass& pass = state_.pass;
    const uint32_t count = lines_of(Protocol::kLL128, pass.size_bytes);
    for (uint32_t i = 1; i < pass.target_count; ++i) {
      const Target& target = pass.targets[i];
      if (target.carrier != Carrier::kLL128) {
        continue;
      }
      for (uint32_t line = block_.thread(); line < count; line += block_.threads()) {
        std::byte* const last = target.bytes + line * sizeof(LineLL128) + kDataBytesOfLineLL128;
        store_release(reinterpret_cast<uint64_t*>(last), line_word(pass.hash, target.flag));
      }
    }
  }

  /// Runs once in 2^31 steps, see kernels/layout/protocol.hpp.
  PLEXUS_DEVICE_NOINLINE static void clean(DeviceSend& end) {
    const uint64_t word = line_word(0, cleaning_flag(end.step));
    std::byte* const words = end.lines + lines_offset(Protocol::kLL, end.step);
    for (uint32_t i = 0; i < lines_of(Protocol::kLL, kPayloadBytesMaxLL); ++i) {
      store_relaxed(reinterpret_cast<uint64_t*>(words) + i, word);
    }
    std::byte* const lines = end.lines + lines_offset(Protocol::kLL128, end.step);
    for (uint32_t i = 0; i < lines_of(Protocol::kLL128, kPayloadBytesMaxLL128); ++i) {
      std::byte* const last = lines + i * sizeof(LineLL128) + kDataBytesOfLineLL128;
      store_relaxed(reinterpret_cast<uint64_t*>(last), word);
    }
  }

  // ---- between works ----

  /// Waits until all blocks of the queue have finished work `index`, because the next work may read
  /// what it wrote. After the last work no block waits; the last one to arrive resets the barrier.
  PLEXUS_DEVICE bool meet(const DeviceQueue& queue, const DeviceWork& work, uint32_t index) {
    block_.sync();
    const bool is_last_work = index + 1 == queue.work_count;
    if (block_.thread() == 0) {
      DeviceBarrier& barrier = *queue.barrier;
      if (fetch_add(&barrier.arrived, 1) + 1 == queue.block_count) {
        for (uint32_t lane = 0; lane < work.lane_count; ++lane) {
          work.progress[lane] = 0;
        }
        barrier.arrived = 0;
        store_release(&barrier.opened, is_last_work ? uint64_t{0} : uint64_t{index} + 1);
        store_release(queue.done, uint64_t{index} + 1);
      } else if (!is_last_work && !wait_until(*work.control, [&] {
                   return load_acquire(&barrier.opened) > index;
                 })) {
        store_relaxed(&state_.pass.stopped, 1U);
      }
    }
    return !is_stopped_anywhere();
  }

  /// Waits until every address that was sent is taken, after which the user may write to the
  /// buffers again. Once per launch suffices: calls of a group do not write what another call of it
  /// reads.
  PLEXUS_DEVICE void drain(const DeviceQueue& queue, uint32_t lane) {
    if (load_relaxed(&state_.addresses_out) == 0) {
      return;
    }
    for (uint32_t k = 0; k < queue.work_count; ++k) {
      const DeviceWork& work = *queue.works[k];
      if (lane >= work.lane_count) {
        continue;
      }
      const DeviceLane& mine = work.lanes[lane];
      for (uint32_t i = block_.thread(); i < mine.step_count; i += block_.threads()) {
        const Step& step = mine.steps[i];
        const int first = step.peers_first + step.receives;
        for (int peer = first; peer < first + step.sends; ++peer) {
          // Steps share ends and threads divide the steps, so `taken` of the end is not updated
          // here.
          const DeviceSend* const end = work.sends[peer];
          if (end == nullptr) {
            continue;  // the step sends nothing
          }
          const uint64_t* const taken = word_of(&end->fifo->taken);
          if (!wait_until(*work.control,
                          [&] { return load_acquire(taken) >= end->borrowed_until; })) {
            return;
          }
        }
      }
    }
  }

  // rounds between reads of the rank's control, which is in pinned memory
  static constexpr uint32_t kRoundsPerLook = 64;

  const Block& block_;
  BlockState& state_;
};

}  // namespace plexus
