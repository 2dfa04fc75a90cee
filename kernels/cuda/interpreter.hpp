// SPDX-License-Identifier: Apache-2.0
// The device executor: a block of threads interprets one lane of a recorded Program, step by step
// and slice by slice. It does what LaneRun does on the host, but waits where LaneRun returns: all
// blocks of a launch are resident, so the block that one waits for runs.
//
// `Block` provides thread(), threads(), sync() (a barrier of the block that also orders memory),
// any(bool) (a sync that returns whether any thread passed true), lane() and lanes() (of the warp),
// take(counter, amount) (by the first lane: adds to a word in shared memory, returns what it was)
// and share(value) (the first lane's). It is a thread block on the
// device, and one or a few host threads in tests. A slice is processed as follows: thread i serves
// peer i (waits, checks, notes where the bytes are); sync; all threads move the bytes (pass.hpp);
// sync; thread i notifies peer i. The release with which it notifies covers the other threads'
// writes because of that sync.
#pragma once

#include "kernels/cuda/ends.hpp"
#include "kernels/cuda/staged.hpp"

namespace plexus {

template <class Block>
class Interpreter {
 public:
  PLEXUS_DEVICE Interpreter(const Block& block, BlockState& state) : block_(block), state_(state) {}

  PLEXUS_DEVICE void run(const DeviceBlock& block) {
    begin();
    const DeviceBlock mine = block;
    if (mine.lane == 0) {
      note_time(mine.queue, 0);
    }
    const bool finished = run_lanes(mine.queue, mine.lane);
    if (mine.lane == 0) {
      note_time(mine.queue, 1);
    }
    leave(mine.queue, finished);
  }

 protected:
  PLEXUS_DEVICE void begin() {
    if (block_.thread() == 0) {
      state_.addresses_out = 0;
    }
  }

  /// Recorded by the first lane only, because the lanes of a work begin and end at about the same
  /// time.
  PLEXUS_DEVICE void note_time(const DeviceQueue& queue, uint32_t which) {
    if (queue.times != nullptr && block_.thread() == 0) {
      store_relaxed(queue.times + which, read_clock());
    }
  }

  /// Runs lane `lane` of every work of `queue`. False: it was stopped.
  PLEXUS_DEVICE bool run_lanes(const DeviceQueue& queue, uint32_t lane) {
    for (uint32_t i = 0; i < queue.work_count; ++i) {
      take_table(block_, state_.work, queue.works[i]);
      block_.sync();
      if (state_.work.scalar != nullptr && block_.thread() == 0) {  // which sets the passes' fields
        state_.work.op.scalar_bits = load_bits(state_.work.scalar, state_.work.scalar_bytes);
      }
      open_output();
      const bool is_last_work = i + 1 == queue.work_count;
      if ((lane < state_.work.lane_count && !run_lane(lane)) ||
          (!is_last_work && !meet(queue, i))) {
        return false;
      }
    }
    return drain(queue, lane);
  }

  /// Lets peers whose device reaches this one's memory write results to the output of the work.
  /// They see it with what this block sends next.
  PLEXUS_DEVICE void open_output() {
    const DeviceWork& work = state_.work;
    for (uint32_t i = block_.thread(); work.open_bytes > 0 && i < work.peer_count;
         i += block_.threads()) {
      const DeviceRecv* const end = work.recvs[i];
      if (end == nullptr || end->reads_pointers == 0) {
        continue;
      }
      WritableOutput& output = end->fifo->output;
      const uint64_t size_bytes = work.closes_output ? 0 : work.open_bytes;
      // Threads whose steps share a peer, and those of other lanes, store the same.
      if (load_relaxed(&output.address) != work.output ||
          load_relaxed(word_of(&output.size_bytes)) != size_bytes) {
        store_relaxed(&output.address, work.output);
        store_relaxed(word_of(&output.size_bytes), size_bytes);
      }
    }
  }

  /// A sync after which all threads agree on whether one of them has given up.
  PLEXUS_DEVICE bool is_stopped_anywhere() { return block_.any(stopped_); }

