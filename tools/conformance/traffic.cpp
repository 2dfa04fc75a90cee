// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/traffic.hpp"

#include <algorithm>
#include <cstring>

#include "tools/conformance/pause.hpp"
#include "tools/conformance/run_delay.hpp"

namespace plexus::conformance {
namespace {

constexpr uint64_t kGuardBytes = 64;
constexpr std::byte kUntouched{0xA5};
/// Number of requests in flight that every plugin must support.
constexpr size_t kInFlight = 8;

uint64_t aligned_begin(const Bytes& bytes) {
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  return kGuardBytes + (kGuardBytes - address % kGuardBytes) % kGuardBytes;
}

/// Index of the first byte that differs, or the size.
size_t first_difference(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0)) {
    return a.size();
  }
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

bool is_untouched(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == kUntouched; });
}

}  // namespace

Bytes make_message(uint64_t size_bytes, uint64_t seed) {
  constexpr uint64_t kStep = 0x9E3779B97F4A7C15u;  // odd: no word repeats
  constexpr uint64_t kSpread = 0xD1342543DE82EF95u;
  constexpr uint32_t kTopByte = 56;
  Bytes message(size_bytes);
  uint64_t word = (seed + 1) * kSpread;
  uint64_t at = 0;
  for (; at + sizeof word <= size_bytes; at += sizeof word) {
    word += kStep;
    const uint64_t mixed = word ^ (word >> 29);
    std::memcpy(message.data() + at, &mixed, sizeof mixed);
  }
  word += kStep;
  for (; at < size_bytes; ++at) {
    word = word * kSpread + kStep;
    message[at] = static_cast<std::byte>(word >> kTopByte);
  }
  return message;
}

bool reports_right_size(const Net& net, uint64_t reported, uint64_t size_bytes) {
  return reported == size_bytes || (reported == 0 && !net.is_native());
}

GuardedBuffer::GuardedBuffer(uint64_t size_bytes, uint64_t offset_bytes)
    : bytes_(size_bytes + offset_bytes + 4 * kGuardBytes, kUntouched),
      begin_(aligned_begin(bytes_) + offset_bytes),
      size_bytes_(size_bytes) {}

Result<void> GuardedBuffer::expect_message(std::span<const std::byte> message) const {
  const std::span<const std::byte> all(bytes_);
  const auto arrived = all.subspan(begin_, message.size());
  const size_t different = first_difference(arrived, message);
  if (different != message.size()) {
    return wrong("byte {} of a message of {} arrived as {:#04x}, sent as {:#04x}", different,
                 message.size(), static_cast<unsigned>(arrived[different]),
                 static_cast<unsigned>(message[different]));
  }
  if (!is_untouched(all.first(begin_))) {
    return wrong("bytes before the buffer of {} were written", size_bytes_);
  }
  const auto behind = all.subspan(begin_ + message.size());
  if (!is_untouched(behind)) {
    const auto found =
        std::find_if(behind.begin(), behind.end(), [](std::byte b) { return b != kUntouched; });
    return wrong("byte {} after a message of {} in a buffer of {} was written",
                 found - behind.begin(), message.size(), size_bytes_);
  }
  return ok();
}

// ---------------------------------------------------------------------------------------- Traffic

Traffic::~Traffic() {
  for (Lane& lane : lanes_) {
    const Net& net = lane.send != nullptr ? lane.send->net() : lane.recv->net();
    for (auto* queue : {&lane.waiting, &lane.posted}) {
      for (auto& item : *queue) {
        end(net, *item);
      }
    }
  }
}

void Traffic::end(const Net& net, Item& item) {
  for (plexus_net_memory_t* memory : item.memory) {
    deregister(net, memory);
  }
  item.memory.clear();
}

Traffic::Lane& Traffic::lane_of(Send* send, Recv* recv) {
  const auto found = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& lane) {
    return lane.send == send && lane.recv == recv;
  });
  if (found != lanes_.end()) {
    return *found;
  }
  lanes_.push_back(Lane{.send = send, .recv = recv, .waiting = {}, .posted = {}});
  return lanes_.back();
}

const Transfer* Traffic::add(Lane& lane, std::unique_ptr<Item> item) {
  item->number = lane.items++;
  lane.waiting.push_back(std::move(item));
  return &lane.waiting.back()->transfer;
}

std::string Traffic::describe(const Lane& lane) {
  const bool is_send = lane.send != nullptr;
  const Item& item = lane.posted.empty() ? *lane.waiting.front() : *lane.posted.front();
  const auto size = is_send ? item.data.size() : item.buffers.front().size_bytes;
  const std::string state =
      item.transfer.is_posted
          ? fmt::format("is posted, and test returns PLEXUS_AGAIN ({} posted after it)",
                        lane.posted.size() - 1)
          : fmt::format("is not posted: {} returns PLEXUS_AGAIN", is_send ? "isend" : "irecv");
  return fmt::format("{} {} of {} ({}{} bytes, tag {}) {}", is_send ? "send" : "receive",
                     item.number + 1, lane.items, is_send ? "" : "room for ", size,
                     is_send ? item.tag : item.buffers.front().tag, state);
}

