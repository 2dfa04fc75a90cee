// SPDX-License-Identifier: Apache-2.0
// The receiving end of a cross-DC connection.
#include <algorithm>
#include <cstring>
#include <span>

#include "core/base/log.hpp"
#include "core/transport/network/checksum.hpp"
#include "core/transport/network/net_message.hpp"
#include "core/transport/network/xdc.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A sender that is busy elsewhere answers when it comes back.
constexpr auto kGiveUpAfter = seconds(60);
/// A path that stays lost is tried less and less often, down to this.
constexpr auto kRetryMax = milliseconds(seconds(60));

}  // namespace

Result<bool> XdcReceiver::progress_connect() {
  PLEXUS_TRY(advance(Clock::now()));
  was_open_ = state_ == State::kOpen;
  return was_open_;
}

Result<bool> XdcReceiver::advance(Clock::time_point now) {
  if (ring_ == nullptr) {
    const size_t requests = path().context->properties(path().device).requests_max;
    PLEXUS_TRY(make_memory(std::clamp<size_t>(requests * options_.sockets, 1, options_.window)));
    sizes_.assign(ring_messages_, 0);
    PLEXUS_TRY(begin());
  }
  const auto away = was_away(now);
  quiet_since_ += away;
  lost_at_ += away;
  report_.tell_taken(fifo_);
  if (state_ != State::kOpen || now >= look_at_) {
    look_at_ = now + kLookEvery;
    PLEXUS_TRY(follow_control_messages(now));
  }
  if (state_ == State::kOpening) {
    progress_open(now);
  }
  if (trial_.has_value()) {
    trial_->open_until += away;
  }
  PLEXUS_TRY(seek(now));
  bool moved = false;
  if (state_ == State::kOpen) {
    moved = post_free(now);
    moved = test_posted(now) || moved;
    send_ack(now);
  } else if (was_open_ && !broken_.has_value() && now - lost_at_ > kGiveUpAfter) {
    broken_ = fail(Code::kRemoteError,
                   "lost the link from {} by {}: {}; no other was requested within {} s",
                   options_.peer_name, path().route, why_, kGiveUpAfter.count());
  }
  PLEXUS_TRY(delivered, deliver());
  PLEXUS_DCHECK(delivered_ <= arrived_ && arrived_ <= posted_, delivered_, arrived_, posted_);
  PLEXUS_DCHECK(posted_ - delivered_ <= ring_messages_, posted_, delivered_, ring_messages_);
  PLEXUS_DCHECK(acked_ <= arrived_ && posted_ <= expected_, acked_, arrived_, expected_);
  return moved || delivered;
}

// ---- attempts ----

Result<void> XdcReceiver::follow_control_messages(Clock::time_point now) {
  for (;;) {
    PLEXUS_TRY(message, take_control_message());
    if (!message.has_value()) {
      break;
    }
    PLEXUS_TRY(follow(*message, now));
  }
  // A link is silent only where something is waited for.
  if (asked_ && state_ == State::kOpen && posted_ > arrived_ &&
      now - quiet_since_ >= options_.patience) {
    return move(now);
  }
  return ok();
}

Result<void> XdcReceiver::follow(const ControlMessage& message, Clock::time_point now) {
  const bool of_trial = trial_.has_value() && message.epoch == trial_->epoch;
  if (!of_trial && message.epoch != epoch_) {
    return ok();  // of an attempt that is over
  }
  Attempt& attempt = of_trial ? *trial_ : attempt_;
  switch (message.kind) {
    case Kind::kAcks:
      if (!attempt.ack_handle.has_value()) {
        attempt.ack_handle = message.handle;
        attempt.senders_calls = message.count;
      }
      return ok();
    case Kind::kCalled:
      attempt.senders_calls = message.count;
      return ok();
    case Kind::kMove:
      if (of_trial) {
        end_trial("the sender cannot connect", now);
      } else if (message.count == 1 || state_ != State::kOpen) {
        return move(now);  // the sender says so
      } else {
        asked_ = true;
      }
      return ok();
    case Kind::kSwitch:
      return of_trial && attempt.is_ready ? go_by_trial(message, now) : ok();
    default:
      return ok();  // nothing that a sender sends
  }
}

