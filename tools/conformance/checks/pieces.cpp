// SPDX-License-Identifier: Apache-2.0
// Messages in pieces (since 1.4, optional) and from several registered places (since 1.6,
// optional): they behave like any message, however each end divides them.
#include <array>
#include <vector>

#include "tools/conformance/check.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

bool takes_pieces(const Context& context) {
  return context.properties().takes_pieces != 0 && context.net().ops().isend_pieces != nullptr &&
         context.net().ops().irecv_pieces != nullptr;
}

Result<void> both_or_none(const Context& context) {
  const plexus_net_ops_t& ops = context.net().ops();
  PLEXUS_TRY(expect((ops.isend_pieces == nullptr) == (ops.irecv_pieces == nullptr),
                    "it has only one of isend_pieces and irecv_pieces"));
  for (uint32_t device = 0; device < context.devices(); ++device) {
    PLEXUS_TRY(expect(context.properties(device).takes_pieces == 0 || ops.isend_pieces != nullptr,
                      "device {} supports pieces, but there is no isend_pieces", device));
  }
  return ok();
}

/// None longer than the device supports, and that length too where it is short.
std::vector<uint64_t> message_sizes(const Context& context) {
  std::vector<uint64_t> sizes;
  for (const uint64_t size : {1, 64, 20'000, 300'001}) {
    sizes.push_back(longest_message(context, size));
  }
  return sizes;
}

/// A message that the sender divides at `head_bytes` and the receiver, with 100 bytes more
/// capacity, at `first_bytes`. Consecutive pieces are not adjacent in memory.
Result<void> cut(Pair& pair, uint64_t size_bytes, uint64_t head_bytes, uint64_t first_bytes) {
  const Bytes message = make_message(size_bytes, size_bytes + head_bytes);
  const Bytes head(message.begin(), message.begin() + static_cast<std::ptrdiff_t>(head_bytes));
  const Bytes tail(message.begin() + static_cast<std::ptrdiff_t>(head_bytes), message.end());
  GuardedBuffer first(first_bytes);
  GuardedBuffer second(size_bytes - first_bytes);
  GuardedBuffer spare(100);
  // Sent data is only read.
  const auto piece = [](const Bytes& bytes) {
    return plexus_net_piece_t{
        const_cast<std::byte*>(bytes.data()),  // NOLINT(cppcoreguidelines-pro-type-const-cast)
        bytes.size()};
  };
  const std::array<plexus_net_piece_t, 2> from = {piece(head), piece(tail)};
  const std::array<plexus_net_piece_t, 3> into = {{{first.data(), first_bytes},
                                                   {second.data(), size_bytes - first_bytes},
                                                   {spare.data(), 100}}};
  PLEXUS_TRY(
      reported,
      carry(pair, {"a message in pieces",
                   [&](auto** request) { return pair.recv.irecv_pieces(into, 1, request); },
                   [&](auto** request) { return pair.send.isend_pieces(from, 1, request); }}));
  PLEXUS_TRY(expect(reported.received == size_bytes, "test reports {} bytes of {}",
                    reported.received, size_bytes));
  const std::span<const std::byte> all(message);
  PLEXUS_TRY(first.expect_message(all.first(first_bytes)));
  PLEXUS_TRY(second.expect_message(all.subspan(first_bytes)));
  return spare.expect_untouched();
}

Result<void> cut_anywhere(Pair& pair) {
  PLEXUS_TRY(context, Context::open(pair.send.net()));
  if (!takes_pieces(context)) {
    return skip("the device does not support pieces");
  }
  for (const uint64_t size : message_sizes(context)) {
    for (const uint64_t head : {uint64_t{0}, uint64_t{1}, size / 2, size}) {
      for (const uint64_t first : {uint64_t{0}, size / 3, size}) {
        if (auto carried = cut(pair, size, head, first); carried.has_error()) {
          return std::move(carried).error().with_context(fmt::format(
              "{} bytes, sent as {} and the rest, received as {} and the rest", size, head, first));
        }
      }
    }
  }
  return deliver(pair, {.size_bytes = 1000});  // ordinary messages still work
}

