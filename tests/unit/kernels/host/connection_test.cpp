// SPDX-License-Identifier: Apache-2.0
// How far a sender may be ahead; messages that stay in its memory and are read by system calls, and
// those that it writes to the receiver's output.
#include "kernels/host/connection.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <gtest/gtest.h>

namespace plexus {
namespace {

constexpr uint32_t kHash = 7;
constexpr uint32_t kBytes = 100;
constexpr uint32_t kSlotStride = 1024;

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

class MessagesAhead : public testing::Test {
 protected:
  static constexpr uint32_t kStride = 1024;
  static constexpr uint32_t kLarge = kSmallBytes + 1;

  /// Sends `size_bytes` bytes of `value` if there is room.
  bool send(std::byte value, uint32_t size_bytes) {
    if (!sends.try_acquire(size_bytes)) {
      return false;
    }
    std::memset(sends.payload(size_bytes), std::to_integer<int>(value), size_bytes);
    sends.commit(size_bytes, kHash);
    return true;
  }
  /// Takes the next message, which must be `size_bytes` bytes of `value`.
  void take(std::byte value, uint32_t size_bytes) {
    ASSERT_TRUE(recvs.try_peek());
    ASSERT_EQ(recvs.header().size_bytes, size_bytes);
    const std::byte* const payload = recvs.payload();
    EXPECT_TRUE(std::all_of(payload, payload + size_bytes,
                            [&](const std::byte& each) { return each == value; }));
    recvs.release();
  }

