// SPDX-License-Identifier: Apache-2.0
#include "kernels/host/lines.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace plexus {
namespace {

constexpr uint32_t kDataLL = sizeof(LineLL::data);
constexpr uint32_t kDataLL128 = sizeof(LineLL128::data);

uint64_t word_of(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

/// The 8-byte word of a line that carries its flag.
std::atomic_ref<uint64_t> word_at(const std::byte* place) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): atomic_ref has no const form in C++20
  return std::atomic_ref(*reinterpret_cast<uint64_t*>(const_cast<std::byte*>(place)));
}
std::atomic_ref<uint64_t> flag_word(Protocol protocol, const std::byte* lines, uint32_t line) {
  return word_at(protocol == Protocol::kLL ? lines + line * sizeof(LineLL)
                                           : lines + line * sizeof(LineLL128) + kDataLL128);
}

void write_ll(
    std::byte* lines, const std::byte* payload, uint32_t size_bytes, uint32_t hash, uint32_t flag) {
  word_at(lines).store(word_of(hash, flag), std::memory_order_release);
  // Each line is one word, so no order between lines is needed. Release, because another lane of
  // the rank (of a device rank possibly elsewhere) may overwrite what this rank read for the word
  // as soon as the word has had its effect on the peer.
  for (; size_bytes >= kDataLL; size_bytes -= kDataLL) {
    lines += sizeof(LineLL);
    uint32_t data = 0;
    std::memcpy(&data, payload, kDataLL);
    word_at(lines).store(word_of(data, flag), std::memory_order_release);
    payload += kDataLL;
  }
  if (size_bytes > 0) {
    uint32_t data = 0;
    std::memcpy(&data, payload, size_bytes);
    word_at(lines + sizeof(LineLL)).store(word_of(data, flag), std::memory_order_release);
  }
}

void write_ll128(
    std::byte* lines, const std::byte* payload, uint32_t size_bytes, uint32_t hash, uint32_t flag) {
  for (; size_bytes >= kDataLL128; size_bytes -= kDataLL128) {
    std::memcpy(lines, payload, kDataLL128);
    word_at(lines + kDataLL128).store(word_of(hash, flag), std::memory_order_release);
    lines += sizeof(LineLL128);
    payload += kDataLL128;
  }
  if (size_bytes > 0) {
    std::memcpy(lines, payload, size_bytes);
    word_at(lines + kDataLL128).store(word_of(hash, flag), std::memory_order_release);
  }
}

/// Whether the line of `word` belongs to the call. False: it belongs to another, or has not
/// arrived.
bool check_line(uint64_t word, uint32_t hash, uint32_t flag, Arrival& arrival) {
  if (word >> 32 != flag) {
    return false;
  }
  arrival.is_other_call = static_cast<uint32_t>(word) != hash;
  arrival.other_hash = static_cast<uint32_t>(word);
  return !arrival.is_other_call;
}

bool read_ll(const std::byte* lines,
             std::byte* payload,
             uint32_t size_bytes,
             uint32_t hash,
             uint32_t flag,
             Arrival& arrival) {
  if (arrival.lines_done == 0) {
    if (!check_line(word_at(lines).load(std::memory_order_acquire), hash, flag, arrival)) {
      return false;
    }
    arrival.lines_done = 1;
  }
  const uint32_t lines_whole = 1 + size_bytes / kDataLL;
  for (uint32_t& line = arrival.lines_done; line < lines_whole; ++line) {
    const uint64_t word = word_at(lines + line * sizeof(LineLL)).load(std::memory_order_acquire);
    if (word >> 32 != flag) {
      return false;
    }
    const auto data = static_cast<uint32_t>(word);
    std::memcpy(payload + (line - 1) * kDataLL, &data, kDataLL);
  }
  const uint32_t rest_bytes = size_bytes % kDataLL;
  if (rest_bytes > 0) {
    const uint64_t word =
        word_at(lines + lines_whole * sizeof(LineLL)).load(std::memory_order_acquire);
    if (word >> 32 != flag) {
      return false;
    }
    const auto data = static_cast<uint32_t>(word);
    std::memcpy(payload + size_bytes - rest_bytes, &data, rest_bytes);
  }
  return true;
}

bool read_ll128(const std::byte* lines,
                std::byte* payload,
                uint32_t size_bytes,
                uint32_t hash,
                uint32_t flag,
                Arrival& arrival) {
  const uint32_t lines_all = lines_of(Protocol::kLL128, size_bytes);
  for (uint32_t& line = arrival.lines_done; line < lines_all; ++line) {
    const std::byte* const at = lines + line * sizeof(LineLL128);
    const uint64_t word = word_at(at + kDataLL128).load(std::memory_order_acquire);
    if (!check_line(word, hash, flag, arrival)) {
      return false;
    }
    const uint32_t done = line * kDataLL128;
    if (size_bytes - done >= kDataLL128) {
      std::memcpy(payload + done, at, kDataLL128);
    } else {
      std::memcpy(payload + done, at, size_bytes - done);
    }
  }
  return true;
}

}  // namespace

void write_lines(Protocol protocol,
                 std::byte* lines,
                 const std::byte* payload,
                 uint32_t size_bytes,
                 uint32_t hash,
                 uint32_t flag) noexcept {
  (protocol == Protocol::kLL ? write_ll : write_ll128)(lines, payload, size_bytes, hash, flag);
}

void clean_lines(Protocol protocol, std::byte* lines, uint32_t flag) noexcept {
  const uint32_t count = lines_of(protocol, payload_bytes_max(protocol));
  for (uint32_t line = 0; line < count; ++line) {
    flag_word(protocol, lines, line).store(word_of(0, flag), std::memory_order_relaxed);
  }
}

bool has_line(Protocol protocol, const std::byte* lines, uint32_t line, uint32_t flag) noexcept {
  return flag_word(protocol, lines, line).load(std::memory_order_acquire) >> 32 == flag;
}

bool read_lines(Protocol protocol,
                const std::byte* lines,
                std::byte* payload,
                uint32_t size_bytes,
                uint32_t hash,
                uint32_t flag,
                Arrival& arrival) noexcept {
  return (protocol == Protocol::kLL ? read_ll : read_ll128)(lines, payload, size_bytes, hash, flag,
                                                            arrival);
}

}  // namespace plexus
