// SPDX-License-Identifier: Apache-2.0
// The receiving end of a cross-DC connection.
#include <algorithm>
#include <cstring>
#include <span>

#include "core/base/log.hpp"
#include "core/transport/net_message.hpp"
#include "core/transport/xdc.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int32_t kTag = 0;
constexpr auto kLookEvery = milliseconds(10);
/// A sender that is busy elsewhere answers when it comes back.
constexpr auto kGiveUpAfter = seconds(60);

}  // namespace

Result<bool> XdcRecvEnd::advance(Clock::time_point now) {
  if (ring_ == nullptr) {
    const size_t requests = path().context->properties(path().device).requests_max;
    PLEXUS_TRY(make_memory(std::clamp<size_t>(requests * options_.sockets, 1, options_.window)));
    sizes_.assign(ring_messages_, 0);
    if (options_.runtime != nullptr) {
      device_view = view();
    } else {
      recv = RecvConnection(&fifo(), slot(0),
                            {.peer = key().peer, .slot_stride = options_.slot_bytes});
    }
    PLEXUS_TRY(restart());
  }
  const auto away = was_away(now);
  quiet_since_ += away;
  lost_at_ += away;
  if (observer_ != nullptr) {
    tell_taken();
  }
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
  } else if (connected_ && !broken_.has_value() && now - lost_at_ > kGiveUpAfter) {
    broken_ = fail(Code::kRemoteError,
                   "lost the link of {} to here by {}: {}; it did not ask for another within {} s",
                   options_.peer_name, path().route, why_, kGiveUpAfter.count());
  }
  PLEXUS_TRY(delivered, deliver());
  return moved || delivered;
}

// ---- attempts ----

