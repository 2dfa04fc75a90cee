// SPDX-License-Identifier: Apache-2.0
// Messages that stay in the sender's memory and are read by system calls.
#include "kernels/host/connection.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr uint32_t kHash = 7;
constexpr uint32_t kBytes = 100;

/// Reads this process's own memory, or fails.
class Reader final : public PeerReader {
 public:
  [[nodiscard]] int read(std::byte* target,
                         uint64_t address,
                         size_t size_bytes) const noexcept override {
    if (error == 0) {
      std::memcpy(target, reinterpret_cast<const void*>(address), size_bytes);
    }
    return error;
  }
  int error = 0;
};

class AttachedMessages : public testing::Test {
 protected:
  /// Sends the piece at `offset` of the memory.
  void send(size_t offset, uint32_t size_bytes = kBytes, uint32_t hash = kHash) {
    sends.commit_address(memory.data() + offset, size_bytes, hash);
  }

  std::array<std::byte, 16 * kBytes> memory{};
  std::array<std::byte, 16 * kBytes> target{};
  std::unique_ptr<Fifo> fifo = std::make_unique<Fifo>();
  Reader reader;
  SendConnection sends{fifo.get(), nullptr, {.peer = 1, .attaches = true}};
  RecvConnection recvs{fifo.get(), nullptr, {.peer = 0, .reader = &reader}};
};

TEST_F(AttachedMessages, AreReadWhereTheyAreAndHoldTheSender) {
  memory[150] = std::byte{42};
  send(100);
  ASSERT_TRUE(recvs.try_peek());
  ASSERT_TRUE(recvs.is_attached());
  EXPECT_EQ(recvs.payload(), nullptr);
  EXPECT_EQ(recvs.read_attached(target.data(), 50, 1), 0);
  EXPECT_EQ(target[0], std::byte{42});
  EXPECT_FALSE(sends.all_taken());
  recvs.release();
  EXPECT_TRUE(sends.all_taken());
}

TEST_F(AttachedMessages, AreOnePieceWhileTheyLieBehindEachOther) {
  send(0);
  EXPECT_EQ(recvs.attached_bytes(1000), kBytes);
  send(kBytes);
  send(2 * kBytes, 10);
  EXPECT_EQ(recvs.attached_bytes(1000), 2 * kBytes + 10);
  EXPECT_EQ(recvs.attached_bytes(2 * kBytes + 9), 2 * kBytes) << "no more than asked for";
  send(500);
  EXPECT_EQ(recvs.attached_bytes(1000), 2 * kBytes + 10) << "elsewhere";
}

TEST_F(AttachedMessages, OfAnotherCallOrAnotherKindAreNoPartOfThePiece) {
  send(0);
  send(kBytes, kBytes, kHash + 1);
  EXPECT_EQ(recvs.attached_bytes(1000), kBytes);
  recvs.release();
  recvs.release();
  send(0);
  sends.commit_pointer(memory.data() + kBytes, kBytes, kHash);
  EXPECT_EQ(recvs.attached_bytes(1000), kBytes);
}

TEST_F(AttachedMessages, FillAllSlotsAndNoMore) {
  for (size_t i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(sends.try_acquire());
    send(i * kBytes);
  }
  EXPECT_FALSE(sends.try_acquire());
  EXPECT_EQ(recvs.attached_bytes(100'000), kSlots * kBytes);
}

TEST_F(AttachedMessages, ThatTheSenderGaveUpAreNotUsed) {
  send(0);
  sends.revoke();
  EXPECT_EQ(recvs.read_attached(target.data(), 0, kBytes), ECANCELED);
}

TEST_F(AttachedMessages, ThatWereTakenCannotBeGivenUp) {
  send(0);
  recvs.release();
  sends.revoke();
  EXPECT_EQ(fifo->sender.revoked.load(), 0U);
}

TEST_F(AttachedMessages, ThatCannotBeReadSayWhy) {
  send(0);
  reader.error = EFAULT;
  EXPECT_EQ(recvs.read_attached(target.data(), 0, kBytes), EFAULT);
}

}  // namespace
}  // namespace plexus
