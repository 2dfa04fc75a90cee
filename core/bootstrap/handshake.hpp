// SPDX-License-Identifier: Apache-2.0
// Mutual proof of knowing the secret: each side authenticates both nonces with crypto_auth
// (HMAC-SHA-512/256). Pure: bytes in, bytes out.
//
//   member -> hub: Hello  = magic[8] member_nonce[32]
//   hub -> member: Answer = hub_nonce[32] mac(secret, "hub", member_nonce, hub_nonce)[32]
//                 or a refusal = magic[8] descriptors_max[4] 0[52]
//   member -> hub: Proof  = mac(secret, "member", member_nonce, hub_nonce)[32]
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

/// The member's side. An Error: no source of randomness.
Result<Hello> make_hello();
/// kInvalidUsage: the hub does not know the secret.
Result<Proof> check_answer(const Secret& secret, const Hello& hello, const Answer& answer);

/// In place of an answer, to those for whom the hub has no descriptor: who hears it can say why it
/// did not get in. Nothing is proved by it and nothing depends on it.
Answer make_refusal(uint32_t descriptors_max);
/// The limit in a refusal; nullopt: it is none.
std::optional<uint32_t> read_refusal(const Answer& answer);

/// The hub's side.
Result<Answer> make_answer(const Secret& secret, const Hello& hello);
bool is_proof_good(const Secret& secret,
                   const Hello& hello,
                   const Answer& answer,
                   const Proof& proof);

}  // namespace plexus
