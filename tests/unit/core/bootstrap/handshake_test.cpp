// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/handshake.hpp"

#include <gtest/gtest.h>

namespace plexus {
namespace {

Secret secret_of(uint8_t byte) {
  Secret secret;
  secret.fill(byte);
  return secret;
}

TEST(Handshake, ConvincesBothSidesThatShareASecret) {
  const Hello hello = make_hello().value();
  const Answer answer = make_answer(secret_of(1), hello).value();
  const auto proof = check_answer(secret_of(1), hello, answer);
  ASSERT_TRUE(proof.has_value());
  EXPECT_TRUE(is_proof_good(secret_of(1), hello, answer, proof.value()));
}

TEST(Handshake, ShowsAMemberThatTheHubDoesNotKnowTheSecret) {
  const Hello hello = make_hello().value();
  const Answer answer = make_answer(secret_of(2), hello).value();
  const auto proof = check_answer(secret_of(1), hello, answer);
  ASSERT_TRUE(proof.has_error());
  EXPECT_EQ(proof.error().code(), Code::kInvalidUsage);
}

TEST(Handshake, RefusesEveryProofButTheRightOne) {
  const Hello hello = make_hello().value();
  const Answer answer = make_answer(secret_of(1), hello).value();
  const Proof proof = check_answer(secret_of(1), hello, answer).value();
  for (size_t i = 0; i < proof.size(); ++i) {
    Proof wrong = proof;
    wrong[i] ^= 1;
    EXPECT_FALSE(is_proof_good(secret_of(1), hello, answer, wrong));
  }
  EXPECT_FALSE(is_proof_good(secret_of(2), hello, answer, proof));
  EXPECT_FALSE(is_proof_good(secret_of(1), hello, answer, answer.proof))
      << "a listener's proof sent back";
}

TEST(Handshake, DoesNotAcceptTheProofOfAnEarlierHandshake) {
  const Hello hello = make_hello().value();
  const Answer first = make_answer(secret_of(1), hello).value();
  const Answer second = make_answer(secret_of(1), hello).value();
  const Proof proof = check_answer(secret_of(1), hello, first).value();
  EXPECT_FALSE(is_proof_good(secret_of(1), hello, second, proof));
}

TEST(Handshake, RefusesAHelloOfAnotherProtocol) {
  Hello hello = make_hello().value();
  hello.magic[0] = 'G';
  EXPECT_TRUE(make_answer(secret_of(1), hello).has_error());
}

}  // namespace
}  // namespace plexus
