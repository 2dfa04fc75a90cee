// SPDX-License-Identifier: Apache-2.0
// What a hostile or broken process may send on the control plane: bytes in arbitrary pieces through
// the reader, the messages into every decoder, into an introducer, a relay, and into the agents of
// three correct processes. No input may crash, leak, use unbounded memory, or keep the correct ones
// from ending: at the end the hostile process dies, and every rank leaves.
//
// Input: the first byte determines how the stream is divided; then the bytes of the stream.
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/control/agent.hpp"
#include "core/control/message.hpp"
#include "core/control/unique_id.hpp"
#include "core/join/introducer.hpp"
#include "core/join/relay.hpp"

namespace plexus {
namespace {

constexpr uint32_t kProcesses = 4;
constexpr uint32_t kHostile = 3;
constexpr uint64_t kWorld = 1;
constexpr uint64_t kChild = 2;
constexpr size_t kHopsMax = 100'000;

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void decode_all(const std::string& payload) {
  if (auto missing = decode_missing(payload); missing.has_value()) {
    require(decode_missing(encode(missing.value())).has_value());
  }
  if (auto ranks = decode_ranks(payload); ranks.has_value()) {
    require(encode(ranks.value()) == payload);
  }
  if (auto gathered = Gathered::decode(payload); gathered.has_value()) {
    for (size_t rank = 0; rank < gathered.value().size(); ++rank) {
      require(gathered.value()[rank].size() <= kBlobBytesMax);
    }
  }
  if (auto notes = decode_leave_notes(payload); notes.has_value()) {
    require(encode(notes.value()) == payload);
  }
  if (auto notices = decode_failure_notices(payload); notices.has_value()) {
    require(encode(notices.value()) == payload);
  }
  if (auto table = ProcessTable::decode(payload); table.has_value()) {
    const FamilyMap map(std::move(table).value());
    require(map.all->tree.subtree(0).size() == map.all->tree.size());
  }
  Contributions contributions;
  std::vector<uint32_t> ranks;
  if (contributions.merge(payload, ranks).has_value()) {
    require(contributions.size() == ranks.size());
  }
  (void)decode_join(payload);
  require(decode_error(payload).code() != Code::kSuccess);
}

/// Correct processes 0 to 2, one rank each; what they send to process 3 is dropped.
class Job {
 public:
  Job() {
    std::vector<ProcessEntry> entries;
    for (uint32_t process = 0; process < kProcesses; ++process) {
      entries.push_back({.process = 10 + process, .host_key = process / 2, .ranks = {process}});
    }
    const auto map =
        std::make_shared<const FamilyMap>(ProcessTable::make(std::move(entries)).value());
    for (uint32_t process = 0; process < kHostile; ++process) {
      agents_.push_back(std::make_unique<Agent>(
          kWorld, 10 + process,
          AgentOutput{.send =
                          [this, process](uint32_t to, const Message& message) {
                            require(to < kProcesses && message.payload.size() <= kPayloadBytesMax);
                            hops_.push_back({process, to, message});
                          },
                      .deliver = [](uint32_t, const Message&) {},
                      .to_introducer = [](const Message&) {},
                      .announce_leave =
                          [this, process](const Message& message) {
                            for (uint32_t to = 0; to < kHostile; ++to) {
                              if (to != process) {
                                hops_.push_back({process, to, message});
                              }
                            }
                          }}));
    }
    for (const auto& agent : agents_) {
      require(agent->open(map).has_value());
    }
    for (uint32_t rank = 0; rank < kHostile; ++rank) {
      say(rank, {.type = MessageType::kGroup,
                 .group = kChild,
                 .payload = encode(std::vector<uint32_t>{3, 1, 0, 2})});
      say(rank, {.type = MessageType::kGather, .group = kChild, .payload = "blob"});
    }
    run();
  }
  void hear(uint32_t to, Message message) {
    if (agents_[to]->take_from(kHostile, std::move(message)).has_error()) {
      agents_[to]->lose(kHostile, Agent::Loss::kBroken);
    }
    run();
  }
  void end() {
    for (const auto& agent : agents_) {
      agent->lose(kHostile, Agent::Loss::kBroken);
    }
    run();
    for (uint32_t rank = 0; rank < kHostile; ++rank) {
      say(rank, {.type = MessageType::kLeaveGroup, .group = kChild});
      say(rank, {.type = MessageType::kLeaveGroup, .group = kWorld});
      say(rank, {.type = MessageType::kLeave});
      require(agents_[rank]->is_over());
    }
  }

 private:
  struct Hop {
    uint32_t from;
    uint32_t to;
    Message message;
  };
  void say(uint32_t rank, Message message) { (void)agents_[rank]->take(rank, std::move(message)); }
  void run() {
    size_t hops = 0;
    while (!hops_.empty()) {
      require(++hops < kHopsMax);
      Hop hop = std::move(hops_.front());
      hops_.pop_front();
      if (hop.to != kHostile) {
        (void)agents_[hop.to]->take_from(hop.from, std::move(hop.message));
      }
    }
    for (const auto& agent : agents_) {
      agent->tick(now_ += std::chrono::milliseconds(100));
    }
  }

  std::vector<std::unique_ptr<Agent>> agents_;
  std::deque<Hop> hops_;
  Clock::time_point now_{};
};

void fuzz(std::string_view bytes) {
  if (bytes.size() >= UniqueId::kBytes) {
    (void)UniqueId::from_bytes(std::span<const std::byte, UniqueId::kBytes>(
        reinterpret_cast<const std::byte*>(bytes.data()), UniqueId::kBytes));
  }
  Job job;
  Introducer introducer(kWorld, [](uint32_t, const Message& message) {
    require(message.payload.size() <= kPayloadBytesMax);
  });
  const auto is_bounded = [](const Message& message) {
    require(message.payload.size() <= kPayloadBytesMax);
  };
  Relay relay(kWorld, {.send = [&](uint32_t, const Message& message) { is_bounded(message); },
                       .send_to_first = is_bounded});
  const size_t piece = bytes.empty() ? 1 : static_cast<size_t>(bytes.front()) % 37 + 1;
  MessageReader reader;
  uint32_t to = 0;
  for (size_t at = 1; at < bytes.size(); at += piece) {
    const std::string_view part = bytes.substr(at, piece);
    reader.append(part.data(), part.size());
    for (;;) {
      auto message = reader.next();
      if (message.has_error()) {
        at = bytes.size();
        break;
      }
      if (!message.value().has_value()) {
        break;
      }
      require(encode(*message.value()).size() == kHeaderBytes + message.value()->payload.size());
      decode_all(message.value()->payload);
      if (introducer.take(to, *message.value()).has_error()) {
        introducer.lose(to);
      }
      relay.take_from_first(*message.value());
      if (relay.take(to, *message.value()).has_error()) {
        relay.lose(to);
      }
      job.hear(to, std::move(*message.value()));
      to = (to + 1) % kHostile;
    }
  }
  introducer.give_up();
  job.end();
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
