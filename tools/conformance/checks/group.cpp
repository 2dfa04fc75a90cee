// SPDX-License-Identifier: Apache-2.0
// Receives of several buffers as one request.
#include <algorithm>
#include <array>
#include <deque>

#include "tools/conformance/check.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

/// A plugin with one buffer per receive has nothing to check here.
template <Result<void> (*f)(Pair&, uint32_t recvs_max)>
Result<void> on_group(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  const uint32_t most = context.properties().recvs_max;
  if (most < 2) {
    return skip("recvs_max is {}", most);
  }
  PLEXUS_TRY(pair, connect_pair(context, context));
  return f(pair, most);
}

/// One grouped receive with tags `wanted`; messages with tags `sent` and different sizes. Message i
/// belongs in the oldest buffer with its tag.
Result<void> match(Pair& pair,
                   const std::vector<int32_t>& wanted,
                   const std::vector<int32_t>& sent,
                   const std::vector<uint64_t>& sizes) {
  std::deque<GuardedBuffer> targets;
  std::vector<Wanted> buffers;
  for (const int32_t tag : wanted) {
    targets.emplace_back(*std::max_element(sizes.begin(), sizes.end()) + 10);
    buffers.push_back({&targets.back(), tag});
  }
  std::deque<Bytes> messages;
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(received, traffic.recv(pair.recv, buffers));
  for (size_t i = 0; i < sent.size(); ++i) {
    messages.push_back(make_message(sizes[i], i));
    PLEXUS_TRY(traffic.send(pair.send, messages.back(), sent[i]));
  }
  PLEXUS_TRY(traffic.finish());
  std::vector<bool> is_used(wanted.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    size_t buffer = 0;
    while (is_used[buffer] || wanted[buffer] != sent[i]) {
      ++buffer;
    }
    is_used[buffer] = true;
    PLEXUS_TRY(expect(reports_right_size(pair.recv.net(), received->sizes_bytes[buffer], sizes[i]),
                      "test reports {2} bytes for buffer {0} of {1}, {3} were sent", buffer,
                      wanted.size(), received->sizes_bytes[buffer], sizes[i]));
    if (auto checked = targets[buffer].expect_message(messages[i]); checked.has_error()) {
      return std::move(checked).error().with_context(fmt::format("buffer {}", buffer));
    }
  }
  return ok();
}

std::vector<int32_t> count_up(uint32_t count) {
  std::vector<int32_t> tags(count);
  for (uint32_t i = 0; i < count; ++i) {
    tags[i] = static_cast<int32_t>(i);
  }
  return tags;
}
std::vector<uint64_t> different_sizes(uint32_t count) {
  std::vector<uint64_t> sizes(count);
  for (uint32_t i = 0; i < count; ++i) {
    sizes[i] = 100 + 37 * i;
  }
  return sizes;
}

Result<void> full(Pair& pair, uint32_t most) {
  return match(pair, count_up(most), count_up(most), different_sizes(most));
}

Result<void> each_count(Pair& pair, uint32_t most) {
  for (uint32_t count = 1; count <= most; ++count) {
    PLEXUS_TRY(match(pair, count_up(count), count_up(count), different_sizes(count)));
  }
  return ok();
}

Result<void> reversed(Pair& pair, uint32_t most) {
  std::vector<int32_t> sent = count_up(most);
  std::reverse(sent.begin(), sent.end());
  return match(pair, count_up(most), sent, different_sizes(most));
}

Result<void> same_tag(Pair& pair, uint32_t most) {
  const std::vector<int32_t> tags(most, 9);
  return match(pair, tags, tags, different_sizes(most));
}

Result<void> with_empty(Pair& pair, uint32_t most) {
  std::vector<uint64_t> sizes = different_sizes(most);
  sizes[0] = 0;
  sizes[most - 1] = 0;
  return match(pair, count_up(most), count_up(most), sizes);
}

Result<void> long_and_short(Pair& pair, uint32_t most) {
  PLEXUS_TRY(context, Context::open(pair.send.net()));
  std::vector<uint64_t> sizes = different_sizes(most);
  sizes[1] = longest_message(context, 1 << 20);
  return match(pair, count_up(most), count_up(most), sizes);
}

