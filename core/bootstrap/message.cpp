// SPDX-License-Identifier: Apache-2.0
#include "core/bootstrap/message.hpp"

#include <algorithm>
#include <cstring>

namespace plexus {
namespace {

constexpr uint32_t kMessageMagic = 0x31584c50;  // "PLX1"
constexpr size_t kHubNameBytesMax = 128;

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// Reads values off the front; `good` turns false at the first that is not there.
struct Cursor {
  std::string_view bytes;
  bool good = true;

  template <class T>
  T take() {
    T value{};
    if (bytes.size() < sizeof(T)) {
      good = false;
      return value;
    }
    std::memcpy(&value, bytes.data(), sizeof(T));
    bytes.remove_prefix(sizeof(T));
    return value;
  }
  std::string take_bytes(size_t size_bytes) {
    if (bytes.size() < size_bytes) {
      good = false;
      return {};
    }
    std::string result(bytes.substr(0, size_bytes));
    bytes.remove_prefix(size_bytes);
    return result;
  }
};

Error damaged(std::string_view what) {
  return fail(Code::kRemoteError, "a control message ({}) is damaged", what);
}

}  // namespace

std::string encode(const Message& message) {
  std::string bytes;
  bytes.reserve(kHeaderBytes + message.payload.size());
  put(bytes, kMessageMagic);
  put(bytes, static_cast<uint32_t>(message.payload.size()));
  put(bytes, static_cast<uint16_t>(message.type));
  put(bytes, uint16_t{0});
  put(bytes, message.peer);
  put(bytes, message.group);
  put(bytes, message.tag);
  return bytes + message.payload;
}

Result<std::optional<Message>> MessageReader::next() {
  if (buffer_.size() < kHeaderBytes) {
    return std::optional<Message>();
  }
  Cursor cursor{buffer_};
  const auto magic = cursor.take<uint32_t>();
  const auto size = cursor.take<uint32_t>();
  Message message;
  const auto type = cursor.take<uint16_t>();
  cursor.take<uint16_t>();
  message.peer = cursor.take<uint32_t>();
  message.group = cursor.take<uint64_t>();
  message.tag = cursor.take<uint64_t>();
  const bool known = type >= static_cast<uint16_t>(MessageType::kJoin) &&
                     type <= static_cast<uint16_t>(MessageType::kMove);
  if (magic != kMessageMagic || size > kPayloadBytesMax || !known) {
    return damaged("header");
  }
  if (cursor.bytes.size() < size) {
    return std::optional<Message>();
  }
  message.type = static_cast<MessageType>(type);
  message.payload = cursor.take_bytes(size);
  buffer_.erase(0, kHeaderBytes + size);
  return std::optional<Message>(std::move(message));
}

std::string encode(const JoinInfo& info) {
  std::string bytes;
  put(bytes, info.rank);
  put(bytes, info.nranks);
  put(bytes, info.version);
  put(bytes, info.pid);
  put(bytes, info.process);
  return bytes + info.host;
}

Result<JoinInfo> decode_join(std::string_view payload) {
  Cursor cursor{payload};
  JoinInfo info;
  info.rank = cursor.take<uint32_t>();
  info.nranks = cursor.take<uint32_t>();
  info.version = cursor.take<uint32_t>();
  info.pid = cursor.take<int32_t>();
  info.process = cursor.take<uint64_t>();
  info.host = cursor.bytes.substr(0, 64);
  constexpr uint32_t kRanksMax = 1U << 20;
  if (!cursor.good || info.nranks == 0 || info.nranks > kRanksMax || info.rank >= info.nranks) {
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
  std::string bytes;
  for (const std::string& blob : blobs) {
    put(bytes, static_cast<uint32_t>(blob.size()));
    bytes += blob;
  }
  return bytes;
}

Result<std::vector<std::string>> decode_blobs(std::string_view payload) {
  std::vector<std::string> blobs;
  Cursor cursor{payload};
  while (cursor.good && !cursor.bytes.empty()) {
    const auto size = cursor.take<uint32_t>();
    blobs.push_back(cursor.take_bytes(size));
  }
  if (!cursor.good) {
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
  std::string bytes;
  put(bytes, static_cast<int32_t>(error.code()));
  return bytes + error.message().substr(0, 4096);
}

Error decode_error(std::string_view payload) {
  Cursor cursor{payload};
  const auto code = cursor.take<int32_t>();
  const bool known = cursor.good && code > static_cast<int32_t>(Code::kSuccess) &&
                     code <= static_cast<int32_t>(Code::kTimeout);
  return fail(known ? static_cast<Code>(code) : Code::kRemoteError, "{}",
              cursor.bytes.substr(0, 4096));
}

}  // namespace plexus
