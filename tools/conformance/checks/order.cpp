// SPDX-License-Identifier: Apache-2.0
// Several messages on one connection, and the buffers that they are received into.
#include <array>
#include <deque>
#include <limits>

#include "tools/conformance/check.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

Result<void> first_in_first_out(Pair& pair) {
  std::vector<TestMessage> messages(1000);
  for (size_t i = 0; i < messages.size(); ++i) {
    messages[i] = {.size_bytes = 8 + i % 50, .tag = 0, .spare_bytes = 100};
  }
  return deliver(pair, messages);
}

Result<void> sizes_alternate(Pair& pair) {
  PLEXUS_TRY(context, Context::open(pair.send.net()));
  std::vector<TestMessage> messages;
  for (size_t i = 0; i < 40; ++i) {
    messages.push_back({.size_bytes = i % 2 == 0 ? 1 : longest_message(context, 200000 + i)});
  }
  return deliver(pair, messages);
}

Result<void> random_sizes(Pair& pair) {
  PLEXUS_TRY(context, Context::open(pair.send.net()));
  uint64_t state = 12345;
  std::vector<TestMessage> messages(500);
  for (TestMessage& test_message : messages) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t bits = (state >> 60) + 1;
    test_message.size_bytes = longest_message(context, (state >> 33) & ((uint64_t{1} << bits) - 1));
    test_message.spare_bytes = (state >> 20) & 63;
    test_message.source_offset = (state >> 8) & 15;
    test_message.target_offset = (state >> 12) & 15;
  }
  return deliver(pair, messages);
}

/// Sends with tags and receives in another order; message i must be in the buffer with its tag.
Result<void> match(Pair& pair, std::span<const int32_t> sent, std::span<const int32_t> wanted) {
  std::deque<Bytes> messages;
  std::deque<GuardedBuffer> targets;
  Traffic traffic(*pair.send.net().fixture);
  for (size_t i = 0; i < wanted.size(); ++i) {
    targets.emplace_back(500);
    PLEXUS_TRY(traffic.recv(pair.recv, targets.back(), wanted[i]));
  }
  // so that all receives are posted before the first message
  PLEXUS_TRY(traffic.settle(milliseconds(5)));
  for (size_t i = 0; i < sent.size(); ++i) {
    messages.push_back(make_message(100 + i, i));
    PLEXUS_TRY(traffic.send(pair.send, messages.back(), sent[i]));
  }
  PLEXUS_TRY(traffic.finish());
  std::vector<bool> is_taken(sent.size());
  for (size_t buffer = 0; buffer < wanted.size(); ++buffer) {
    size_t message = 0;  // the oldest remaining message with this tag
    while (is_taken[message] || sent[message] != wanted[buffer]) {
      ++message;
    }
    is_taken[message] = true;
    if (auto checked = targets[buffer].expect_message(messages[message]); checked.has_error()) {
      return std::move(checked).error().with_context(
          fmt::format("buffer {} with tag {}", buffer, wanted[buffer]));
    }
  }
  return ok();
}