/// The first attempt, by a path that no other connection to that datacenter has lost.
Result<void> XdcReceiver::begin() {
  retry_ = options_.retry;
  if (options_.routes != nullptr) {
    epoch_ = options_.routes->first_open(options_.peer_datacenter, options_.paths);
  }
  return restart();
}

Result<void> XdcReceiver::move(Clock::time_point now) {
  if (back_at_ != Clock::time_point{}) {  // a path that is lost soon again is tried later
    retry_ = now - back_at_ > kRetryMax ? options_.retry : std::min(2 * retry_, kRetryMax);
    back_at_ = {};
  }
  lost_at_ = now;
  seek_at_ = now + retry_;
  epoch_ = next_epoch(index_of(epoch_ + 1));
  return restart();
}

/// The number of a new attempt by that path.
uint64_t XdcReceiver::next_epoch(size_t path) const {
  uint64_t epoch = newest_epoch_ + 1;
  while (index_of(epoch) != path) {
    ++epoch;
  }
  return epoch;
}

/// An attempt, by the next path on which this host can listen. No limit of time: the sender may be
/// busy elsewhere, and asks when it wants another.
Result<void> XdcReceiver::restart() {
  drop();
  trial_.reset();
  posted_ = arrived_;
  attempt_ = {};
  for (size_t tried = 1;; ++tried, ++epoch_) {
    auto listen = path().context->listen(path().device, options_.peer_name);
    if (listen.has_value()) {
      attempt_.listen = std::move(listen).value();
      break;
    }
    if (tried == options_.paths.size()) {
      return std::move(listen).error();
    }
  }
  PLEXUS_DCHECK(epoch_ >= newest_epoch_, epoch_, newest_epoch_);
  attempt_.epoch = epoch_;
  newest_epoch_ = epoch_;
  state_ = State::kOpening;
  return post(Kind::kListening, epoch_, arrived_, attempt_.listen->handle());
}

void XdcReceiver::lose(const Error& why, Clock::time_point now) {
  drop();
  lost_at_ = now;
  why_ = why.message();
  PLEXUS_INFO(kNet, "the connection from {} by {} ended: {}", options_.peer_name, path().route,
              why_);
}

void XdcReceiver::progress_open(Clock::time_point now) {
  const auto progress = try_open(attempt_);
  if (progress.has_error()) {
    lose(progress.error(), now);
  } else if (progress.value() == NetProgress::kDone) {
    attempt_.listen.reset();
    state_ = State::kOpen;
    quiet_since_ = now;
    seek_at_ = std::max(seek_at_, now + retry_);
    note_open();
  }
}

/// Accepts only when the sender has called, for some plugins block until then; so it calls first.
Result<NetProgress> XdcReceiver::try_open(Attempt& attempt) {
  if (!attempt.ack_handle.has_value()) {
    return NetProgress::kPending;
  }
  const NetSet::Path& path = path_of(attempt.epoch);
  PLEXUS_TRY(attempt.acks.open(
      1, ack_region(),
      [&] { return path.context->connect(path.device, *attempt.ack_handle, options_.peer_name); },
      [&](NetSend& socket) -> Result<NetProgress> {
        PLEXUS_TRY(progress, socket.try_connect());
        if (!std::exchange(attempt.has_called, true)) {
          PLEXUS_TRY(post(Kind::kCalled, attempt.epoch, 1));
        }
        return progress;
      }));
  PLEXUS_TRY(attempt.data.open(
      std::min<uint64_t>(options_.sockets, attempt.senders_calls), ring_region(),
      [&] { return attempt.listen->accept(options_.peer_name); },
      [](NetRecv& socket) { return socket.try_accept(); }));
  return attempt.data.opened() == options_.sockets && attempt.acks.opened() == 1
             ? NetProgress::kDone
             : NetProgress::kPending;
}

