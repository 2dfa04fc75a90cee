// SPDX-License-Identifier: Apache-2.0
#include "security/session.hpp"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <system_error>

namespace plexus::security {
namespace {

/// The payload of a TLS record, at most.
constexpr size_t kRecordBytes = size_t{16} << 10;
/// One call moves at most this, so that one connection does not keep a thread from the others.
constexpr size_t kBytesPerCall = size_t{1} << 20;

bool is_would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

std::string text_of(int error) { return std::generic_category().message(error); }

}  // namespace

Session::Session(int fd, Role role, const Terms& terms)
    : fd_(fd),
      role_(role),
      state_(State::kPending),
      terms_(terms),
      handshake_(std::make_unique<Handshake>(terms, role)) {}

Session::State Session::fail(std::string why) {
  error_ = std::move(why);
  awaits_ = 0;
  return state_ = State::kFailed;
}

Session::State Session::fail_for_cut(bool is_closed, int error) {
  was_cut_ = true;
  return fail(is_closed ? "it closed the connection during the handshake" : text_of(error));
}

Session::State Session::advance() {
  if (state_ == State::kPending && handshake_ != nullptr) {
    state_ = exchange();
  }
  if (state_ == State::kPending && tls_ != nullptr) {
    state_ = shake_hands();
  }
  return state_;
}

/// The handshake; what comes after it is left in the socket.
Session::State Session::exchange() {
  while (!handshake_->is_over()) {
    const bool sends = !handshake_->output().empty();
    const std::span<const std::byte> output = handshake_->output();
    const std::span<std::byte> room = handshake_->room();
    const ssize_t moved =
        sends ? ::send(fd_, output.data(), output.size(), MSG_DONTWAIT | MSG_NOSIGNAL)
              : ::recv(fd_, room.data(), room.size(), MSG_DONTWAIT);
    if (moved < 0 && is_would_block(errno)) {
      awaits_ = sends ? POLLOUT : POLLIN;
      return State::kPending;
    }
    if (moved <= 0 && !handshake_->error().empty()) {
      break;  // it could not be told
    }
    if (moved <= 0) {
      return fail_for_cut(moved == 0, errno);
    }
    if (sends) {
      handshake_->sent(static_cast<size_t>(moved));
    } else {
      handshake_->take(static_cast<size_t>(moved));
    }
  }
  const std::string why = handshake_->error();
  is_member_of_other_mode_ = handshake_->is_member_of_other_mode();
  handshake_.reset();
  if (!why.empty()) {
    return fail(why);
  }
  awaits_ = 0;
  if (terms_.mode != Mode::kTls) {
    return State::kProven;
  }
  tls_ = Tls::start(fd_, role_, terms_.key, error_);
  return tls_ == nullptr ? State::kFailed : State::kPending;
}

Session::State Session::shake_hands() {
  const int result = tls_->shake_hands();
  if (result == 1) {
    awaits_ = 0;
    return State::kProven;
  }
  if (result < 0 && is_would_block(errno)) {
    awaits_ = tls_->wants_to_write() ? POLLOUT : POLLIN;
    return State::kPending;
  }
  if (!tls_->error().empty()) {
    return fail(tls_->error());
  }
  return fail_for_cut(result == 0, errno);
}

ssize_t Session::receive_by_tls(std::span<const iovec> pieces) {
  size_t received_bytes = 0;
  for (const iovec& piece : pieces) {
    auto* const target = static_cast<std::byte*>(piece.iov_base);
    for (size_t done = 0; done < piece.iov_len && received_bytes < kBytesPerCall;) {
      const ssize_t got = tls_->receive(target + done, piece.iov_len - done);
      if (got <= 0) {  // a failure comes again in the next call
        return received_bytes > 0 ? static_cast<ssize_t>(received_bytes) : got;
      }
      done += static_cast<size_t>(got);
      received_bytes += static_cast<size_t>(got);
    }
  }
  return static_cast<ssize_t>(received_bytes);
}

ssize_t Session::send_by_tls(std::span<const iovec> pieces) {
  size_t sent_bytes = 0;
  size_t at = 0;      // in `pieces`
  size_t offset = 0;  // in pieces[at]
  while (at < pieces.size() && sent_bytes < kBytesPerCall) {
    const iovec& first = pieces[at];
    const std::byte* source = static_cast<const std::byte*>(first.iov_base) + offset;
    size_t size_bytes = std::min(first.iov_len - offset, kRecordBytes);
    if (size_bytes < kRecordBytes && at + 1 < pieces.size()) {
      // A header and its payload travel in one record.
      record_.assign(source, source + size_bytes);
      for (size_t next = at + 1; next < pieces.size() && record_.size() < kRecordBytes; ++next) {
        const auto* const more = static_cast<const std::byte*>(pieces[next].iov_base);
        record_.insert(record_.end(), more,
                       more + std::min(pieces[next].iov_len, kRecordBytes - record_.size()));
      }
      source = record_.data();
      size_bytes = record_.size();
    }
    const ssize_t sent = size_bytes == 0 ? 0 : tls_->send(source, size_bytes);
    if (sent < 0) {
      return sent_bytes > 0 ? static_cast<ssize_t>(sent_bytes) : sent;
    }
    sent_bytes += static_cast<size_t>(sent);
    offset += static_cast<size_t>(sent);
    while (at < pieces.size() && offset >= pieces[at].iov_len) {
      offset -= pieces[at++].iov_len;
    }
  }
  return static_cast<ssize_t>(sent_bytes);
}

}  // namespace plexus::security
