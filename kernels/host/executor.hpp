// SPDX-License-Identifier: Apache-2.0
// The host executor: runs the lanes of a Program over connections, resumably. advance() proceeds as
// far as it can and never blocks, so that one thread can drive many lanes and ranks.
//
// A `Work` is one program with its geometry, buffers and connections; its lanes are `LaneRun`s. A
// lane that cannot proceed reports the Fifo end at which it waits. Lanes that one engine drives
// wake each other through a `RunQueue`; all other waiting is polling (core/engine).
// Threads: a Work and its lanes belong to one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/host/connection.hpp"
#include "kernels/host/reduce.hpp"
#include "kernels/layout/geometry.hpp"
#include "kernels/layout/protocol.hpp"
#include "kernels/layout/types.hpp"
#include "kernels/program/algorithms.hpp"
#include "kernels/program/program.hpp"

namespace plexus {

class LaneRun;
/// To whom a lane belongs. Defined by who drives lanes (core/engine); nothing here looks into it.
struct LaneOwner;

/// Lanes that can proceed, in first-in first-out order, and the wake-up of parked ones. `engine` 0:
/// parked lanes are polled by their owner and nothing wakes them. `polls`: number of polls before a
/// lane counts as waiting; more than 1 if no other lane could run.
class RunQueue {
 public:
  explicit RunQueue(uint32_t engine) : engine_(engine) {}

  [[nodiscard]] uint32_t engine() const noexcept { return engine_; }
  [[nodiscard]] uint32_t polls() const noexcept { return polls_; }
  void set_polls(uint32_t polls) noexcept { polls_ = polls; }
  /// Assigns an index to `lane`. Allocates, so it is called at plan start only.
  void add(LaneRun* lane);
  void clear() noexcept;
  void push(LaneRun* lane) noexcept;
  [[nodiscard]] LaneRun* pop() noexcept;
  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  /// The other end of `end` moved: wakes this engine's lane, or the thread, that waits there.
  void notify(FifoEnd& end) noexcept;

 private:
  uint32_t engine_;
  uint32_t polls_ = 1;
  std::vector<LaneRun*> lanes_;
  LaneRun* head_ = nullptr;
  LaneRun* tail_ = nullptr;
};

/// User memory of a Work: its address, and its place in shareable memory if it has one.
struct UserBuffer {
  std::byte* address = nullptr;
  uint64_t size_bytes = 0;
  MappedPlace place{};  // segment 0: not shareable
};

/// One program ready to run. Everything except the buffers and the call is the same for every call
/// of a cached plan.
struct Work {
  const Program* program = nullptr;
  Geometry geometry{};
  std::vector<BlockPart> blocks;  // [nranks], where ranks have counts of their own
  DataType type = DataType::kInt8;
  ReduceOp op{};
  ReducePair reduce = nullptr;
  uint32_t element_bytes = 1;
  Protocol protocol = Protocol::kSimple;  // if the connection supports it; else Simple
  uint32_t slot_bytes = 0;                // largest size of a slice
  uint32_t borrow_bytes_min = 0;          // slices of at least this size are sent by address
  uint32_t gather_bytes_min = 0;          // the same to a pump, which sends them on from there
  uint32_t attach_bytes_min = 0;          // the same to receivers that read by system calls
  bool fetches = false;                   // what is combined may come as such an address
  // Nothing of the call is stored over the input: it may be read in place, whatever
  // Step::by_address says, which holds for calls in place too.
  bool keeps_input = false;
  bool exchanges_empty = false;  // a message of 0 bytes is also sent and received (send/recv)
  bool streaming = false;        // the output is too large for the caches
  // Ranks write results to each other's outputs where delivers(step). The same on all ranks.
  bool opens_output = false;
  // [program->peers]; nullptr where the peer only sends to this rank
  std::vector<SendConnection*> sends;
  // [program->peers]; nullptr where the peer only receives from this rank
  std::vector<RecvConnection*> recvs;
  std::vector<std::byte> scratch;
  // per call:
  UserBuffer input;
  UserBuffer output;
  CallRecord call{};

