// SPDX-License-Identifier: Apache-2.0
#include "security/handshake.hpp"

#include <cstring>

#include <fmt/core.h>

namespace plexus::security {
namespace {

constexpr std::array<uint8_t, 8> kMagic = {'P', 'L', 'X', 'S', 'E', 'C', '0', '1'};

template <class Value>
std::span<const std::byte> bytes_of(const Value& value) {
  return std::as_bytes(std::span(&value, 1));
}

void append(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

}  // namespace

Answer refuse_for_descriptors(uint32_t descriptors_max) noexcept {
  Answer refusal{};
  refusal.magic = kMagic;
  refusal.verdict = Verdict::kNoDescriptor;
  refusal.number = descriptors_max;
  return refusal;
}

Handshake::Handshake(const Terms& terms, Role role)
    : terms_(terms), step_(role == Role::kCaller ? Step::kAnswer : Step::kHello) {
  Nonce& own = role == Role::kCaller ? hello_.nonce : answer_.nonce;
  if (!fill_random(own)) {
    fail("this system has no source of randomness");
    return;
  }
  if (role == Role::kCaller) {
    hello_.magic = kMagic;
    hello_.mode = terms_.mode;
    hello_.mac = prove("hello", nullptr);
    say(bytes_of(hello_));
  }
}

Mac Handshake::prove(std::string_view name, const Answer* answer) const {
  std::vector<std::byte> covered;
  append(covered, bytes_of(hello_.mode));
  append(covered, bytes_of(hello_.nonce));
  if (answer != nullptr) {
    append(covered, bytes_of(answer->verdict));
    append(covered, bytes_of(answer->number));
    append(covered, bytes_of(answer->nonce));
  }
  return authenticate(terms_.key, name, covered);
}

void Handshake::say(std::span<const std::byte> bytes) { append(output_, bytes); }

std::span<const std::byte> Handshake::output() const noexcept {
  return std::span(output_).subspan(sent_bytes_);
}

std::span<std::byte> Handshake::room() noexcept {
  switch (step_) {
    case Step::kHello:
      return std::as_writable_bytes(std::span(&hello_, 1)).subspan(received_bytes_);
    case Step::kAnswer:
      return std::as_writable_bytes(std::span(&answer_, 1)).subspan(received_bytes_);
    case Step::kProof:
      return std::as_writable_bytes(std::span(&proof_, 1)).subspan(received_bytes_);
    case Step::kOver:
      break;
  }
  return {};
}

void Handshake::take(size_t size_bytes) {
  received_bytes_ += size_bytes;
  if (!room().empty()) {
    return;
  }
  received_bytes_ = 0;
  switch (step_) {
    case Step::kHello:
      return take_hello();
    case Step::kAnswer:
      return take_answer();
    case Step::kProof:
      return take_proof();
    case Step::kOver:
      break;
  }
}

void Handshake::fail(std::string why) {
  error_ = std::move(why);
  step_ = Step::kOver;
}

void Handshake::take_hello() {
  if (hello_.magic != kMagic || hello_.mode > Mode::kTls) {
    return fail("it does not speak our protocol");
  }
  answer_.magic = kMagic;
  answer_.mode = terms_.mode;
  const bool is_known = is_equal(hello_.mac, prove("hello", nullptr));
  if (hello_.mode != terms_.mode) {
    is_member_of_other_mode_ = is_known;
    answer_.verdict = Verdict::kOtherMode;
    fail(describe_difference(terms_.mode, hello_.mode, "its end"));
  } else if (!is_known) {
    answer_.verdict = Verdict::kOtherSecret;
    fail("it does not know the secret");
  } else {
    answer_.mac = prove("answer", &answer_);
    step_ = terms_.mode == Mode::kAuth ? Step::kProof : Step::kOver;
  }
  say(bytes_of(answer_));
}

void Handshake::take_answer() {
  if (answer_.magic != kMagic || answer_.mode > Mode::kTls) {
    return fail("it does not speak our protocol");
  }
  switch (answer_.verdict) {
    case Verdict::kWelcome:
      break;
    case Verdict::kOtherMode:
      return fail(describe_difference(terms_.mode, answer_.mode, "its end"));
    case Verdict::kNoDescriptor:
      return fail(
          fmt::format("it has no file descriptor left (ulimit -n is {} there): raise the limit",
                      answer_.number));
    default:
      return fail("it knows another secret");
  }
  if (answer_.mode != terms_.mode || !is_equal(answer_.mac, prove("answer", &answer_))) {
    return fail("it does not know the secret");
  }
  if (terms_.mode == Mode::kAuth) {
    say(bytes_of(prove("proof", &answer_)));
  }
  step_ = Step::kOver;
}

void Handshake::take_proof() {
  if (!is_equal(proof_, prove("proof", &answer_))) {
    return fail("it does not know the secret");
  }
  step_ = Step::kOver;
}

}  // namespace plexus::security