Result<void> XdcRecvEnd::follow_control_messages(Clock::time_point now) {
  for (;;) {
    PLEXUS_TRY(message, take_control_message());
    if (!message.has_value()) {
      break;
    }
    if (message->epoch != epoch_) {
      continue;
    }
    if (message->kind == Kind::kAcks && !acks_.has_value()) {
      acks_ = path().context->connect(path().device, message->handle, options_.peer_name);
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
Result<void> XdcRecvEnd::restart() {
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

void XdcRecvEnd::lose(const Error& why, Clock::time_point now) {
  drop();
  lost_at_ = now;
  why_ = why.message();
  PLEXUS_INFO(kNet, "the connection of {} by {} ended: {}", options_.peer_name, path().route, why_);
}

void XdcRecvEnd::progress_open(Clock::time_point now) {
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
Result<NetProgress> XdcRecvEnd::try_open() {
  if (!acks_.has_value()) {
    return NetProgress::kPending;
  }
  if (!acks_open_) {
    PLEXUS_TRY(progress, acks_->try_connect());
    if (!std::exchange(has_called_, true)) {
      PLEXUS_TRY(post(Kind::kCalled, 1));
    }
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
  while (data_memory_.size() < std::min<uint64_t>(options_.sockets, senders_calls_)) {
    if (data_.size() == data_memory_.size()) {
      data_.push_back(listen_->accept(options_.peer_name));
    }
    PLEXUS_TRY(progress, data_.back().try_accept());
    if (progress == NetProgress::kPending) {
      break;
    }
    PLEXUS_TRY(memory, data_.back().register_memory(region()));
    data_memory_.push_back(std::move(memory));
  }
  return data_memory_.size() == options_.sockets && acks_open_ ? NetProgress::kDone
                                                               : NetProgress::kPending;
}

void XdcRecvEnd::drop() {
  data_memory_.clear();
  data_.clear();
  acks_memory_.reset();
  acks_.reset();
  listen_.reset();
  acks_open_ = false;
  has_called_ = false;
  senders_calls_ = 0;
  ack_request_ = nullptr;
  acked_ = arrived_;  // the control message says it
  asked_ = false;
  state_ = State::kLost;
}

// ---- messages ----

bool XdcRecvEnd::post_free(Clock::time_point now) {
  bool moved = false;
  if (posted_ == arrived_) {
    quiet_since_ = now;
  }
  for (; posted_ < std::min(expected_, delivered_ + ring_messages_); moved = true, ++posted_) {
    const NetBuffer buffer{.data = message(posted_),
                           .size_bytes = message_bytes_max(),
                           .memory = data_memory_[socket_of(posted_)].raw(),
                           .tag = kTag,
                           .flags = 0};
    forget_header(message(posted_));
    NetRecv& socket = data_[socket_of(posted_)];
    const auto status = socket.irecv({&buffer, 1}, &requests_[posted_ % ring_messages_]);
    if (status != NetStatus::kOk) {
      if (status != NetStatus::kAgain && posted_ == arrived_) {  // else there may be more to read
        lose(socket.explain("irecv", status), now);
      }
      return moved;
    }
  }
  return moved;
}

bool XdcRecvEnd::test_posted(Clock::time_point now) {
  bool moved = false;
  for (; state_ == State::kOpen && arrived_ < posted_; moved = true) {
    uint64_t& size_bytes = sizes_[arrived_ % ring_messages_];
    NetRecv& socket = data_[socket_of(arrived_)];
    const auto status = socket.test(requests_[arrived_ % ring_messages_], &size_bytes);
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

/// From the ring to the Fifo.
Result<bool> XdcRecvEnd::deliver() {
  bool moved = false;
  // Taken by this thread, or by a kernel: pairs with its release.
  for (;
       delivered_ < arrived_ && delivered_ < fifo().taken.load(std::memory_order_acquire) + kSlots;
       ++delivered_, moved = true) {
    const std::byte* const bytes = message(delivered_);
    PLEXUS_TRY(message_header,
               read_header(bytes, sizes_[delivered_ % ring_messages_], message_bytes_max(),
                           {.peer_name = options_.peer_name, .may_lack_sizes = lacks_sizes()}));
    std::memcpy(slot(delivered_), bytes + sizeof(message_header), message_header.size_bytes);
    announce(fifo(), delivered_, message_header);
    if (observer_ != nullptr) {
      observer_->on_step(StepChange::kArrived, message_header.size_bytes);
    }
  }
  return moved;
}

/// One at a time: the next tells of all that came meanwhile.
void XdcRecvEnd::send_ack(Clock::time_point now) {
  if (state_ == State::kOpen && ack_request_ != nullptr) {
    const auto status = acks_->test(ack_request_, nullptr);
    if (status == NetStatus::kAgain) {
      return;
    }
    ack_request_ = nullptr;
    if (status != NetStatus::kOk) {
      lose(acks_->explain("test", status), now);
    }
  }
  if (state_ != State::kOpen || acked_ == arrived_) {
    return;
  }
  ack_buffer_ = arrived_;
  const auto status = acks_->isend(std::as_bytes(std::span(&ack_buffer_, 1)), kTag,
                                   acks_memory_->raw(), &ack_request_);
  if (status == NetStatus::kOk) {
    acked_ = ack_buffer_;
  } else if (status != NetStatus::kAgain) {
    lose(acks_->explain("isend", status), now);
  }
}

// ---- profilers ----

/// Messages that came before anybody listened are nobody's.
void XdcRecvEnd::observe(StepObserver* observer) {
  ConnectionEnd::observe(observer);
  if (observer == nullptr || memory_ == nullptr) {
    return;
  }
  told_ = fifo().taken.load(std::memory_order_relaxed);
  for (uint64_t step = told_; step < delivered_; ++step) {  // early for the call that begins
    observer->on_step(StepChange::kArrived, fifo().headers[step % kSlots].size_bytes);
  }
}

void XdcRecvEnd::tell_taken() {
  for (const uint64_t taken = fifo().taken.load(std::memory_order_relaxed); told_ < taken;
       ++told_) {
    observer_->on_step(StepChange::kDone, 0);
  }
}

}  // namespace plexus
