// SPDX-License-Identifier: Apache-2.0
#include "core/transport/memory/mapping_message.hpp"

#include "core/base/bytes.hpp"

namespace plexus {
namespace {

constexpr uint64_t kBytesMax = uint64_t{1} << 47;  // of addresses on most CPUs

}  // namespace

std::string to_bytes(const MappingMessage& message) {
  ByteWriter writer;
  writer.put(message.kind);
  writer.put(static_cast<uint32_t>(message.piece_bytes.size()));
  writer.put(message.number);
  writer.put(message.address);
  writer.put(message.handle);
  writer.put(message.process);
  writer.put(message.first_id);
  for (const uint64_t size_bytes : message.piece_bytes) {
    writer.put(size_bytes);
  }
  return writer.take();
}

std::optional<MappingMessage> mapping_message_of(std::string_view bytes) {
  ByteReader reader(bytes);
  MappingMessage message;
  message.kind = reader.take<MappingMessage::Kind>();
  const auto pieces = reader.take<uint32_t>();
  message.number = reader.take<uint64_t>();
  message.address = reader.take<uint64_t>();
  message.handle = reader.take<MemoryHandle>();
  message.process = reader.take<uint64_t>();
  message.first_id = reader.take<uint64_t>();
  if (message.kind > MappingMessage::Kind::kGraphOffered || pieces > kPiecesMax) {
    return std::nullopt;
  }
  uint64_t left = kBytesMax;
  for (uint32_t i = 0; i < pieces; ++i) {
    const auto size_bytes = reader.take<uint64_t>();
    if (size_bytes == 0 || size_bytes > left) {
      return std::nullopt;
    }
    left -= size_bytes;
    message.piece_bytes.push_back(size_bytes);
  }
  return reader.whole() ? std::optional(std::move(message)) : std::nullopt;
}

}  // namespace plexus
