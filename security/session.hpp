// SPDX-License-Identifier: Apache-2.0
// The bytes of a connected, non-blocking TCP socket, secured as the terms say: first both sides
// prove themselves (handshake.hpp), then `receive` and `send` take the place of ::recv and ::send.
// Nothing blocks. In modes off and auth nothing is added to what is sent afterwards.
//
// Borrows the socket, which must be closed after the session. Threads: one at a time.
//
//   security::Session session(fd, security::Role::kCaller, terms);
//   while (session.advance() == security::Session::State::kPending) {
//     // wait until poll() has session.awaits()
//   }
//   return session.error().empty() && session.receive(bytes, size) > 0;
#pragma once

#include <cerrno>
#include <memory>
#include <span>
#include <string>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <vector>

#include "security/handshake.hpp"
#include "security/tls.hpp"

namespace plexus::security {

class Session {
 public:
  /// A socket that has no other side.
  Session() = default;
  Session(int fd, Role role, const Terms& terms);

  enum class State : uint8_t { kPending, kProven, kFailed };
  /// Goes on to prove both sides. kFailed: error() says why, and the other side was told.
  [[nodiscard]] State advance();
  /// While kPending: what poll() is to wait for; 0: nothing, as only advance() is needed.
  [[nodiscard]] short awaits() const noexcept { return awaits_; }
  /// Half a sentence about the other side: why advance() failed, or a receive or a send with errno
  /// EBADMSG.
  [[nodiscard]] const std::string& error() const noexcept {
    return tls_ != nullptr && !tls_->error().empty() ? tls_->error() : error_;
  }

  /// advance() failed because the connection ended, not because of what the other side said.
  [[nodiscard]] bool was_cut() const noexcept { return was_cut_; }
  [[nodiscard]] bool is_member_of_other_mode() const noexcept { return is_member_of_other_mode_; }
  [[nodiscard]] const Terms& terms() const noexcept { return terms_; }

  /// As ::recvmsg and ::sendmsg without blocking and without SIGPIPE.
  [[nodiscard]] ssize_t receive(std::span<const iovec> pieces) {
    if (tls_ != nullptr) {
      return receive_by_tls(pieces);
    }
    msghdr message = message_of(pieces);
    return ::recvmsg(fd_, &message, MSG_DONTWAIT);
  }
  [[nodiscard]] ssize_t receive(void* target, size_t size_bytes) {
    if (tls_ != nullptr) {
      return tls_->receive(target, size_bytes);
    }
    return ::recv(fd_, target, size_bytes, MSG_DONTWAIT);
  }
  /// After EAGAIN the same bytes come first in the next call.
  [[nodiscard]] ssize_t send(std::span<const iovec> pieces) {
    if (tls_ != nullptr) {
      return send_by_tls(pieces);
    }
    msghdr message = message_of(pieces);
    return ::sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  [[nodiscard]] ssize_t send(const void* source, size_t size_bytes) {
    if (tls_ != nullptr) {
      return tls_->send(source, size_bytes);
    }
    return ::send(fd_, source, size_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  /// Bytes may be there that poll() does not know of: receive until EAGAIN before you wait.
  [[nodiscard]] bool may_have_more() const noexcept {
    return tls_ != nullptr && tls_->may_have_more();
  }

 private:
  static msghdr message_of(std::span<const iovec> pieces) noexcept {
    msghdr message{};
    // Neither call writes to the list.
    message.msg_iov = const_cast<iovec*>(pieces.data());  // NOLINT(*-const-cast)
    message.msg_iovlen = pieces.size();
    return message;
  }
  [[nodiscard]] State exchange();
  [[nodiscard]] State shake_hands();
  [[nodiscard]] State fail(std::string why);
  [[nodiscard]] State fail_for_cut(bool is_closed, int error);
  [[nodiscard]] ssize_t receive_by_tls(std::span<const iovec> pieces);
  [[nodiscard]] ssize_t send_by_tls(std::span<const iovec> pieces);

  int fd_ = -1;
  Role role_ = Role::kCaller;
  short awaits_ = 0;
  State state_ = State::kFailed;
  bool was_cut_ = false;
  bool is_member_of_other_mode_ = false;
  Terms terms_;
  std::unique_ptr<Handshake> handshake_;  // until it is over
  std::unique_ptr<Tls> tls_;              // in mode tls, from then on
  std::vector<std::byte> record_;         // joins small pieces
  std::string error_;
};

}  // namespace plexus::security
