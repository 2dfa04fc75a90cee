// SPDX-License-Identifier: Apache-2.0
// Messages in flight on any number of connections, driven fairly by one thread as a host does: post
// what can be posted, test what is posted, repeat. Only the oldest request of each end is tested,
// as in NCCL: plugins may rely on it, and NVIDIA's own socket transport does, whose requests
// exchange their sizes when they are first tested. Buffers are registered before use and
// deregistered after it. `GuardedBuffer` is a buffer that detects writes beyond its bounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/conformance/net.hpp"

namespace plexus::conformance {

using Bytes = std::vector<std::byte>;
/// Contents that depend on `seed` and position.
[[nodiscard]] Bytes make_message(uint64_t size_bytes, uint64_t seed);

/// Whether `reported`, by test(), is right for a receive of `size_bytes`. A plugin of NCCL's ABI
/// may leave it 0, because hosts ignore it there; the check request.sizes looks at that.
[[nodiscard]] bool reports_right_size(const Net& net, uint64_t reported, uint64_t size_bytes);

/// A buffer to receive into, with guards on both sides.
class GuardedBuffer {
 public:
  /// `offset_bytes`: of its address from a multiple of 64.
  explicit GuardedBuffer(uint64_t size_bytes, uint64_t offset_bytes = 0);
  [[nodiscard]] std::byte* data() noexcept { return bytes_.data() + begin_; }
  [[nodiscard]] uint64_t size_bytes() const noexcept { return size_bytes_; }
  /// `message` is at the beginning; everything else, including the guards, is unchanged.
  [[nodiscard]] Result<void> expect_message(std::span<const std::byte> message) const;
  [[nodiscard]] Result<void> expect_untouched() const { return expect_message({}); }

 private:
  Bytes bytes_;
  uint64_t begin_;
  uint64_t size_bytes_;
};

/// A buffer of a receive.
struct Wanted {
  GuardedBuffer* target = nullptr;
  int32_t tag = 0;
};

/// State of one isend or irecv.
struct Transfer {
  bool is_posted = false;
  bool is_done = false;
  std::vector<uint64_t> sizes_bytes;  // [buffers], as test() returned them
};

/// The requests of an end that are tested in a round.
enum class Testing { kOldest, kAll };

class Traffic {
 public:
  explicit Traffic(Fixture& fixture, Testing testing = Testing::kOldest)
      : fixture_(&fixture), testing_(testing) {}
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;
  ~Traffic();

  /// Adds a message; those of one connection are posted in order. `data` is borrowed until it is
  /// done. One that is longer than the device supports skips the check.
  [[nodiscard]] Result<const Transfer*> send(Send& via,
                                             std::span<const std::byte> data,
                                             int32_t tag = 0);
  [[nodiscard]] Result<const Transfer*> recv(Recv& via, std::span<const Wanted> wanted);
  [[nodiscard]] Result<const Transfer*> recv(Recv& via, GuardedBuffer& target, int32_t tag = 0) {
    const Wanted wanted{&target, tag};
    return recv(via, {&wanted, 1});
  }
  /// Runs one round. True when all is done. An Error: a call failed.
  [[nodiscard]] Result<bool> step();
  /// Runs until all is done.
  [[nodiscard]] Result<void> finish(milliseconds limit = Fixture::kWait);
  /// Runs until `transfer` is done; also drives the others.
  [[nodiscard]] Result<void> finish(const Transfer& transfer);
  /// Runs until nothing more can be posted or completed, and nothing has changed for `time`.
  [[nodiscard]] Result<void> settle(milliseconds time);
  [[nodiscard]] uint32_t posted() const noexcept { return posted_; }

 private:
  struct Item {
    size_t number = 0;                // among those of its lane
    std::span<const std::byte> data;  // what a send sends
    int32_t tag = 0;
    std::vector<plexus_net_buffer_t> buffers;  // buffers of a receive
    std::vector<plexus_net_memory_t*> memory;
    plexus_net_request_t* request = nullptr;
    Transfer transfer;
  };
  /// One end of a connection.
  struct Lane {
    Send* send = nullptr;
    Recv* recv = nullptr;
    size_t items = 0;  // added so far
    std::deque<std::unique_ptr<Item>> waiting;
    std::deque<std::unique_ptr<Item>> posted;
  };
  Lane& lane_of(Send* send, Recv* recv);
  const Transfer* add(Lane& lane, std::unique_ptr<Item> item);
  /// The oldest item of `lane` that is not done: "send 3 of 40 (8 bytes, tag 0) is ...".
  [[nodiscard]] static std::string describe(const Lane& lane);
  /// That of each lane that has one.
  [[nodiscard]] std::string describe_rest() const;
  [[nodiscard]] Result<bool> post_next(Lane& lane);
  [[nodiscard]] Result<bool> test_posted(Lane& lane);
  void end(const Net& net, Item& item);

  Fixture* fixture_;
  Testing testing_;
  std::deque<Lane> lanes_;
  std::vector<std::unique_ptr<Item>> done_;
  uint32_t posted_ = 0;
  bool has_changed_ = false;
};

/// Connects and, over a plugin of NCCL's ABI, sends a first message: some finish connecting with
/// it, and jobs close no connection before that.
[[nodiscard]] Result<Pair> connect_pair(const Context& sender,
                                        const Context& receiver,
                                        uint32_t device = 0);
/// Without the first message.
[[nodiscard]] Result<Pair> connect_unused_pair(const Context& context);

/// A message that the caller's own calls post.
struct OneMessage {
  const char* what;  // for messages
  std::function<int32_t(plexus_net_request_t** request)> irecv;
  std::function<int32_t(plexus_net_request_t** request)> isend;
  milliseconds limit = Fixture::kWait;
};
/// As test() returned them.
struct ReportedSizes {
  uint64_t sent = ~uint64_t{0};
  uint64_t received = ~uint64_t{0};
};
/// Posts both until they are accepted and tests them until they are done.
[[nodiscard]] Result<ReportedSizes> carry(Pair& pair, const OneMessage& message);

/// A message of `deliver`.
struct TestMessage {
  uint64_t size_bytes = 0;
  int32_t tag = 0;
  uint64_t spare_bytes = 0;    // by which the receive buffer is larger
  uint64_t source_offset = 0;  // offset of the address from a multiple of 64
  uint64_t target_offset = 0;
};
/// Sends all messages over the pair and checks that each arrives in the receive posted for it, with
/// its size, and that nothing else is written. Messages longer than the device supports are
/// shortened to that.
[[nodiscard]] Result<void> deliver(Pair& pair,
                                   std::span<const TestMessage> messages,
                                   Testing testing = Testing::kOldest);
[[nodiscard]] Result<void> deliver(Pair& pair, const TestMessage& test_message);
/// The same between two processes: each calls one function, with the same messages.
[[nodiscard]] Result<void> deliver_out(Send& send, std::span<const TestMessage> messages);
[[nodiscard]] Result<void> deliver_in(Recv& recv, std::span<const TestMessage> messages);

}  // namespace plexus::conformance