  std::array<std::byte, kSlots * kStride> data{};
  std::unique_ptr<Fifo> fifo = std::make_unique<Fifo>();
  SendConnection sends{fifo.get(), data.data(), {.peer = 1, .slot_stride = kStride}};
  RecvConnection recvs{fifo.get(), data.data(), {.peer = 0, .slot_stride = kStride}};
};

TEST_F(MessagesAhead, AreAsManyAsHeadersIfTheyAreSmall) {
  const auto size_of = [](uint64_t number) { return number % 3 == 0 ? kInlineBytes : kSmallBytes; };
  for (uint64_t i = 0; i < kHeaders; ++i) {
    ASSERT_TRUE(send(std::byte(i), size_of(i))) << i;
  }
  EXPECT_FALSE(send(std::byte{0}, 0));
  take(std::byte{0}, size_of(0));
  EXPECT_FALSE(send(std::byte{0}, kLarge)) << "the slot's last user must have been taken";
  EXPECT_TRUE(send(std::byte(kHeaders), size_of(kHeaders)));
  for (uint64_t i = 1; i <= kHeaders; ++i) {
    take(std::byte(i), size_of(i));
  }
  EXPECT_FALSE(recvs.try_peek());
}

TEST_F(MessagesAhead, OfANetworkTakeSlotsWhateverTheirSize) {
  sends = {fifo.get(), data.data(), {.peer = 1, .inline_bytes_max = 0, .slot_stride = kStride}};
  for (uint64_t i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(send(std::byte(i), 8)) << i;
    EXPECT_EQ(fifo->headers[i].kind, SlotKind::kData);
  }
  EXPECT_FALSE(send(std::byte{0}, 8));
}

TEST_F(MessagesAhead, OfMixedSizesKeepTheirBytes) {
  uint64_t sent = 0;
  uint64_t taken = 0;
  const auto size_of = [](uint64_t number) {
    constexpr std::array<uint32_t, 3> kSizes = {5, kLarge, kSmallBytes};
    return kSizes[number * 7 % 10 < 3 ? 1 : number / 5 % 2 * 2];
  };
  uint64_t most_ahead = 0;
  while (taken < 20 * kHeaders) {
    while (send(std::byte(sent), size_of(sent))) {
      ++sent;
    }
    most_ahead = std::max(most_ahead, sent - taken);
    ASSERT_LT(taken, sent);
    take(std::byte(taken), size_of(taken));
    ++taken;
  }
  EXPECT_GE(most_ahead, kSlots);
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

/// Finds the places of one segment, which this process has anyway.
class Segment final : public PlaceResolver {
 public:
  std::byte* find(const MappedPlace& place, uint64_t size_bytes) noexcept override {
    return place.offset + size_bytes <= memory.size() ? memory.data() + place.offset : nullptr;
  }
  std::array<std::byte, 4 * kBytes> memory{};
};

class WrittenOutput : public testing::Test {
 protected:
  void open(const MappedPlace& place = {}) {
    recvs.open_output(output.data(), output.size(), place);
  }

  std::array<std::byte, 4 * kBytes> output{};
  std::unique_ptr<Fifo> fifo = std::make_unique<Fifo>();
  SendConnection sends{fifo.get(), nullptr, {.peer = 1, .reach = Reach::kProcess}};
  RecvConnection recvs{fifo.get(), nullptr, {.peer = 0, .reach = Reach::kProcess}};
};

TEST_F(WrittenOutput, ArrivesInItsPlaceAndHoldsNobody) {
  open();
  std::byte* const place = sends.try_begin_write(kBytes, kBytes);
  ASSERT_EQ(place, output.data() + kBytes);
  EXPECT_TRUE(recvs.is_written());
  sends.commit_written(kBytes, kBytes, kHash);
  EXPECT_FALSE(recvs.is_written());
  EXPECT_TRUE(sends.all_taken());
  ASSERT_TRUE(recvs.try_peek());
  EXPECT_EQ(recvs.payload(), place) << "the receiver has nothing to copy";
}

TEST_F(WrittenOutput, IsThatOfTheLastCall) {
  EXPECT_EQ(sends.try_begin_write(0, kBytes), nullptr) << "there was no call";
  open();
  recvs.open_output(output.data() + kBytes, kBytes, {});
  EXPECT_EQ(sends.try_begin_write(0, kBytes), output.data() + kBytes);
}

TEST_F(WrittenOutput, EndsWhereTheReceiversEnds) {
  open();
  EXPECT_NE(sends.try_begin_write(3 * kBytes, kBytes), nullptr);
  EXPECT_EQ(sends.try_begin_write(3 * kBytes + 1, kBytes), nullptr);
  EXPECT_EQ(sends.try_begin_write(UINT64_MAX, kBytes), nullptr);
}

TEST_F(WrittenOutput, OfACallThatFailedIsLeftAlone) {
  open();
  ASSERT_NE(sends.try_begin_write(0, kBytes), nullptr);
  recvs.close_output();
  EXPECT_TRUE(recvs.is_written()) << "the sender had begun";
  sends.commit_written(0, kBytes, kHash);
  EXPECT_FALSE(recvs.is_written());
  EXPECT_EQ(sends.try_begin_write(kBytes, kBytes), nullptr);
  EXPECT_FALSE(recvs.is_written());
}

TEST_F(WrittenOutput, OfAnotherProcessIsWrittenThroughItsMapping) {
  Segment segment;
  const MappedPlace place{
      .segment = 1, .segment_bytes = segment.memory.size(), .offset = kBytes, .pid = 1, .fd = 1};
  sends = {fifo.get(), nullptr, {.peer = 1, .reach = Reach::kMapped, .places = &segment}};
  recvs = {fifo.get(), nullptr, {.peer = 0, .reach = Reach::kMapped}};
  open();
  EXPECT_EQ(sends.try_begin_write(0, kBytes), nullptr) << "it is in no segment";
  open(place);
  EXPECT_EQ(sends.try_begin_write(3 * kBytes, kBytes), nullptr) << "behind the segment's end";
  ASSERT_EQ(sends.try_begin_write(kBytes, kBytes), segment.memory.data() + 2 * kBytes);
  sends.commit_written(kBytes, kBytes, kHash);
  EXPECT_EQ(recvs.payload(), output.data() + kBytes) << "as the receiver knows it";
  open();
  EXPECT_EQ(sends.try_begin_write(0, kBytes), nullptr) << "the next call's output is in none";
}

#ifdef PLEXUS_DEBUG_CHECKS

/// Misuse ends the process, with the place and the values.
class Misuse : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  std::unique_ptr<Fifo> fifo = std::make_unique<Fifo>();
  std::array<std::byte, kSlots * kSlotStride> data{};
  SendConnection sends{fifo.get(), data.data(), {.peer = 1, .slot_stride = kSlotStride}};
  RecvConnection recvs{fifo.get(), data.data(), {.peer = 0, .slot_stride = kSlotStride}};
};

TEST_F(Misuse, ASlotThatIsNotFree) {
  for (uint64_t i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(sends.try_acquire(kSlotStride));
    sends.commit(kSlotStride, kHash);
  }
  ASSERT_FALSE(sends.try_acquire(kSlotStride));
  EXPECT_DEATH(static_cast<void>(sends.payload(kSlotStride)),
               "connection.hpp:.*step_, taken_, size_bytes: 8, 0, 1024");
}

TEST_F(Misuse, APayloadLongerThanASlot) {
  EXPECT_DEATH(static_cast<void>(sends.payload(kSlotStride + 1)),
               "size_bytes <= options_.slot_stride");
}

TEST_F(Misuse, AMessageThatHasNotArrivedIsReleased) {
  EXPECT_DEATH(recvs.release(), "does not hold");
}

TEST_F(Misuse, AnAddressForAReceiverThatDoesNotAttach) {
  EXPECT_DEATH(sends.commit_address(data.data(), kBytes, kHash), "attaches");
}

TEST_F(Misuse, APlaceBeyondItsSegment) {
  const MappedPlace place{.segment = 1, .segment_bytes = kBytes, .offset = 1, .pid = 0, .fd = 0};
  EXPECT_DEATH(sends.commit_place(place, kBytes, kHash), "place.offset.*: 1, 100, 100");
}

TEST_F(Misuse, AReceiverThatHasTakenMoreThanWasSent) {
  for (uint64_t i = 0; i < kSlots; ++i) {
    ASSERT_TRUE(sends.try_acquire(kSlotStride));
    sends.commit(kSlotStride, kHash);
  }
  fifo->taken.store(kSlots + 1);
  EXPECT_DEATH(static_cast<void>(sends.try_acquire(kSlotStride)), "taken_ <= step_.*: 9, 8");
}

#endif  // PLEXUS_DEBUG_CHECKS

}  // namespace
}  // namespace plexus
