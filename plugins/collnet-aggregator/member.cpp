// SPDX-License-Identifier: Apache-2.0
#include "plugins/collnet-aggregator/member.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/uio.h>

#include "guest/assert.hpp"
#include "plugins/collnet-aggregator/arithmetic.hpp"
#include "plugins/collnet-aggregator/secret.hpp"
#include "plugins/support/descriptors.hpp"
#include "plugins/support/errno_text.hpp"

namespace plexus::aggregator {
namespace {

constexpr auto kConnectWithin = std::chrono::seconds(20);
constexpr auto kConnectAgain = std::chrono::milliseconds(50);

bool is_for_later(int error) { return error == EAGAIN || error == EINTR; }

}  // namespace

plugin::Failure Member::lost(const std::string& why) {
  failure_ =
      fail(PLEXUS_REMOTE_ERROR, "lost the aggregator at {}: {}", options_.server.to_string(), why);
  return *failure_;
}

std::string Member::failure_text() const {
  return errno == EBADMSG ? session_.error() : plugin::errno_text();
}

// ---- connecting ----

Result<Progress> Member::connect() {
  if (failure_) {
    return *failure_;
  }
  if (state_ == State::kIdle) {
    if (give_up_ == Clock::time_point{}) {
      give_up_ = Clock::now() + kConnectWithin;
    }
    if (Clock::now() < again_at_) {
      return Progress::kPending;
    }
    PLEXUS_TRY(open_socket());
  }
  if (state_ == State::kConnecting) {
    PLEXUS_TRY(progress, finish_connect());
    if (progress == Progress::kPending) {
      return progress;
    }
  }
  if (state_ == State::kProving) {
    PLEXUS_TRY(progress, prove());
    if (progress == Progress::kPending) {
      return progress;
    }
  }
  return state_ == State::kReady ? Progress::kDone : await_ready();
}

Result<void> Member::open_socket() {
  fd_ = UniqueFd::open([&] {
    return ::socket(options_.server.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                    0);
  });
  if (!fd_.is_open()) {
    return lost(plugin::refused_descriptor_text());
  }
  set_options(fd_.get());
  (void)::connect(fd_.get(), options_.server.raw(),
                  options_.server.size());  // SO_ERROR reports the result
  state_ = State::kConnecting;
  return ok();
}

/// Retries for a while if the server does not listen yet, because the start order of jobs is
/// arbitrary.
Result<Progress> Member::finish_connect() {
  pollfd writable{fd_.get(), POLLOUT, 0};
  if (::poll(&writable, 1, 0) == 0) {
    return Clock::now() < give_up_ ? Result<Progress>(Progress::kPending)
                                   : lost("it does not answer");
  }
  int error = 0;
  socklen_t size = sizeof error;
  (void)::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    if (Clock::now() >= give_up_) {
      return lost(fmt::format("cannot connect: {}; is `plexus aggregator` running there?",
                              plugin::errno_text(error)));
    }
    again_at_ = Clock::now() + kConnectAgain;
    state_ = State::kIdle;
    return Progress::kPending;
  }
  session_ = security::Session(fd_.get(), security::Role::kCaller, options_.terms);
  state_ = State::kProving;
  return Progress::kDone;
}

Result<Progress> Member::prove() {
  switch (session_.advance()) {
    case security::Session::State::kPending:
      return Clock::now() < give_up_ ? Result<Progress>(Progress::kPending)
                                     : lost("it did not prove itself in time");
    case security::Session::State::kFailed:
      return lost(fmt::format("{}; the server and all members need the same {} and {}",
                              session_.error(), security::kModeSetting, kSecretFileSetting));
    case security::Session::State::kProven:
      break;
  }
  PLEXUS_TRY(say_hello());
  state_ = State::kWaiting;
  return Progress::kDone;
}

Result<void> Member::say_hello() {
  const WireHello hello = {options_.members, options_.member, options_.group};
  const auto bytes =
      make_frame({.kind = FrameKind::kHello}, std::as_bytes(std::span(&hello, size_t{1})));
  // So few bytes always fit in an empty socket buffer.
  if (session_.send(bytes->data(), bytes->size()) != static_cast<ssize_t>(bytes->size())) {
    return lost(failure_text());
  }
  return ok();
}

Result<Progress> Member::await_ready() {
  if (!has_header_) {
    PLEXUS_TRY(read, read_to(reinterpret_cast<std::byte*>(&header_), sizeof header_));
    if (read == Progress::kPending) {
      PLEXUS_TRY(look_for_silence());
      return read;
    }
    PLEXUS_TRY(take_header());
  }
  if (header_.kind == FrameKind::kReady) {
    state_ = State::kReady;
    has_header_ = false;
    return Progress::kDone;
  }
  PLEXUS_TRY(take_results());  // take_results() reports the aggregator's reason once it is complete
  return Progress::kPending;
}

// ---- reductions ----

