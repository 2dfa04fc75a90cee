// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/handover.hpp"

#include <algorithm>

namespace plexus {
namespace {

constexpr int kGracesMax = 10;
constexpr size_t kStatePieceBytes = kBlobBytesMax;

Error breaks_handover(std::string_view what) {
  return fail(Code::kRemoteError, "a member broke the protocol: {}", what);
}

}  // namespace

void HandOver::begin(Clock::time_point now, bool at_once) {
  if (stage_ != Stage::kIdle) {
    return;
  }
  if (at_once) {
    pause(now);
    return;
  }
  stage_ = Stage::kGrace;
  first_ = now;
  until_ = now + times_.grace;
}

void HandOver::pause(Clock::time_point now) {
  stage_ = Stage::kPausing;
  until_ = now + times_.pause;
  const auto present = hub_.present();
  awaited_ = {present.begin(), present.end()};
  for (const uint32_t rank : present) {
    send_(rank, Message{.type = MessageType::kPause});
  }
}

Result<void> HandOver::take(uint32_t member, const Message& message, Clock::time_point now) {
  if (message.type == MessageType::kPause) {
    if (awaited_.erase(member) == 0) {
      return breaks_handover("it stopped sending unasked");
    }
    paused_.insert(member);
    if (awaited_.empty()) {
      offer(now);
    }
    return ok();
  }
  if (message.type != MessageType::kHost) {
    return breaks_handover("it sent a message after its last one");
  }
  if (stage_ != Stage::kOffering || member != heir_) {
    return refused_.count(member) != 0 ? Result<void>(ok())  // too late
                                       : breaks_handover("it took over unasked");
  }
  auto address = decode_hub_address(message.payload);
  if (address.has_error()) {  // the heir refuses
    refused_.insert(member);
    offer(now);
    return ok();
  }
  address.value().name = hub_.name_of(member);
  move(encode(address.value()));
  return ok();
}

void HandOver::miss(uint32_t member, Clock::time_point now) {
  const bool was_awaited = awaited_.erase(member) != 0;
  if (stage_ == Stage::kGrace) {
    until_ = std::min(now + times_.grace, first_ + kGracesMax * times_.grace);
  } else if (stage_ == Stage::kPausing && was_awaited && awaited_.empty()) {
    offer(now);
  } else if (stage_ == Stage::kOffering && member == heir_) {
    offer(now);
  }
}

std::vector<uint32_t> HandOver::advance(Clock::time_point now) {
  if (now < until_) {
    return {};
  }
  if (stage_ == Stage::kGrace) {
    pause(now);
  } else if (stage_ == Stage::kPausing) {
    return {awaited_.begin(), awaited_.end()};
  } else if (stage_ == Stage::kOffering) {
    refused_.insert(heir_);
    offer(now);
  }
  return {};
}

void HandOver::offer(Clock::time_point now) {
  const auto present = hub_.present();
  const auto heir = std::find_if(present.begin(), present.end(),
                                 [&](uint32_t rank) { return refused_.count(rank) == 0; });
  if (heir == present.end()) {
    stay();
    return;
  }
  const std::string state = hub_.to_bytes();
  const size_t pieces = (state.size() + kStatePieceBytes - 1) / kStatePieceBytes;
  if (state.size() > kStateBytesMax) {
    stay();
    return;
  }
  stage_ = Stage::kOffering;
  until_ = now + times_.offer;
  heir_ = *heir;
  for (size_t piece = 0; piece < pieces; ++piece) {
    send_(heir_, Message{.type = MessageType::kHost,
                         .tag = pieces - 1 - piece,
                         .payload = state.substr(piece * kStatePieceBytes, kStatePieceBytes)});
  }
}

void HandOver::move(const std::string& address) {
  stage_ = Stage::kMoved;
  for (const uint32_t rank : hub_.present()) {
    send_(rank, Message{.type = MessageType::kMove, .peer = heir_, .payload = address});
  }
}

void HandOver::stay() {
  stage_ = Stage::kStays;
  paused_.clear();
  hub_.say_goodbye();
  for (const uint32_t rank : hub_.present()) {
    send_(rank, Message{.type = MessageType::kMove});
  }
}

}  // namespace plexus