/// A message that lies in three registered places, the second of which is in the midst of its
/// registration, and comes into one buffer with 100 bytes more capacity.
Result<void> gather(Pair& pair, uint64_t size_bytes, uint64_t head_bytes, uint64_t middle_bytes) {
  constexpr size_t kOffset = 13;
  const Bytes message = make_message(size_bytes, size_bytes + head_bytes);
  const std::array<uint64_t, 3> sizes = {head_bytes, middle_bytes,
                                         size_bytes - head_bytes - middle_bytes};
  std::array<Bytes, 3> places;
  std::array<plexus_net_source_t, 3> sources{};
  auto next = message.begin();
  for (size_t i = 0; i < sizes.size(); ++i) {
    places[i].resize(sizes[i] + 2 * kOffset);
    std::copy_n(next, sizes[i], places[i].begin() + kOffset);
    next += static_cast<std::ptrdiff_t>(sizes[i]);
    PLEXUS_TRY(memory, pair.send.register_memory(places[i].data(), places[i].size()));
    sources[i] = {places[i].data() + kOffset, sizes[i], memory};
  }
  const std::array<Bytes, 3> before = places;
  GuardedBuffer target(size_bytes + 100);
  Traffic traffic(*pair.send.net().fixture);
  PLEXUS_TRY(transfer, traffic.recv(pair.recv, target, 1));
  plexus_net_request_t* sent = nullptr;
  uint64_t size_reported = 0;
  bool is_sent = false;
  PLEXUS_TRY(pair.send.net().fixture->wait_until("a gathered message", [&]() -> Result<bool> {
    if (sent == nullptr) {
      pair.send.isend_gathered(sources, 1, &sent);
    } else if (!is_sent) {
      is_sent = pair.send.test(sent, &size_reported) == PLEXUS_OK;
    }
    PLEXUS_TRY(is_received, traffic.step());
    return is_sent && is_received;
  }));
  for (const plexus_net_source_t& source : sources) {
    deregister(pair.send.net(), source.memory);
  }
  PLEXUS_TRY(expect(size_reported == size_bytes && transfer->sizes_bytes.front() == size_bytes,
                    "test reports {} bytes sent and {} received of {}", size_reported,
                    transfer->sizes_bytes.front(), size_bytes));
  PLEXUS_TRY(expect(places == before, "it changes what it sends"));
  return target.expect_message(message);
}

Result<void> gathered(Pair& pair) {
  if (pair.send.net().ops().isend_gathered == nullptr) {
    return skip("the plugin does not gather registered memory");
  }
  PLEXUS_TRY(context, Context::open(pair.send.net()));
  for (const uint64_t size : message_sizes(context)) {
    for (const uint64_t head : {uint64_t{0}, size / 2, size}) {
      for (const uint64_t middle : {uint64_t{0}, (size - head) / 3, size - head}) {
        if (auto carried = gather(pair, size, head, middle); carried.has_error()) {
          return std::move(carried).error().with_context(
              fmt::format("{} bytes, sent as {}, {} and the rest", size, head, middle));
        }
      }
    }
  }
  return deliver(pair, {.size_bytes = 1000});  // ordinary messages still work
}

constexpr const char* kRule = "plexus_net.h isend_pieces: one message like any other";
constexpr std::array kChecks = {
    Check{"pieces.entries", "has both entries or none",
          "plexus_net.h isend_pieces: both or none, for devices with `takes_pieces`",
          on_context<both_or_none>},
    Check{"pieces.cuts", "carries messages however each end cuts them", kRule,
          on_pair<cut_anywhere>},
    Check{"pieces.gathered", "sends from several places in registered memory",
          "plexus_net.h isend_gathered: like isend, of consecutive sources", on_pair<gathered>},
};

}  // namespace

CheckTable pieces_checks() { return kChecks; }

}  // namespace plexus::conformance
