// SPDX-License-Identifier: Apache-2.0
// The receiving end of a cross-DC connection.
#include <algorithm>
#include <cstring>
#include <span>

#include "core/base/log.hpp"
#include "core/transport/checksum.hpp"
#include "core/transport/net_message.hpp"
#include "core/transport/xdc.hpp"

namespace plexus {
namespace {

using std::chrono::seconds;

/// A sender that is busy elsewhere answers when it comes back.
constexpr auto kGiveUpAfter = seconds(60);

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
    PLEXUS_TRY(restart());
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
  return moved || delivered;
}

// ---- attempts ----

Result<void> XdcReceiver::follow_control_messages(Clock::time_point now) {
  for (;;) {
    PLEXUS_TRY(message, take_control_message());
    if (!message.has_value()) {
      break;
    }
    if (message->epoch != epoch_) {
      continue;
    }
    if (message->kind == Kind::kAcks && !ack_handle_.has_value()) {
      ack_handle_ = message->handle;
      senders_calls_ = message->count;
    } else if (message->kind == Kind::kCalled) {
      senders_calls_ = message->count;
    } else if (message->kind == Kind::kMove && (message->count == 1 || state_ != State::kOpen)) {
      ++epoch_;
      lost_at_ = now;  // the sender says so
      PLEXUS_TRY(restart());
    } else if (message->kind == Kind::kMove) {
      asked_ = true;
    }
  }
  // A link is silent only where something is waited for.
  if (asked_ && state_ == State::kOpen && posted_ > arrived_ &&
      now - quiet_since_ >= options_.patience) {
    ++epoch_;
    lost_at_ = now;
    return restart();
  }
  return ok();
}

/// An attempt, by the next path on which this host can listen. No limit of time: the sender may be
/// busy elsewhere, and asks when it wants another.
Result<void> XdcReceiver::restart() {
  drop();
  posted_ = arrived_;
  for (size_t tried = 1;; ++tried, ++epoch_) {
    auto listen = path().context->listen(path().device, options_.peer_name);
    if (listen.has_value()) {
      listen_ = std::move(listen).value();
      break;
    }
    if (tried == options_.paths.size()) {
      return std::move(listen).error();
    }
  }
  state_ = State::kOpening;
  return post(Kind::kListening, arrived_, listen_->handle());
}

void XdcReceiver::lose(const Error& why, Clock::time_point now) {
  drop();
  lost_at_ = now;
  why_ = why.message();
  PLEXUS_INFO(kNet, "the connection from {} by {} ended: {}", options_.peer_name, path().route,
              why_);
}

void XdcReceiver::progress_open(Clock::time_point now) {
  const auto progress = try_open();
  if (progress.has_error()) {
    lose(progress.error(), now);
  } else if (progress.value() == NetProgress::kDone) {
    listen_.reset();
    state_ = State::kOpen;
    quiet_since_ = now;
  }
}

/// Accepts only when the sender has called, for some plugins block until then; so it calls first.
Result<NetProgress> XdcReceiver::try_open() {
  if (!ack_handle_.has_value()) {
    return NetProgress::kPending;
  }
  PLEXUS_TRY(acks_.open(
      1, ack_region(),
      [this] { return path().context->connect(path().device, *ack_handle_, options_.peer_name); },
      [this](NetSend& socket) -> Result<NetProgress> {
        PLEXUS_TRY(progress, socket.try_connect());
        if (!std::exchange(has_called_, true)) {
          PLEXUS_TRY(post(Kind::kCalled, 1));
        }
        return progress;
      }));
  PLEXUS_TRY(data_.open(
      std::min<uint64_t>(options_.sockets, senders_calls_), ring_region(),
      [this] { return listen_->accept(options_.peer_name); },
      [](NetRecv& socket) { return socket.try_accept(); }));
  return data_.opened() == options_.sockets && acks_.opened() == 1 ? NetProgress::kDone
                                                                   : NetProgress::kPending;
}

void XdcReceiver::drop() {
  data_.close();
  acks_.close();
  ack_handle_.reset();
  listen_.reset();
  has_called_ = false;
  senders_calls_ = 0;
  ack_request_ = nullptr;
  acked_ = arrived_;  // the control message says it
  asked_ = false;
  state_ = State::kLost;
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
                           .memory = data_.memory_at(posted_),
                           .tag = kTag,
                           .flags = 0};
    forget_header(message(posted_));
    NetRecv& socket = data_.at(posted_);
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
    NetRecv& socket = data_.at(arrived_);
    const auto status = socket.test(request(arrived_), &size_bytes);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      lose(socket.explain("test", status), now);
      return true;
    }
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
    if (options_.has_checksums) {
      PLEXUS_TRY(check_sums(bytes));
    }
    PLEXUS_TRY(message_header,
               read_header(bytes, sizes_[delivered_ % ring_messages_], message_bytes_max(),
                           {.peer_name = options_.peer_name, .may_lack_sizes = lacks_sizes()}));
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
    const auto status = acks_.at(0).test(ack_request_, nullptr);
    if (status == NetStatus::kAgain) {
      return;
    }
    ack_request_ = nullptr;
    if (status != NetStatus::kOk) {
      lose(acks_.at(0).explain("test", status), now);
    }
  }
  if (state_ != State::kOpen || acked_ == arrived_) {
    return;
  }
  ack_buffer_ = arrived_;
  const auto status = acks_.at(0).isend(std::as_bytes(std::span(&ack_buffer_, 1)), kTag,
                                        acks_.memory_at(0), &ack_request_);
  if (status == NetStatus::kOk) {
    acked_ = ack_buffer_;
  } else if (status != NetStatus::kAgain) {
    lose(acks_.at(0).explain("isend", status), now);
  }
}

}  // namespace plexus
