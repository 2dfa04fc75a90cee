// SPDX-License-Identifier: Apache-2.0
// A hub's state as bytes: a restored hub equals the original; impossible states are refused.
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/bootstrap/hub.hpp"

namespace plexus {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kWorld = 42;
constexpr uint64_t kHostProcess = 1000;
constexpr uint32_t kRanks = 4;

JoinInfo info_of(uint32_t rank) {
  return {.rank = rank,
          .nranks = kRanks,
          .version = 1,
          .pid = static_cast<int32_t>(100 + rank),
          .process = kHostProcess + rank,
          .host = "node"};
}

struct Sent {
  uint32_t to;
  Message message;
};

/// A hub and what it sent.
struct Recorded {
  explicit Recorded(uint64_t host_process = kHostProcess)
      : hub(kWorld, host_process, [this](uint32_t to, const Message& message) {
          sent.push_back({to, message});
        }) {}
  Result<void> gather(uint32_t rank, const std::string& blob, uint64_t group) {
    return hub.take(rank, {.type = MessageType::kGather, .group = group, .payload = blob});
  }
  [[nodiscard]] std::string failure_of(uint32_t rank, uint64_t group) const {
    for (const Sent& one : sent) {
      if (one.to == rank && one.message.type == MessageType::kFail && one.message.group == group) {
        return std::string(decode_error(one.message.payload).message());
      }
    }
    return "";
  }
  std::vector<Sent> sent;
  Hub hub;
};

/// Rank 0 has left, rank 3 died; group 7 is {2, 1} with half a gather, group 8 has failed.
void live(Recorded& old) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(old.hub.join(info_of(rank)).has_value());
  }
  const auto make_group = [&](uint32_t rank, uint64_t id, const std::vector<uint32_t>& ranks) {
    ASSERT_TRUE(
        old.hub.take(rank, {.type = MessageType::kGroup, .group = id, .payload = encode(ranks)})
            .has_value());
  };
  make_group(1, 7, {2, 1});
  make_group(2, 7, {2, 1});
  make_group(3, 8, {1, 3});
  ASSERT_TRUE(old.gather(1, "one", 7).has_value());
  ASSERT_TRUE(
      old.hub.take(2, {.type = MessageType::kLeaveGroup, .group = kWorld, .payload = "calls"})
          .has_value());
  ASSERT_TRUE(old.hub.take(0, {.type = MessageType::kLeave}).has_value());
  old.hub.lose(3);
}

TEST(HubState, GoesOnWhereTheOtherHubEnded) {
  Recorded old;
  live(old);
  Recorded heir(kHostProcess + 1);
  const auto restored = heir.hub.restore(old.hub.to_bytes());
  ASSERT_TRUE(restored.has_value()) << restored.error().message();
  EXPECT_EQ(heir.hub.to_bytes(), old.hub.to_bytes());
  EXPECT_EQ(heir.hub.present(), (std::vector<uint32_t>{1, 2}));
  EXPECT_FALSE(heir.hub.needs_heir());
  EXPECT_TRUE(heir.sent.empty());

  ASSERT_TRUE(heir.gather(2, "two", 7).has_value());
  ASSERT_EQ(heir.sent.size(), 2U);
  EXPECT_EQ(decode_blobs(heir.sent[0].message.payload).value(),
            (std::vector<std::string>{"two", "one"}));
  heir.sent.clear();
  ASSERT_TRUE(
      heir.hub.take(1, {.type = MessageType::kProbe, .peer = 2, .group = kWorld}).has_value());
  ASSERT_EQ(heir.sent.size(), 1U);
  EXPECT_EQ(heir.sent[0].message.type, MessageType::kLeft);
  EXPECT_EQ(heir.sent[0].message.payload, "calls");
  EXPECT_TRUE(heir.gather(3, "x", 8).has_error()) << "the dead stay dead";
  heir.sent.clear();
  heir.hub.lose(2);
  EXPECT_THAT(heir.failure_of(1, 7), HasSubstr("rank 2 (node:102) died"));
  EXPECT_EQ(heir.failure_of(1, 8), "") << "has failed before";
  EXPECT_TRUE(heir.hub.join(info_of(1)).has_error());
}