  /// From which size on slices are sent by address over `send`.
  [[nodiscard]] uint32_t address_bytes_min(const SendConnection& send) const noexcept {
    return send.is_pumped() ? gather_bytes_min : borrow_bytes_min;
  }
};

/// The elements of a chunk in one loop. A chunk of scratch is as long as the buffer's chunk with
/// the same index, or as the block that it holds.
Span span_of(const Work& work, Buffer buffer, int chunk, uint32_t loop) noexcept;
/// What decides a step's length: its source, else its target. Verbs without a local buffer forward
/// as many elements as their output chunk would hold.
Span span_of(const Work& work, const Step& step, uint32_t loop) noexcept;

enum class Progress : uint8_t { kPending, kYielded, kDone, kFailed };

/// Why a lane failed: the message that arrived is not the one this call expects, or is unreadable.
struct LaneFailure {
  enum class Kind : uint8_t { kNone, kOtherCall, kOtherSize, kUnmapped, kUnread };
  Kind kind = Kind::kNone;
  RecvConnection* connection = nullptr;
  uint32_t size_expected = 0;
  uint32_t hash_arrived = 0;
  uint32_t size_arrived = 0;
  int error = 0;  // kUnread: why, as errno
};

/// One lane of a Work in execution.
class LaneRun {
 public:
  /// `work` must be complete except for the per-call members. Allocates.
  LaneRun(Work* work, int lane, LaneRun* siblings);

  void restart() noexcept;
  /// Runs until blocked (kPending), for about 100 us (kYielded), or to the end (kDone).
  Progress advance(RunQueue& queue) noexcept;

  [[nodiscard]] const LaneFailure& failure() const noexcept { return failure_; }
  [[nodiscard]] Work& work() noexcept { return *work_; }

  // Where a pending lane waits: exactly one of these is set.
  [[nodiscard]] RecvConnection* waits_to_recv() const noexcept { return wait_recv_; }
  [[nodiscard]] SendConnection* waits_to_send() const noexcept { return wait_send_; }
  [[nodiscard]] bool waits_at_fifo() const noexcept {
    return wait_recv_ != nullptr || wait_send_ != nullptr;
  }
  /// Whether a pending lane can proceed now.
  [[nodiscard]] bool can_go_on() const noexcept;

  /// How far it has come in one of the program's loops, for error messages.
  [[nodiscard]] size_t step() const noexcept { return step_; }
  /// Whether it has sent or taken anything in this run.
  [[nodiscard]] bool has_begun() const noexcept { return step_ + loop_ + slice_bytes_done_ != 0; }
  /// The number of its connections, as in Lane.
  [[nodiscard]] int connection() const noexcept { return lane_->connection; }

  /// Whether the last advance() made progress.
  [[nodiscard]] bool moved() const noexcept { return moved_; }

  uint32_t index = 0;          // in its RunQueue
  bool queued = false;         // is in the RunQueue
  LaneRun* next = nullptr;     // intrusive list of the RunQueue
  LaneOwner* owner = nullptr;  // set by who drives the lane

