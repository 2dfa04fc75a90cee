// SPDX-License-Identifier: Apache-2.0
// TLS 1.3 on a non-blocking socket, by OpenSSL. No certificates: both sides have a key that is
// derived from the secret (an external PSK), with ephemeral Diffie-Hellman besides, so that traffic
// recorded today stays closed when the secret is lost tomorrow. The kernel encrypts where it can
// (kTLS). Threads: one at a time per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>

#include "security/handshake.hpp"

struct ssl_st;

namespace plexus::security {

class Tls {
 public:
  /// Borrows the socket. nullptr: OpenSSL cannot, and `error` says why.
  [[nodiscard]] static std::unique_ptr<Tls> start(int fd,
                                                  Role role,
                                                  const Key& key,
                                                  std::string& error);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  /// 1: both sides are proven. -1, with errno EAGAIN: not yet. Else as receive().
  [[nodiscard]] int shake_hands();
  /// Waits for the socket to become writable, not readable.
  [[nodiscard]] bool wants_to_write() const noexcept { return wants_to_write_; }
  /// As ::recv and ::send on the socket. errno is EBADMSG when TLS itself has failed, as
  /// for a record that was changed on its way; error() says why.
  [[nodiscard]] ssize_t receive(void* target, size_t size_bytes);
  /// After EAGAIN the same bytes come first in the next call.
  [[nodiscard]] ssize_t send(const void* source, size_t size_bytes);
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  /// Bytes were received that nobody asked for yet: poll() does not know of them.
  [[nodiscard]] bool may_have_more() const noexcept { return may_have_more_; }
  [[nodiscard]] const Key& key() const noexcept { return key_; }
  /// The key is renewed after so many records; for tests.
  void set_records_per_key(uint64_t records) noexcept { records_per_key_ = records; }

 private:
  /// RFC 8446, 5.5: with AES-GCM a key serves for 2^24.5 full records.
  static constexpr uint64_t kRecordsPerKey = uint64_t{1} << 24;

  explicit Tls(const Key& key) : key_(key) {}
  [[nodiscard]] int judge(int result);
  [[nodiscard]] bool renew_key();

  Key key_;
  ssl_st* ssl_ = nullptr;
  std::string error_;
  uint64_t records_ = 0;  // sent with the present key
  uint64_t records_per_key_ = kRecordsPerKey;
  bool wants_to_write_ = false;
  bool may_have_more_ = false;
};

}  // namespace plexus::security