Result<void> done_with_the_last(Pair& pair, uint32_t most) {
  std::deque<GuardedBuffer> targets;
  std::vector<Wanted> buffers;
  for (uint32_t i = 0; i < most; ++i) {
    targets.emplace_back(100);
    buffers.push_back({&targets.back(), static_cast<int32_t>(i)});
  }
  const Bytes message = make_message(60, 1);
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(received, traffic.recv(pair.recv, buffers));
  for (uint32_t i = 0; i < most; ++i) {
    PLEXUS_TRY(
        expect(!received->is_done, "a receive of {} buffers completed after {} messages", most, i));
    PLEXUS_TRY(traffic.send(pair.send, message, static_cast<int32_t>(i)));
    PLEXUS_TRY(traffic.settle(milliseconds(15)));
  }
  PLEXUS_TRY(traffic.finish());
  for (const GuardedBuffer& target : targets) {
    PLEXUS_TRY(target.expect_message(message));
  }
  return ok();
}

Result<void> several_groups(Pair& pair, uint32_t most) {
  constexpr uint32_t kGroups = 6;
  std::deque<GuardedBuffer> targets;
  std::deque<Bytes> messages;
  Traffic traffic(*pair.send.net().fixture);
  for (uint32_t group = 0; group < kGroups; ++group) {
    std::vector<Wanted> buffers;
    for (uint32_t i = 0; i < most; ++i) {
      targets.emplace_back(200);
      buffers.push_back({&targets.back(), static_cast<int32_t>(i)});
    }
    PLEXUS_TRY(traffic.recv(pair.recv, buffers));
  }
  for (uint32_t i = 0; i < kGroups * most; ++i) {
    messages.push_back(make_message(10 + i, i));
    PLEXUS_TRY(traffic.send(pair.send, messages.back(), static_cast<int32_t>(i % most)));
  }
  PLEXUS_TRY(traffic.finish());
  for (size_t i = 0; i < targets.size(); ++i) {
    if (auto checked = targets[i].expect_message(messages[i]); checked.has_error()) {
      return std::move(checked).error().with_context(
          fmt::format("buffer {} of group {}", i % most, i / most));
    }
  }
  return ok();
}

Result<void> groups_and_singles(Pair& pair, uint32_t most) {
  for (int i = 0; i < 10; ++i) {
    PLEXUS_TRY(deliver(pair, {.size_bytes = 77, .tag = 3}));
    PLEXUS_TRY(match(pair, count_up(most), count_up(most), different_sizes(most)));
  }
  return ok();
}

Result<void> too_long_for_one(Pair& pair, uint32_t most) {
  std::deque<GuardedBuffer> targets;
  std::vector<Wanted> buffers;
  for (uint32_t i = 0; i < most; ++i) {
    targets.emplace_back(100);
    buffers.push_back({&targets.back(), static_cast<int32_t>(i)});
  }
  const Bytes message = make_message(101, 1);
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(traffic.recv(pair.recv, buffers));
  PLEXUS_TRY(traffic.send(pair.send, message, 1));
  const Result<void> result = traffic.finish(milliseconds(3000));
  PLEXUS_TRY(expect(
      result.has_error() && result.error().message().find("timed out after") == std::string::npos,
      "a message longer than its buffer of a group did not fail"));
  for (GuardedBuffer& target : targets) {
    // The beginning of the message may be in its buffer, but nothing beyond the buffer.
    PLEXUS_TRY(target.expect_message({target.data(), target.size_bytes()}));
  }
  return ok();
}

constexpr const char* kRule =
    "plexus_net.h irecv: posts `count` buffers (1 .. recvs_max) as one request; a message takes "
    "the oldest free buffer with its tag";
constexpr const char* kSizesRule =
    "plexus_net.h test: `sizes_bytes` receives the bytes moved, `count` entries for a receive";

constexpr std::array kChecks = {
    Check{"group.sizes", "reports the size of each buffer of a group", kSizesRule, on_group<full>},
    Check{"group.counts", "accepts groups of 1 to recvs_max buffers", kRule, on_group<each_count>},
    Check{"group.reversed", "matches buffers by tag, not by position", kRule, on_group<reversed>},
    Check{"group.same_tag", "fills buffers with the same tag in their order", kRule,
          on_group<same_tag>},
    Check{"group.empty", "accepts empty messages in a group", kSizesRule, on_group<with_empty>},
    Check{"group.mixed", "accepts long and short messages in a group", kRule,
          on_group<long_and_short>},
    Check{"group.last", "completes with the last buffer and not before", kRule,
          on_group<done_with_the_last>},
    Check{"group.several", "fills several groups in their order", kRule, on_group<several_groups>},
    Check{"group.singles", "accepts groups and single receives alternately", kRule,
          on_group<groups_and_singles>},
    Check{"group.too_long", "fails when a message is longer than its buffer",
          "plexus_net.h size_bytes: a longer one fails the connection", on_group<too_long_for_one>},
};

}  // namespace

CheckTable group_checks() { return kChecks; }

}  // namespace plexus::conformance
