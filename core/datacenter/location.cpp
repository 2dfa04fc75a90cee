// SPDX-License-Identifier: Apache-2.0
#include "core/datacenter/location.hpp"

#include "core/base/bytes.hpp"

namespace plexus {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
// Each id of a node paired with each id of the communicator.
constexpr size_t kAnswersMax = kFabricIdsMax * kDatacentersMax * kFabricIdsMax;

void put(ByteWriter& writer, const DatacenterPath& path) {
  writer.put(uint64_t{path.connected});
  writer.put(path.mbit_per_s.value_or(kUnknown));
  writer.put(path.latency_ns.value_or(kUnknown));
  writer.put(path.cost.value_or(kUnknown));
}

DatacenterPath take_path(ByteReader& reader) {
  const auto take_known = [&reader] {
    const auto value = reader.take<uint64_t>();
    return value == kUnknown ? std::nullopt : std::optional(value);
  };
  DatacenterPath path;
  path.connected = reader.take_between<uint64_t>(0, 1) == 1;
  path.mbit_per_s = take_known();
  path.latency_ns = take_known();
  path.cost = take_known();
  return path;
}

std::string take_name(ByteReader& reader) {
  return std::string(reader.take_text<uint64_t>(kDatacenterNameBytesMax));
}

}  // namespace

std::string encode(const Location& location) {
  ByteWriter writer;
  writer.put(uint64_t{location.scatter});
  writer.put_text<uint64_t>(location.datacenter);
  writer.put(uint64_t{location.links.size()});
  for (const DatacenterLink& link : location.links) {
    writer.put_text<uint64_t>(link.to);
    put(writer, link.path);
  }
  writer.put_text<uint64_t>(location.net);
  writer.put(uint64_t{location.fabric_ids.size()});
  for (const uint64_t id : location.fabric_ids) {
    writer.put(id);
  }
  return writer.take();
}

Result<Location> decode_location(std::string_view bytes) {
  ByteReader reader(bytes);
  Location location;
  location.scatter = reader.take_between<uint64_t>(0, 1) == 1;
  location.datacenter = take_name(reader);
  for (uint64_t left = reader.take_between<uint64_t>(0, kDatacentersMax);
       left > 0 && !reader.broken(); --left) {
    std::string to = take_name(reader);
    location.links.push_back({.to = std::move(to), .path = take_path(reader)});
  }
  location.net = take_name(reader);
  for (uint64_t left = reader.take_between<uint64_t>(0, kFabricIdsMax);
       left > 0 && !reader.broken(); --left) {
    location.fabric_ids.push_back(reader.take<uint64_t>());
  }
  if (!reader.whole()) {
    return fail(Code::kRemoteError,
                "the datacenter location sent by another rank is malformed: use the same version "
                "of Plexus on all ranks");
  }
  return location;
}

std::string encode(const std::vector<FabricAnswer>& answers) {
  ByteWriter writer;
  writer.put(uint64_t{answers.size()});
  for (const FabricAnswer& answer : answers) {
    writer.put(answer.from);
    writer.put(answer.to);
    writer.put(static_cast<uint64_t>(answer.level));
    put(writer, answer.path);
  }
  return writer.take();
}

Result<std::vector<FabricAnswer>> decode_answers(std::string_view bytes) {
  ByteReader reader(bytes);
  std::vector<FabricAnswer> answers;
  for (uint64_t left = reader.take_between<uint64_t>(0, kAnswersMax); left > 0 && !reader.broken();
       --left) {
    FabricAnswer answer;
    answer.from = reader.take<uint64_t>();
    answer.to = reader.take<uint64_t>();
    answer.level = static_cast<FabricAnswer::Level>(
        reader.take_between<uint64_t>(0, static_cast<uint64_t>(FabricAnswer::Level::kUnknown)));
    answer.path = take_path(reader);
    answers.push_back(answer);
  }
  if (!reader.whole()) {
    return fail(Code::kRemoteError,
                "the fabric description sent by another rank is malformed: use the same version of "
                "Plexus on all ranks");
  }
  return answers;
}

}  // namespace plexus
