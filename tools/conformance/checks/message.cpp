// SPDX-License-Identifier: Apache-2.0
// Single messages: every size, any address, the right bytes and no others.
#include <array>
#include <cstring>
#include <sys/mman.h>

#include "tools/conformance/check.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

Result<Context> context_of(const Pair& pair) { return Context::open(pair.send.net()); }

/// All of `sizes` that the device supports, one after the other.
Result<void> deliver_sizes(Pair& pair, std::span<const uint64_t> sizes) {
  PLEXUS_TRY(context, context_of(pair));
  for (const uint64_t size : sizes) {
    if (size > context.properties().message_bytes_max) {
      continue;
    }
    if (auto sent = deliver(pair, {.size_bytes = size}); sent.has_error()) {
      return std::move(sent).error().with_context(fmt::format("{} bytes", size));
    }
  }
  return ok();
}

/// Sizes around each power of two from `first` to `last`.
Result<void> deliver_around(Pair& pair, uint32_t first, uint32_t last) {
  std::vector<uint64_t> sizes;
  for (uint32_t bits = first; bits <= last; ++bits) {
    const uint64_t power = uint64_t{1} << bits;
    sizes.insert(sizes.end(), {power - 1, power, power + 1});
  }
  return deliver_sizes(pair, sizes);
}

Result<void> empty(Pair& pair) { return deliver(pair, {.size_bytes = 0}); }

Result<void> empty_into_larger_buffer(Pair& pair) {
  return deliver(pair, {.size_bytes = 0, .spare_bytes = 1000});
}

Result<void> empty_first(const Context& context) {
  PLEXUS_TRY(pair, connect_unused_pair(context));
  return deliver(pair, {.size_bytes = 0});
}

Result<void> empty_without_address(Pair& pair) {
  const plexus_net_buffer_t buffer{nullptr, 0, nullptr, 1, 0};
  PLEXUS_TRY(reported, carry(pair, {"an empty message without an address",
                                    [&](auto** request) {
                                      return pair.recv.irecv({&buffer, 1}, request);
                                    },
                                    [&](auto** request) {
                                      return pair.send.isend(nullptr, 0, 1, nullptr, request);
                                    }}));
  return expect(reported.received == 0 && reported.sent == 0,
                "test returned {} and {} bytes for an empty message", reported.received,
                reported.sent);
}

Result<void> empty_among_others(Pair& pair) {
  const std::array<TestMessage, 5> messages = {{{.size_bytes = 100},
                                                {.size_bytes = 0},
                                                {.size_bytes = 5},
                                                {.size_bytes = 0},
                                                {.size_bytes = 0}}};
  return deliver(pair, messages);
}

Result<void> one_to_64(Pair& pair) {
  std::vector<uint64_t> sizes;
  for (uint64_t size = 1; size <= 64; ++size) {
    sizes.push_back(size);
  }
  return deliver_sizes(pair, sizes);
}

Result<void> to_64k(Pair& pair) { return deliver_around(pair, 7, 16); }
Result<void> to_4m(Pair& pair) { return deliver_around(pair, 17, 22); }
Result<void> to_128m(Pair& pair) { return deliver_around(pair, 23, 27); }

Result<void> odd_sizes(Pair& pair) {
  constexpr std::array<uint64_t, 8> kSizes = {1000,  1460,  9000,   10007,
                                              65521, 99999, 250007, 999983};
  return deliver_sizes(pair, kSizes);
}