  PLEXUS_DEVICE bool run_lane(uint32_t lane) {
    const DeviceWork& work = state_.work;
    const DeviceLane mine = work.lanes[lane];
    const uint32_t loops = work.geometry.loops;
    uint64_t done = 0;
    uint32_t before_bytes = 0;
    for (uint32_t loop = 0; loop < loops; ++loop) {
      if (work.shares_scratch && loop > 0 && !await_lanes(loop)) {
        return false;
      }
      for (uint32_t i = 0; i < mine.step_count; ++i) {
        take_table(block_, state_.step, mine.steps[i]);  // beside the batch: one round of loads
        const uint32_t batch = mine.batches[i];
        block_.sync();
        if (batch > 1 && run_batch(mine.steps + i, batch, loop)) {
          i += batch - 1;
          done += batch - 1;
        } else {
          const After after = state_.step.after;
          if ((after.lane >= 0 && !await_lane(after, loop)) || !run_step(loop, &before_bytes)) {
            return false;
          }
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
  PLEXUS_DEVICE bool await_lanes(uint32_t loop) {
    for (uint32_t lane = 0; lane < state_.work.lane_count; ++lane) {
      const auto steps = static_cast<int>(state_.work.lanes[lane].step_count);
      if (steps > 0 && !await_lane({static_cast<int>(lane), steps - 1}, loop - 1)) {
        return false;
      }
    }
    return true;
  }

  PLEXUS_DEVICE bool await_lane(const After& after, uint32_t loop) {
    const DeviceWork& work = state_.work;
    const DeviceLane& other = work.lanes[after.lane];
    const uint64_t wanted =
        uint64_t{loop} * other.step_count + static_cast<uint64_t>(after.step) + 1;
    if (block_.thread() == 0) {
      const uint64_t* const progress = work.progress + after.lane;
      stopped_ = !wait_until(*work.control, [&] { return load_acquire(progress) >= wanted; });
    }
    return !is_stopped_anywhere();
  }

  /// Runs steps of a batch at once, a thread each, if all of them move an address only. False:
  /// nothing has happened.
  PLEXUS_DEVICE bool run_batch(const Step* steps, uint32_t count, uint32_t loop) {
    const DeviceWork& work = state_.work;
    if (work.protocol != Protocol::kSimple || work.op.scales_input()) {
      return false;
    }
    bool fits = true;
    for (uint32_t i = block_.thread(); i < count; i += block_.threads()) {
      fits = fits && moves_address(steps[i], loop);
    }
    if (block_.any(!fits)) {
      return false;
    }
    for (uint32_t i = block_.thread(); i < count; i += block_.threads()) {
      finish_address(steps[i], loop);
    }
    block_.sync();
    return true;
  }

  /// Waits until the message of the step can go, or is there. Whether it is, or will be, in its
  /// place.
  PLEXUS_DEVICE bool moves_address(const Step& step, uint32_t loop) {
    const DeviceWork& work = state_.work;
    const StepExtent extent = extent_of(work, step, loop);
    if (extent.size_bytes < work.borrow_bytes_min || extent.size_bytes > work.slot_bytes) {
      return false;
    }
    if (step.sends > 0) {
      DeviceSend& end = *work.sends[step.peers_first];
      return end.by_address != 0 &&
             (end.step < kSlots || await_taken(work, end, end.step - kSlots + 1));
    }
    const DeviceRecv& end = *work.recvs[step.peers_first];
    const SlotHeader& slot = end.fifo->headers[end.step % kHeaders];
    const uint64_t* const ready = word_of(&slot.ready);
    return wait_until(*work.control, [&] { return load_acquire(ready) == end.step + 1; }) &&
           slot.call_hash == work.call.hash && slot.size_bytes == extent.size_bytes &&
           slot.kind == SlotKind::kPointer && end.reads_pointers != 0 &&
           slot.payload.pointer == place_of(work, step.target, extent.target_bytes);
  }

  PLEXUS_DEVICE void finish_address(const Step& step, uint32_t loop) {
    const DeviceWork& work = state_.work;
    if (step.receives > 0) {
      DeviceRecv& end = *work.recvs[step.peers_first];
      ++end.step;
      store_release(word_of(&end.fifo->taken), end.step);
      return;
    }
    const StepExtent extent = extent_of(work, step, loop);
    DeviceSend& end = *work.sends[step.peers_first];
    begin_message(state_.work, end);
    SlotHeader& slot = fill_header(state_.work, end, static_cast<uint32_t>(extent.size_bytes));
    slot.kind = SlotKind::kPointer;
    slot.payload.pointer = place_of(work, step.source, extent.source_bytes);
    store_relaxed(&state_.addresses_out, 1U);
    ++end.step;
    end.borrowed_until = end.step;
    store_release(word_of(&slot.ready), end.step);
  }

  /// `before_bytes`: of the chunks before this one in its message.
  PLEXUS_DEVICE bool run_step(uint32_t loop, uint32_t* before_bytes) {
    const DeviceWork& work = state_.work;
    const Step& step = state_.step;
    if (!only_waits(step)) {
      const StepExtent extent = extent_of(work, step, loop);
      const bool moves = moves_data(extent, *before_bytes);
      if (moves) {
        take_ends();
      }
      uint64_t done_bytes = 0;
      for (bool more = moves; more; more = done_bytes < extent.size_bytes) {
        const Slice slice = slice_at(extent, done_bytes, *before_bytes);
        if (!run_slice(slice)) {
          return false;
        }
        done_bytes += slice.size_bytes;
      }
      if (moves) {
        keep_ends();
      }
      *before_bytes = after_step(extent, *before_bytes);
    }
    block_.sync();  // another thread may serve the same peer in the next step, which replaces this
                    // one
    return true;
  }

  /// Whether state_.step has something to do: its chunk is not empty, or ends a message that is
  /// not.
  [[nodiscard]] PLEXUS_DEVICE bool moves_data(const StepExtent& extent,
                                              uint32_t before_bytes) const {
    return extent.size_bytes > 0 || state_.work.exchanges_empty ||
           (before_bytes > 0 && !state_.step.with_next);
  }
  /// `before_bytes` of the step that follows state_.step.
  [[nodiscard]] PLEXUS_DEVICE uint32_t after_step(const StepExtent& extent,
                                                  uint32_t before_bytes) const {
    return state_.step.with_next ? before_bytes + static_cast<uint32_t>(extent.size_bytes) : 0;
  }

  /// The slice of state_.step that follows its first `done_bytes`.
  [[nodiscard]] PLEXUS_DEVICE Slice slice_at(const StepExtent& extent,
                                             uint64_t done_bytes,
                                             uint32_t before_bytes) const {
    const DeviceWork& work = state_.work;
    const Step& step = state_.step;
    const uint64_t left_bytes = extent.size_bytes - done_bytes;
    const auto size_bytes =
        static_cast<uint32_t>(left_bytes < work.slot_bytes ? left_bytes : work.slot_bytes);
    return {place_of(work, step.source, extent.source_bytes + done_bytes),
            place_of(work, step.target, extent.target_bytes + done_bytes),
            size_bytes,
            step.source == Buffer::kInput && work.op.scales_input(),
            before_bytes == 0 && !step.with_next && delivers_slice(size_bytes),
            stages(size_bytes),
            before_bytes,
            !step.with_next};
  }

  [[nodiscard]] PLEXUS_DEVICE bool delivers_slice(uint32_t size_bytes) const {
    const DeviceWork& work = state_.work;
    return work.open_bytes > 0 && work.protocol == Protocol::kSimple &&
           size_bytes >= work.borrow_bytes_min && delivers(state_.step);
  }

  [[nodiscard]] PLEXUS_DEVICE bool stages(uint32_t size_bytes) const {
    const Step& step = state_.step;
    const int operands = step.receives + 2;  // and this rank's own
    const auto most = static_cast<uint32_t>(operands > step.sends ? operands : step.sends);
    return state_.work.protocol == Protocol::kLL && state_.work.has_lines &&
           most << staged_shift(size_bytes) <= BlockState::kStagedUnits;
  }

  /// Calls function(index among the program's peers, number among the step's) for the peers that
  /// this thread serves: those that the step receives from, then those that it sends to.
  template <class Function>
  PLEXUS_DEVICE void for_peers(Function function) {
    const auto peers = static_cast<uint32_t>(state_.step.receives + state_.step.sends);
    for (uint32_t i = block_.thread(); i < peers; i += block_.threads()) {
      function(static_cast<uint32_t>(state_.step.peers_first) + i, i);
    }
  }
  [[nodiscard]] PLEXUS_DEVICE uint32_t receives() const {
    return static_cast<uint32_t>(state_.step.receives);
  }

  PLEXUS_DEVICE void take_ends() {
    for_peers([&](uint32_t index, uint32_t i) {
      if (i < receives()) {
        state_.recvs[i] = *state_.work.recvs[index];
      } else {
        DeviceSend& end = state_.sends[i - receives()];
        end = *state_.work.sends[index];
        end.data = state_.work.slots == nullptr ? end.data : state_.work.slots[index];
      }
    });
  }
  PLEXUS_DEVICE void keep_ends() {
    for_peers([&](uint32_t index, uint32_t i) {
      if (i < receives()) {
        state_.work.recvs[index]->step = state_.recvs[i].step;
      } else {
        const DeviceSend& used = state_.sends[i - receives()];
        DeviceSend& end = *state_.work.sends[index];
        end.step = used.step;
        end.taken = used.taken;
        end.borrowed_until = used.borrowed_until;
        end.told = used.told;
      }
    });
  }

  PLEXUS_DEVICE bool run_slice(const Slice& slice) {
    if (slice.staged) {
      return run_staged(slice);
    }
    for_peers([&](uint32_t index, uint32_t i) {
      const bool good = stopped_         ? false
                        : i < receives() ? begin_receive(slice, index, i)
                                         : begin_send(slice, index, i - receives());
      stopped_ = !good;
    });
    if (is_last_thread()) {
      begin_pass(slice);
    }
    if (is_stopped_anywhere()) {
      return false;
    }
    if (slice.delivers) {  // what has arrived came after the peers had opened their outputs
      for_peers([&](uint32_t index, uint32_t i) {
        if (i >= receives() && state_.sends[i - receives()].by_address != 0) {
          begin_delivery(slice, index, i - receives());
        }
      });
      block_.sync();
    }
    const DeviceWork& work = state_.work;
    stopped_ = !run_pass(block_, state_.pass, work.type, work.op.kind);
    if (is_stopped_anywhere()) {
      return false;
    }
    if (work.protocol == Protocol::kLL128) {
      finish_lines();
      block_.sync();  // the next slice overwrites what these read
    }
    finish_peers(slice);
    return true;
  }

  PLEXUS_DEVICE void finish_peers(const Slice& slice) {
    for_peers([&](uint32_t /*index*/, uint32_t i) {
      if (slice.is_last) {
        i < receives() ? finish_receive(i) : finish_send(i - receives());
      }
    });
  }

  /// Does what needs one thread beside the first ones, which serve peers.
  [[nodiscard]] PLEXUS_DEVICE bool is_last_thread() const {
    return block_.thread() + 1 == block_.threads();
  }

  /// A slice of a short LL message: what threads do for their peers, then for its units.
  PLEXUS_DEVICE bool run_staged(const Slice& slice) {
    block_.sync();  // all threads read the ends that others have taken or counted on
    for_peers([&](uint32_t index, uint32_t i) {
      const bool good = stopped_         ? false
                        : i < receives() ? check_lines(slice, index, state_.recvs[i])
                                         : begin_lines(state_.sends[i - receives()]);
      stopped_ = !good;
    });
    if (is_last_thread()) {
      begin_pass(slice);
    }
    stopped_ = !load_staged(block_, state_, slice) || stopped_;
    if (is_stopped_anywhere()) {
      return false;
    }
    combine_staged(block_, state_, slice);
    if (state_.step.sends > 0) {
      block_.sync();
      store_staged(block_, state_, slice);
    }
    block_.sync();  // the next slice overwrites what these read
    finish_peers(slice);
    return true;
  }

  // ---- passes ----

  /// Sets the pass's fields that do not depend on peers: own contribution, target, arithmetic.
  PLEXUS_DEVICE void begin_pass(const Slice& slice) {
    const Step& step = state_.step;
    const DeviceWork& work = state_.work;
    const auto receives = static_cast<uint32_t>(step.receives);
    Pass& pass = state_.pass;
    pass.control = work.control;
    pass.hash = work.call.hash;
    pass.size_bytes = slice.size_bytes;
    pass.taken = 0;
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

  // ---- receiving ----

  /// Waits for arrival `number` of the step, checks it, and makes it an operand.
  PLEXUS_DEVICE bool begin_receive(const Slice& slice, uint32_t index, uint32_t number) {
    const DeviceRecv& end = state_.recvs[number];
    const bool after_own = slice.source != nullptr && number >= own_position(state_.step);
    Operand& operand = state_.pass.operands[number + (after_own ? 1 : 0)];
    if (!by_lines(state_.work, end.lines)) {
      return begin_receive_slot(slice, index, end, operand);
    }
    const Protocol protocol = state_.work.protocol;
    operand = {end.lines + lines_offset(protocol, end.step), carrier_of(protocol),
               flag_of_step(end.step)};
    return check_lines(slice, index, end);
  }

  /// Waits for the word with the call's hash of a message in lines.
  PLEXUS_DEVICE bool check_lines(const Slice& slice, uint32_t index, const DeviceRecv& end) {
    const DeviceWork& work = state_.work;
    const Protocol protocol = work.protocol;
    const std::byte* const lines = end.lines + lines_offset(protocol, end.step);
    const uint32_t flag = flag_of_step(end.step);
    if (lines_of(protocol, slice.size_bytes) == 0) {
      return true;  // an empty LL128 message has no line
    }
    const auto* const word = reinterpret_cast<const uint64_t*>(
        protocol == Protocol::kLL ? lines : lines + kDataBytesOfLineLL128);
    uint64_t value = 0;
    if (!wait_until(*work.control, [&] {
          value = load_relaxed(word);  // load_unit() orders what it loads itself
          return value >> 32 == flag;  // NOLINT(readability-magic-numbers): the upper half
        })) {
      return false;
    }
    const auto hash = static_cast<uint32_t>(value);
    return hash == work.call.hash ||
           fail(slice, index, DeviceFault::kOtherCall, hash, slice.size_bytes);
  }

  PLEXUS_DEVICE bool begin_receive_slot(const Slice& slice,
                                        uint32_t index,
                                        const DeviceRecv& end,
                                        Operand& operand) {
    const DeviceWork& work = state_.work;
    SlotHeader& slot = end.fifo->headers[end.step % kHeaders];
    const uint64_t* const ready = word_of(&slot.ready);
    if (!wait_until(*work.control, [&] { return load_acquire(ready) == end.step + 1; })) {
      return false;
    }
    const uint32_t hash = slot.call_hash;
    const uint32_t size_bytes = slot.size_bytes;
    const SlotKind kind = slot.kind;
    const std::byte* const pointer = slot.payload.pointer;  // loaded beside the others
    if (hash != work.call.hash) {
      return fail(slice, index, DeviceFault::kOtherCall, hash, size_bytes);
    }
    const uint32_t until_bytes = slice.before_bytes + slice.size_bytes;
    if (slice.is_last ? size_bytes != until_bytes : size_bytes < until_bytes) {
      return fail(slice, index, DeviceFault::kOtherSize, hash, size_bytes);
    }
    const std::byte* bytes = nullptr;
    switch (kind) {
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
        bytes = end.reads_pointers != 0 ? pointer : nullptr;
        break;
      case SlotKind::kMapped:
      case SlotKind::kAttached:
        break;
    }
    if (bytes == nullptr && size_bytes > 0) {
      return fail(slice, index, DeviceFault::kUnmapped, hash, size_bytes);
    }
    operand = {bytes + slice.before_bytes, Carrier::kMemory, 0};
    return true;
  }

  PLEXUS_DEVICE void finish_receive(uint32_t number) {
    DeviceRecv& end = state_.recvs[number];
    ++end.step;
    uint64_t* const taken = word_of(&end.fifo->taken);
    if (state_.work.protocol == Protocol::kLL && end.lines != nullptr) {
      // Whether this is reached depends on all loads of the slot's words, by is_stopped_anywhere().
      store_dependent(taken, end.step);
    } else {
      store_release(taken, end.step);  // pairs with await_taken() of the sender
    }
  }

  /// Records the failure, unless another block was first, and stops the work.
  PLEXUS_DEVICE bool fail(
      const Slice& slice, uint32_t index, DeviceFault fault, uint32_t hash, uint32_t size_bytes) {
    const DeviceWork& work = state_.work;
    if (exchange(work.claimed, 1) == 0) {
      DeviceControl& control = *work.control;
      control.failure = {.fault = fault,
                         .peer = work.recvs[index]->peer,
                         .recv_index = index,
                         .size_expected = slice.before_bytes + slice.size_bytes,
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

  /// Waits for a free slot for lines, and stores the call's hash in it if nothing else does.
  PLEXUS_DEVICE bool begin_lines(DeviceSend& end) {
    if (!begin_slot(end)) {
      return false;
    }
    const DeviceWork& work = state_.work;
    if (work.protocol == Protocol::kLL) {
      store_relaxed(reinterpret_cast<uint64_t*>(end.lines + lines_offset(Protocol::kLL, end.step)),
                    line_word(work.call.hash, flag_of_step(end.step)));
    }
    return true;
  }
  PLEXUS_DEVICE bool begin_slot(DeviceSend& end) {
    if (end.step >= kSlots && !await_taken(state_.work, end, end.step - kSlots + 1)) {
      return false;
    }
    begin_message(state_.work, end);
    return true;
  }

  /// Waits for a free slot and makes it a target, or stores the value's address in it.
  PLEXUS_DEVICE bool begin_send(const Slice& slice, uint32_t index, uint32_t number) {
    const DeviceWork& work = state_.work;
    DeviceSend& end = state_.sends[number];
    Target& target = state_.pass.targets[1 + number];
    if (by_lines(work, end.lines)) {
      target = {end.lines + lines_offset(work.protocol, end.step), carrier_of(work.protocol),
                flag_of_step(end.step)};
      return begin_lines(end);
    }
    if (!begin_slot(end)) {
      return false;
    }
    SlotHeader& slot = fill_header(state_.work, end, slice.before_bytes + slice.size_bytes);
    if (slice.delivers && end.by_address != 0) {
      return true;  // begin_delivery() does the rest
    }
    if (const std::byte* const mapped = mapped_address(slice, index, end); mapped != nullptr) {
      send_address(mapped, number);
      return true;
    }
    if (fits_header(slice, end)) {
      slot.kind = SlotKind::kInline;
      target = {slot.payload.bytes, Carrier::kMemory, 0};
      return true;
    }
    std::byte* const bytes = end.data + end.step % kSlots * end.slot_stride;
    slot.kind = SlotKind::kData;
    if (end.by_address != 0) {  // the receiver does not know where the slots are
      slot.kind = SlotKind::kPointer;
      slot.payload.pointer = bytes;
    }
    target = {bytes + slice.before_bytes, Carrier::kMemory, 0};
    return true;
  }

  PLEXUS_DEVICE void send_address(const std::byte* mapped, uint32_t number) {
    DeviceSend& end = state_.sends[number];
    SlotHeader& slot = end.fifo->headers[end.step % kHeaders];
    slot.kind = SlotKind::kPointer;
    slot.payload.pointer = mapped;
    state_.pass.targets[1 + number] = {nullptr, Carrier::kMemory, 0};
    end.borrowed_until = end.step + 1;
    store_relaxed(&state_.addresses_out, 1U);
  }

  /// Makes the peer's output a target, at the place of this rank's. The peer gets its address when
  /// the value is there.
  PLEXUS_DEVICE void begin_delivery(const Slice& slice, uint32_t index, uint32_t number) {
    const DeviceSend& end = state_.sends[number];
    const WritableOutput& output = end.fifo->output;
    if (load_relaxed(word_of(&output.size_bytes)) == 0) {
      send_address(mapped_address(slice, index, end), number);
      return;
    }
    std::byte* const place = load_relaxed(&output.address) + (slice.target - state_.work.output);
    SlotHeader& slot = end.fifo->headers[end.step % kHeaders];
    slot.kind = SlotKind::kPointer;
    slot.payload.pointer = place;
    state_.pass.targets[1 + number] = {place, Carrier::kMemory, 0};
  }

  /// Address of the value in this rank's memory after the pass; nullptr: it is not stored there.
  [[nodiscard]] PLEXUS_DEVICE const std::byte* home_of(const Slice& slice) const {
    if (slice.target != nullptr) {
      return slice.target;
    }
    return state_.step.receives == 0 && !slice.scales ? slice.source : nullptr;
  }

  /// Address at which the peer has the value mapped; nullptr: its bytes must be sent.
  [[nodiscard]] PLEXUS_DEVICE const std::byte* mapped_address(const Slice& slice,
                                                              uint32_t index,
                                                              const DeviceSend& end) const {
    const DeviceWork& work = state_.work;
    const Step& step = state_.step;
    const bool possible = end.by_address != 0 || work.loans != nullptr;
    // Without slots short messages go by address, too.
    const bool is_short = slice.size_bytes < work.borrow_bytes_min &&
                          (end.data != nullptr || fits_header(slice, end));
    if (!possible || !step.by_address || is_short) {
      return nullptr;
    }
    const std::byte* const home = home_of(slice);
    if (end.by_address != 0 || home == nullptr) {
      return home;
    }
    const Buffer buffer = slice.target != nullptr ? step.target : step.source;
    const DeviceLoan& loan = work.loans[index];
    const uint64_t shift = buffer == Buffer::kInput    ? loan.input
                           : buffer == Buffer::kOutput ? loan.output
                                                       : kNotMapped;
    return shift == kNotMapped
               ? nullptr
               : reinterpret_cast<const std::byte*>(reinterpret_cast<uintptr_t>(home) + shift);
  }

  PLEXUS_DEVICE void finish_send(uint32_t number) {
    DeviceSend& end = state_.sends[number];
    ++end.step;
    if (!by_lines(state_.work, end.lines)) {
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

  // ---- between works ----

  PLEXUS_DEVICE void reset_progress() {
    for (uint32_t lane = 0; lane < state_.work.lane_count; ++lane) {
      state_.work.progress[lane] = 0;
    }
  }

  /// Waits until all blocks of the queue have finished work `index`, because the next work may read
  /// what it wrote.
  PLEXUS_DEVICE bool meet(const DeviceQueue& queue, uint32_t index) {
    const DeviceWork& work = state_.work;
    if (block_.thread() == 0) {
      DeviceBarrier& barrier = *queue.barrier;
      if (queue.block_count == 1 || fetch_add(&barrier.arrived, 1) + 1 == queue.block_count) {
        reset_progress();
        if (queue.block_count > 1) {
          barrier.arrived = 0;
          store_release(&barrier.opened, uint64_t{index} + 1);
        }
      } else {
        stopped_ =
            !wait_until(*work.control, [&] { return load_acquire(&barrier.opened) > index; });
      }
    }
    return !is_stopped_anywhere();
  }

  /// The last block to leave the queue resets what the next launch finds, and tells the host, which
  /// may then use again what the queue was made of.
  PLEXUS_DEVICE void leave(const DeviceQueue& queue, bool finished) {
    constexpr uint64_t kStopped = uint64_t{1} << 32;  // a block that was, in DeviceBarrier::left
    block_.sync();
    if (block_.thread() != 0) {
      return;
    }
    DeviceBarrier& barrier = *queue.barrier;
    const uint64_t stopped = finished ? 0 : kStopped;
    const uint64_t before = queue.block_count == 1 ? 0 : fetch_add(&barrier.left, stopped + 1);
    if (before % kStopped + 1 != queue.block_count) {
      return;
    }
    reset_progress();
    barrier.left = 0;
    barrier.opened = 0;
    store_release(queue.done, kQueueLeft + (before + stopped < kStopped ? queue.work_count : 0));
  }

  /// Waits until every address that was sent is taken, after which the user may write to the
  /// buffers again. Once per launch suffices: calls of a group do not write what another call of it
  /// reads. False: this thread was stopped.
  PLEXUS_DEVICE bool drain(const DeviceQueue& queue, uint32_t lane) {
    if (state_.addresses_out == 0) {
      return true;
    }
    for (uint32_t k = 0; k < queue.work_count; ++k) {
      const DeviceWork& work = queue.works[k];
      if (lane < work.lane_count && !drain_lane(work, work.lanes[lane])) {
        return false;
      }
    }
    return true;
  }

  /// Each group of threads looks at a step, each thread of it at one of the step's peers.
  PLEXUS_DEVICE bool drain_lane(const DeviceWork& work, const DeviceLane& lane) {
    constexpr uint32_t kGroup = 16;
    const uint32_t members = block_.threads() < kGroup ? block_.threads() : kGroup;
    const uint32_t groups = block_.threads() / members;
    for (uint32_t i = block_.thread() / members; i < lane.step_count; i += groups) {
      const Step& step = lane.steps[i];
      const int first = step.peers_first + step.receives;
      const int end_of_peers = first + step.sends;
      for (int peer = first + static_cast<int>(block_.thread() % members); peer < end_of_peers;
           peer += static_cast<int>(members)) {
        // Steps share ends and threads divide the steps, so `taken` of the end is not updated here.
        const DeviceSend* const end = work.sends[peer];
        if (end == nullptr) {
          continue;  // the step sends nothing
        }
        const uint64_t* const taken = word_of(&end->fifo->taken);
        const uint64_t until = end->borrowed_until;
        if (!wait_until(*work.control, [&] { return load_acquire(taken) >= until; })) {
          return false;
        }
      }
    }
    return true;
  }

  const Block& block_;
  BlockState& state_;
  bool stopped_ = false;  // this thread has seen that the work was stopped
};

}  // namespace plexus