std::string Traffic::describe_rest() const {
  constexpr size_t kMost = 4;
  std::string text;
  size_t count = 0;
  for (const Lane& lane : lanes_) {
    if ((!lane.posted.empty() || !lane.waiting.empty()) && count++ < kMost) {
      text += (text.empty() ? "" : "; ") + describe(lane);
    }
  }
  return count > kMost ? fmt::format("{}; and of {} other ends", text, count - kMost) : text;
}

Result<const Transfer*> Traffic::send(Send& via, std::span<const std::byte> data, int32_t tag) {
  if (data.size() > via.message_bytes_max()) {
    return skip("message_bytes_max is {}, this check sends {}", via.message_bytes_max(),
                data.size());
  }
  auto item = std::make_unique<Item>();
  item->data = data;
  item->tag = tag;
  item->transfer.sizes_bytes = {~uint64_t{0}};
  PLEXUS_TRY(memory, via.register_memory(data.data(), data.size()));
  item->memory.push_back(memory);
  return add(lane_of(&via, nullptr), std::move(item));
}

Result<const Transfer*> Traffic::recv(Recv& via, std::span<const Wanted> wanted) {
  auto item = std::make_unique<Item>();
  for (const Wanted& each : wanted) {
    PLEXUS_TRY(memory, via.register_memory(each.target->data(), each.target->size_bytes()));
    item->memory.push_back(memory);
    item->buffers.push_back({each.target->data(), each.target->size_bytes(), memory, each.tag, 0});
    item->transfer.sizes_bytes.push_back(~uint64_t{0});
  }
  return add(lane_of(nullptr, &via), std::move(item));
}

Result<bool> Traffic::post_next(Lane& lane) {
  if (lane.waiting.empty() || lane.posted.size() >= kInFlight) {
    return false;
  }
  Item& item = *lane.waiting.front();
  const bool is_send = lane.send != nullptr;
  int32_t code = PLEXUS_OK;
  if (is_send) {
    code = lane.send->isend(item.data.data(), item.data.size(), item.tag, item.memory.front(),
                            &item.request);
  } else {
    // Borrowed for the call: the plugin must not read it later.
    std::vector<plexus_net_buffer_t> buffers = item.buffers;
    code = lane.recv->irecv(buffers, &item.request);
    std::fill(buffers.begin(), buffers.end(), plexus_net_buffer_t{});
  }
  if (code == PLEXUS_AGAIN) {
    return false;
  }
  if (code != PLEXUS_OK) {
    return failed(fixture_->monitor(), is_send ? "isend" : "irecv", code);
  }
  item.transfer.is_posted = true;
  ++posted_;
  lane.posted.push_back(std::move(lane.waiting.front()));
  lane.waiting.pop_front();
  return true;
}

/// Tests the oldest first, until one is not done; or all, the youngest first.
Result<bool> Traffic::test_posted(Lane& lane) {
  bool has_ended = false;
  for (size_t left = lane.posted.size(); left-- > 0;) {
    const auto each =
        lane.posted.begin() + static_cast<ptrdiff_t>(testing_ == Testing::kAll ? left : 0);
    Item& item = **each;
    const int32_t code = lane.send != nullptr
                             ? lane.send->test(item.request, item.transfer.sizes_bytes.data())
                             : lane.recv->test(item.request, item.transfer.sizes_bytes.data());
    if (code == PLEXUS_AGAIN && testing_ == Testing::kOldest) {
      break;
    }
    if (code == PLEXUS_AGAIN) {
      continue;
    }
    if (code != PLEXUS_OK) {
      return failed(fixture_->monitor(),
                    lane.send != nullptr ? "test of a send" : "test of a receive", code);
    }
    item.transfer.is_done = true;
    end(lane.send != nullptr ? lane.send->net() : lane.recv->net(), item);
    has_ended = true;
    done_.push_back(std::move(*each));
    lane.posted.erase(each);
  }
  return has_ended;
}

Result<bool> Traffic::step() {
  // The thread yields the core after each step and gets it back late on a busy machine, so a step
  // continues as long as anything moves.
  constexpr int kRoundsMost = 256;
  constexpr int kIdleMost = 2;  // PLEXUS_AGAIN may be repeated without meaning
  int idle = 0;
  has_changed_ = false;
  for (int round = 0; round < kRoundsMost; ++round) {
    bool is_done = true;
    bool moves = false;
    for (Lane& lane : lanes_) {
      PLEXUS_TRY(has_posted, post_next(lane));
      PLEXUS_TRY(has_ended, test_posted(lane));
      moves = moves || has_posted || has_ended;
      is_done = is_done && lane.waiting.empty() && lane.posted.empty();
    }
    has_changed_ = has_changed_ || moves;
    idle = moves ? 0 : idle + 1;
    if (is_done || idle == kIdleMost) {
      return is_done;
    }
  }
  return false;
}

