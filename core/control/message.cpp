// SPDX-License-Identifier: Apache-2.0
#include "core/control/message.hpp"

#include <algorithm>
#include <cstring>

#include "core/base/bytes.hpp"

namespace plexus {
namespace {

constexpr uint16_t kWhyBytesMax = 256;
constexpr uint32_t kMessageMagic = 0x32584c50;  // "PLX2"
constexpr uint32_t kTextBytesMax = 4096;

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
  writer.put(message.from);
  writer.put(message.to);
  writer.put(uint32_t{0});
  writer.put(message.group);
  writer.put(message.tag);
  writer.put_bytes(message.payload);
  return writer.take();
}

void MessageReader::append(const char* bytes, size_t size_bytes) {
  buffer_.erase(0, std::exchange(taken_, 0));
  buffer_.append(bytes, size_bytes);
}

Result<std::optional<Message>> MessageReader::next() {
  ByteReader reader(std::string_view(buffer_).substr(taken_));
  if (reader.rest().size() < kHeaderBytes) {
    return std::optional<Message>();
  }
  const auto magic = reader.take<uint32_t>();
  const auto size = reader.take<uint32_t>();
  Message message;
  const auto type = reader.take<uint16_t>();
  (void)reader.take<uint16_t>();
  message.from = reader.take<uint32_t>();
  message.to = reader.take<uint32_t>();
  (void)reader.take<uint32_t>();
  message.group = reader.take<uint64_t>();
  message.tag = reader.take<uint64_t>();
  const bool known = type >= static_cast<uint16_t>(MessageType::kJoin) &&
                     type <= static_cast<uint16_t>(kLastMessageType);
  if (magic != kMessageMagic || size > kPayloadBytesMax || !known) {
    return damaged("header");
  }
  if (reader.rest().size() < size) {
    return std::optional<Message>();
  }
  message.type = static_cast<MessageType>(type);
  message.payload = reader.take_bytes(size);
  taken_ += kHeaderBytes + size;
  return std::optional<Message>(std::move(message));
}

std::string encode(const JoinInfo& info) {
  ByteWriter writer;
  writer.put(info.rank);
  writer.put(info.nranks);
  writer.put(info.version);
  writer.put(info.process.pid);
  writer.put(info.process.process);
  writer.put(info.process.host_key);
  writer.put(info.process.address);
  writer.put_bytes(info.process.host);
  return writer.take();
}

Result<JoinInfo> decode_join(std::string_view payload) {
  ByteReader reader(payload);
  JoinInfo info;
  info.rank = reader.take<uint32_t>();
  info.nranks = reader.take<uint32_t>();
  info.version = reader.take<uint32_t>();
  info.process.pid = reader.take<int32_t>();
  info.process.process = reader.take<uint64_t>();
  info.process.host_key = reader.take<uint64_t>();
  info.process.address = reader.take<decltype(info.process.address)>();
  info.process.host = reader.rest().substr(0, 64);
  if (reader.broken() || info.nranks == 0 || info.nranks > kFamilyRanksMax ||
      info.rank >= info.nranks) {
    return damaged("join");
  }
  return info;
}

std::string encode(const std::vector<LeaveNote>& notes) {
  ByteWriter writer;
  for (const LeaveNote& note : notes) {
    writer.put(note.rank);
    writer.put(note.gathers);
    writer.put_text<uint32_t>(note.record);
  }
  return writer.take();
}

Result<std::vector<LeaveNote>> decode_leave_notes(std::string_view payload) {
  std::vector<LeaveNote> notes;
  ByteReader reader(payload);
  while (!reader.broken() && !reader.rest().empty()) {
    LeaveNote note;
    note.rank = reader.take<uint32_t>();
    note.gathers = reader.take<uint64_t>();
    note.record = reader.take_text<uint32_t>(kBlobBytesMax);
    notes.push_back(std::move(note));
  }
  if (reader.broken()) {
    return damaged("leave notes");
  }
  return notes;
}

std::string encode(const std::vector<FailureNotice>& notices) {
  ByteWriter writer;
  for (const FailureNotice& one : notices) {
    writer.put(one.kind);
    writer.put(one.subject);
    writer.put(one.group);
    writer.put(one.code);
    writer.put_text<uint32_t>(std::string_view(one.text).substr(0, kTextBytesMax));
  }
  return writer.take();
}

Result<std::vector<FailureNotice>> decode_failure_notices(std::string_view payload) {
  std::vector<FailureNotice> notices;
  ByteReader reader(payload);
  while (!reader.broken() && !reader.rest().empty()) {
    FailureNotice one;
    one.kind = reader.take_between(FailureNotice::Kind::kDeath, FailureNotice::Kind::kGone);
    one.subject = reader.take<uint32_t>();
    one.group = reader.take<uint64_t>();
    one.code = reader.take_between(Code::kUnhandledCudaError, Code::kTimeout);
    one.text = reader.take_text<uint32_t>(kTextBytesMax);
    notices.push_back(std::move(one));
  }
  if (reader.broken()) {
    return damaged("failure notices");
  }
  return notices;
}

std::string encode(const std::vector<MissingRank>& missing) {
  ByteWriter writer;
  for (const MissingRank& one : missing) {
    writer.put(one.rank);
    writer.put_text<uint16_t>(std::string_view(one.why).substr(0, kWhyBytesMax));
  }
  return writer.take();
}

Result<std::vector<MissingRank>> decode_missing(std::string_view payload) {
  std::vector<MissingRank> missing;
  ByteReader reader(payload);
  while (!reader.broken() && !reader.rest().empty()) {
    MissingRank one{.rank = reader.take<uint32_t>()};
    one.why = reader.take_text<uint16_t>(kWhyBytesMax);
    missing.push_back(std::move(one));
  }
  if (reader.broken()) {
    return damaged("list of missing ranks");
  }
  return missing;
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

Error break_of_protocol(std::string_view what) {
  return fail(Code::kRemoteError, "a process broke the protocol of the control plane: {}", what);
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
