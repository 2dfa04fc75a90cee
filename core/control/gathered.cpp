// SPDX-License-Identifier: Apache-2.0
#include "core/control/gathered.hpp"

#include <algorithm>

#include "core/base/bytes.hpp"
#include "core/control/message.hpp"

namespace plexus {
namespace {

Error damaged_gather() { return fail(Code::kRemoteError, "a control message (gather) is damaged"); }

/// The distinct blobs, as both payloads begin.
std::vector<std::string_view> take_blobs(ByteReader& reader) {
  const auto count = reader.take_between<uint32_t>(0, kFamilyRanksMax);
  std::vector<std::string_view> blobs;
  for (uint32_t i = 0; i < count && !reader.broken(); ++i) {
    blobs.push_back(reader.take_text<uint32_t>(kBlobBytesMax));
  }
  return blobs;
}

void put_blobs(ByteWriter& writer, const std::vector<std::string>& blobs) {
  writer.put(static_cast<uint32_t>(blobs.size()));
  for (const std::string& blob : blobs) {
    writer.put_text<uint32_t>(blob);
  }
}

/// Bytes of an index below `count`: none if there is one blob only.
uint32_t width_of(size_t count) {
  constexpr size_t kByte = 1U << 8;
  constexpr size_t kTwoBytes = 1U << 16;
  return count <= 1 ? 0 : count <= kByte ? 1 : count <= kTwoBytes ? 2 : 4;
}

uint32_t take_index(ByteReader& reader, uint32_t width) {
  switch (width) {
    case 0:
      return 0;
    case 1:
      return reader.take<uint8_t>();
    case 2:
      return reader.take<uint16_t>();
    default:
      return reader.take<uint32_t>();
  }
}

void put_index(ByteWriter& writer, uint32_t width, uint32_t index) {
  const std::string_view bytes(reinterpret_cast<const char*>(&index), width);
  writer.put_bytes(bytes);
}

}  // namespace

// ---- Contributions ----

uint32_t Contributions::index_of(std::string_view blob) {
  const auto [at, is_new] =
      index_.try_emplace(std::string(blob), static_cast<uint32_t>(blobs_.size()));
  if (is_new) {
    blobs_.emplace_back(blob);
  }
  return at->second;
}

void Contributions::add(uint32_t rank, std::string_view blob) {
  entries_.emplace_back(rank, index_of(blob));
}

std::string Contributions::encode() const {
  ByteWriter writer;
  put_blobs(writer, blobs_);
  const uint32_t width = width_of(blobs_.size());
  writer.put(static_cast<uint32_t>(entries_.size()));
  for (const auto& [rank, index] : entries_) {
    writer.put(rank);
    put_index(writer, width, index);
  }
  return writer.take();
}

Result<void> Contributions::merge(std::string_view payload, std::vector<uint32_t>& ranks) {
  ByteReader reader(payload);
  const auto blobs = take_blobs(reader);
  const uint32_t width = width_of(blobs.size());
  const auto count = reader.take_between<uint32_t>(0, kFamilyRanksMax);
  std::vector<std::pair<uint32_t, uint32_t>> taken;
  for (uint32_t i = 0; i < count && !reader.broken(); ++i) {
    const auto rank = reader.take<uint32_t>();
    const uint32_t index = take_index(reader, width);
    if (index >= blobs.size()) {
      return damaged_gather();
    }
    taken.emplace_back(rank, index);
  }
  if (!reader.whole()) {
    return damaged_gather();
  }
  std::vector<uint32_t> places;
  places.reserve(blobs.size());
  for (const std::string_view blob : blobs) {
    places.push_back(index_of(blob));
  }
  for (const auto& [rank, index] : taken) {
    entries_.emplace_back(rank, places[index]);
    ranks.push_back(rank);
  }
  return ok();
}

Result<std::string> Contributions::encode_result(std::span<const uint32_t> members) const {
  auto sorted = entries_;
  std::sort(sorted.begin(), sorted.end());
  ByteWriter writer;
  put_blobs(writer, blobs_);
  const uint32_t width = width_of(blobs_.size());
  writer.put(static_cast<uint32_t>(members.size()));
  for (const uint32_t member : members) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), std::pair(member, 0U));
    const bool is_once = at != sorted.end() && at->first == member &&
                         (at + 1 == sorted.end() || (at + 1)->first != member);
    if (!is_once) {
      return fail(Code::kInternalError, "rank {} did not contribute once to a gather", member);
    }
    put_index(writer, width, at->second);
  }
  return writer.take();
}

// ---- Gathered ----

Gathered::Gathered(std::span<const std::string> blobs) {
  Contributions contributions;
  std::vector<uint32_t> ranks;
  for (const std::string& blob : blobs) {
    ranks.push_back(static_cast<uint32_t>(ranks.size()));
    contributions.add(ranks.back(), blob);
  }
  *this = decode(contributions.encode_result(ranks).value()).value();
}

Result<Gathered> Gathered::decode(std::string payload) {
  auto data = std::make_shared<Data>();
  data->payload = std::move(payload);
  ByteReader reader(data->payload);
  data->blobs = take_blobs(reader);
  const uint32_t width = width_of(data->blobs.size());
  const auto count = reader.take_between<uint32_t>(0, kFamilyRanksMax);
  for (uint32_t i = 0; i < count && !reader.broken(); ++i) {
    const uint32_t index = take_index(reader, width);
    if (index >= data->blobs.size()) {
      return damaged_gather();
    }
    data->index.push_back(index);
  }
  if (!reader.whole()) {
    return damaged_gather();
  }
  Gathered gathered;
  gathered.data_ = std::move(data);
  return gathered;
}

}  // namespace plexus
