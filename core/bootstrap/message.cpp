// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/message.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/bytes.hpp"

namespace plexus {
namespace {

constexpr uint32_t kMessageMagic = 0x31584c50;  // "PLX1"
constexpr size_t kHubNameBytesMax = 128;

Error damaged(std::string_view what) {
  return fail(Code::kRemoteError, "a control message ({}) is damaged", what);
}

}  // namespace

std::string encode(const Message& message) {
  ByteWriter writer;
  writer.put(kMessageMagic);
  writer.put(static_cast<uint32_t>(message.payload.size()));
  writer.put(message.type);
  writer.put(uint16_t{0});
  writer.put(message.peer);
  writer.put(message.group);
  writer.put(message.tag);
  writer.put_bytes(message.payload);
  return writer.take();
}

Result<std::optional<Message>> MessageReader::next() {
  if (buffer_.size() < kHeaderBytes) {
    return std::optional<Message>();
  }
  ByteReader reader(buffer_);
  const auto magic = reader.take<uint32_t>();
  const auto size = reader.take<uint32_t>();
  Message message;
  const auto type = reader.take<uint16_t>();
  (void)reader.take<uint16_t>();
  message.peer = reader.take<uint32_t>();
  message.group = reader.take<uint64_t>();
  message.tag = reader.take<uint64_t>();
  const bool known = type >= static_cast<uint16_t>(MessageType::kJoin) &&
                     type <= static_cast<uint16_t>(MessageType::kMove);
  if (magic != kMessageMagic || size > kPayloadBytesMax || !known) {
    return damaged("header");
  }
  if (reader.rest().size() < size) {
    return std::optional<Message>();
  }
  message.type = static_cast<MessageType>(type);
  message.payload = reader.take_bytes(size);
  buffer_.erase(0, kHeaderBytes + size);
  return std::optional<Message>(std::move(message));
}

std::string encode(const JoinInfo& info) {
  ByteWriter writer;
  writer.put(info.rank);
  writer.put(info.nranks);
  writer.put(info.version);
  writer.put(info.pid);
  writer.put(info.process);
  writer.put_bytes(info.host);
  return writer.take();
}

Result<JoinInfo> decode_join(std::string_view payload) {
  ByteReader reader(payload);
  JoinInfo info;
  info.rank = reader.take<uint32_t>();
  info.nranks = reader.take<uint32_t>();
  info.version = reader.take<uint32_t>();
  info.pid = reader.take<int32_t>();
  info.process = reader.take<uint64_t>();
  info.host = reader.rest().substr(0, 64);
  constexpr uint32_t kRanksMax = 1U << 20;
  if (reader.broken() || info.nranks == 0 || info.nranks > kRanksMax || info.rank >= info.nranks) {
    return damaged("join");
  }
  return info;
}

std::string encode(const std::vector<uint32_t>& ranks) {
  return {reinterpret_cast<const char*>(ranks.data()), ranks.size() * sizeof(uint32_t)};
}

Result<std::vector<uint32_t>> decode_ranks(std::string_view payload) {
  if (payload.empty() || payload.size() % sizeof(uint32_t) != 0) {
    return damaged("group");
  }
  std::vector<uint32_t> ranks(payload.size() / sizeof(uint32_t));
  std::memcpy(ranks.data(), payload.data(), payload.size());
  return ranks;
}

std::string encode(const std::vector<std::string>& blobs) {
  ByteWriter writer;
  for (const std::string& blob : blobs) {
    writer.put_text<uint32_t>(blob);
  }
  return writer.take();
}

Result<std::vector<std::string>> decode_blobs(std::string_view payload) {
  std::vector<std::string> blobs;
  ByteReader reader(payload);
  while (!reader.broken() && !reader.rest().empty()) {
    blobs.emplace_back(reader.take_text<uint32_t>(kPayloadBytesMax));
  }
  if (reader.broken()) {
    return damaged("gathered");
  }
  return blobs;
}

std::string encode(const HubAddress& address) {
  std::string bytes(reinterpret_cast<const char*>(address.address.data()), address.address.size());
  return bytes + address.name.substr(0, kHubNameBytesMax);
}

Result<HubAddress> decode_hub_address(std::string_view payload) {
  HubAddress result;
  if (payload.size() < result.address.size() ||
      payload.size() > result.address.size() + kHubNameBytesMax) {
    return damaged("address of a hub");
  }
  std::memcpy(result.address.data(), payload.data(), result.address.size());
  result.name = payload.substr(result.address.size());
  return result;
}

std::string encode(const Error& error) {
  ByteWriter writer;
  writer.put(static_cast<int32_t>(error.code()));
  writer.put_bytes(std::string_view(error.message()).substr(0, 4096));
  return writer.take();
}

Error decode_error(std::string_view payload) {
  ByteReader reader(payload);
  const auto code = reader.take<int32_t>();
  const bool known = !reader.broken() && code > static_cast<int32_t>(Code::kSuccess) &&
                     code <= static_cast<int32_t>(Code::kTimeout);
  return fail(known ? static_cast<Code>(code) : Code::kRemoteError, "{}",
              reader.rest().substr(0, 4096));
}

}  // namespace plexus
