// SPDX-License-Identifier: Apache-2.0
// Both ends of a connection through shared memory, here in one process: who makes the slots and who
// maps them, what is refused, and that messages arrive. Ranks in two processes are in
// tests/processes.
#include "core/transport/memory/shm.hpp"

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/control/control_tag.hpp"
#include "core/control/exchange.hpp"
#include "core/control/family.hpp"
#include "core/os/host.hpp"
#include "core/os/process_memory.hpp"

namespace plexus {
namespace {

using testing::HasSubstr;

constexpr uint32_t kSlotBytes = 4096;
constexpr int kIndex = 2;

class ShmTest : public testing::Test {
 protected:
  ShmTest() {
    for (PeerInfo& info : infos_) {
      info.process_id = process_id();
      info.pid = getpid();
      info.mark_address = process_mark_address();
    }
    for (int rank : {0, 1}) {
      contexts_[static_cast<size_t>(rank)] = {
          .rank = rank,
          .infos = &infos_,
          .exchange = exchanges_[static_cast<size_t>(rank)].get(),
          .slot_bytes = kSlotBytes};
    }
  }
  /// What rank 0 (`sends`) or rank 1 asks for.
  EndRequest request(bool sends) {
    const int rank = sends ? 0 : 1;
    return {.id = {.key = {.peer = 1 - rank, .sends = sends, .index = kIndex}, .rank = rank},
            .context = contexts_[static_cast<size_t>(rank)],
            .shared = shared_,
            .mine = infos_[static_cast<size_t>(rank)],
            .peers = &infos_[static_cast<size_t>(1 - rank)]};
  }
  std::unique_ptr<SendEnd> make_send() {
    EndRequest wish = request(true);
    return make_shm_send(wish);
  }
  std::unique_ptr<RecvEnd> make_recv() {
    EndRequest wish = request(false);
    return make_shm_recv(wish);
  }
  /// A message that goes through a slot, or in the header.
  static void expect_carried(SendEnd& send, RecvEnd& recv, uint32_t size_bytes) {
    const std::vector<std::byte> message(size_bytes, std::byte{static_cast<uint8_t>(size_bytes)});
    ASSERT_TRUE(send.connection().try_acquire(size_bytes));
    std::memcpy(send.connection().payload(size_bytes), message.data(), size_bytes);
    send.connection().commit(size_bytes, 7);
    ASSERT_TRUE(recv.connection().try_peek());
    ASSERT_EQ(recv.connection().header().size_bytes, size_bytes);
    EXPECT_EQ(std::memcmp(recv.connection().payload(), message.data(), size_bytes), 0);
    recv.connection().release();
  }

  std::vector<PeerInfo> infos_{2};
  std::vector<std::unique_ptr<Exchange>> exchanges_ = make_local_exchanges(2);
  std::array<TransportContext, 2> contexts_;
  SharedByEnds shared_;
};

TEST_F(ShmTest, TheSenderWaitsForTheReceiversSlots) {
  const auto send = make_send();
  EXPECT_FALSE(send->progress_connect().value()) << "nobody has made slots";
  const auto recv = make_recv();
  ASSERT_TRUE(recv->progress_connect().value());
  ASSERT_TRUE(send->progress_connect().value());
  for (uint32_t size_bytes : {8U, 300U, kSlotBytes, 1U, kSlotBytes}) {
    expect_carried(*send, *recv, size_bytes);
  }
  EXPECT_TRUE(send->drained());
  EXPECT_GT(recv->held_bytes(), 8 * kSlotBytes) << "the receiver made the slots";
  EXPECT_EQ(send->held_bytes(), 0U);
  EXPECT_EQ(send->describe_route(), "shm");
}

TEST_F(ShmTest, MemoryIsReadInPlaceOnlyWhereBothRanksAllowIt) {
  const auto first = make_recv();
  ASSERT_TRUE(first->progress_connect().value());
  const auto mapped = make_send();
  ASSERT_TRUE(mapped->progress_connect().value());
  EXPECT_EQ(mapped->connection().reach(), Reach::kMapped);
  infos_[1].local_register = 0;
  const auto second = make_recv();
  ASSERT_TRUE(second->progress_connect().value());
  const auto copied = make_send();
  ASSERT_TRUE(copied->progress_connect().value());
  EXPECT_EQ(copied->connection().reach(), Reach::kNothing);
}

TEST_F(ShmTest, AttachIsSaidInTheRoute) {
  contexts_[0].attach = contexts_[1].attach = true;
  const auto recv = make_recv();
  const auto send = make_send();
  ASSERT_TRUE(recv->progress_connect().value() && send->progress_connect().value());
  EXPECT_EQ(send->describe_route(), "shm/attach");
  EXPECT_TRUE(send->connection().attaches());
  EXPECT_TRUE(recv->connection().reads_attached());
}

TEST_F(ShmTest, SlotsOfAnotherSizeNameTheSetting) {
  contexts_[1].slot_bytes = 2 * kSlotBytes;
  const auto recv = make_recv();
  ASSERT_TRUE(recv->progress_connect().value());
  const auto refused = make_send()->progress_connect();
  ASSERT_TRUE(refused.has_error());
  EXPECT_THAT(refused.error().message(), HasSubstr("set the same NCCL_BUFFSIZE on all ranks"));
}

TEST_F(ShmTest, AMessageThatIsNoDescriptionOfSlotsIsRefused) {
  ASSERT_TRUE(
      exchanges_[1]->post(0, tag_of(ControlTag::kHandle, uint64_t{kIndex}), "short").has_value());
  const auto refused = make_send()->progress_connect();
  ASSERT_TRUE(refused.has_error());
  EXPECT_THAT(refused.error().message(), HasSubstr("rank 1 sent a description"));
}

TEST_F(ShmTest, SlotsThatAreGoneAreAnErrorThatNamesTheRank) {
  {
    const auto recv = make_recv();
    ASSERT_TRUE(recv->progress_connect().value());
  }
  const auto refused = make_send()->progress_connect();
  ASSERT_TRUE(refused.has_error());
  EXPECT_THAT(refused.error().message(), HasSubstr("the shared slots of rank 1"));
}

}  // namespace
}  // namespace plexus
