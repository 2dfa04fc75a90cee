// SPDX-License-Identifier: Apache-2.0
// The sending end of a cross-DC connection.
#include <algorithm>
#include <cstring>

#include "core/base/log.hpp"
#include "core/transport/net_message.hpp"
#include "core/transport/xdc.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;

constexpr int32_t kTag = 0;
constexpr auto kLookEvery = milliseconds(10);  // for control messages, while the link seems well
constexpr auto kOpenPatienceMin = milliseconds(1000);

}  // namespace

bool XdcSendEnd::drained() noexcept {
  return (state_ == State::kOpen ? done_ == filled_ : settled()) &&
         fifo().headers[filled_ % kSlots].ready.load(std::memory_order_relaxed) != filled_ + 1;
}

Result<bool> XdcSendEnd::advance(Clock::time_point now) {
  if (ring_ == nullptr) {
    PLEXUS_TRY(make_memory(options_.window));
    if (options_.runtime != nullptr) {
      device_view = view();
    } else {
      send = SendConnection(
          &fifo(), slot(0),
          {.peer = key().peer, .inline_bytes_max = 0, .slot_stride = options_.slot_bytes});
    }
  }
  progress_at_ += was_away(now);
  bool moved = take_filled();
  if (state_ != State::kOpen || (acked_ != filled_ && now >= look_at_)) {
    look_at_ = now + kLookEvery;
    PLEXUS_TRY(follow_control_messages(now));
  }
  if (state_ == State::kOpening) {
    PLEXUS_TRY(progress_open(now));
  }
  if (state_ == State::kOpen) {
    PLEXUS_TRY(sent, send_ring(now));
    PLEXUS_TRY(tested, test_sent());
    PLEXUS_TRY(acked, take_acks(now));
    PLEXUS_TRY(ask_when_silent(now));
    moved = moved || sent || tested || acked;
  }
  return moved;
}

/// From the Fifo to the ring.
bool XdcSendEnd::take_filled() {
  bool moved = false;
  while (filled_ - std::min(acked_, done_) < ring_messages_) {
    const SlotHeader& header = fifo().headers[filled_ % kSlots];
    // Filled by this thread, or by a kernel: pairs with its release.
    if (header.ready.load(std::memory_order_acquire) != filled_ + 1) {
      return moved;
    }
    const NetHeader message_header = header_of(fifo(), filled_);
    std::memcpy(message(filled_), &message_header, sizeof(message_header));
    std::memcpy(message(filled_) + sizeof(message_header), slot(filled_),
                message_header.size_bytes);
    ++filled_;
    fifo().taken.store(filled_, std::memory_order_release);  // pairs with await_taken() in a kernel
    moved = true;
  }
  return moved;
}

// ---- attempts ----

/// The last control message counts: the receiver has left the attempts before.
Result<void> XdcSendEnd::follow_control_messages(Clock::time_point now) {
  std::optional<ControlMessage> last;
  for (;;) {
    PLEXUS_TRY(message, take_control_message());
    if (!message.has_value()) {
      break;
    }
    if (message->kind == Kind::kCalled) {
      may_accept_ = may_accept_ || message->epoch == epoch_;
    } else {
      last = std::move(message);
    }
  }
  return last.has_value() ? open(*last, now) : ok();
}

Result<void> XdcSendEnd::open(const ControlMessage& message, Clock::time_point now) {
  if (message.kind != Kind::kListening || message.count < acked_ || message.count > filled_) {
    return fail(Code::kRemoteError,
                "{} says that {} messages arrived, of {} that were sent and {} that it had before: "
                "use the same version of Plexus on all ranks",
                options_.peer_name, message.count, filled_, acked_);
  }
  if (message.epoch > 0) {
    PLEXUS_TRY(count_loss(message));
  }
  drop();
  epoch_ = message.epoch;
  // A handle is for the plugin that made it: another one would read nonsense, and wait for ever.
  if (message.route != path().route) {
    return fail(Code::kInvalidUsage,
                "rank {} and {} chose different paths for one connection: this rank {}, that one "
                "{}; use the same version of Plexus on all ranks",
                options_.exchange->rank(), options_.peer_name, path().route, message.route);
  }
  acked_ = next_ = done_ = message.count;
  data_handle_ = message.handle;
  auto listen = path().context->listen(path().device, options_.peer_name);
  if (listen.has_error()) {
    return lose(listen.error().message());
  }
  listen_ = std::move(listen).value();
  acks_ = listen_->accept(options_.peer_name);
  state_ = State::kOpening;
  open_until_ = now + std::max(options_.patience, kOpenPatienceMin) * (1 + losses_);
  return ok();
}