Result<Member::Request*> Member::start(const plexus_collnet_reduction_t& reduction) {
  if (failure_) {
    return *failure_;
  }
  const uint64_t size_bytes = reduction.count * element_bytes(reduction.type);
  if (!can_reduce(reduction.type, reduction.op) || reduction.count == 0 ||
      reduction.count > kMessageBytesMax || size_bytes > kMessageBytesMax) {
    return fail(PLEXUS_INVALID_ARGUMENT,
                "cannot reduce {} elements of type {} with operation {} in one message",
                reduction.count, reduction.type, reduction.op);
  }
  Request& request = requests_[started_ % kRequestsMax];
  if (request.is_used) {
    PLEXUS_TRY(move());
    return nullptr;
  }
  request = {.member = this,
             .frame = {.magic = kFrameMagic,
                       .kind = FrameKind::kReduce,
                       .type = static_cast<uint8_t>(reduction.type),
                       .op = static_cast<uint8_t>(reduction.op),
                       .size_bytes = static_cast<uint32_t>(size_bytes),
                       .reserved = 0,
                       .number = started_},
             .send = static_cast<const std::byte*>(reduction.send),
             .recv = static_cast<std::byte*>(reduction.recv),
             .is_done = false,
             .is_used = true};
  PLEXUS_DCHECK(started_ - done_ < kRequestsMax && sent_ <= started_, started_, done_, sent_);
  ++started_;
  PLEXUS_TRY(send_parts());
  return &request;
}

Result<Progress> Member::test(Request& request) {
  if (!request.is_done) {
    if (auto moved = move(); moved.has_error() && !request.is_done) {
      request.is_used = false;
      return std::move(moved).error();
    }
  }
  request.is_used = !request.is_done;
  return request.is_done ? Progress::kDone : Progress::kPending;
}

Result<void> Member::move() {
  if (failure_) {
    return *failure_;
  }
  PLEXUS_TRY(send_parts());
  PLEXUS_TRY(take_results());
  return look_for_silence();
}

Result<void> Member::look_for_silence() {
  const auto now = Clock::now();
  if (now < next_look_) {
    return ok();
  }
  next_look_ = now + kSilence / (security::Silence::kLooks + 1);
  return silence_.look(fd_.get(), sent_ < started_) ? Result<void>(lost(kSilent)) : ok();
}

Result<void> Member::send_parts() {
  while (sent_ < started_) {
    const Request& request = requests_[sent_ % kRequestsMax];
    const size_t frame_left = sizeof(WireFrame) - std::min(sent_bytes_, sizeof(WireFrame));
    const size_t payload_sent = sent_bytes_ - (sizeof(WireFrame) - frame_left);
    // What is sent is only read; iovec has no const form.
    auto* const frame = const_cast<WireFrame*>(&request.frame);
    auto* const payload = const_cast<std::byte*>(request.send);
    iovec parts[] = {
        {reinterpret_cast<std::byte*>(frame) + sizeof(WireFrame) - frame_left, frame_left},
        {payload + payload_sent, request.frame.size_bytes - payload_sent}};
    const ssize_t sent = session_.send(parts);
    if (sent < 0 && is_for_later(errno)) {
      return ok();
    }
    if (sent < 0) {
      // The aggregator may have sent the reason before it closed.
      const std::string why = failure_text();
      PLEXUS_TRY(take_results());
      return lost(why);
    }
    sent_bytes_ += static_cast<size_t>(sent);
    PLEXUS_DCHECK(sent_bytes_ <= sizeof(WireFrame) + request.frame.size_bytes, sent_bytes_);
    if (sent_bytes_ == sizeof(WireFrame) + request.frame.size_bytes) {
      ++sent_;
      sent_bytes_ = 0;
    }
  }
  return ok();
}

Result<Progress> Member::read_to(std::byte* target, size_t size_bytes) {
  while (read_bytes_ < size_bytes) {
    const ssize_t got = session_.receive(target + read_bytes_, size_bytes - read_bytes_);
    if (got < 0 && is_for_later(errno)) {
      return Progress::kPending;
    }
    if (got <= 0) {
      return lost(got == 0 ? "it closed the connection" : failure_text());
    }
    read_bytes_ += static_cast<size_t>(got);
  }
  read_bytes_ = 0;
  return Progress::kDone;
}

/// Checks that the header is one that may arrive now.
Result<void> Member::take_header() {
  has_header_ = true;
  if (auto checked = check_frame(header_); checked.has_error()) {
    return lost(checked.error().text);
  }
  if (header_.kind == FrameKind::kError) {
    reason_.assign(header_.size_bytes, '\0');
    return ok();
  }
  if (header_.kind == FrameKind::kReady && state_ == State::kWaiting) {
    return ok();
  }
  const WireFrame& expected = requests_[done_ % kRequestsMax].frame;
  if (state_ != State::kReady || done_ >= started_ || header_.kind != FrameKind::kReduce ||
      header_.number != done_ || header_.size_bytes != expected.size_bytes ||
      header_.type != expected.type || header_.op != expected.op) {
    return lost("it sent a result that was not requested");
  }
  return ok();
}

/// Reads only awaited results: a member that has all results is not told that another one left
/// later.
Result<void> Member::take_results() {
  while (state_ != State::kReady || done_ < started_) {
    if (!has_header_) {
      PLEXUS_TRY(read, read_to(reinterpret_cast<std::byte*>(&header_), sizeof header_));
      if (read == Progress::kPending) {
        return ok();
      }
      PLEXUS_TRY(take_header());
    }
    const bool is_error = header_.kind == FrameKind::kError;
    Request& request = requests_[done_ % kRequestsMax];
    auto* const target = is_error ? reinterpret_cast<std::byte*>(reason_.data()) : request.recv;
    PLEXUS_TRY(read, read_to(target, header_.size_bytes));
    if (read == Progress::kPending) {
      return ok();
    }
    has_header_ = false;
    if (is_error) {
      return lost(reason_);
    }
    request.is_done = true;
    ++done_;
  }
  return ok();
}

}  // namespace plexus::aggregator
