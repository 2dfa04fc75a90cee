// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/greetings.hpp"

#include <algorithm>
#include <span>

namespace plexus::net_ofi {

Greetings::Greetings(Rails& rails, const WireProcess& here, uint32_t nonce)
    : rails_(rails), here_(here), nonce_(nonce) {
  send_.kind = OperationKind::kGreetingSend;
  receive_.kind = OperationKind::kGreetingReceive;
}

Result<WireGreeting> Greetings::make() const {
  WireGreeting greeting{};
  greeting.magic = kWireMagic;
  if (!security::fill_random(greeting.challenge)) {
    return fail(PLEXUS_SYSTEM_ERROR, "this system has no source of randomness");
  }
  greeting.nonce = nonce_;
  greeting.rails = static_cast<uint16_t>(rails_.count());
  greeting.link = link_;
  greeting.process = here_;
  for (uint32_t rail = 0; rail < rails_.count(); ++rail) {
    PLEXUS_TRY(size, rails_.endpoint(rail).read_address(greeting.addresses[rail]));
    greeting.address_bytes = static_cast<uint16_t>(size);
  }
  return greeting;
}

Result<Progress> Greetings::send(const WireGreeting& greeting, fi_addr_t to, uint64_t tag) {
  if (state_ != Sending::kNot) {
    return state_ == Sending::kSent ? Progress::kDone : Progress::kPending;
  }
  WireGreeting& out = rails_.buffers().greeting_out;
  out = greeting;
  has_called_ = true;
  const ssize_t result = rails_.send_to(to, 0, rails_.own(out, 0), tag, send_);
  if (result == 0) {
    state_ = Sending::kPosted;
  } else if (result != -FI_EAGAIN) {
    return fail(is_peer_gone(result) ? PLEXUS_REMOTE_ERROR : PLEXUS_SYSTEM_ERROR, "{}",
                error_text(result));
  }
  return Progress::kPending;
}

Result<void> Greetings::expect_answer(uint64_t tag) {
  return check_call(rails_.receive(0, rails_.own(rails_.buffers().greeting_in, 0), tag, receive_),
                    "post a receive", rails_.domain(0).name());
}

Result<std::optional<WireGreeting>> Greetings::answer(const security::Key& key,
                                                      const security::Nonce& asked) const {
  if (!answer_bytes_) {
    return std::optional<WireGreeting>();
  }
  const auto bytes = std::as_bytes(std::span(&rails_.buffers().greeting_in, 1));
  PLEXUS_TRY(greeting,
             read_greeting(bytes.first(std::min(*answer_bytes_, bytes.size())), key, &asked));
  return std::optional<WireGreeting>(greeting);
}

void Greetings::expect_ready(const security::Key& key, const Challenges& challenges) {
  expected_ready_.clear();
  for (uint32_t rail = 0; rail < rails_.count(); ++rail) {
    expected_ready_.push_back(make_ready(key, challenges, rail));
  }
}

bool Greetings::take_ready(const WireControl& ready, uint32_t rail) {
  const bool is_proof = rail < expected_ready_.size() && is_same(ready, expected_ready_[rail]);
  ready_rails_ |= is_proof ? 1u << rail : 0;
  return is_proof;
}

void Greetings::note_end(const Event& event) noexcept {
  if (event.operation->kind == OperationKind::kGreetingSend) {
    state_ = Sending::kSent;
  } else {
    answer_bytes_ = event.size_bytes;
  }
}

}  // namespace plexus::net_ofi