/// The limit applies to periods without progress, so a slow machine finishes and a hang does not.
Result<void> Traffic::finish(milliseconds limit) {
  const milliseconds bound = fixture_->bound(limit);
  FairDeadline deadline(bound);
  Pause pause;
  while (true) {
    PLEXUS_TRY(is_done, step());
    if (is_done) {
      return ok();
    }
    if (has_changed_) {
      deadline = FairDeadline(bound);
      pause.reset();
    } else if (deadline.is_over()) {
      return wrong("timed out after {} ms: {}", bound.count(), describe_rest());
    }
    pause.rest();
  }
}

Result<void> Traffic::finish(const Transfer& transfer) {
  return fixture_->wait_until([&] { return describe_rest(); },
                              [&]() -> Result<bool> {
                                PLEXUS_TRY(step());
                                return transfer.is_done;
                              });
}

Result<void> Traffic::settle(milliseconds time) {
  constexpr int kStepsLeast = 16;  // on a busy machine time passes without any steps
  FairDeadline deadline(time);
  Pause pause;
  for (int steps = 0; steps < kStepsLeast || !deadline.is_over(); ++steps) {
    PLEXUS_TRY(step());
    if (has_changed_) {
      deadline = FairDeadline(time);
      pause.reset();
      steps = 0;
    }
    pause.rest();
  }
  return ok();
}

// ---------------------------------------------------------------------------------------- messages

namespace {

/// Posts or tests one end of a message; true when it is done.
template <class End>
Result<bool> advance(End& end,
                     const std::function<int32_t(plexus_net_request_t**)>& post,
                     plexus_net_request_t*& request,
                     uint64_t& reported) {
  const bool is_posted = request != nullptr;
  const int32_t code = is_posted ? end.test(request, &reported) : post(&request);
  if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
    constexpr bool kIsSend = std::is_same_v<End, Send>;
    return failed(end.net().fixture->monitor(),
                  is_posted ? (kIsSend ? "test of a send" : "test of a receive")
                            : (kIsSend ? "isend" : "irecv"),
                  code);
  }
  return is_posted && code == PLEXUS_OK;
}

}  // namespace

Result<ReportedSizes> carry(Pair& pair, const OneMessage& message) {
  ReportedSizes reported;
  plexus_net_request_t* sent = nullptr;
  plexus_net_request_t* received = nullptr;
  bool is_sent = false;
  bool is_received = false;
  const auto state = [](bool is_done, const void* request) {
    return is_done ? "done" : request != nullptr ? "posted" : "not posted";
  };
  PLEXUS_TRY(pair.send.net().fixture->wait_until(
      [&] {
        return fmt::format("{}: its send is {}, its receive is {}", message.what,
                           state(is_sent, sent), state(is_received, received));
      },
      [&]() -> Result<bool> {
        if (!is_received) {
          PLEXUS_TRY(is_done, advance(pair.recv, message.irecv, received, reported.received));
          is_received = is_done;
        }
        if (!is_sent) {
          PLEXUS_TRY(is_done, advance(pair.send, message.isend, sent, reported.sent));
          is_sent = is_done;
        }
        return is_sent && is_received;
      },
      message.limit));
  return reported;
}