Result<void> XdcSendEnd::progress_open(Clock::time_point now) {
  const auto progress = try_open();
  if (progress.has_error()) {
    return lose(progress.error().message());
  }
  if (progress.value() == NetProgress::kPending) {
    return now < open_until_ ? ok() : lose("it was not connected in time");
  }
  listen_.reset();
  state_ = State::kOpen;
  progress_at_ = now;
  ask_at_ = now;
  PLEXUS_INFO(kNet, "connected to {} through {}", options_.peer_name, path().route);
  return ok();
}

/// One connection after the other, so that both ends number them alike. Each end calls the other
/// before that accepts, for some plugins block in accept.
Result<NetProgress> XdcSendEnd::try_open() {
  while (data_memory_.size() < options_.sockets) {
    if (data_.size() == data_memory_.size()) {
      data_.push_back(path().context->connect(path().device, data_handle_, options_.peer_name));
    }
    PLEXUS_TRY(progress, data_.back().try_connect());
    PLEXUS_TRY(tell_called());
    if (progress == NetProgress::kPending) {
      break;
    }
    PLEXUS_TRY(memory, data_.back().register_memory(region()));
    data_memory_.push_back(std::move(memory));
  }
  if (!acks_open_ && may_accept_) {
    PLEXUS_TRY(progress, acks_->try_accept());
    if (progress == NetProgress::kDone) {
      PLEXUS_TRY(memory, acks_->register_memory({.data = &ack_buffer_,
                                                 .size_bytes = sizeof(ack_buffer_),
                                                 .dmabuf_offset_bytes = 0,
                                                 .dmabuf_fd = -1,
                                                 .kind = PLEXUS_MEMORY_HOST}));
      acks_memory_ = std::move(memory);
      acks_open_ = true;
    }
  }
  return data_memory_.size() == options_.sockets && acks_open_ ? NetProgress::kDone
                                                               : NetProgress::kPending;
}

/// With the first one, where to connect for the acknowledgements.
Result<void> XdcSendEnd::tell_called() {
  if (called_ == data_.size()) {
    return ok();
  }
  called_ = data_.size();
  return called_ == 1 ? post(Kind::kAcks, called_, listen_->handle())
                      : post(Kind::kCalled, called_);
}

/// The link is gone for this end: the receiver is asked for the next path.
Result<void> XdcSendEnd::lose(std::string why) {
  drop();
  why_ = std::move(why);
  return post(Kind::kMove, 1);
}

/// Another attempt, as long as that is worth it.
Result<void> XdcSendEnd::count_loss(const ControlMessage& message) {
  if (++losses_ > 2 * options_.paths.size() + 2) {
    return fail(Code::kRemoteError,
                "lost the link to {} by {}, and found no path in {} attempts on {}: {}",
                options_.peer_name, path().route, losses_ - 1, options_.paths.size(), why_);
  }
  PLEXUS_WARN("lost the link to {} by {}: {}; messages {} to {} are sent again by {}",
              options_.peer_name, path().route, why_, message.count, next_, message.route);
  return ok();
}

void XdcSendEnd::drop() {
  data_memory_.clear();
  data_.clear();
  acks_memory_.reset();
  acks_.reset();
  listen_.reset();
  acks_open_ = false;
  called_ = 0;
  may_accept_ = false;
  ack_request_ = nullptr;
  state_ = State::kLost;
}

