// SPDX-License-Identifier: Apache-2.0
#include "core/datacenter/location.hpp"

#include <array>
#include <cstring>
#include <type_traits>

namespace plexus {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();
// Each id of a node paired with each id of the communicator.
constexpr size_t kAnswersMax = kFabricIdsMax * kDatacentersMax * kFabricIdsMax;

// Values in native byte order: all ranks run the same version on the same kind of machine.
class Writer {
 public:
  void put(uint64_t value) {
    std::array<char, sizeof(value)> raw{};
    std::memcpy(raw.data(), &value, sizeof(value));
    bytes_.append(raw.data(), raw.size());
  }
  void put(const std::string& text) {
    put(text.size());
    bytes_ += text;
  }
  void put(const DatacenterPath& path) {
    put(path.connected ? 1U : 0U);
    put(path.mbit_per_s.value_or(kUnknown));
    put(path.latency_ns.value_or(kUnknown));
    put(path.cost.value_or(kUnknown));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  uint64_t word(uint64_t most = kUnknown) {
    uint64_t value = 0;
    if (bytes_.size() < sizeof(value)) {
      broken_ = true;
      return 0;
    }
    std::memcpy(&value, bytes_.data(), sizeof(value));
    bytes_.remove_prefix(sizeof(value));
    broken_ = broken_ || value > most;
    return broken_ ? 0 : value;
  }
  std::string text() {
    const uint64_t size = word(kDatacenterNameBytesMax);
    broken_ = broken_ || size > bytes_.size();
    if (broken_) {
      return {};
    }
    std::string result(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return result;
  }
  DatacenterPath path() {
    const auto known = [](uint64_t value) {
      return value == kUnknown ? std::nullopt : std::optional(value);
    };
    DatacenterPath path;
    path.connected = word(1) == 1;
    path.mbit_per_s = known(word());
    path.latency_ns = known(word());
    path.cost = known(word());
    return path;
  }
  [[nodiscard]] bool whole() const { return !broken_ && bytes_.empty(); }
  [[nodiscard]] bool broken() const { return broken_; }

 private:
  std::string_view bytes_;
  bool broken_ = false;
};

}  // namespace

std::string encode(const Location& location) {
  Writer writer;
  writer.put(location.scatter ? 1U : 0U);
  writer.put(location.datacenter);
  writer.put(location.links.size());
  for (const DatacenterLink& link : location.links) {
    writer.put(link.to);
    writer.put(link.path);
  }
  writer.put(location.net);
  writer.put(location.fabric_ids.size());
  for (const uint64_t id : location.fabric_ids) {
    writer.put(id);
  }
  return writer.take();
}

Result<Location> decode_location(std::string_view bytes) {
  Reader reader(bytes);
  Location location;
  location.scatter = reader.word(1) == 1;
  location.datacenter = reader.text();
  for (uint64_t left = reader.word(kDatacentersMax); left > 0 && !reader.broken(); --left) {
    std::string to = reader.text();
    location.links.push_back({.to = std::move(to), .path = reader.path()});
  }
  location.net = reader.text();
  for (uint64_t left = reader.word(kFabricIdsMax); left > 0 && !reader.broken(); --left) {
    location.fabric_ids.push_back(reader.word());
  }
  if (!reader.whole()) {
    return fail(Code::kRemoteError, "another rank's location of its datacenter cannot be read");
  }
  return location;
}

std::string encode(const std::vector<FabricAnswer>& answers) {
  Writer writer;
  writer.put(answers.size());
  for (const FabricAnswer& answer : answers) {
    writer.put(answer.from);
    writer.put(answer.to);
    writer.put(static_cast<uint64_t>(answer.level));
    writer.put(answer.path);
  }
  return writer.take();
}

Result<std::vector<FabricAnswer>> decode_answers(std::string_view bytes) {
  Reader reader(bytes);
  std::vector<FabricAnswer> answers;
  for (uint64_t left = reader.word(kAnswersMax); left > 0 && !reader.broken(); --left) {
    FabricAnswer answer;
    answer.from = reader.word();
    answer.to = reader.word();
    answer.level = static_cast<FabricAnswer::Level>(
        reader.word(static_cast<uint64_t>(FabricAnswer::Level::kUnknown)));
    answer.path = reader.path();
    answers.push_back(answer);
  }
  if (!reader.whole()) {
    return fail(Code::kRemoteError, "what another rank says of its fabrics cannot be read");
  }
  return answers;
}

}  // namespace plexus
