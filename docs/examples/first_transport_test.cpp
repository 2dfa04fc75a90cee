// SPDX-License-Identifier: Apache-2.0
// The transport of docs/your-first-transport.md, and its test. The page shows its parts as they are
// here (page_test.py compares them).
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/transport/connection.hpp"
#include "core/transport/memory/fifo_memory.hpp"

namespace plexus {
namespace {

constexpr size_t kSlotStride = 4096;

/// The memory of one connection: a page-aligned Fifo, zero, which means empty, and its slots.
struct QueueMemory {
  struct alignas(4096) Page {
    std::byte bytes[4096] = {};
  };
  std::vector<Page> pages{(fifo_memory_bytes(kSlotStride) + 4095) / 4096};
  [[nodiscard]] std::byte* data() noexcept { return pages.front().bytes; }
};

/// Where the two ends of a connection, in one process, find their memory. Threads: any.
class QueueTable {
 public:
  std::shared_ptr<QueueMemory> find_or_make(int source, int target, int index) {
    const std::lock_guard lock(mutex_);
    auto& memory = memories_[{source, target, index}];
    if (memory == nullptr) {
      memory = std::make_shared<QueueMemory>();
    }
    return memory;
  }

 private:
  std::mutex mutex_;
  std::map<std::tuple<int, int, int>, std::shared_ptr<QueueMemory>> memories_;
};

class QueueSend final : public SendEnd {
 public:
  QueueSend(EndId id, QueueTable& table) : SendEnd(std::move(id)), table_(table) {}

 private:
  Result<bool> try_connect() override {
    memory_ = table_.find_or_make(rank(), key().peer, key().index);
    std::byte* const memory = memory_->data();
    offer(SendConnection(fifo_at(memory), slots_at(memory),
                         {.peer = key().peer, .slot_stride = kSlotStride}));
    return true;
  }
  [[nodiscard]] std::string route() const override { return "queue"; }

  QueueTable& table_;
  std::shared_ptr<QueueMemory> memory_;
};

class QueueRecv final : public RecvEnd {
 public:
  QueueRecv(EndId id, QueueTable& table) : RecvEnd(std::move(id)), table_(table) {}

 private:
  Result<bool> try_connect() override {
    memory_ = table_.find_or_make(key().peer, rank(), key().index);
    std::byte* const memory = memory_->data();
    offer(RecvConnection(fifo_at(memory), slots_at(memory),
                         {.peer = key().peer, .slot_stride = kSlotStride}));
    return true;
  }
  [[nodiscard]] std::string route() const override { return "queue"; }

  QueueTable& table_;
  std::shared_ptr<QueueMemory> memory_;
};

TEST(FirstTransport, CarriesMessagesInTheirOrder) {
  QueueTable table;
  QueueSend send({.key = {.peer = 1, .sends = true, .index = 0}, .rank = 0}, table);
  QueueRecv recv({.key = {.peer = 0, .sends = false, .index = 0}, .rank = 1}, table);
  ASSERT_TRUE(recv.progress_connect().value());  // in any order
  ASSERT_TRUE(send.progress_connect().value());
  for (uint32_t size_bytes : {8U, 300U, 4096U, 1U, 4096U, 64U}) {
    const std::vector<std::byte> message(size_bytes, std::byte{static_cast<uint8_t>(size_bytes)});
    ASSERT_TRUE(send.connection().try_acquire(size_bytes));
    std::memcpy(send.connection().payload(size_bytes), message.data(), size_bytes);
    send.connection().commit(size_bytes, 7);
    ASSERT_TRUE(recv.connection().try_peek());
    EXPECT_EQ(recv.connection().header().size_bytes, size_bytes);
    EXPECT_EQ(std::memcmp(recv.connection().payload(), message.data(), size_bytes), 0);
    recv.connection().release();
  }
  EXPECT_FALSE(recv.connection().try_peek());
  EXPECT_TRUE(send.drained());
}

TEST(FirstTransport, KeepsConnectionsApart) {
  QueueTable table;
  QueueSend send({.key = {.peer = 1, .sends = true, .index = 2}, .rank = 0}, table);
  QueueRecv other({.key = {.peer = 0, .sends = false, .index = 0}, .rank = 1}, table);
  ASSERT_TRUE(send.progress_connect().value() && other.progress_connect().value());
  ASSERT_TRUE(send.connection().try_acquire(8));
  send.connection().commit(8, 7);
  EXPECT_FALSE(other.connection().try_peek());
}

}  // namespace
}  // namespace plexus
