// SPDX-License-Identifier: Apache-2.0
// A block that serves several queues of programs with one lane, where a device has no room for a
// block each; and run_block(), which does what a block of a launch has to.
#pragma once

#include "kernels/cuda/interpreter.hpp"

namespace plexus {

template <class Block>
class InTurn : private Interpreter<Block> {
  using Base = Interpreter<Block>;
  using Base::after_step;
  using Base::begin;
  using Base::block_;
  using Base::drain;
  using Base::for_peers;
  using Base::keep_ends;
  using Base::moves_data;
  using Base::note_time;
  using Base::open_output;
  using Base::receives;
  using Base::run_slice;
  using Base::slice_at;
  using Base::state_;
  using Base::stopped_;
  using Base::take_ends;

 public:
  using Base::Base;

  /// Serves more queues than the device has room for blocks. The block never waits for a single
  /// peer: it goes round and moves a slice of every queue whose slots are ready. Whatever the order
  /// of the peers' blocks and the boundaries of their launches, it moves as long as any of its
  /// queues can move; and a message can always move at one of its ends, since its slot is either
  /// full (the receiver can proceed) or free (the sender can). It waits for the receivers of
  /// addresses only after everything was sent and received.
  PLEXUS_DEVICE_NOINLINE void run(const DeviceQueue& first) {
    begin();
    for (const DeviceQueue* queue = &first; queue != nullptr; queue = queue->next) {
      note_time(*queue, 0);
    }
    bool left = true;
    uint32_t idle_rounds = 0;
    for (uint32_t round = 1; left; ++round) {
      bool moved = false;
      left = false;
      for (const DeviceQueue* queue = &first; queue != nullptr; queue = queue->next) {
        const TurnEnd end = take_turn(*queue, round);
        moved = moved || end == TurnEnd::kMoved;
        left = left || end != TurnEnd::kDone;
      }
      idle_rounds = moved ? 0 : idle_rounds + 1;
      if (!moved) {
        pause_between_polls(idle_rounds);
      }
    }
    for (const DeviceQueue* queue = &first; queue != nullptr;) {
      static_cast<void>(drain(*queue, 0));
      block_.sync();
      const DeviceQueue* const next = queue->next;
      if (block_.thread() == 0) {
        const uint64_t works = queue->barrier->turn.loop == kGaveUp ? 0 : queue->work_count;
        queue->barrier->turn = {0, 0, 0, 0, 0};
        store_release(queue->done, kQueueLeft + works);
      }
      queue = next;
    }
  }

 private:
  enum class TurnEnd : uint8_t { kDone, kWaits, kMoved };

  /// All threads of the block get the same result.
  PLEXUS_DEVICE TurnEnd take_turn(const DeviceQueue& queue, uint32_t round) {
    const DeviceTurn turn = queue.barrier->turn;
    if (turn.work == queue.work_count) {
      return TurnEnd::kDone;
    }
    take_table(block_, state_.work, queue.works[turn.work]);
    block_.sync();
    const DeviceWork& work = state_.work;
    if (turn.loop == 0 && turn.step == 0 && turn.done_bytes == 0) {
      open_output();
    }
    const DeviceLane lane = work.lanes[0];
    uint32_t before_bytes = 0;
    if (work.geometry.loops > 0 && lane.step_count > 0) {
      take_table(block_, state_.step, lane.steps[turn.step]);
      block_.sync();
      const StepExtent extent = extent_of(work, state_.step, turn.loop);
      const Slice slice = slice_at(extent, turn.done_bytes, turn.before_bytes);
      if (moves_data(extent, turn.before_bytes)) {
        take_ends();
        if (!is_ready()) {
          return may_go_on(queue, round) ? TurnEnd::kWaits : TurnEnd::kDone;
        }
        if (!run_slice(slice)) {
          return give_up(queue);
        }
        keep_ends();
      }
      const uint64_t done_bytes = turn.done_bytes + slice.size_bytes;
      if (done_bytes < extent.size_bytes) {
        end_turn(queue, {turn.work, turn.loop, turn.step, turn.before_bytes, done_bytes});
        return TurnEnd::kMoved;
      }
      before_bytes = after_step(extent, turn.before_bytes);
    }
    end_step(queue, turn, lane.step_count, before_bytes);
    return TurnEnd::kMoved;
  }

  /// Advances to the next step, loop or work.
  PLEXUS_DEVICE void end_step(const DeviceQueue& queue,
                              const DeviceTurn& turn,
                              uint32_t step_count,
                              uint32_t before_bytes) {
    const DeviceWork& work = state_.work;
    DeviceTurn next{turn.work, turn.loop, turn.step + 1, before_bytes, 0};
    if (next.step >= step_count) {
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
  }

  PLEXUS_DEVICE void end_turn(const DeviceQueue& queue, const DeviceTurn& next) {
    if (block_.thread() == 0) {  // all have read the turn before the sync that followed
      queue.barrier->turn = next;
    }
    block_.sync();
  }

  /// Whether every peer of the step has provided what the next slice needs. No other block uses
  /// these ends, so that this stays true until the slice begins, which acquires it.
  PLEXUS_DEVICE bool is_ready() {
    bool lacks = false;
    for_peers([&](uint32_t /*index*/, uint32_t i) {
      if (i < receives()) {
        const DeviceRecv& end = state_.recvs[i];
        const uint64_t* const ready = word_of(&end.fifo->headers[end.step % kHeaders].ready);
        lacks = lacks || load_relaxed(ready) != end.step + 1;
      } else {
        const DeviceSend& end = state_.sends[i - receives()];
        const uint64_t until = end.step < kSlots ? 0 : end.step - kSlots + 1;
        lacks = lacks || (end.taken < until && load_relaxed(word_of(&end.fifo->taken)) < until);
      }
    });
    return !block_.any(lacks);
  }

  /// False: the rank was stopped, and its queue ends.
  PLEXUS_DEVICE bool may_go_on(const DeviceQueue& queue, uint32_t round) {
    if (round % kRoundsPerLook != 0) {
      return true;
    }
    if (!block_.any(block_.thread() == 0 && is_stopped(*state_.work.control))) {
      return true;
    }
    give_up(queue);
    return false;
  }

  /// Ends this queue; the queues of other ranks continue.
  PLEXUS_DEVICE TurnEnd give_up(const DeviceQueue& queue) {
    end_turn(queue, {queue.work_count, kGaveUp, 0, 0, 0});
    stopped_ = false;
    return TurnEnd::kDone;
  }

  static constexpr uint32_t kGaveUp = 1;  // as DeviceTurn::loop after the last work
  // rounds between reads of the rank's control, which is in pinned memory
  static constexpr uint32_t kRoundsPerLook = 64;
};

template <class Block>
PLEXUS_DEVICE void run_block(const Block& block, BlockState& state, const DeviceBlock& task) {
  if (task.in_turn != 0) {
    InTurn<Block>(block, state).run(task.queue);
  } else {
    Interpreter<Block>(block, state).run(task);
  }
}

}  // namespace plexus