/// Without copies of the contents, which would need more memory than the messages.
Result<void> deliver_mapped(Pair& pair, uint64_t size) {
  const auto map = [&] {
    return ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  void* const source = map();
  void* const target = map();
  if (source == MAP_FAILED || target == MAP_FAILED) {
    return skip("not enough memory for two buffers of {} bytes", size);
  }
  auto* const words = static_cast<uint64_t*>(source);
  for (uint64_t i = 0; i < size / sizeof(uint64_t); ++i) {
    words[i] = i * 0x9E3779B97F4A7C15u;
  }
  PLEXUS_TRY(out, pair.send.register_memory(source, size));
  PLEXUS_TRY(in, pair.recv.register_memory(target, size));
  const plexus_net_buffer_t buffer{target, size, in, 1, 0};
  PLEXUS_TRY(
      reported,
      carry(pair, {"a very long message",
                   [&](auto** request) {
                     return pair.recv.irecv({&buffer, 1}, request);
                   },
                   [&](auto** request) { return pair.send.isend(source, size, 1, out, request); },
                   seconds(45)}));
  deregister(pair.send.net(), out);
  deregister(pair.recv.net(), in);
  PLEXUS_TRY(expect(reports_right_size(pair.recv.net(), reported.received, size),
                    "test reports {} bytes of {}", reported.received, size));
  return expect(std::memcmp(source, target, size) == 0, "a message of {} bytes arrived corrupted",
                size);
}

template <uint64_t kSize>
Result<void> very_long(Pair& pair) {
  PLEXUS_TRY(context, context_of(pair));
  if (kSize > context.properties().message_bytes_max) {
    return skip("message_bytes_max is {}", context.properties().message_bytes_max);
  }
  return deliver_mapped(pair, kSize);
}

Result<void> longest(Pair& pair) {
  PLEXUS_TRY(context, context_of(pair));
  const uint64_t size = context.properties().message_bytes_max;
  if (size > uint64_t{64} << 20) {
    return skip("message_bytes_max is {}, too long to try here", size);
  }
  PLEXUS_TRY(deliver(pair, {.size_bytes = size}));
  PLEXUS_TRY(deliver(pair, {.size_bytes = size - 1}));
  // as many at once as a host has slots, into buffers that are no longer
  const std::vector<TestMessage> slots(8, TestMessage{.size_bytes = size});
  return size > uint64_t{4} << 20 ? ok() : deliver(pair, slots);
}

/// Many rounds of eight messages of `size_bytes`, each round into new buffers.
Result<void> deliver_rounds(Pair& pair, uint64_t size_bytes, size_t rounds) {
  constexpr size_t kAtOnce = 8;
  const uint64_t size = std::min(size_bytes, pair.send.message_bytes_max());
  std::vector<Bytes> sources;
  for (size_t i = 0; i < kAtOnce; ++i) {
    sources.push_back(make_message(size, i));
  }
  for (size_t round = 0; round < rounds; ++round) {
    std::vector<GuardedBuffer> targets(kAtOnce, GuardedBuffer(size));
    Traffic traffic(*pair.send.net().fixture);
    for (size_t i = 0; i < kAtOnce; ++i) {
      PLEXUS_TRY(traffic.recv(pair.recv, targets[i]));
      PLEXUS_TRY(traffic.send(pair.send, sources[i]));
    }
    PLEXUS_TRY(traffic.finish());
    for (size_t i = 0; i < kAtOnce; ++i) {
      if (auto checked = targets[i].expect_message(sources[i]); checked.has_error()) {
        return std::move(checked).error().with_context(
            fmt::format("message {} of {}", round * kAtOnce + i + 1, rounds * kAtOnce));
      }
    }
  }
  return ok();
}

/// A fault in every n-th message shows only after n of them.
Result<void> thousand_long(Pair& pair) {
  constexpr size_t kRounds = 140;
  PLEXUS_TRY(deliver_rounds(pair, 20'000, kRounds));
  return deliver_rounds(pair, (1 << 20) + 64, kRounds);
}

Result<void> any_source_address(Pair& pair) {
  for (uint64_t offset = 0; offset < 16; ++offset) {
    PLEXUS_TRY(deliver(pair, {.size_bytes = 1001, .source_offset = offset}));
  }
  return ok();
}

Result<void> any_target_address(Pair& pair) {
  for (uint64_t offset = 0; offset < 16; ++offset) {
    PLEXUS_TRY(deliver(pair, {.size_bytes = 1001, .target_offset = offset}));
  }
  return ok();
}

Result<void> unaligned_long(Pair& pair) {
  PLEXUS_TRY(context, context_of(pair));
  return deliver(
      pair,
      {.size_bytes = longest_message(context, 300001), .source_offset = 3, .target_offset = 13});
}

Result<void> shorter_than_buffer(Pair& pair) {
  const std::array<TestMessage, 4> messages = {{{.size_bytes = 1, .spare_bytes = 1},
                                                {.size_bytes = 100, .spare_bytes = 1000},
                                                {.size_bytes = 8, .spare_bytes = 60000},
                                                {.size_bytes = 50000, .spare_bytes = 1}}};
  return deliver(pair, messages);
}

Result<void> read_only_source(Pair& pair) {
  constexpr size_t kSize = 4096;
  if (kSize > pair.send.message_bytes_max()) {
    return skip("message_bytes_max is {}", pair.send.message_bytes_max());
  }
  void* const page =
      ::mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  PLEXUS_TRY(expect(page != MAP_FAILED, "cannot map memory"));
  const Bytes message = make_message(kSize, 8);
  std::copy(message.begin(), message.end(), static_cast<std::byte*>(page));
  PLEXUS_TRY(memory, pair.send.register_memory(page, kSize));
  ::mprotect(page, kSize, PROT_READ);
  GuardedBuffer target(kSize);
  PLEXUS_TRY(into, pair.recv.register_memory(target.data(), kSize));
  const plexus_net_buffer_t buffer{target.data(), kSize, into, 0, 0};
  PLEXUS_TRY(carry(
      pair, {"a message from constant memory",
             [&](auto** request) {
               return pair.recv.irecv({&buffer, 1}, request);
             },
             [&](auto** request) { return pair.send.isend(page, kSize, 0, memory, request); }}));
  deregister(pair.send.net(), memory);
  deregister(pair.recv.net(), into);
  return target.expect_message(message);
}

Result<void> one_source_often(Pair& pair) {
  const Bytes message = make_message(std::min<uint64_t>(3000, pair.send.message_bytes_max()), 1);
  std::vector<GuardedBuffer> targets(8, GuardedBuffer(message.size()));
  Traffic traffic(*pair.send.net().fixture);
  for (GuardedBuffer& target : targets) {
    PLEXUS_TRY(traffic.recv(pair.recv, target));
    PLEXUS_TRY(traffic.send(pair.send, message));
  }
  PLEXUS_TRY(traffic.finish());
  for (const GuardedBuffer& target : targets) {
    PLEXUS_TRY(target.expect_message(message));
  }
  return ok();
}

constexpr const char* kSizeRule = "plexus_net.h message_bytes_max: longest isend";
constexpr const char* kEmptyRule = "plexus_net.h isend: size 0 is legal";
constexpr const char* kLargerBufferRule =
    "plexus_net.h size_bytes: capacity; the message may be shorter";
constexpr CheckOptions kLong = {.limit = seconds(60), .is_alone = true};

constexpr std::array kChecks = {
    Check{"message.empty", "carries an empty message", kEmptyRule, on_pair<empty>},
    Check{"message.empty_spare", "carries an empty message into a buffer with room", kEmptyRule,
          on_pair<empty_into_larger_buffer>},
    Check{"message.empty_first", "carries an empty message as the first of a connection",
          kEmptyRule, on_context<empty_first>},
    Check{"message.empty_null", "carries an empty message without an address", kEmptyRule,
          on_pair<empty_without_address>},
    Check{"message.empty_among", "carries empty messages among others", kEmptyRule,
          on_pair<empty_among_others>},
    Check{"message.to_64", "carries 1 to 64 bytes", kSizeRule, on_pair<one_to_64>},
    Check{"message.to_64k", "carries sizes around powers of two to 64 KiB", kSizeRule,
          on_pair<to_64k>},
    Check{"message.to_4m",
          "carries sizes around powers of two to 4 MiB",
          kSizeRule,
          on_pair<to_4m>,
          {.limit = seconds(40)}},
    Check{"message.to_128m", "carries sizes around powers of two to 128 MiB", kSizeRule,
          on_pair<to_128m>, kLong},
    Check{"message.odd", "carries odd sizes", kSizeRule, on_pair<odd_sizes>},
    Check{"message.512m", "carries 512 MiB plus one byte", kSizeRule,
          on_pair<very_long<(uint64_t{512} << 20) + 1>>, kLong},
    Check{"message.1g", "carries 1 GiB", kSizeRule, on_pair<very_long<uint64_t{1} << 30>>, kLong},
    Check{"message.thousand", "carries a thousand messages of 20,000 bytes and of 1 MiB intact",
          "plexus_net.h test: PLEXUS_OK = done", on_pair<thousand_long>, kLong},
    Check{"message.longest", "carries the longest message that it reports", kSizeRule,
          on_pair<longest>, kLong},
    Check{"message.source_address", "sends from any address",
          "plexus_net.h isend: `data` is any address", on_pair<any_source_address>},
    Check{"message.target_address", "receives at any address",
          "plexus_net.h data: the address that isend and irecv will use",
          on_pair<any_target_address>},
    Check{"message.unaligned", "carries a long message between odd addresses",
          "plexus_net.h data: the address that isend and irecv will use", on_pair<unaligned_long>},
    Check{"message.spare", "carries messages shorter than their buffers", kLargerBufferRule,
          on_pair<shorter_than_buffer>},
    Check{"message.read_only", "only reads what it sends", "plexus_net.h isend: const void* data",
          on_pair<read_only_source>},
    Check{"message.one_source", "sends one buffer several times concurrently",
          "plexus_net.h isend: `data` stays unchanged until test() returns OK",
          on_pair<one_source_often>},
};

}  // namespace

CheckTable message_checks() { return kChecks; }

}  // namespace plexus::conformance
