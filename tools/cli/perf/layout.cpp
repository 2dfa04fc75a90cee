// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/perf/layout.hpp"

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
  const size_t send = send_count(shape.collective, shape.nranks, shape.count);
  const size_t recv = recv_count(shape.collective, shape.nranks, shape.count);
  // With equal sizes the buffers are the same; else the smaller one is the rank's block of the
  // larger.
  return {.send_count = send,
          .recv_count = recv,
          .inner_offset = send == recv ? 0 : static_cast<size_t>(shape.rank) * shape.count};
}

std::vector<Part> compute_expected(const Shape& shape) {
  const auto rank = static_cast<size_t>(shape.rank);
  const bool is_root = shape.rank == shape.root;
  Part result = {Part::Kind::kResult, 0, shape.count, -1, 0};
  switch (shape.collective) {
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
      return blocks(shape, 0);
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
    case Collective::kSendRecv:
      break;
  }
  return {stream(prev_rank(shape.rank, shape.nranks), shape.count)};
}

}  // namespace plexus::perf