// ---- messages ----

Result<bool> XdcSendEnd::send_ring(Clock::time_point now) {
  bool moved = false;
  while (next_ < filled_) {
    const std::byte* const bytes = message(next_);
    NetHeader message_header{};
    std::memcpy(&message_header, bytes, sizeof(message_header));
    NetSend& socket = data_[socket_of(next_)];
    const bool is_observed = observer_ != nullptr && next_ >= told_;  // not for what is sent again
    if (is_observed) {
      observer_->on_step(StepChange::kFilled, message_header.size_bytes);
    }
    const auto status =
        socket.isend({bytes, sizeof(message_header) + message_header.size_bytes}, kTag,
                     data_memory_[socket_of(next_)].raw(), &requests_[next_ % ring_messages_]);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      PLEXUS_TRY(lose(socket.explain("isend", status).message()));
      return true;
    }
    if (next_ == acked_) {
      progress_at_ = now;
    }
    ++next_;
    moved = true;
    if (is_observed) {
      observer_->on_step(StepChange::kSent, message_header.size_bytes);
      told_ = next_;
    }
  }
  return moved;
}

Result<bool> XdcSendEnd::test_sent() {
  bool moved = false;
  for (; state_ == State::kOpen && done_ < next_; moved = true) {
    NetSend& socket = data_[socket_of(done_)];
    const auto status = socket.test(requests_[done_ % ring_messages_], nullptr);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      PLEXUS_TRY(lose(socket.explain("test", status).message()));
      return true;
    }
    ++done_;
    if (observer_ != nullptr && done_ >= told_) {
      observer_->on_step(StepChange::kDone, 0);
    }
  }
  return moved;
}

/// Looks only while something is not acknowledged: a receiver that has all may leave. One buffer is
/// posted at a time, for while something is missing one more acknowledgement comes for certain; how
/// many come in all, nobody knows.
Result<bool> XdcSendEnd::take_acks(Clock::time_point now) {
  bool moved = false;
  while (state_ == State::kOpen && acked_ != next_) {
    if (ack_request_ == nullptr) {
      const NetStatus posted = post_ack_buffer();
      if (posted != NetStatus::kOk) {
        if (posted != NetStatus::kAgain) {
          PLEXUS_TRY(lose(acks_->explain("irecv", posted).message()));
        }
        return moved;
      }
    }
    uint64_t size_bytes = 0;
    const auto status = acks_->test(ack_request_, &size_bytes);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      PLEXUS_TRY(lose(acks_->explain("test", status).message()));
      return true;
    }
    ack_request_ = nullptr;
    const uint64_t count = ack_buffer_;
    const bool is_whole = size_bytes == sizeof(count) || (size_bytes == 0 && lacks_sizes());
    if (!is_whole || count < acked_ || count > next_) {
      return fail(Code::kRemoteError,
                  "{} acknowledged {} messages, of {} that were sent: use the same version of "
                  "Plexus on all ranks",
                  options_.peer_name, count, next_);
    }
    acked_ = count;
    progress_at_ = now;
    losses_ = 0;
    moved = true;
  }
  return moved;
}

NetStatus XdcSendEnd::post_ack_buffer() {
  ack_buffer_ = UINT64_MAX;  // no number of messages
  const NetBuffer buffer{.data = &ack_buffer_,
                         .size_bytes = sizeof(ack_buffer_),
                         .memory = acks_memory_->raw(),
                         .tag = kTag,
                         .flags = 0};
  return acks_->irecv({&buffer, 1}, &ack_request_);
}

/// The receiver may be elsewhere, so it decides: what did it see?
Result<void> XdcSendEnd::ask_when_silent(Clock::time_point now) {
  if (state_ != State::kOpen || acked_ == next_ || now - progress_at_ < options_.patience ||
      now < ask_at_) {
    return ok();
  }
  ask_at_ = now + options_.patience;
  why_ = fmt::format("nothing was acknowledged for {} ms", options_.patience.count());
  return post(Kind::kMove, 0);
}

}  // namespace plexus