void XdcReceiver::drop() {
  attempt_.data.close();
  attempt_.acks.close();
  attempt_.listen.reset();
  ack_request_ = nullptr;
  acked_ = arrived_;  // the control message says it
  asked_ = false;
  state_ = State::kLost;
}

// ---- back to a path that was lost ----

Result<void> XdcReceiver::seek(Clock::time_point now) {
  if (trial_.has_value()) {
    return progress_trial(now);
  }
  const bool is_due =
      is_rerouted() && state_ == State::kOpen && options_.retry.count() > 0 && now >= seek_at_;
  return is_due ? start_trial(now) : ok();
}

/// Starts a trial of one of the paths before the present one, in turn.
Result<void> XdcReceiver::start_trial(Clock::time_point now) {
  PLEXUS_DCHECK(is_rerouted() && !trial_.has_value(), epoch_);
  Attempt trial{.epoch = next_epoch(trials_ % index_of(epoch_)),
                .open_until = now + open_patience()};
  PLEXUS_DCHECK(index_of(trial.epoch) < index_of(epoch_) && trial.epoch > newest_epoch_,
                trial.epoch, epoch_);
  ++trials_;
  newest_epoch_ = trial.epoch;
  const NetSet::Path& path = path_of(trial.epoch);
  auto listen = path.context->listen(path.device, options_.peer_name);
  trial_ = std::move(trial);
  if (listen.has_error()) {
    end_trial(listen.error().message(), now);
    return ok();
  }
  trial_->listen = std::move(listen).value();
  return post(Kind::kTry, trial_->epoch, 0, trial_->listen->handle());
}

Result<void> XdcReceiver::progress_trial(Clock::time_point now) {
  if (trial_->is_ready) {
    return ok();  // from here on the sender decides
  }
  const auto progress = try_open(*trial_);
  if (progress.has_error()) {
    end_trial(progress.error().message(), now);
  } else if (progress.value() == NetProgress::kDone) {
    trial_->is_ready = true;
    return post(Kind::kReady, trial_->epoch, 0);
  } else if (now >= trial_->open_until) {
    end_trial("connecting timed out", now);
  }
  return ok();
}

void XdcReceiver::end_trial(const std::string& why, Clock::time_point now) {
  PLEXUS_DCHECK(trial_.has_value());
  PLEXUS_INFO(kNet, "the link from {} by {} is not back: {}; it is tried again after {} ms",
              options_.peer_name, path_of(trial_->epoch).route, why, retry_.count());
  trial_.reset();
  seek_at_ = now + retry_;
  retry_ = std::min(2 * retry_, std::max(kRetryMax, options_.retry));
}

/// The sender has left the other attempt.
Result<void> XdcReceiver::go_by_trial(const ControlMessage& message, Clock::time_point now) {
  if (message.count != arrived_) {
    return fail(Code::kRemoteError,
                "{} changed its path after {} messages, but {} arrived: use the same version of "
                "Plexus on all ranks",
                options_.peer_name, message.count, arrived_);
  }
  PLEXUS_INFO(kNet,
              "the link from {} by {} is back: messages from {} on come by it, no longer by {}",
              options_.peer_name, describe_use(trial_->epoch), arrived_, describe_use(epoch_));
  drop();
  attempt_ = std::move(*trial_);
  trial_.reset();
  attempt_.listen.reset();
  epoch_ = attempt_.epoch;
  posted_ = arrived_;
  state_ = State::kOpen;
  quiet_since_ = now;
  back_at_ = now;
  note_open();
  return ok();
}

// ---- messages ----

