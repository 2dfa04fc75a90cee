// SPDX-License-Identifier: Apache-2.0
// Messages between ranks as bytes: values one after the other, in the machine's own layout, since
// all ranks run one version on one kind of machine. What is read came from another process, so
// every length and every range is checked.
//
//   ByteWriter writer;
//   writer.put(rank);
//   writer.put_text<uint16_t>(name);
//   const std::string bytes = writer.take();
//   ByteReader reader(bytes);
//   const bool is_same = reader.take<uint32_t>() == rank && reader.take_text<uint16_t>(64) == name;
//   return is_same && reader.whole();
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace plexus {

/// Appends values to a string of bytes.
class ByteWriter {
 public:
  template <class Value>
  void put(const Value& value) {
    static_assert(std::is_trivially_copyable_v<Value>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(Value));
  }
  /// Without its length: the reader knows it, or it is all that is left.
  void put_bytes(std::string_view bytes) { bytes_ += bytes; }
  /// The length, then the bytes.
  template <class Length>
  void put_text(std::string_view text) {
    put(static_cast<Length>(text.size()));
    put_bytes(text);
  }
  [[nodiscard]] std::string take() { return std::exchange(bytes_, {}); }

 private:
  std::string bytes_;
};

/// Takes values off the front of a message. The first value that is missing or out of range makes
/// the message broken; from then on every value is zero or empty.
class ByteReader {
 public:
  /// Borrows `bytes`.
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <class Value>
  [[nodiscard]] Value take() {
    static_assert(std::is_trivially_copyable_v<Value>);
    Value value{};
    const std::string_view raw = take_bytes(sizeof(Value));
    if (!broken_) {
      std::memcpy(&value, raw.data(), sizeof(Value));
    }
    return value;
  }
  /// A value in low..high; `low` when the message is broken.
  template <class Value>
  [[nodiscard]] Value take_between(Value low, Value high) {
    const auto value = take<Value>();
    broken_ = broken_ || value < low || value > high;
    return broken_ ? low : value;
  }
  /// Points into the message.
  [[nodiscard]] std::string_view take_bytes(size_t size_bytes) {
    broken_ = broken_ || size_bytes > bytes_.size();
    if (broken_) {
      return {};
    }
    const std::string_view taken = bytes_.substr(0, size_bytes);
    bytes_.remove_prefix(size_bytes);
    return taken;
  }
  /// What ByteWriter::put_text wrote, of at most `bytes_max` bytes.
  template <class Length>
  [[nodiscard]] std::string_view take_text(Length bytes_max) {
    return take_bytes(take_between(Length{0}, bytes_max));
  }
  /// All that was not taken yet.
  [[nodiscard]] std::string_view rest() const noexcept { return bytes_; }
  [[nodiscard]] bool broken() const noexcept { return broken_; }
  /// True when every value was there and in range, and nothing is left.
  [[nodiscard]] bool whole() const noexcept { return !broken_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool broken_ = false;
};

}  // namespace plexus