 private:
  /// The location of a step's bytes in its buffers.
  struct Extent {
    uint64_t source_bytes;  // offset
    uint64_t target_bytes;  // offset
    uint64_t size_bytes;
  };
  [[nodiscard]] Extent extent_of(const Step& step) const noexcept;
  template <bool kByLines>
  Progress advance_lane(RunQueue& queue) noexcept;
  template <bool kByLines>
  Progress advance_step(const Step& step, RunQueue& queue) noexcept;
  /// All steps of a message of several chunks, which is one slice.
  template <bool kByLines>
  Progress advance_message(const Step* steps, RunQueue& queue) noexcept;
  /// The part of an extent that one slot carries.
  struct Slice {
    uint64_t source_bytes;
    uint64_t target_bytes;
    uint32_t size_bytes;
  };
  // kByLines: the protocol uses lines on the connections that have them. Otherwise everything is in
  // slots, and the code for lines is not compiled in.
  template <bool kByLines>
  bool acquire(const Step& step, const Slice& slice, uint32_t polls) noexcept;
  template <bool kByLines>
  bool acquire_arrival(const Step& step, const Slice& slice, int number, uint32_t polls) noexcept;
  bool check_arrival(RecvConnection& recv, uint32_t size_bytes) noexcept;
  [[gnu::cold]] void fail(LaneFailure::Kind kind,
                          RecvConnection& recv,
                          uint32_t size_bytes) noexcept;
  /// False: a peer's memory could not be read. Then the step cannot be done any more.
  template <bool kByLines>
  bool move(const Step& step, const Slice& slice, RunQueue& queue) noexcept;
  /// One chunk of a message of several, which has `message_bytes`.
  template <bool kByLines>
  void move_part(const Step& step, const Slice& slice, uint32_t message_bytes) noexcept;
  /// The buffer in which arrival `number` of a step is assembled from its lines.
  [[nodiscard]] std::byte* staging(int number) noexcept;
  /// The address of arrival `number` of a step once it has arrived.
  template <bool kByLines>
  [[nodiscard]] const std::byte* arrived(const Step& step, int number) noexcept;
  template <bool kByLines>
  bool store(const Step& step, std::byte* made, uint32_t size_bytes) noexcept;
  bool store_attached(const Step& step, RecvConnection& recv, std::byte* made) noexcept;
  template <bool kByLines>
  bool combine(const Step& step,
               std::byte* made,
               const std::byte* own,
               size_t elements,
               bool scales) noexcept;
  template <bool kByLines>
  bool combine_attached(const Step& step,
                        std::byte* made,
                        const std::byte* own,
                        size_t elements,
                        bool scales) noexcept;
  /// `arrivals`: the addresses of what arrived, or of what the target holds.
  void combine_many(const Step& step,
                    std::byte* made,
                    const std::byte* own,
                    std::span<const std::byte* const> arrivals,
                    size_t elements,
                    bool scales) noexcept;
  /// Reads a part of the payload of an arrival that lies in the peer's memory.
  bool fetch(RecvConnection& recv, std::byte* target, size_t offset, size_t size_bytes) noexcept;
  /// A value at the address where it was made, and its copy in user memory if there is one.
  struct Value {
    const std::byte* made;
    Buffer home;          // kNone: nowhere, or it must not be sent by address
    uint64_t home_bytes;  // offset
    bool delivers;        // receivers store it at the same place
  };
  /// Makes the value of a slice at `made`, unless it is the source itself, which `value` then says.
  template <bool kByLines>
  bool make(const Step& step, const Slice& slice, std::byte* made, Value* value) noexcept;
  /// Where a message can be made before it is handed over.
  template <bool kByLines>
  [[nodiscard]] std::byte* place_to_send(const Step& step,
                                         SendConnection& send,
                                         uint32_t size_bytes) noexcept;
  template <bool kByLines>
  void hand_over(SendConnection& send, const Value& value, uint32_t size_bytes) noexcept;
  void release(const Step& step, RunQueue& queue) noexcept;
  [[nodiscard]] bool may_begin_loop() const noexcept;
  [[nodiscard]] bool may_start(const Step& step) const noexcept;
  [[nodiscard]] std::byte* at(Buffer buffer, uint64_t offset_bytes) const noexcept;

  Work* work_;
  const Lane* lane_;
  LaneRun* siblings_;
  std::vector<Extent> extents_;     // for all steps, if they are equal in every loop
  std::vector<std::byte> staging_;  // payloads received or sent by lines, one slot each
  std::vector<std::byte> fetched_;  // parts of arrivals in peers' memory, to be combined
  uint64_t ahead_address_ = 0;      // where the peer has what the step stored beyond its slice
  uint64_t ahead_bytes_ = 0;        // number of those bytes
  uint32_t lost_reads_ = 0;         // reads of a peer that has ended or given up
  bool attached_ = false;           // an arrival of the slice is in a peer's memory
  bool joins_ = false;              // the step is of a message of several chunks
  uint32_t part_bytes_ = 0;         // where in that message the chunk is that moves now
  size_t step_ = 0;
  uint32_t loop_ = 0;
  uint64_t slice_bytes_done_ = 0;
  uint64_t bytes_this_turn_ = 0;
  bool moved_ = false;
  RecvConnection* wait_recv_ = nullptr;
  SendConnection* wait_send_ = nullptr;
  LaneFailure failure_;
};

}  // namespace plexus