bool XdcReceiver::post_free(Clock::time_point now) {
  bool moved = false;
  if (posted_ == arrived_) {
    quiet_since_ = now;
  }
  for (; posted_ < std::min(expected_, delivered_ + ring_messages_); moved = true, ++posted_) {
    const NetBuffer buffer{.data = message(posted_),
                           .size_bytes = message_bytes_max(),
                           .memory = attempt_.data.memory_at(posted_),
                           .tag = kTag,
                           .flags = 0};
    forget_header(message(posted_));
    NetRecv& socket = attempt_.data.at(posted_);
    const auto status = socket.irecv({&buffer, 1}, &request(posted_));
    if (status != NetStatus::kOk) {
      if (status != NetStatus::kAgain && posted_ == arrived_) {  // else there may be more to read
        lose(socket.explain("irecv", status), now);
      }
      return moved;
    }
  }
  return moved;
}

bool XdcReceiver::test_posted(Clock::time_point now) {
  bool moved = false;
  for (; state_ == State::kOpen && arrived_ < posted_; moved = true) {
    uint64_t& size_bytes = sizes_[arrived_ % ring_messages_];
    NetRecv& socket = attempt_.data.at(arrived_);
    const auto status = socket.test(request(arrived_), &size_bytes);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      lose(socket.explain("test", status), now);
      return true;
    }
    bytes_of_path_[index_of(epoch_)] += size_bytes;
    ++arrived_;
    quiet_since_ = now;
    asked_ = false;
  }
  return moved;
}

/// An Error: the network changed `message`.
Result<void> XdcReceiver::check_sums(const std::byte* message) const {
  const SummedLink link{
      .peer_name = options_.peer_name, .rank = options_.exchange->rank(), .route = path().route};
  NetHeader header{};
  std::memcpy(&header, message, sizeof(header));
  PLEXUS_TRY(check_header(header, link));
  const size_t size_bytes = std::min<size_t>(header.size_bytes, options_.slot_bytes);
  return check_payload(header, {std::span(message + sizeof(header), size_bytes)}, link);
}

/// From the ring to the Fifo.
Result<bool> XdcReceiver::deliver() {
  bool moved = false;
  for (; delivered_ < arrived_ && fifo_.is_free(delivered_); ++delivered_, moved = true) {
    const std::byte* const bytes = message(delivered_);
    if (options_.has_checksums || is_signed(bytes, sizes_[delivered_ % ring_messages_])) {
      PLEXUS_TRY(check_sums(bytes));
    }
    auto checked = read_header(
        bytes, sizes_[delivered_ % ring_messages_], message_bytes_max(),
        {.peer_name = options_.peer_name, .step = delivered_, .may_lack_sizes = lacks_sizes()});
    if (checked.has_error()) {
      return std::move(checked).error().with_context("test of " +
                                                     path().context->describe(path().device));
    }
    const NetHeader& message_header = checked.value();
    std::memcpy(fifo_.payload(delivered_), bytes + sizeof(message_header),
                message_header.size_bytes);
    announce(fifo_.fifo(), delivered_, message_header);
    report_.tell_arrived(message_header.size_bytes);
  }
  return moved;
}

/// Sends one acknowledgement at a time: the next one counts all that came meanwhile.
void XdcReceiver::send_ack(Clock::time_point now) {
  if (state_ == State::kOpen && ack_request_ != nullptr) {
    const auto status = attempt_.acks.at(0).test(ack_request_, nullptr);
    if (status == NetStatus::kAgain) {
      return;
    }
    ack_request_ = nullptr;
    if (status != NetStatus::kOk) {
      lose(attempt_.acks.at(0).explain("test", status), now);
    }
  }
  if (state_ != State::kOpen || acked_ == arrived_) {
    return;
  }
  ack_buffer_ = arrived_;
  const auto status = attempt_.acks.at(0).isend(std::as_bytes(std::span(&ack_buffer_, 1)), kTag,
                                                attempt_.acks.memory_at(0), &ack_request_);
  if (status == NetStatus::kOk) {
    acked_ = ack_buffer_;
  } else if (status != NetStatus::kAgain) {
    lose(attempt_.acks.at(0).explain("isend", status), now);
  }
}

}  // namespace plexus