/// NCCL's tags are ranks of the communicator, from 0 on.
Result<void> tags_in_order(Pair& pair) {
  constexpr std::array<int32_t, 8> kTags = {1, 2, 3, 4, 0, 255, 65'536, 1 << 20};
  return match(pair, kTags, kTags);
}

Result<void> tags_reversed(Pair& pair) {
  constexpr std::array<int32_t, 4> kSent = {1, 2, 3, 4};
  constexpr std::array<int32_t, 4> kWanted = {4, 3, 2, 1};
  return match(pair, kSent, kWanted);
}

Result<void> tags_repeated(Pair& pair) {
  constexpr std::array<int32_t, 6> kSent = {7, 7, 5, 7, 5, 5};
  constexpr std::array<int32_t, 6> kWanted = {5, 7, 5, 7, 7, 5};
  return match(pair, kSent, kWanted);
}

Result<void> extreme_tags(Pair& pair) {
  constexpr std::array<int32_t, 5> kTags = {0, -1, 1, std::numeric_limits<int32_t>::max(),
                                            std::numeric_limits<int32_t>::min()};
  return match(pair, kTags, kTags);
}

Result<void> tags_of_one_bit(Pair& pair) {
  constexpr uint32_t kTag = 5;
  constexpr uint32_t kBits = 32;
  for (uint32_t bit = 0; bit < kBits; ++bit) {
    const auto other = static_cast<int32_t>(kTag ^ (1U << bit));
    const std::array<int32_t, 2> sent = {kTag, other};
    const std::array<int32_t, 2> wanted = {other, kTag};
    PLEXUS_TRY(match(pair, sent, wanted));
  }
  return ok();
}

Result<void> early_messages(Pair& pair) {
  const Bytes message = make_message(300, 1);
  const Bytes next = make_message(200, 2);
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(traffic.send(pair.send, message));
  PLEXUS_TRY(traffic.send(pair.send, next));
  PLEXUS_TRY(traffic.settle(milliseconds(30)));
  GuardedBuffer first(300);
  GuardedBuffer second(300);
  PLEXUS_TRY(traffic.recv(pair.recv, first));
  PLEXUS_TRY(traffic.recv(pair.recv, second));
  PLEXUS_TRY(traffic.finish());
  PLEXUS_TRY(first.expect_message(message));
  return second.expect_message(next);
}

Result<void> early_long_messages(Pair& pair) {
  PLEXUS_TRY(context, Context::open(pair.send.net()));
  constexpr size_t kMessages = 6;
  std::deque<Bytes> messages;
  std::deque<GuardedBuffer> targets;
  Traffic traffic(*pair.send.net().fixture);
  for (size_t i = 0; i < kMessages; ++i) {
    messages.push_back(make_message(longest_message(context, uint64_t{300000} << (i % 3)), i));
    PLEXUS_TRY(traffic.send(pair.send, messages.back()));
  }
  PLEXUS_TRY(traffic.settle(milliseconds(30)));
  for (const Bytes& message : messages) {
    targets.emplace_back(message.size());
    PLEXUS_TRY(traffic.recv(pair.recv, targets.back()));
  }
  PLEXUS_TRY(traffic.finish());
  for (size_t i = 0; i < kMessages; ++i) {
    PLEXUS_TRY(targets[i].expect_message(messages[i]));
  }
  return ok();
}

Result<void> early_receives(Pair& pair) {
  GuardedBuffer first(300);
  GuardedBuffer second(300);
  const Bytes message = make_message(300, 1);
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(transfer, traffic.recv(pair.recv, first));
  PLEXUS_TRY(traffic.recv(pair.recv, second));
  PLEXUS_TRY(traffic.settle(milliseconds(30)));
  PLEXUS_TRY(first.expect_untouched());
  PLEXUS_TRY(traffic.send(pair.send, message));
  PLEXUS_TRY(traffic.finish(*transfer));
  PLEXUS_TRY(traffic.settle(milliseconds(30)));
  PLEXUS_TRY(first.expect_message(message));
  PLEXUS_TRY(second.expect_untouched());
  PLEXUS_TRY(traffic.send(pair.send, message));
  return traffic.finish();
}

Result<void> not_done_before_it_came(Pair& pair) {
  GuardedBuffer target(64);
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(transfer, traffic.recv(pair.recv, target));
  PLEXUS_TRY(traffic.settle(milliseconds(100)));
  PLEXUS_TRY(expect(!transfer->is_done, "test completed a receive though nothing was sent"));
  const Bytes message = make_message(64, 0);
  PLEXUS_TRY(traffic.send(pair.send, message));
  PLEXUS_TRY(traffic.finish());
  return target.expect_message(message);
}

constexpr const char* kOrderRule =
    "plexus_net.h isend: messages with one tag arrive in the order in which they were sent";
constexpr const char* kMatchRule =
    "plexus_net.h irecv: a message is received into the oldest free buffer";

constexpr std::array kChecks = {
    Check{"order.fifo", "keeps the order of 1000 messages", kOrderRule,
          on_pair<first_in_first_out>},
    Check{"order.sizes",
          "keeps the order of long and short messages",
          kOrderRule,
          on_pair<sizes_alternate>,
          {.limit = seconds(40)}},
    Check{"order.random", "carries 500 messages of random sizes and addresses", kOrderRule,
          on_pair<random_sizes>},
    Check{"order.tags", "matches tags that arrive in order", kMatchRule, on_pair<tags_in_order>},
    Check{"order.tags_reversed", "matches tags that arrive in another order", kMatchRule,
          on_pair<tags_reversed>},
    Check{"order.tags_repeated", "receives the oldest message of a tag into its oldest buffer",
          kMatchRule, on_pair<tags_repeated>},
    Check{"order.tags_extreme", "accepts every 32-bit tag", "plexus_net.h tag: int32_t",
          on_pair<extreme_tags>},
    Check{"order.tags_bits", "keeps apart tags that differ in one bit", kMatchRule,
          on_pair<tags_of_one_bit>},
    Check{"order.early_message", "keeps messages that arrive before their receive",
          "plexus_net.h isend: a message whose buffer is not posted yet may hold up those sent "
          "after it",
          on_pair<early_messages>},
    Check{"order.early_long", "keeps long messages that arrive before their receive",
          "plexus_net.h isend: a message whose buffer is not posted yet may hold up those sent "
          "after it",
          on_pair<early_long_messages>},
    Check{"order.early_receive", "delivers a message to one receive and not to the next",
          kMatchRule, on_pair<early_receives>},
    Check{"order.not_done", "does not complete a receive before the message arrived",
          "plexus_net.h test: PLEXUS_AGAIN = not done", on_pair<not_done_before_it_came>},
};

}  // namespace

CheckTable order_checks() { return kChecks; }

}  // namespace plexus::conformance
