// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/handshake.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include <sodium.h>

namespace plexus {
namespace {

constexpr std::array<uint8_t, 8> kHelloMagic = {'P', 'L', 'X', 'H', 'E', 'L', 'L', '1'};
constexpr std::array<uint8_t, 8> kRefusalMagic = {'P', 'L', 'X', 'N', 'O', 'F', 'D', '1'};
static_assert(crypto_auth_KEYBYTES == kSecretBytes && crypto_auth_BYTES == sizeof(Proof));

std::string material(std::string_view role, const Nonce& caller, const Nonce& listener) {
  std::string bytes(role);
  bytes.append(reinterpret_cast<const char*>(caller.data()), caller.size());
  bytes.append(reinterpret_cast<const char*>(listener.data()), listener.size());
  return bytes;
}

Proof prove(const Secret& secret, const std::string& bytes) {
  Proof proof{};
  crypto_auth(proof.data(), reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
              secret.data());
  return proof;
}

bool verify(const Secret& secret, const std::string& bytes, const Proof& proof) {
  return crypto_auth_verify(proof.data(), reinterpret_cast<const unsigned char*>(bytes.data()),
                            bytes.size(), secret.data()) == 0;
}

Result<Nonce> make_nonce() {
  if (sodium_init() < 0) {
    return fail(Code::kSystemError, "libsodium cannot be initialized: no source of randomness");
  }
  Nonce nonce{};
  randombytes_buf(nonce.data(), nonce.size());
  return nonce;
}

}  // namespace

Result<Hello> make_hello() {
  PLEXUS_TRY(nonce, make_nonce());
  return Hello{kHelloMagic, nonce};
}

Result<Proof> check_answer(const Secret& secret, const Hello& hello, const Answer& answer) {
  if (!verify(secret, material("listener", hello.nonce, answer.nonce), answer.proof)) {
    return fail(Code::kInvalidUsage,
                "who listens at the unique id's address does not know its secret: give all ranks "
                "the same unique id");
  }
  return prove(secret, material("caller", hello.nonce, answer.nonce));
}

Answer make_refusal(uint32_t descriptors_max) {
  Answer refusal{};
  std::copy(kRefusalMagic.begin(), kRefusalMagic.end(), refusal.nonce.begin());
  std::memcpy(refusal.nonce.data() + kRefusalMagic.size(), &descriptors_max,
              sizeof(descriptors_max));
  return refusal;
}

std::optional<uint32_t> read_refusal(const Answer& answer) {
  uint32_t descriptors_max = 0;
  std::memcpy(&descriptors_max, answer.nonce.data() + kRefusalMagic.size(),
              sizeof(descriptors_max));
  const Answer refusal = make_refusal(descriptors_max);
  const bool is_one = refusal.nonce == answer.nonce && refusal.proof == answer.proof;
  return is_one ? std::optional<uint32_t>(descriptors_max) : std::nullopt;
}

Result<Answer> make_answer(const Secret& secret, const Hello& hello) {
  if (hello.magic != kHelloMagic) {
    return fail(Code::kRemoteError, "the first bytes are not of our protocol");
  }
  PLEXUS_TRY(nonce, make_nonce());
  return Answer{nonce, prove(secret, material("listener", hello.nonce, nonce))};
}

bool is_proof_good(const Secret& secret,
                   const Hello& hello,
                   const Answer& answer,
                   const Proof& proof) {
  return verify(secret, material("caller", hello.nonce, answer.nonce), proof);
}

}  // namespace plexus
