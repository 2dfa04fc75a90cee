// SPDX-License-Identifier: Apache-2.0
// The sending end of a cross-DC connection.
#include <algorithm>
#include <cstring>

#include "core/base/log.hpp"
#include "core/transport/checksum.hpp"
#include "core/transport/net_message.hpp"
#include "core/transport/xdc.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;

constexpr auto kOpenPatienceMin = milliseconds(1000);

}  // namespace

Result<bool> XdcSender::progress_connect() {
  PLEXUS_TRY(advance(Clock::now()));
  return state_ == State::kOpen;
}

bool XdcSender::drained() const noexcept {
  return (state_ == State::kOpen ? done_ == filled_ : settled()) && !fifo_.is_filled(filled_);
}

Result<bool> XdcSender::advance(Clock::time_point now) {
  if (ring_ == nullptr) {
    PLEXUS_TRY(make_memory(options_.window));
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
bool XdcSender::take_filled() {
  bool moved = false;
  while (filled_ - std::min(acked_, done_) < ring_messages_) {
    if (!fifo_.is_filled(filled_)) {
      return moved;
    }
    NetHeader message_header = header_of(fifo_.fifo(), filled_);
    if (options_.has_checksums) {
      message_header.payload_sum =
          sum_payload({std::span(fifo_.payload(filled_), message_header.size_bytes)});
      sign_header(message_header);
    }
    std::memcpy(message(filled_), &message_header, sizeof(message_header));
    std::memcpy(message(filled_) + sizeof(message_header), fifo_.payload(filled_),
                message_header.size_bytes);
    ++filled_;
    fifo_.release_until(filled_);
    moved = true;
  }
  return moved;
}

// ---- attempts ----

/// The last control message counts: the receiver has left the attempts before.
Result<void> XdcSender::follow_control_messages(Clock::time_point now) {
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

Result<void> XdcSender::open(const ControlMessage& message, Clock::time_point now) {
  if (message.kind != Kind::kListening || message.count < acked_ || message.count > filled_) {
    return fail(Code::kRemoteError,
                "{} reports that {} messages arrived, but {} were sent and {} were acknowledged "
                "before: use the same version of Plexus on all ranks",
                options_.peer_name, message.count, filled_, acked_);
  }
  if (message.epoch > 0) {
    PLEXUS_TRY(count_loss(message));
  }
  drop();
  epoch_ = message.epoch;
  PLEXUS_TRY(check_route({.mine = path().route,
                          .peers = message.route,
                          .rank = options_.exchange->rank(),
                          .peer_name = options_.peer_name}));
  acked_ = next_ = done_ = message.count;
  data_handle_ = message.handle;
  auto listen = path().context->listen(path().device, options_.peer_name);
  if (listen.has_error()) {
    return lose(listen.error().message());
  }
  listen_ = std::move(listen).value();
  state_ = State::kOpening;
  open_until_ = now + std::max(options_.patience, kOpenPatienceMin) * (1 + losses_);
  return ok();
}

Result<void> XdcSender::progress_open(Clock::time_point now) {
  const auto progress = try_open();
  if (progress.has_error()) {
    return lose(progress.error().message());
  }
  if (progress.value() == NetProgress::kPending) {
    return now < open_until_ ? ok() : lose("connecting timed out");
  }
  listen_.reset();
  state_ = State::kOpen;
  progress_at_ = now;
  ask_at_ = now;
  if (epoch_ > 0) {
    PLEXUS_INFO(kNet, "connected to {} again via {}", options_.peer_name, route());
  }
  return ok();
}

/// Each end calls the other before that accepts, for some plugins block in accept.
Result<NetProgress> XdcSender::try_open() {
  PLEXUS_TRY(data_.open(
      options_.sockets, ring_region(),
      [this] { return path().context->connect(path().device, data_handle_, options_.peer_name); },
      [this](NetSend& socket) -> Result<NetProgress> {
        PLEXUS_TRY(progress, socket.try_connect());
        PLEXUS_TRY(tell_called());
        return progress;
      }));
  if (may_accept_) {
    PLEXUS_TRY(acks_.open(
        1, ack_region(), [this] { return listen_->accept(options_.peer_name); },
        [](NetRecv& socket) { return socket.try_accept(); }));
  }
  return data_.opened() == options_.sockets && acks_.opened() == 1 ? NetProgress::kDone
                                                                   : NetProgress::kPending;
}

/// With the first one, where to connect for the acknowledgements.
Result<void> XdcSender::tell_called() {
  if (told_called_ == data_.called()) {
    return ok();
  }
  told_called_ = data_.called();
  return told_called_ == 1 ? post(Kind::kAcks, told_called_, listen_->handle())
                           : post(Kind::kCalled, told_called_);
}

/// The link is gone for this end: the receiver is asked for the next path.
Result<void> XdcSender::lose(std::string why) {
  drop();
  why_ = std::move(why);
  return post(Kind::kMove, 1);
}

/// Counts an attempt; an Error when there were too many without any success.
Result<void> XdcSender::count_loss(const ControlMessage& message) {
  if (++losses_ > 2 * options_.paths.size() + 2) {
    return fail(Code::kRemoteError,
                "lost the link to {} by {}, and {} attempts on {} paths failed: {}",
                options_.peer_name, path().route, losses_ - 1, options_.paths.size(), why_);
  }
  PLEXUS_WARN("lost the link to {} by {}: {}; messages {} to {} are sent again by {}",
              options_.peer_name, path().route, why_, message.count, next_, message.route);
  return ok();
}

void XdcSender::drop() {
  data_.close();
  acks_.close();
  listen_.reset();
  told_called_ = 0;
  may_accept_ = false;
  ack_request_ = nullptr;
  state_ = State::kLost;
}

// ---- messages ----

Result<bool> XdcSender::send_ring(Clock::time_point now) {
  bool moved = false;
  while (next_ < filled_) {
    const std::byte* const bytes = message(next_);
    NetHeader message_header{};
    std::memcpy(&message_header, bytes, sizeof(message_header));
    NetSend& socket = data_.at(next_);
    const bool is_observed = observer_ != nullptr && next_ >= told_;  // not for what is sent again
    if (is_observed) {
      observer_->on_step(StepChange::kFilled, message_header.size_bytes);
    }
    const auto status = socket.isend({bytes, sizeof(message_header) + message_header.size_bytes},
                                     kTag, data_.memory_at(next_), &request(next_));
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

Result<bool> XdcSender::test_sent() {
  bool moved = false;
  for (; state_ == State::kOpen && done_ < next_; moved = true) {
    NetSend& socket = data_.at(done_);
    const auto status = socket.test(request(done_), nullptr);
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

/// Receives acknowledgements only while something is not acknowledged, because a receiver that has
/// all may leave. One buffer is posted at a time: while something is missing at least one more
/// acknowledgement comes, but how many come in all is not known.
Result<bool> XdcSender::take_acks(Clock::time_point now) {
  bool moved = false;
  while (state_ == State::kOpen && acked_ != next_) {
    if (ack_request_ == nullptr) {
      const NetStatus posted = post_ack_buffer();
      if (posted != NetStatus::kOk) {
        if (posted != NetStatus::kAgain) {
          PLEXUS_TRY(lose(acks_.at(0).explain("irecv", posted).message()));
        }
        return moved;
      }
    }
    uint64_t size_bytes = 0;
    const auto status = acks_.at(0).test(ack_request_, &size_bytes);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      PLEXUS_TRY(lose(acks_.at(0).explain("test", status).message()));
      return true;
    }
    ack_request_ = nullptr;
    const uint64_t count = ack_buffer_;
    const bool is_whole = size_bytes == sizeof(count) || (size_bytes == 0 && lacks_sizes());
    if (!is_whole || count < acked_ || count > next_) {
      return fail(Code::kRemoteError,
                  "{} acknowledged {} messages, but {} were sent: use the same version of Plexus "
                  "on all ranks",
                  options_.peer_name, count, next_);
    }
    acked_ = count;
    progress_at_ = now;
    losses_ = 0;
    moved = true;
  }
  return moved;
}

NetStatus XdcSender::post_ack_buffer() {
  ack_buffer_ = UINT64_MAX;  // no number of messages
  const NetBuffer buffer{.data = &ack_buffer_,
                         .size_bytes = sizeof(ack_buffer_),
                         .memory = acks_.memory_at(0),
                         .tag = kTag,
                         .flags = 0};
  return acks_.at(0).irecv({&buffer, 1}, &ack_request_);
}

/// Silence may also mean that the receiver is busy elsewhere. So the receiver decides whether the
/// link is lost; it is asked.
Result<void> XdcSender::ask_when_silent(Clock::time_point now) {
  if (state_ != State::kOpen || acked_ == next_ || now - progress_at_ < options_.patience ||
      now < ask_at_) {
    return ok();
  }
  ask_at_ = now + options_.patience;
  why_ = fmt::format("no acknowledgement for {} ms", options_.patience.count());
  return post(Kind::kMove, 0);
}

}  // namespace plexus
