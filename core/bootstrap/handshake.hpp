// SPDX-License-Identifier: Apache-2.0
// Mutual proof that both sides know the secret: each authenticates both nonces with crypto_auth
// (HMAC-SHA-512/256). Pure: bytes in, bytes out.
//
//   caller -> listener: Hello  = magic[8] caller_nonce[32]
//   listener -> caller: Answer = listener_nonce[32] mac(secret, "listener", both nonces)[32]
//                 or a refusal = magic[8] descriptors_max[4] 0[52]
//   caller -> listener: Proof  = mac(secret, "caller", both nonces)[32]
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/base/result.hpp"
#include "core/bootstrap/unique_id.hpp"

namespace plexus {

using Nonce = std::array<uint8_t, 32>;
using Proof = std::array<uint8_t, 32>;
struct Hello {
  std::array<uint8_t, 8> magic;
  Nonce nonce;
};
struct Answer {
  Nonce nonce;
  Proof proof;
};
static_assert(sizeof(Hello) == 8 + 32 && sizeof(Answer) == 64);

/// The caller's first message. An Error: no source of randomness.
Result<Hello> make_hello();
/// kInvalidUsage: the listener does not know the secret.
Result<Proof> check_answer(const Secret& secret, const Hello& hello, const Answer& answer);

/// Sent in place of an answer when the listener has no descriptor left, so that the caller can
/// report why it was refused. It is not authenticated, and nothing but the error text depends on
/// it.
Answer make_refusal(uint32_t descriptors_max);
/// The listener's limit of descriptors, if `answer` is a refusal.
std::optional<uint32_t> read_refusal(const Answer& answer);

/// The listener's answer to a Hello. An Error: no source of randomness.
Result<Answer> make_answer(const Secret& secret, const Hello& hello);
bool is_proof_good(const Secret& secret,
                   const Hello& hello,
                   const Answer& answer,
                   const Proof& proof);

}  // namespace plexus
