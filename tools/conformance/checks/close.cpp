// SPDX-License-Identifier: Apache-2.0
// Closing handles: in every state and order, without leaks.
#include <algorithm>
#include <array>
#include <deque>
#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/conformance/check.hpp"
#include "tools/conformance/leaks.hpp"
#include "tools/conformance/process_state.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

constexpr auto kCloseLimit = std::chrono::seconds(2);

/// Memory that can be unmapped, so that later access crashes.
class Mapped {
 public:
  explicit Mapped(size_t size_bytes)
      : size_bytes_(size_bytes),
        data_(::mmap(
            nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  ~Mapped() { take_away(); }
  void take_away() {
    if (data_ != nullptr) {
      ::munmap(data_, size_bytes_);
      data_ = nullptr;
    }
  }
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  size_t size_bytes_;
  void* data_;
};

Result<void> each_order(const Context& context) {
  for (int order = 0; order < 6; ++order) {
    PLEXUS_TRY(pair, connect_pair(context, context));
    PLEXUS_TRY(deliver(pair, {.size_bytes = 100}));
    const std::array<std::array<int, 3>, 6> orders = {
        {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}};
    for (const int which : orders[static_cast<size_t>(order)]) {
      if (which == 0) {
        pair.send.close();
      } else if (which == 1) {
        pair.recv.close();
      } else {
        pair.listen.close();
      }
    }
  }
  return ok();
}

Result<void> unused(const Context& context) {
  for (int i = 0; i < 8; ++i) {
    PLEXUS_TRY(pair, connect_unused_pair(context));
    if (i % 2 == 0) {
      pair.recv.close();
    }
  }
  return ok();
}

Result<void> with_receives_posted(const Context& context) {
  PLEXUS_TRY(pair, connect_pair(context, context));
  Mapped target(1 << 16);
  PLEXUS_TRY(into, pair.recv.register_memory(target.data(), target.size_bytes()));
  for (int i = 0; i < 4; ++i) {
    plexus_net_request_t* request = nullptr;
    const plexus_net_buffer_t buffer{target.data(), target.size_bytes() / 4, into, 0, 0};
    pair.recv.irecv({&buffer, 1}, &request);
  }
  deregister(context.net(), into);
  pair.recv.close();
  target.take_away();
  // The peer does not know yet: what it sends must be dropped.
  const Bytes message = make_message(1000, 1);
  PLEXUS_TRY(from, pair.send.register_memory(message.data(), message.size()));
  for (int i = 0; i < 20; ++i) {
    plexus_net_request_t* request = nullptr;
    const int32_t code = pair.send.isend(message.data(), message.size(), 0, from, &request);
    if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
      break;
    }
    if (code == PLEXUS_OK) {
      pair.send.test(request, nullptr);
    }
  }
  deregister(context.net(), from);
  return ok();
}

Result<void> with_a_send_under_way(const Context& context) {
  PLEXUS_TRY(pair, connect_pair(context, context));
  Mapped source(longest_message(context, 16 << 20));
  PLEXUS_TRY(from, pair.send.register_memory(source.data(), source.size_bytes()));
  plexus_net_request_t* request = nullptr;
  for (int i = 0; i < 100 && request == nullptr; ++i) {
    pair.send.isend(source.data(), source.size_bytes(), 0, from, &request);
  }
  deregister(context.net(), from);
  pair.send.close();
  source.take_away();
  pair.recv.close();
  PLEXUS_TRY(next, connect_pair(context, context));
  return deliver(next, {.size_bytes = 100});
}

/// Gives helpers of the plugin time to do what they still have to do.
Result<void> look_for_late_writers(const Context& context) {
  return context.net().fixture->repeat_for(milliseconds(50), [] { return Result<void>(ok()); });
}

Result<void> amid_a_message(const Context& context) {
  PLEXUS_TRY(pair, connect_pair(context, context));
  const uint64_t size = longest_message(context, 16 << 20);
  Mapped source(size);
  Mapped target(size);
  PLEXUS_TRY(from, pair.send.register_memory(source.data(), size));
  PLEXUS_TRY(into, pair.recv.register_memory(target.data(), size));
  plexus_net_request_t* sent = nullptr;
  plexus_net_request_t* received = nullptr;
  const plexus_net_buffer_t buffer{target.data(), size, into, 0, 0};
  bool is_done = false;
  for (int i = 0; i < 6 && !is_done; ++i) {
    if (received == nullptr) {
      pair.recv.irecv({&buffer, 1}, &received);
    } else {
      is_done = pair.recv.test(received, nullptr) != PLEXUS_AGAIN;
    }
    if (sent == nullptr) {
      pair.send.isend(source.data(), size, 0, from, &sent);
    }
  }
  deregister(context.net(), into);
  pair.recv.close();
  target.take_away();
  deregister(context.net(), from);
  pair.send.close();
  source.take_away();
  return look_for_late_writers(context);
}

Result<void> receives_are_left(const Context& context) {
  PLEXUS_TRY(with_receives_posted(context));
  return look_for_late_writers(context);
}

Result<void> send_is_left(const Context& context) {
  PLEXUS_TRY(with_a_send_under_way(context));
  return look_for_late_writers(context);
}

Result<void> in_bounded_time(const Context& context) {
  context.net().fixture->monitor().measure_this_thread();
  for (int i = 0; i < 8; ++i) {
    PLEXUS_TRY(with_a_send_under_way(context));
  }
  Monitor& monitor = context.net().fixture->monitor();
  for (const Place place : {Place::kCloseSend, Place::kCloseRecv, Place::kCloseListen}) {
    PLEXUS_TRY(expect(monitor.times(place).longest <= kCloseLimit, "{} took {} ms",
                      place_name(place), monitor.times(place).longest.count() / 1'000'000));
  }
  return ok();
}

/// Messages of one size that are all sent before the sender closes, and received after it.
struct LastMessages {
  LastMessages(const Context& context, uint64_t size_bytes) {
    for (size_t i = 0; i < 3; ++i) {
      sources.push_back(make_message(longest_message(context, size_bytes), i));
      targets.emplace_back(sources.back().size());
    }
  }
  [[nodiscard]] Result<void> send_all(Traffic& traffic, Send& send) {
    for (const Bytes& source : sources) {
      PLEXUS_TRY(transfer, traffic.send(send, source));
      sent.push_back(transfer);
    }
    return ok();
  }
  [[nodiscard]] Result<void> receive_all(Traffic& traffic, Recv& recv) {
    for (GuardedBuffer& target : targets) {
      PLEXUS_TRY(traffic.recv(recv, target));
    }
    return ok();
  }
  [[nodiscard]] bool are_sent() const {
    return std::all_of(sent.begin(), sent.end(), [](const auto* each) { return each->is_done; });
  }
  [[nodiscard]] Result<void> expect_all() const {
    for (size_t i = 0; i < targets.size(); ++i) {
      if (auto checked = targets[i].expect_message(sources[i]); checked.has_error()) {
        return std::move(checked).error().with_context(fmt::format("message {}", i + 1));
      }
    }
    return ok();
  }
  std::vector<Bytes> sources;
  std::deque<GuardedBuffer> targets;
  std::vector<const Transfer*> sent;
};

constexpr milliseconds kSettle{30};  // for sends that need no receive

Result<void> last_messages_arrive(const Context& context) {
  Fixture& fixture = *context.net().fixture;
  for (const uint64_t size : {uint64_t{100}, uint64_t{60000}, uint64_t{1} << 20}) {
    PLEXUS_TRY(pair, connect_pair(context, context));
    LastMessages messages(context, size);
    Traffic receiving(fixture);
    {
      Traffic sending(fixture);
      PLEXUS_TRY(messages.send_all(sending, pair.send));
      PLEXUS_TRY(sending.settle(kSettle));
      PLEXUS_TRY(messages.receive_all(receiving, pair.recv));
      PLEXUS_TRY(fixture.wait_until("the sends", [&]() -> Result<bool> {
        PLEXUS_TRY(sending.step());
        if (!messages.are_sent()) {
          PLEXUS_TRY(receiving.step());
        }
        return messages.are_sent();
      }));
    }
    pair.send.close();
    Result<void> arrived = receiving.finish();
    if (arrived.has_value()) {
      arrived = messages.expect_all();
    }
    if (arrived.has_error()) {
      return std::move(arrived).error().with_context(
          fmt::format("messages of {} bytes whose sends were done when their sender closed",
                      messages.sources[0].size()));
    }
  }
  return ok();
}

/// The sender's process ends as well.
Result<void> last_messages_outlive_their_sender(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  LastMessages messages(context, uint64_t{1} << 20);
  if (fixture.role() == 0) {
    PLEXUS_TRY(send, connect_to_peer(context));
    Traffic sending(fixture);
    PLEXUS_TRY(messages.send_all(sending, send));
    PLEXUS_TRY(sending.settle(kSettle));
    PLEXUS_TRY(fixture.peer().send(messages.are_sent()));
    return sending.finish();
  }
  PLEXUS_TRY(recv, accept_from_peer(context));
  PLEXUS_TRY(are_sent, fixture.peer().receive<bool>());
  if (are_sent) {
    PLEXUS_TRY(fixture.peer().wait_for_end());
  }
  Traffic traffic(fixture);
  PLEXUS_TRY(messages.receive_all(traffic, recv));
  PLEXUS_TRY(traffic.finish());
  return messages.expect_all();
}

Result<void> leaves_others_alone(const Context& context) {
  PLEXUS_TRY(kept, connect_pair(context, context));
  const Bytes message = make_message(longest_message(context, 1 << 20), 1);
  GuardedBuffer target(message.size());
  Traffic traffic(*context.net().fixture);
  PLEXUS_TRY(traffic.recv(kept.recv, target));
  PLEXUS_TRY(traffic.send(kept.send, message));
  PLEXUS_TRY(traffic.step());
  for (int i = 0; i < 4; ++i) {
    PLEXUS_TRY(with_a_send_under_way(context));
    PLEXUS_TRY(traffic.step());
  }
  PLEXUS_TRY(traffic.finish());
  return target.expect_message(message);
}

Result<void> leaves_nothing(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  const auto use = [&]() -> Result<void> {
    PLEXUS_TRY(first, Context::open(net, 1));
    PLEXUS_TRY(second, Context::open(net, 1));
    PLEXUS_TRY(pair, connect_pair(first, second));
    PLEXUS_TRY(deliver(pair, {.size_bytes = 60000}));
    PLEXUS_TRY(other, connect_pair(second, first));
    return deliver(other, {.size_bytes = 10});
  };
  PLEXUS_TRY(use());
  const Holdings before;
  for (int i = 0; i < 5; ++i) {
    PLEXUS_TRY(use());
  }
  return before.expect_nothing_more("everything was closed");
}

Result<void> aborts_leave_nothing(const Context& context) {
  const auto use = [&](int times) -> Result<void> {
    for (int i = 0; i < times; ++i) {
      PLEXUS_TRY(with_a_send_under_way(context));
      PLEXUS_TRY(with_receives_posted(context));
    }
    return ok();
  };
  PLEXUS_TRY(use(2));
  const Holdings before;
  PLEXUS_TRY(leaves_no_memory(
      *context.net().fixture,
      {.use = use, .times = 40, .what = "times aborted requests", .bytes_each = 512}));
  return before.expect_no_descriptors("requests were aborted");
}

Result<void> leaves_no_memory(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  const auto use = [&](int times) -> Result<void> {
    for (int i = 0; i < times; ++i) {
      PLEXUS_TRY(pair, connect_pair(context, context));
      PLEXUS_TRY(deliver(pair, {.size_bytes = 100}));
    }
    return ok();
  };
  PLEXUS_TRY(use(20));
  return leaves_no_memory(fixture,
                          {.use = use, .times = 100, .what = "connections", .bytes_each = 64});
}

Result<void> messages_leave_no_memory(Pair& pair) {
  const std::vector<TestMessage> messages(500, TestMessage{.size_bytes = 100});
  const auto use = [&](int times) -> Result<void> {
    for (int i = 0; i < times; ++i) {
      PLEXUS_TRY(deliver(pair, messages));
    }
    return ok();
  };
  PLEXUS_TRY(use(2));
  return leaves_no_memory(
      *pair.send.net().fixture,
      {.use = use, .times = 6, .what = "times 500 messages", .bytes_each = 8 * messages.size()});
}

Result<void> closes_only_its_own(Fixture& fixture) {
  // Descriptors opened between the steps: a second close by the plugin would close one of them.
  PLEXUS_TRY(net, Net::load(fixture));
  std::vector<int> ours;
  const auto open_one = [&] { ours.push_back(::open("/dev/null", O_RDONLY | O_CLOEXEC)); };
  PLEXUS_TRY(context, Context::open(net));
  for (int i = 0; i < 5; ++i) {
    PLEXUS_TRY(pair, connect_pair(context, context));
    open_one();
    PLEXUS_TRY(deliver(pair, {.size_bytes = 100}));
    pair.send.close();
    open_one();
    pair.recv.close();
    open_one();
    pair.listen.close();
    open_one();
  }
  context.close();
  for (const int number : ours) {
    PLEXUS_TRY(expect(::fcntl(number, F_GETFD) >= 0,
                      "it closed descriptor {}, which belongs to the host", number));
    ::close(number);
  }
  return ok();
}

Result<void> exits_after_use(Fixture& fixture) {
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  PLEXUS_TRY(pair, connect_pair(context, context));
  return deliver(pair, {.size_bytes = 1000});
}

/// Everything is still open when main() returns, as in a program that never destroys its
/// communicator.
Result<void> exits_amid_use(Fixture& fixture) {
  struct Forgotten {
    Net net;
    Context context;
    Pair pair;
  };
  PLEXUS_TRY(net, Net::load(fixture));
  PLEXUS_TRY(context, Context::open(net));
  PLEXUS_TRY(pair, connect_pair(context, context));
  // Intentionally never destroyed.
  const Forgotten* const kept =
      std::make_unique<Forgotten>(Forgotten{net, std::move(context), std::move(pair)}).release();
  // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): see above
  return expect(kept->context.raw() != nullptr || !net.is_native(), "no context");
}

constexpr const char* kLastRule =
    "plexus_net.h close_send: what test() called done arrives nevertheless";
constexpr const char* kCloseRule =
    "plexus_net.h close_send: requests may be outstanding (abort): after the call their buffers "
    "are not accessed again";
constexpr const char* kTimeRule = "plexus_net.h close_send: may take up to a few milliseconds";
constexpr const char* kLeakRule =
    "plexus_net.h: each handle is made and ended by the entries named";

constexpr std::array kChecks = {
    Check{"close.orders", "closes ends and listen in any order", kCloseRule,
          on_context<each_order>},
    Check{"close.unused", "closes connections that carried nothing", kCloseRule,
          on_context<unused>},
    Check{"close.receives", "closes with receives posted, and leaves their buffers", kCloseRule,
          on_context<receives_are_left>},
    Check{"close.send", "closes with a send in flight, and leaves its buffer", kCloseRule,
          on_context<send_is_left>},
    Check{"close.amid", "closes in the middle of a message", kCloseRule,
          on_context<amid_a_message>},
    Check{"close.time", "closes in bounded time", kTimeRule, on_context<in_bounded_time>},
    Check{"close.delivers", "delivers what was sent before its sender closed", kLastRule,
          on_context<last_messages_arrive>},
    Check{"close.ended",
          "delivers what was sent before its sender's process ended",
          kLastRule,
          last_messages_outlive_their_sender,
          {.processes = 2}},
    Check{"close.others", "closes one connection without affecting the others", kCloseRule,
          on_context<leaves_others_alone>},
    Check{"close.leaves", "leaks no descriptor and no thread", kLeakRule, leaves_nothing},
    Check{"close.abort_leaves", "leaks no descriptor and no memory of aborted requests", kLeakRule,
          on_context<aborts_leave_nothing>},
    Check{"close.memory",
          "leaks no memory of connections",
          kLeakRule,
          leaves_no_memory,
          {.is_alone = true}},
    Check{"close.message_memory",
          "leaks no memory of messages",
          kLeakRule,
          on_pair<messages_leave_no_memory>,
          {.is_alone = true}},
    Check{"close.own", "closes its own descriptors only", kLeakRule, closes_only_its_own},
    Check{"close.exit",
          "lets the process exit after use",
          "plexus_net.h: no entry raises a signal, ends the process",
          exits_after_use,
          {.exits = true}},
    Check{"close.exit_open",
          "lets the process exit with everything open",
          "plexus_net.h: no entry raises a signal, ends the process",
          exits_amid_use,
          {.exits = true}},
};

}  // namespace

CheckTable close_checks() { return kChecks; }

}  // namespace plexus::conformance
