// SPDX-License-Identifier: Apache-2.0
// The first bytes of every connection, as a state machine without sockets. Both sides say how they
// secure connections and show that they know the secret:
//
//   caller -> listener: Hello  = "PLXSEC01" mode u8 0[7] nonce[32] mac(hello)[32]
//   listener -> caller: Answer = "PLXSEC01" mode u8 verdict u8 0[2] number u32 nonce[32] mac[32]
//   caller -> listener: Proof  = mac[32]                                   mode auth only
//
// A mac is HMAC-SHA-256 with the secret, of the message's name, the mode and the nonces so far (the
// Answer's also covers verdict and number). The Hello's can be replayed; the Answer's and the
// Proof's cover the other side's nonce and cannot. In mode tls, TLS follows the Answer, and what
// precedes it is only to tell apart those who differ in mode or secret. The MACs of refusals are
// zero: nothing but the text of an error depends on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "security/terms.hpp"

namespace plexus::security {

enum class Role : uint8_t { kCaller, kListener };

struct Hello {
  std::array<uint8_t, 8> magic;
  Mode mode;
  std::array<uint8_t, 7> zero;
  Nonce nonce;
  Mac mac;
};
enum class Verdict : uint8_t { kWelcome, kOtherMode, kOtherSecret, kNoDescriptor };
struct Answer {
  std::array<uint8_t, 8> magic;
  Mode mode;
  Verdict verdict;
  std::array<uint8_t, 2> zero;
  uint32_t number;  // of kNoDescriptor: the listener's limit of descriptors
  Nonce nonce;
  Mac mac;
};
static_assert(sizeof(Hello) == 2 * sizeof(uint64_t) + sizeof(Nonce) + sizeof(Mac) &&
              sizeof(Answer) == sizeof(Hello));

/// What a listener without descriptors sends before it closes a connection.
[[nodiscard]] Answer refuse_for_descriptors(uint32_t descriptors_max) noexcept;

class Handshake {
 public:
  Handshake(const Terms& terms, Role role);

  /// Where the bytes go that are awaited; empty: none are.
  [[nodiscard]] std::span<std::byte> room() noexcept;
  /// That many bytes of room() were received.
  void take(size_t size_bytes);
  /// Bytes to be sent.
  [[nodiscard]] std::span<const std::byte> output() const noexcept;
  void sent(size_t size_bytes) noexcept { sent_bytes_ += size_bytes; }
  /// Everything was received and sent: the other side is proven, or error() says why not.
  [[nodiscard]] bool is_over() noexcept { return output().empty() && room().empty(); }
  /// Half a sentence about the other side; empty: no error.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  /// For a listener: the caller's hello shows the secret, but another mode.
  [[nodiscard]] bool is_member_of_other_mode() const noexcept { return is_member_of_other_mode_; }

 private:
  enum class Step : uint8_t { kHello, kAnswer, kProof, kOver };
  void say(std::span<const std::byte> bytes);
  void take_hello();
  void take_answer();
  void take_proof();
  void fail(std::string why);
  [[nodiscard]] Mac prove(std::string_view name, const Answer* answer) const;

  Terms terms_;
  Step step_;
  Hello hello_{};
  Answer answer_{};
  Mac proof_{};
  size_t received_bytes_ = 0;  // of the message of `step_`
  std::vector<std::byte> output_;
  size_t sent_bytes_ = 0;
  std::string error_;
  bool is_member_of_other_mode_ = false;
};

}  // namespace plexus::security
