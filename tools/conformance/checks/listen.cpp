// SPDX-License-Identifier: Apache-2.0
// listen, its handle, close_listen.
#include <algorithm>
#include <array>
#include <deque>

#include "tools/conformance/check.hpp"
#include "tools/conformance/process_state.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

Result<void> on_each_device(const Context& context) {
  for (uint32_t device = 0; device < context.devices(); ++device) {
    PLEXUS_TRY(context.listen(device));
  }
  return ok();
}

Result<void> many_at_once(const Context& context) {
  std::deque<Listen> listens;
  for (int i = 0; i < 64; ++i) {
    PLEXUS_TRY(listen, context.listen());
    listens.push_back(std::move(listen));
  }
  return ok();
}

Result<void> handles_differ(const Context& context) {
  PLEXUS_TRY(first, context.listen());
  PLEXUS_TRY(second, context.listen());
  return expect(!std::equal(std::begin(first.handle().bytes), std::end(first.handle().bytes),
                            std::begin(second.handle().bytes)),
                "two listens returned the same handle");
}

/// Positions at which the handles of two listens differ.
Result<std::vector<size_t>> secret_bytes(const Listen& first, const Listen& second) {
  std::vector<size_t> found;
  for (size_t i = 0; i < PLEXUS_NET_HANDLE_BYTES; ++i) {
    if (first.handle().bytes[i] != second.handle().bytes[i]) {
      found.push_back(i);
    }
  }
  return found;
}

Result<void> handle_is_secret(const Context& context) {
  PLEXUS_TRY(first, context.listen());
  PLEXUS_TRY(second, context.listen());
  PLEXUS_TRY(secret, secret_bytes(first, second));
  constexpr size_t kLeast = 8;  // 64 bits cannot be guessed over a network
  return expect(
      secret.size() >= kLeast,
      "the handles of two listens differ in only {} bytes: one can be guessed from the other",
      secret.size());
}

Result<void> handle_is_needed(const Context& context) {
  PLEXUS_TRY(listen, context.listen());
  PLEXUS_TRY(other, context.listen());
  PLEXUS_TRY(secret, secret_bytes(listen, other));
  NetHandle forged = listen.handle();
  for (const size_t at : secret) {
    forged.bytes[at] = static_cast<uint8_t>(~forged.bytes[at]);
  }
  // Restore the parts that show where the listener is: small numbers in front are addresses.
  Send send = context.connect(forged);
  Recv recv = listen.accept();
  bool is_connected = false;
  bool is_refused = false;
  PLEXUS_TRY(context.net().fixture->repeat_for(milliseconds(300), [&]() -> Result<void> {
    if (!is_connected && !is_refused) {
      const int32_t code = send.try_connect();
      is_connected = code == PLEXUS_OK;
      is_refused = code != PLEXUS_OK && code != PLEXUS_AGAIN;
    }
    const int32_t accepted = recv.raw() == nullptr || !is_connected ? recv.try_accept() : PLEXUS_OK;
    PLEXUS_TRY(expect(accepted == PLEXUS_AGAIN || accepted == PLEXUS_OK,
                      "accept failed because of a connection without the handle: {}",
                      context.net().fixture->monitor().last_failure()));
    return expect(accepted != PLEXUS_OK, "it accepted a connection without the handle");
  }));
  return expect(!is_connected, "connect succeeded with a handle that no listen returned");
}

Result<void> writes_only_the_handle(const Context& context) {
  struct {
    std::array<uint64_t, 8> before;
    plexus_net_handle_t handle;
    std::array<uint64_t, 8> behind;
  } guarded{};
  guarded.before.fill(~uint64_t{0});
  guarded.behind.fill(~uint64_t{0});
  plexus_net_listen_t* raw = nullptr;
  const Net& net = context.net();
  const int32_t code = net.fixture->monitor().call(
      Place::kListen, [&] { return net.ops().listen(context.raw(), 0, &guarded.handle, &raw); });
  if (code != PLEXUS_OK) {
    return failed(net.fixture->monitor(), "listen", code);
  }
  const Listen closes(net, raw, guarded.handle, 0);
  const auto is_kept = [](uint64_t word) { return word == ~uint64_t{0}; };
  return expect(std::all_of(guarded.before.begin(), guarded.before.end(), is_kept) &&
                    std::all_of(guarded.behind.begin(), guarded.behind.end(), is_kept),
                "listen wrote more than the 128 bytes of the handle");
}

Result<void> closes_unused(const Context& context) {
  PLEXUS_TRY(warm, context.listen());
  warm.close();
  const Holdings before;
  for (int i = 0; i < 20; ++i) {
    PLEXUS_TRY(context.listen());
  }
  return before.expect_no_descriptors("20 listens were closed");
}

Result<void> closes_while_asked(const Context& context) {
  PLEXUS_TRY(listen, context.listen());
  Send send = context.connect(listen.handle());
  for (int i = 0; i < 10; ++i) {
    const int32_t code = send.try_connect();
    if (code != PLEXUS_AGAIN) {
      break;
    }
  }
  listen.close();
  PLEXUS_TRY(next, connect_pair(context, context));
  return deliver(next, {.size_bytes = 10});
}

Result<void> handle_moves(const Context& context) {
  PLEXUS_TRY(listen, context.listen());
  // The handle is sent as bytes, so it must be valid at any address.
  auto moved = std::make_unique<std::array<NetHandle, 3>>();
  (*moved)[1] = listen.handle();
  Send send = context.connect((*moved)[1]);
  moved.reset();
  Recv recv = listen.accept();
  bool is_connected = false;
  bool is_accepted = false;
  PLEXUS_TRY(context.net().fixture->wait_until("connect with a copied handle", [&] {
    return progress(send, is_connected, recv, is_accepted);
  }));
  Pair pair{std::move(listen), std::move(send), std::move(recv)};
  return deliver(pair, {.size_bytes = 100});
}

constexpr const char* kRule =
    "plexus_net.h listen: starts listening on `device` and fills in the handle";
constexpr CheckOptions kNative = {.abi = CheckOptions::Abi::kNative};

constexpr std::array kChecks = {
    Check{"listen.devices", "listens on each device without blocking", kRule,
          on_context<on_each_device>},
    Check{"listen.many", "listens many times concurrently", kRule, on_context<many_at_once>},
    Check{"listen.handles", "returns a different handle for each listen", kRule,
          on_context<handles_differ>},
    Check{"listen.secret", "makes handles that cannot be guessed",
          "plexus_net.h listen: the handle is secret", on_context<handle_is_secret>, kNative},
    Check{"listen.unauthenticated", "refuses connections without the handle",
          "plexus_net.h: who shows it may connect; an attempt without the handle is refused and is "
          "no "
          "failure",
          on_context<handle_is_needed>, kNative},
    Check{"listen.handle_size", "writes at most the 128 bytes of the handle",
          "plexus_net.h: PLEXUS_NET_HANDLE_BYTES 128", on_context<writes_only_the_handle>},
    Check{"listen.handle_moves", "makes handles that can be copied",
          "plexus_net.h: the host sends its 128-byte handle to the sending side",
          on_context<handle_moves>},
    Check{"listen.close", "closes a listen without connections", "plexus_net.h: close, each once",
          on_context<closes_unused>},
    Check{"listen.close_asked", "closes a listen while a peer connects",
          "plexus_net.h: close, each once", on_context<closes_while_asked>},
};

}  // namespace

CheckTable listen_checks() { return kChecks; }

}  // namespace plexus::conformance
