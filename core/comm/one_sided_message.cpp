// SPDX-License-Identifier: Apache-2.0
#include "core/comm/one_sided_message.hpp"

#include "core/base/bytes.hpp"

namespace plexus::one_sided {
namespace {

enum class Kind : uint8_t { kAsk, kWindowInfo, kWrite, kRaise, kTaken };

}  // namespace

std::string to_bytes(const Message& message) {
  ByteWriter writer;
  writer.put(static_cast<Kind>(message.index()));
  std::visit(
      [&writer]<class Value>(const Value& value) {
        if constexpr (std::is_same_v<Value, Write>) {
          writer.put(value.window);
          writer.put(value.offset);
          writer.put_bytes(value.data);
        } else {
          writer.put(value);
        }
      },
      message);
  return writer.take();
}

Result<Message> from_bytes(std::string_view bytes) {
  ByteReader reader(bytes);
  const auto kind = reader.take_between(Kind::kAsk, Kind::kTaken);
  Message message;
  switch (kind) {
    case Kind::kAsk:
      message = reader.take<Ask>();
      break;
    case Kind::kWindowInfo:
      message = reader.take<WindowInfo>();
      break;
    case Kind::kWrite: {
      Write write{};
      write.window = reader.take<WindowNumber>();
      write.offset = reader.take<uint64_t>();
      write.data = reader.take_bytes(reader.rest().size());
      message = write;
      break;
    }
    case Kind::kRaise:
      message = reader.take<Raise>();
      break;
    case Kind::kTaken:
      message = reader.take<Taken>();
      break;
  }
  if (!reader.whole()) {
    return fail(Code::kInternalError,
                "a message about a one-sided operation of {} bytes is none of this release: use "
                "the same version of Plexus on all ranks",
                bytes.size());
  }
  return message;
}

}  // namespace plexus::one_sided