TEST(HubState, LetsOnlyItsMembersComeBackAndTellsThemWhoIsBesideIt) {
  Recorded old;
  live(old);
  Recorded heir(kHostProcess + 1);
  ASSERT_TRUE(heir.hub.restore(old.hub.to_bytes()).has_value());
  EXPECT_TRUE(heir.hub.rejoin(info_of(0)).has_error()) << "has left";
  EXPECT_TRUE(heir.hub.rejoin(info_of(3)).has_error()) << "has died";
  JoinInfo other = info_of(2);
  other.process += 5;
  EXPECT_TRUE(heir.hub.rejoin(other).has_error()) << "another process";
  EXPECT_TRUE(heir.sent.empty());
  ASSERT_TRUE(heir.hub.rejoin(info_of(2)).has_value());
  ASSERT_EQ(heir.sent.size(), 1U);
  EXPECT_EQ(heir.sent[0].to, 2U);
  EXPECT_EQ(heir.sent[0].message.payload, "rank 1 (node:101)");
}

TEST(HubState, IsRefusedWhenItIsDamaged) {
  Recorded old;
  live(old);
  const std::string good = old.hub.to_bytes();
  for (size_t size = 0; size < good.size(); ++size) {
    Recorded heir;
    const auto cut = heir.hub.restore(good.substr(0, size));
    // A state may end after any group except the first.
    EXPECT_TRUE(cut.has_error() || heir.hub.to_bytes() == good.substr(0, size)) << size;
  }
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = good;
    bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    Recorded heir;
    if (heir.hub.restore(bytes).has_value()) {
      Recorded again;
      EXPECT_TRUE(again.hub.restore(heir.hub.to_bytes()).has_value());
    }
  }
  Recorded other_world;
  Hub wrong(kWorld + 1, kHostProcess, [](uint32_t, const Message&) {});
  EXPECT_TRUE(wrong.restore(good).has_error()) << "of another job";
}

TEST(HubState, IsRefusedWhenNoHubCanBeInIt) {
  const auto refused = [](const std::vector<Message>& messages) {
    std::string bytes;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      bytes +=
          encode(Message{.type = MessageType::kJoin, .peer = 1, .payload = encode(info_of(rank))});
    }
    for (const Message& message : messages) {
      bytes += encode(message);
    }
    return Recorded().hub.restore(bytes).has_error();
  };
  const auto group = [](uint64_t id, const std::vector<uint32_t>& ranks) {
    return Message{.type = MessageType::kGroup, .group = id, .payload = encode(ranks)};
  };
  const auto gather = [](uint32_t rank, uint64_t id, size_t size_bytes = 1) {
    return Message{.type = MessageType::kGather,
                   .peer = rank,
                   .group = id,
                   .payload = std::string(size_bytes, 'x')};
  };
  const Message world = group(kWorld, {0, 1, 2, 3});
  EXPECT_FALSE(refused({world}));
  EXPECT_FALSE(refused({world, group(5, {1, 0}), gather(1, 5)}));
  EXPECT_TRUE(refused({})) << "no world";
  EXPECT_TRUE(refused({group(kWorld, {0, 1})})) << "not the whole world";
  EXPECT_TRUE(refused({world, group(kWorld, {0, 1, 2, 3})})) << "twice";
  EXPECT_TRUE(refused({world, group(5, {0, 0})}));
  EXPECT_TRUE(refused({world, group(5, {0, 4})}));
  EXPECT_TRUE(refused({world, group(5, {})}));
  EXPECT_TRUE(refused({world, gather(1, 5)})) << "no such group";
  EXPECT_TRUE(refused({world, group(5, {1, 0}), gather(2, 5)})) << "not in it";
  EXPECT_TRUE(refused({world, group(5, {1, 0}), gather(1, 5), gather(1, 5)})) << "twice";
  EXPECT_TRUE(refused({world, group(5, {1, 0}), gather(1, 5), gather(0, 5)})) << "complete";
  EXPECT_TRUE(refused({world, gather(1, kWorld, kBlobBytesMax + 1)}));
  const Message left{.type = MessageType::kLeaveGroup, .peer = 1, .group = 5, .payload = "calls"};
  EXPECT_FALSE(refused({world, group(5, {1, 0}), left}));
  EXPECT_TRUE(refused({world, group(5, {1, 0}), left, left})) << "twice";
  EXPECT_TRUE(refused({world, group(5, {2, 0}), left})) << "not in it";
  EXPECT_TRUE(refused({world, {.type = MessageType::kLeave}}));
  EXPECT_TRUE(
      refused({world, {.type = MessageType::kJoin, .peer = 1, .payload = encode(info_of(1))}}));
}

}  // namespace
}  // namespace plexus
