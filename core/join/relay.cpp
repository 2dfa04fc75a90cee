// SPDX-License-Identifier: Apache-2.0
#include "core/join/relay.hpp"

#include <utility>

namespace plexus {

Result<void> Relay::take(uint32_t client, const Message& message) {
  switch (message.type) {
    case MessageType::kJoin:
      return join(client, message);
    case MessageType::kFail:
      out_.send_to_first(message);
      return ok();
    case MessageType::kTable:
      ask_for_table(client);
      return ok();
    case MessageType::kLeave:
      clients_.erase(client);  // it has the table, or has left
      return ok();
    default:
      return break_of_protocol("a message that is not for the introducer");
  }
}

Result<void> Relay::join(uint32_t client, const Message& message) {
  PLEXUS_TRY(info, decode_join(message.payload));
  const auto [at, is_new] = clients_.emplace(client, info.process.process);
  if (!is_new && at->second != info.process.process) {
    return break_of_protocol("two processes on one connection");
  }
  if (failure_.has_value()) {
    out_.send(client, {.type = MessageType::kFail,
                       .group = world_,
                       .payload = encode(fail(Code::kRemoteError,
                                              "the job failed before rank {} joined: {}", info.rank,
                                              failure_->message()))});
    return ok();
  }
  out_.send_to_first({.type = MessageType::kRelayed, .payload = message.payload});
  return ok();
}

void Relay::ask_for_table(uint32_t client) {
  const auto at = clients_.find(client);
  if (at == clients_.end()) {
    return;
  }
  if (loss_.has_value()) {
    out_.send(client, {.type = MessageType::kFail, .group = world_, .payload = encode(*loss_)});
    return;
  }
  out_.send_to_first({.type = MessageType::kTable, .tag = at->second});
}

void Relay::lose(uint32_t client) {
  if (const auto at = clients_.find(client); at != clients_.end()) {
    out_.send_to_first({.type = MessageType::kLost, .tag = at->second});
    clients_.erase(at);
  }
}

void Relay::take_from_first(const Message& message) {
  if (message.type == MessageType::kFail) {
    fail_all(decode_error(message.payload));
    return;
  }
  is_complete_ |= message.type == MessageType::kJoined;
  for (const auto& [client, process] : clients_) {
    const bool is_named = process == message.tag;
    // kTable is for the process that it names, kJoined for all others.
    if (message.type == MessageType::kLate || is_named == (message.type == MessageType::kTable)) {
      out_.send(client, message);
    }
  }
}

void Relay::lose_first(std::string_view why) {
  loss_ = fail(Code::kRemoteError,
               "the process that made the first unique id died or lost its connection before all "
               "ranks had joined: {}",
               why);
  if (!is_complete_) {
    fail_all(*loss_);
  }  // else the table may be on its way from process to process
}

void Relay::fail_all(const Error& error) {
  if (failure_.has_value()) {
    return;
  }
  failure_ = error.clone();
  for (const auto& [client, process] : clients_) {
    out_.send(client, {.type = MessageType::kFail, .group = world_, .payload = encode(error)});
  }
}

}  // namespace plexus
