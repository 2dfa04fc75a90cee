// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/layout.hpp"

#include <algorithm>

namespace plexus::perf {
namespace {

Part stream(int source, size_t count) {
  return {
      .kind = Part::Kind::kStream, .offset = 0, .count = count, .source = source, .first_index = 0};
}

Part untouched(size_t count) {
  return {
      .kind = Part::Kind::kUntouched, .offset = 0, .count = count, .source = -1, .first_index = 0};
}

size_t all_counts(const Shape& shape) noexcept {
  return shape.count * static_cast<size_t>(shape.nranks);
}

size_t element_bytes(const Shape& shape) noexcept { return info_of(shape.type).size_bytes; }

/// What the rank sends to, or gets from, the first `npeers` ranks of an all-to-all.
size_t sent_count(const Shape& shape, int source, int npeers) noexcept {
  size_t count = 0;
  for (int peer = 0; peer < npeers; ++peer) {
    count += peer_count(shape, source, peer);
  }
  return count;
}
size_t received_count(const Shape& shape) noexcept {
  size_t count = 0;
  for (int peer = 0; peer < shape.nranks; ++peer) {
    count += peer_count(shape, peer, shape.rank);
  }
  return count;
}

size_t send_count(const Shape& shape) noexcept {
  switch (base_of(shape.collective)) {
    case Collective::kReduceScatter:
    case Collective::kAllToAll:
    case Collective::kScatter:
      return all_counts(shape);
    case Collective::kAllToAllV:
      return sent_count(shape, shape.rank, shape.nranks);
    default:
      return shape.count;
  }
}

size_t recv_count(const Shape& shape) noexcept {
  switch (base_of(shape.collective)) {
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kHyperCube:
      return all_counts(shape);
    case Collective::kAllToAllV:
      return received_count(shape);
    default:
      return shape.count;
  }
}

/// What each rank sends to this one, in rank order.
std::vector<Part> unequal_blocks(const Shape& shape) {
  std::vector<Part> parts;
  size_t offset = 0;
  for (int source = 0; source < shape.nranks; ++source) {
    Part part = stream(source, peer_count(shape, source, shape.rank));
    part.offset = offset;
    part.first_index = sent_count(shape, source, shape.rank);
    offset += part.count;
    parts.push_back(part);
  }
  return parts;
}

/// One block per rank, in rank order, starting at `first_index` of the data that the rank sends.
std::vector<Part> blocks(const Shape& shape, size_t first_index) {
  std::vector<Part> parts;
  parts.reserve(static_cast<size_t>(shape.nranks));
  for (int source = 0; source < shape.nranks; ++source) {
    Part part = stream(source, shape.count);
    part.offset = static_cast<size_t>(source) * shape.count;
    part.first_index = first_index;
    parts.push_back(part);
  }
  return parts;
}

}  // namespace

Places compute_places(const Shape& shape) noexcept {
  const size_t send = send_count(shape);
  const size_t recv = recv_count(shape);
  // With equal sizes the buffers are the same; else the smaller one is the rank's block of the
  // larger.
  const bool same = send == recv || !info_of(shape.collective).in_place;
  return {.send_count = send,
          .recv_count = recv,
          .inner_offset = same ? 0 : static_cast<size_t>(shape.rank) * shape.count};
}

size_t peer_count(const Shape& shape, int source, int target) noexcept {
  const size_t total_bytes = all_counts(shape) * element_bytes(shape);
  return shape.traffic->bytes(source, target, shape.nranks, total_bytes) / element_bytes(shape);
}

size_t compute_size_bytes(const Shape& shape) noexcept {
  if (shape.collective == Collective::kAllToAllV) {
    return shape.traffic->largest_bytes(shape.nranks, all_counts(shape) * element_bytes(shape));
  }
  return std::max(send_count(shape), recv_count(shape)) * element_bytes(shape);
}

std::vector<Part> compute_expected(const Shape& shape) {
  const auto rank = static_cast<size_t>(shape.rank);
  const bool is_root = shape.rank == shape.root;
  Part result = {Part::Kind::kResult, 0, shape.count, -1, 0};
  switch (base_of(shape.collective)) {
    case Collective::kAllReduce:
      return {result};
    case Collective::kReduce:
      return {is_root ? result : untouched(shape.count)};
    case Collective::kReduceScatter:
      result.first_index = rank * shape.count;
      return {result};
    case Collective::kBroadcast:
      return {stream(shape.root, shape.count)};
    case Collective::kAllGather:
    case Collective::kHyperCube:
      return blocks(shape, 0);
    case Collective::kAllToAllV:
      return unequal_blocks(shape);
    case Collective::kAllToAll:
      return blocks(shape, rank * shape.count);
    case Collective::kGather:
      return is_root ? blocks(shape, 0)
                     : std::vector{untouched(shape.count * static_cast<size_t>(shape.nranks))};
    case Collective::kScatter: {
      Part part = stream(shape.root, shape.count);
      part.first_index = rank * shape.count;
      return {part};
    }
    default:
      break;
  }
  return {stream(prev_rank(shape.rank, shape.nranks), shape.count)};
}

}  // namespace plexus::perf
