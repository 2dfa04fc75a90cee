// SPDX-License-Identifier: Apache-2.0
// The sending end of a cross-DC connection.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/log.hpp"
#include "core/transport/network/checksum.hpp"
#include "core/transport/network/net_message.hpp"
#include "core/transport/network/xdc.hpp"
#include "guest/assert.hpp"

namespace plexus {
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
  const auto away = was_away(now);
  progress_at_ += away;
  attempt_.open_until += away;
  bool moved = take_filled();
  if (state_ != State::kOpen || ((acked_ != filled_ || is_rerouted()) && now >= look_at_)) {
    look_at_ = now + kLookEvery;
    PLEXUS_TRY(follow_control_messages(now));
  }
  if (state_ == State::kOpening) {
    PLEXUS_TRY(progress_open(now));
  }
  if (trial_.has_value()) {
    trial_->open_until += away;
    PLEXUS_TRY(progress_trial(now));
  }
  if (state_ == State::kOpen) {
    PLEXUS_TRY(sent, send_ring(now));
    PLEXUS_TRY(tested, test_sent());
    PLEXUS_TRY(acked, take_acks(now));
    PLEXUS_TRY(ask_when_silent(now));
    moved = moved || sent || tested || acked;
  }
  PLEXUS_DCHECK(acked_ <= next_ && done_ <= next_ && next_ <= filled_, acked_, done_, next_,
                filled_);
  PLEXUS_DCHECK(filled_ - std::min(acked_, done_) <= ring_messages_, filled_, acked_, done_);
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
    if (options_.has_checksums || message_header.call.has_checksum != 0) {
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

/// The last message by which the receiver begins an attempt counts: it has left those before.
Result<void> XdcSender::follow_control_messages(Clock::time_point now) {
  std::optional<ControlMessage> last;
  for (;;) {
    PLEXUS_TRY(message, take_control_message());
    if (!message.has_value()) {
      break;
    }
    if (message->kind == Kind::kCalled) {
      attempt_.may_accept = attempt_.may_accept || message->epoch == attempt_.epoch;
      if (trial_.has_value()) {
        trial_->may_accept = trial_->may_accept || message->epoch == trial_->epoch;
      }
    } else if (message->kind == Kind::kTry) {
      PLEXUS_TRY(start_trial(*message, now));
    } else if (message->kind == Kind::kReady) {
      if (trial_.has_value() && message->epoch == trial_->epoch) {
        trial_->ready_at = now;
      }
    } else {
      last = std::move(message);
    }
  }
  return last.has_value() ? open(*last, now) : ok();
}

Result<void> XdcSender::check_count(uint64_t arrived) const {
  if (arrived < acked_ || arrived > filled_) {
    return fail(Code::kRemoteError,
                "{} reports that {} messages arrived, but {} were sent and {} were acknowledged "
                "before: use the same version of Plexus on all ranks",
                options_.peer_name, arrived, filled_, acked_);
  }
  return ok();
}

/// Listens and is ready to connect. The device may refuse to listen: then `listen` is empty.
Result<XdcSender::Attempt> XdcSender::start(const ControlMessage& message,
                                            Clock::time_point until) {
  const NetSet::Path& path = path_of(message.epoch);
  PLEXUS_TRY(check_route({.mine = path.route,
                          .peers = message.route,
                          .rank = options_.exchange->rank(),
                          .peer_name = options_.peer_name}));
  Attempt attempt{.epoch = message.epoch, .data_handle = message.handle, .open_until = until};
  auto listen = path.context->listen(path.device, options_.peer_name);
  if (listen.has_value()) {
    attempt.listen = std::move(listen).value();
  } else {
    why_ = listen.error().message();
  }
  return attempt;
}

Result<void> XdcSender::open(const ControlMessage& message, Clock::time_point now) {
  if (message.kind != Kind::kListening) {
    return fail(Code::kRemoteError,
                "{} sent a control message that only a sender sends: use the same version of "
                "Plexus on all ranks",
                options_.peer_name);
  }
  PLEXUS_TRY(check_count(message.count));
  if (std::exchange(has_begun_, true)) {
    PLEXUS_TRY(count_loss(message));
    lost_ += next_ - std::min(next_, message.count);
  }
  drop();
  trial_.reset();
  epoch_ = message.epoch;
  acked_ = next_ = done_ = message.count;
  PLEXUS_TRY(attempt, start(message, now + time_to_open()));
  attempt_ = std::move(attempt);
  if (!attempt_.listen.has_value()) {
    return lose(why_);
  }
  state_ = State::kOpening;
  return ok();
}

Result<void> XdcSender::progress_open(Clock::time_point now) {
  const auto progress = try_open(attempt_);
  if (progress.has_error()) {
    return lose(progress.error().message());
  }
  if (progress.value() == NetProgress::kPending) {
    const size_t steps = attempt_.data.called() + attempt_.data.opened() + attempt_.acks.opened() +
                         (attempt_.may_accept ? 1 : 0);
    if (steps != std::exchange(attempt_.steps, steps)) {
      attempt_.open_until = now + time_to_open();
    }
    return now < attempt_.open_until ? ok() : lose("connecting timed out");
  }
  attempt_.listen.reset();
  state_ = State::kOpen;
  was_open_ = true;
  progress_at_ = now;
  ask_at_ = now;
  note_open();
  if (losses_ > 0) {
    PLEXUS_INFO(kNet, "connected to {} again via {}", options_.peer_name, route());
    if (options_.counts != nullptr) {
      options_.counts->note_failover(std::exchange(lost_, 0));
    }
  }
  return ok();
}

/// Until the first one is open, the receiver may be busy with the handshakes of many links, and
/// giving up the last path would win nothing.
Clock::duration XdcSender::time_to_open() const {
  const Clock::duration time = open_patience() * (1 + losses_);
  const bool is_last = losses_ % options_.paths.size() == options_.paths.size() - 1;
  return is_last && !was_open_ ? std::max<Clock::duration>(time, kLastPatience) : time;
}

/// Each end calls the other before that accepts, for some plugins block in accept.
Result<NetProgress> XdcSender::try_open(Attempt& attempt) {
  const NetSet::Path& path = path_of(attempt.epoch);
  PLEXUS_TRY(attempt.data.open(
      options_.sockets, ring_region(),
      [&] { return path.context->connect(path.device, attempt.data_handle, options_.peer_name); },
      [&](NetSend& socket) -> Result<NetProgress> {
        PLEXUS_TRY(progress, socket.try_connect());
        PLEXUS_TRY(tell_called(attempt));
        return progress;
      }));
  if (attempt.may_accept) {
    PLEXUS_TRY(attempt.acks.open(
        1, ack_region(), [&] { return attempt.listen->accept(options_.peer_name); },
        [](NetRecv& socket) { return socket.try_accept(); }));
  }
  return attempt.data.opened() == options_.sockets && attempt.acks.opened() == 1
             ? NetProgress::kDone
             : NetProgress::kPending;
}

/// With the first one, where to connect for the acknowledgements.
Result<void> XdcSender::tell_called(Attempt& attempt) {
  if (attempt.announced_called == attempt.data.called()) {
    return ok();
  }
  attempt.announced_called = attempt.data.called();
  return attempt.announced_called == 1
             ? post(Kind::kAcks, attempt.epoch, attempt.announced_called, attempt.listen->handle())
             : post(Kind::kCalled, attempt.epoch, attempt.announced_called);
}

/// The link is gone for this end: the receiver is asked for the next path.
Result<void> XdcSender::lose(std::string why) {
  drop();
  why_ = std::move(why);
  return post(Kind::kMove, epoch_, 1);
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
  PLEXUS_INFO(kNet, "the lost link to {} is {}", options_.peer_name, describe_use(epoch_));
  return ok();
}

void XdcSender::drop() {
  attempt_.data.close();
  attempt_.acks.close();
  attempt_.listen.reset();
  ack_request_ = nullptr;
  state_ = State::kLost;
}

// ---- back to a path that was lost ----

/// Messages go on by the attempt that is open meanwhile.
Result<void> XdcSender::start_trial(const ControlMessage& message, Clock::time_point now) {
  trial_.reset();
  PLEXUS_TRY(trial, start(message, now + open_patience()));
  trial_ = std::move(trial);
  return trial_->listen.has_value() ? ok() : end_trial(why_);
}

Result<void> XdcSender::progress_trial(Clock::time_point now) {
  const auto progress = try_open(*trial_);
  if (progress.has_error()) {
    return end_trial(progress.error().message());
  }
  if (progress.value() == NetProgress::kDone && trial_->ready_at.has_value()) {
    return state_ == State::kOpen && acked_ == next_ && done_ == next_ ? go_by_trial(now) : ok();
  }
  return now < trial_->open_until ? ok() : end_trial("connecting timed out");
}

/// Where always something is under way, the moment in which nothing is has to be made.
bool XdcSender::holds_back(Clock::time_point now) const {
  return trial_.has_value() && trial_->ready_at.has_value() &&
         now - *trial_->ready_at > options_.patience;
}

Result<void> XdcSender::end_trial(const std::string& why) {
  PLEXUS_DCHECK(trial_.has_value());
  const uint64_t epoch = trial_->epoch;
  trial_.reset();
  PLEXUS_INFO(kNet, "the link to {} by {} is not back: {}", options_.peer_name,
              path_of(epoch).route, why);
  return post(Kind::kMove, epoch, 1);
}

/// From one message to the next.
Result<void> XdcSender::go_by_trial(Clock::time_point now) {
  PLEXUS_DCHECK(trial_->data.opened() == options_.sockets && trial_->acks.opened() == 1,
                trial_->data.opened());
  PLEXUS_INFO(kNet, "the link to {} by {} is back: messages from {} on go by it, no longer by {}",
              options_.peer_name, describe_use(trial_->epoch), next_, describe_use(epoch_));
  drop();
  attempt_ = std::move(*trial_);
  trial_.reset();
  attempt_.listen.reset();
  epoch_ = attempt_.epoch;
  state_ = State::kOpen;
  progress_at_ = now;
  ask_at_ = now;
  losses_ = 0;
  note_open();
  return post(Kind::kSwitch, epoch_, next_);
}

// ---- messages ----

Result<bool> XdcSender::send_ring(Clock::time_point now) {
  bool moved = false;
  while (next_ < filled_ && !holds_back(now)) {
    const std::byte* const bytes = message(next_);
    NetHeader message_header{};
    std::memcpy(&message_header, bytes, sizeof(message_header));
    NetSend& socket = attempt_.data.at(next_);
    const bool is_observed =
        observer_ != nullptr && next_ >= observed_;  // not for what is sent again
    if (is_observed) {
      observer_->on_step(StepChange::kFilled, message_header.size_bytes);
    }
    const auto status = socket.isend({bytes, sizeof(message_header) + message_header.size_bytes},
                                     kTag, attempt_.data.memory_at(next_), &request(next_));
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
    bytes_of_path_[index_of(epoch_)] += message_header.size_bytes;
    moved = true;
    if (is_observed) {
      observer_->on_step(StepChange::kSent, message_header.size_bytes);
      observed_ = next_;
    }
  }
  return moved;
}

Result<bool> XdcSender::test_sent() {
  bool moved = false;
  for (; state_ == State::kOpen && done_ < next_; moved = true) {
    NetSend& socket = attempt_.data.at(done_);
    const auto status = socket.test(request(done_), nullptr);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      PLEXUS_TRY(lose(socket.explain("test", status).message()));
      return true;
    }
    ++done_;
    if (observer_ != nullptr && done_ >= observed_) {
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
          PLEXUS_TRY(lose(attempt_.acks.at(0).explain("irecv", posted).message()));
        }
        return moved;
      }
    }
    uint64_t size_bytes = 0;
    const auto status = attempt_.acks.at(0).test(ack_request_, &size_bytes);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      PLEXUS_TRY(lose(attempt_.acks.at(0).explain("test", status).message()));
      return true;
    }
    ack_request_ = nullptr;
    const uint64_t count = ack_buffer_;
    const bool is_whole = size_bytes == sizeof(count) || (size_bytes == 0 && lacks_sizes());
    if (!is_whole || count < acked_ || count > next_) {
      return fail(Code::kRemoteError,
                  "test of {}: {} acknowledges {} messages in {} bytes, but {} to {} were expected "
                  "in {}: the plugin gives wrong sizes or changes data; use another network "
                  "(NCCL_NET_PLUGIN) or another version of the plugin",
                  path().context->describe(path().device), options_.peer_name, count, size_bytes,
                  acked_, next_, sizeof(count));
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
                         .memory = attempt_.acks.memory_at(0),
                         .tag = kTag,
                         .flags = 0};
  return attempt_.acks.at(0).irecv({&buffer, 1}, &ack_request_);
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
  return post(Kind::kMove, epoch_, 0);
}

}  // namespace plexus