namespace {

/// A test_message's content at its offset.
struct Source {
  Source(const TestMessage& test_message, uint64_t seed)
      : message(make_message(test_message.size_bytes, seed)),
        buffer(message.size() + test_message.source_offset + 2 * kGuardBytes) {
    const auto address = reinterpret_cast<uintptr_t>(buffer.data());
    begin = (kGuardBytes - address % kGuardBytes) % kGuardBytes + test_message.source_offset;
    std::copy(message.begin(), message.end(), buffer.begin() + static_cast<ptrdiff_t>(begin));
  }
  [[nodiscard]] std::span<const std::byte> data() const {
    return std::span<const std::byte>(buffer).subspan(begin, message.size());
  }
  Bytes message;
  Bytes buffer;
  size_t begin = 0;
};

struct Outgoing {
  std::deque<Source> sources;
  std::vector<const Transfer*> transfers;
};
struct Incoming {
  std::deque<GuardedBuffer> targets;
  std::vector<const Transfer*> transfers;
};

/// `messages`, none of them longer than `most`.
std::vector<TestMessage> shorten(std::span<const TestMessage> messages, uint64_t most) {
  std::vector<TestMessage> shortened(messages.begin(), messages.end());
  for (TestMessage& message : shortened) {
    message.size_bytes = std::min(message.size_bytes, most);
  }
  return shortened;
}

Result<void> add_outgoing(Traffic& traffic,
                          Send& send,
                          std::span<const TestMessage> messages,
                          Outgoing& out) {
  for (size_t i = 0; i < messages.size(); ++i) {
    out.sources.emplace_back(messages[i], i);
    PLEXUS_TRY(transfer, traffic.send(send, out.sources.back().data(), messages[i].tag));
    out.transfers.push_back(transfer);
  }
  return ok();
}

Result<void> add_incoming(Traffic& traffic,
                          Recv& recv,
                          std::span<const TestMessage> messages,
                          Incoming& in) {
  for (const TestMessage& test_message : messages) {
    in.targets.emplace_back(test_message.size_bytes + test_message.spare_bytes,
                            test_message.target_offset);
    PLEXUS_TRY(transfer, traffic.recv(recv, in.targets.back(), test_message.tag));
    in.transfers.push_back(transfer);
  }
  return ok();
}

Result<void> check_outgoing(std::span<const TestMessage> messages, const Outgoing& out) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const uint64_t reported = out.transfers[i]->sizes_bytes[0];
    PLEXUS_TRY(expect(reported == messages[i].size_bytes,
                      "test of send {} reports {} bytes, sent were {}", i, reported,
                      messages[i].size_bytes));
    PLEXUS_TRY(expect(std::equal(out.sources[i].message.begin(), out.sources[i].message.end(),
                                 out.sources[i].data().begin()),
                      "the source of message {} was changed", i));
  }
  return ok();
}

Result<void> check_incoming(const Net& net,
                            std::span<const TestMessage> messages,
                            const Incoming& in) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const uint64_t reported = in.transfers[i]->sizes_bytes[0];
    PLEXUS_TRY(expect(reports_right_size(net, reported, messages[i].size_bytes),
                      "test of receive {} reports {} bytes, sent were {}", i, reported,
                      messages[i].size_bytes));
    if (auto checked = in.targets[i].expect_message(make_message(messages[i].size_bytes, i));
        checked.has_error()) {
      return std::move(checked).error().with_context(fmt::format("message {}", i));
    }
  }
  return ok();
}

}  // namespace

Result<void> deliver(Pair& pair, std::span<const TestMessage> wanted, Testing testing) {
  const auto messages = shorten(wanted, pair.send.message_bytes_max());
  Outgoing out;
  Incoming in;
  Traffic traffic(*pair.send.net().fixture, testing);
  PLEXUS_TRY(add_incoming(traffic, pair.recv, messages, in));
  PLEXUS_TRY(add_outgoing(traffic, pair.send, messages, out));
  PLEXUS_TRY(traffic.finish());
  PLEXUS_TRY(check_outgoing(messages, out));
  return check_incoming(pair.recv.net(), messages, in);
}

namespace {

Result<Pair> connect_ends(const Context& sender, const Context& receiver, uint32_t device) {
  PLEXUS_TRY(listen, receiver.listen(device));
  Send send = sender.connect(listen.handle(), device);
  Recv recv = listen.accept();
  bool is_connected = false;
  bool is_accepted = false;
  PLEXUS_TRY(sender.net().fixture->wait_until("connect and accept of both ends", [&] {
    return progress(send, is_connected, recv, is_accepted);
  }));
  return Pair{std::move(listen), std::move(send), std::move(recv)};
}

}  // namespace

Result<Pair> connect_pair(const Context& sender, const Context& receiver, uint32_t device) {
  PLEXUS_TRY(pair, connect_ends(sender, receiver, device));
  if (!sender.net().is_native()) {
    PLEXUS_TRY(deliver(pair, {.size_bytes = 8}));
  }
  return pair;
}

Result<Pair> connect_unused_pair(const Context& context) {
  return connect_ends(context, context, 0);
}

Result<void> deliver(Pair& pair, const TestMessage& test_message) {
  return deliver(pair, {&test_message, 1});
}

Result<void> deliver_out(Send& send, std::span<const TestMessage> wanted) {
  const auto messages = shorten(wanted, send.message_bytes_max());
  Outgoing out;
  Traffic traffic(*send.net().fixture);
  PLEXUS_TRY(add_outgoing(traffic, send, messages, out));
  PLEXUS_TRY(traffic.finish());
  return check_outgoing(messages, out);
}

Result<void> deliver_in(Recv& recv, std::span<const TestMessage> wanted) {
  const auto messages = shorten(wanted, recv.message_bytes_max());
  Incoming in;
  Traffic traffic(*recv.net().fixture);
  PLEXUS_TRY(add_incoming(traffic, recv, messages, in));
  PLEXUS_TRY(traffic.finish());
  return check_incoming(recv.net(), messages, in);
}

}  // namespace plexus::conformance
