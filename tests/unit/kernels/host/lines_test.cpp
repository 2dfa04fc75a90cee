// SPDX-License-Identifier: Apache-2.0
// LL and LL128: a message is read as a whole or not at all, whatever the slot held before.
#include "kernels/host/lines.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/host/connection.hpp"

namespace plexus {
namespace {

constexpr uint32_t kHash = 0x12345678;
constexpr auto kLineProtocols = std::array{Protocol::kLL, Protocol::kLL128};

/// A Fifo with lines, from the step `first_step` on.
class Wire {
 public:
  explicit Wire(uint64_t first_step = 0) { fifo_->taken = first_step; }
  SendConnection sender() { return {fifo_.get(), nullptr, {.lines = lines()}}; }
  RecvConnection receiver() { return {fifo_.get(), nullptr, {.lines = lines()}}; }
  std::byte* lines() { return lines_->data(); }

 private:
  struct alignas(128) Lines : std::array<std::byte, kSlots*(kSlotBytesLL + kSlotBytesLL128)> {};
  std::unique_ptr<Fifo> fifo_ = std::make_unique<Fifo>();
  std::unique_ptr<Lines> lines_ = std::make_unique<Lines>();
};

std::vector<std::byte> payload_of(uint32_t size_bytes, uint32_t seed) {
  std::vector<std::byte> payload(size_bytes);
  for (uint32_t i = 0; i < size_bytes; ++i) {
    payload[i] = static_cast<std::byte>(i * 7 + seed * 13 + 1);
  }
  return payload;
}

std::vector<uint32_t> sizes_around_lines(Protocol protocol) {
  std::vector<uint32_t> sizes = {1, 2, 3, 4, 5, 7, 8, 9, 119, 120, 121, 239, 240, 241, 1000};
  sizes.push_back(payload_bytes_max(protocol) - 1);
  sizes.push_back(payload_bytes_max(protocol));
  return sizes;
}

TEST(Lines, CarryEverySizeUnharmedThroughManyLaps) {
  for (const Protocol protocol : kLineProtocols) {
    Wire wire;
    SendConnection sender = wire.sender();
    RecvConnection receiver = wire.receiver();
    for (uint32_t lap = 0; lap < 3; ++lap) {
      for (const uint32_t size : sizes_around_lines(protocol)) {
        const auto sent = payload_of(size, lap);
        std::vector<std::byte> came(size + 1, std::byte{0x55});
        ASSERT_TRUE(sender.try_acquire());
        EXPECT_FALSE(receiver.try_peek_line(protocol));
        EXPECT_FALSE(receiver.try_read_lines(protocol, came.data(), size, kHash));
        sender.commit_lines(protocol, sent.data(), size, kHash);
        EXPECT_TRUE(receiver.try_peek_line(protocol));
        ASSERT_TRUE(receiver.try_read_lines(protocol, came.data(), size, kHash));
        receiver.release();
        EXPECT_EQ(came.back(), std::byte{0x55}) << name(protocol) << " writes beyond " << size;
        came.pop_back();
        EXPECT_EQ(came, sent) << name(protocol) << " " << size;
      }
    }
  }
}

TEST(Lines, AreTakenAsTheyComeInAnyOrderOfArrival) {
  for (const Protocol protocol : kLineProtocols) {
    constexpr uint32_t kSize = 1000;
    alignas(128) std::array<std::byte, kSlotBytesLL128> whole{};
    alignas(128) std::array<std::byte, kSlotBytesLL128> slot{};
    const auto sent = payload_of(kSize, 1);
    write_lines(protocol, whole.data(), sent.data(), kSize, kHash, 1);
    std::vector<std::byte> came(kSize);
    Arrival arrival;
    const size_t line_bytes = protocol == Protocol::kLL ? sizeof(LineLL) : sizeof(LineLL128);
    const uint32_t count = lines_of(protocol, kSize);
    for (uint32_t i = 0; i < count; ++i) {  // the last line first
      const uint32_t line = count - 1 - i;
      EXPECT_FALSE(read_lines(protocol, slot.data(), came.data(), kSize, kHash, 1, arrival));
      std::memcpy(slot.data() + line * line_bytes, whole.data() + line * line_bytes, line_bytes);
    }
    EXPECT_TRUE(read_lines(protocol, slot.data(), came.data(), kSize, kHash, 1, arrival));
    EXPECT_EQ(came, sent) << name(protocol);
  }
}

TEST(Lines, OfAnotherCallAreToldFromOnesThatHaveNotCome) {
  for (const Protocol protocol : kLineProtocols) {
    Wire wire;
    SendConnection sender = wire.sender();
    RecvConnection receiver = wire.receiver();
    const auto sent = payload_of(8, 0);
    std::vector<std::byte> came(8);
    EXPECT_FALSE(receiver.try_read_lines(protocol, came.data(), 8, kHash));
    EXPECT_FALSE(receiver.arrival().is_other_call);
    sender.commit_lines(protocol, sent.data(), 8, kHash + 1);
    EXPECT_FALSE(receiver.try_read_lines(protocol, came.data(), 8, kHash));
    EXPECT_TRUE(receiver.arrival().is_other_call);
    EXPECT_EQ(receiver.arrival().other_hash, kHash + 1);
  }
}

/// A flag of 32 bits repeats after 2^32 steps. Whatever the protocols of the steps in between, an
/// old line must not be taken for a new one.
TEST(Lines, OfALapOfAllFlagsAgoAreNeverTakenForNew) {
  constexpr uint64_t kHalf = uint64_t{1} << 31;
  for (const Protocol protocol : kLineProtocols) {
    for (const uint64_t border : {kHalf, 2 * kHalf, 3 * kHalf, 4 * kHalf}) {
      Wire wire(border - kSlots);
      SendConnection sender = wire.sender();
      RecvConnection receiver = wire.receiver();
      const uint32_t size = payload_bytes_max(protocol);
      const auto old = payload_of(size, 1);
      // As if every slot was filled 2^32 steps ago, and all steps except short ones used Simple.
      for (uint64_t step = border; step < border + 2 * kSlots; ++step) {
        write_lines(protocol, lines_of_slot(protocol, wire.lines(), step), old.data(), size, kHash,
                    flag_of_step(step));
      }
      for (uint64_t step = border - kSlots; step < border + 3 * kSlots; ++step) {
        const auto sent = payload_of(size, static_cast<uint32_t>(step));
        std::vector<std::byte> came(size);
        if (step + 1 >= border + kSlots) {  // the cleaning lap is over
          ASSERT_FALSE(receiver.try_read_lines(protocol, came.data(), size, kHash)) << step;
        }
        const bool by_lines = step + 1 >= border + kSlots;
        ASSERT_TRUE(sender.try_acquire());
        if (by_lines) {
          sender.commit_lines(protocol, sent.data(), size, kHash);
          ASSERT_TRUE(receiver.try_read_lines(protocol, came.data(), size, kHash));
          EXPECT_EQ(came, sent);
        } else {
          sender.commit(0, kHash);
          ASSERT_TRUE(receiver.try_peek());
        }
        receiver.release();
      }
    }
  }
}

TEST(Lines, CrossThreadsUnharmed) {
  for (const Protocol protocol : kLineProtocols) {
    Wire wire;
    constexpr uint32_t kMessages = 20'000;
    std::thread sending([&] {
      SendConnection sender = wire.sender();
      for (uint32_t i = 0; i < kMessages; ++i) {
        while (!sender.try_acquire()) {
          std::this_thread::yield();
        }
        const auto sent = payload_of(1 + i % 700, i);
        sender.commit_lines(protocol, sent.data(), static_cast<uint32_t>(sent.size()), i);
      }
    });
    RecvConnection receiver = wire.receiver();
    std::vector<std::byte> came(700);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < kMessages; ++i) {
      const uint32_t size = 1 + i % 700;
      while (!receiver.try_read_lines(protocol, came.data(), size, i)) {
        std::this_thread::yield();
      }
      wrong += std::memcmp(came.data(), payload_of(size, i).data(), size) != 0 ? 1 : 0;
      receiver.release();
    }
    sending.join();
    EXPECT_EQ(wrong, 0U) << name(protocol);
  }
}

}  // namespace
}  // namespace plexus
