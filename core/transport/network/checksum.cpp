// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/checksum.hpp"

#include <algorithm>
#include <cstring>
#include <isa-l/crc.h>

namespace plexus {
namespace {

/// The library takes sizes as int.
constexpr size_t kBytesPerCall = size_t{1} << 30;

uint32_t sum_header(NetHeader header) noexcept {
  header.header_sum = 0;
  return crc32c(std::as_bytes(std::span(&header, 1)));
}

Error report(const SummedLink& link, std::string_view what, uint32_t sent, uint32_t found) {
  return fail(Code::kRemoteError,
              "the link from {} to rank {} by {} changed data on its way: the CRC32C of {} was "
              "{:08x} and is {:08x} (PLEXUS_NET_CHECKSUM): look at the errors of these network "
              "cards, their cables and the memory of both hosts",
              link.peer_name, link.rank, link.route, what, sent, found);
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) noexcept {
  uint32_t state = ~before;
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kBytesPerCall));
    // It only reads; its parameter lacks the const.
    auto* const data = reinterpret_cast<unsigned char*>(
        const_cast<std::byte*>(part.data()));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    state = crc32_iscsi(data, static_cast<int>(part.size()), state);
    bytes = bytes.subspan(part.size());
  }
  return ~state;
}

uint32_t sum_payload(const PayloadPieces& payload) noexcept {
  return std::max(1U, crc32c(payload.rest, crc32c(payload.first)));
}

void sign_header(NetHeader& header) noexcept { header.header_sum = sum_header(header); }

Result<void> check_header(const NetHeader& header, const SummedLink& link) {
  if (const uint32_t found = sum_header(header); found != header.header_sum) {
    return report(link, "a message's header", header.header_sum, found);
  }
  return ok();
}

Result<void> check_payload(const NetHeader& header,
                           const PayloadPieces& payload,
                           const SummedLink& link) {
  if (header.payload_sum == 0) {
    return ok();
  }
  if (const uint32_t found = sum_payload(payload); found != header.payload_sum) {
    return report(link, fmt::format("a message of {} bytes", header.size_bytes), header.payload_sum,
                  found);
  }
  return ok();
}

}  // namespace plexus
