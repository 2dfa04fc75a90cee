// SPDX-License-Identifier: Apache-2.0
#include "core/stall/roll_record.hpp"

#include <utility>

#include "core/base/bytes.hpp"
#include "core/base/text.hpp"

namespace plexus {
namespace {

constexpr uint32_t kRollMagic =
    0x4c4c4f52;  // a first word that neither a StallProbe nor an inquiry has
constexpr uint32_t kRanksPerPieceMax = 48;  // at most 2.3 KiB each
constexpr int32_t kNranksMax = 1 << 20;
constexpr uint16_t kNameBytesMax = 255;
constexpr uint32_t kStatusBytesMax = 1024;
constexpr uint32_t kPiecesMax = 8192;

struct RollRankHead {
  uint64_t group;
  int32_t nranks;
  int32_t device;
  std::array<uint64_t, CallLog::kCollectiveKinds> counts;
  std::array<uint64_t, kCollectiveCount> bytes;
  uint64_t failovers;
  uint64_t resent;
  uint64_t bad_call;
  uint8_t error;
  uint8_t is_finalized;
  uint8_t is_aborted;
  uint8_t unused[5];
};

struct RollMessageHead {
  uint32_t magic;
  uint32_t time_ms;
  uint64_t id;
  uint8_t step;
  uint8_t unused[3];
  uint32_t pieces;
};

std::string encode_piece(const RollProcess& process, size_t first, size_t end) {
  ByteWriter writer;
  writer.put(process.id);
  writer.put(process.pid);
  writer.put_text<uint16_t>(std::string_view(process.host).substr(0, kNameBytesMax));
  writer.put_text<uint16_t>(std::string_view(process.address).substr(0, kNameBytesMax));
  writer.put(static_cast<uint32_t>(end - first));
  for (size_t i = first; i < end; ++i) {
    const RollRank& rank = process.ranks[i];
    writer.put(RollRankHead{.group = rank.group,
                            .nranks = rank.nranks,
                            .device = rank.device,
                            .counts = rank.counts,
                            .bytes = rank.bytes,
                            .failovers = rank.state.failovers,
                            .resent = rank.state.resent,
                            .bad_call = rank.state.bad_input.call,
                            .error = rank.state.error,
                            .is_finalized = rank.state.is_finalized ? uint8_t{1} : uint8_t{0},
                            .is_aborted = rank.state.is_aborted ? uint8_t{1} : uint8_t{0},
                            .unused = {}});
    writer.put_text<uint16_t>(std::string_view(rank.state.why).substr(0, kWhyBytesMax));
    writer.put_text<uint16_t>(std::string_view(rank.state.bad_input.text).substr(0, kWhyBytesMax));
    StatusSummary status;
    status.add(rank.status);
    writer.put_text<uint32_t>(encode(status));
    writer.put(static_cast<uint32_t>(rank.arrivals.size()));
    for (const ArrivalWindow& window : rank.arrivals) {
      writer.put(window);
    }
  }
  return writer.take();
}

std::optional<RollRank> decode_rank(ByteReader& reader) {
  const auto head = reader.take<RollRankHead>();
  const std::string_view why = reader.take_text<uint16_t>(kWhyBytesMax);
  const std::string_view bad_input = reader.take_text<uint16_t>(kWhyBytesMax);
  const std::string_view bytes = reader.take_text<uint32_t>(kStatusBytesMax);
  if (reader.broken() || head.nranks < 1 || head.nranks > kNranksMax || head.device < -1) {
    return std::nullopt;
  }
  std::vector<ArrivalWindow> arrivals(
      reader.take_between<uint32_t>(0, uint32_t{ArrivalTimes::kWindows}));
  for (ArrivalWindow& window : arrivals) {
    window = reader.take<ArrivalWindow>();
  }
  if (reader.broken()) {
    return std::nullopt;
  }
  auto status = decode_summary(bytes, head.nranks);
  if (!status.has_value() || status->classes.size() != 1 || status->classes.front().count != 1) {
    return std::nullopt;
  }
  return RollRank{.group = head.group,
                  .nranks = head.nranks,
                  .device = head.device,
                  .state = {.error = head.error,
                            .is_finalized = head.is_finalized != 0,
                            .is_aborted = head.is_aborted != 0,
                            .failovers = head.failovers,
                            .resent = head.resent,
                            .bad_input = {.call = head.bad_call, .text = printable(bad_input)},
                            .why = printable(why)},
                  .counts = head.counts,
                  .bytes = head.bytes,
                  .status = std::move(status->classes.front().examples.front()),
                  .arrivals = std::move(arrivals)};
}

}  // namespace

std::vector<std::string> encode(const RollProcess& process) {
  std::vector<std::string> pieces;
  size_t first = 0;
  do {  // one at least, since a process without ranks is there too
    const size_t end = std::min<size_t>(process.ranks.size(), first + kRanksPerPieceMax);
    pieces.push_back(encode_piece(process, first, end));
    first = end;
  } while (first < process.ranks.size());
  return pieces;
}

std::optional<RollProcess> decode_roll_process(std::string_view bytes) {
  ByteReader reader(bytes);
  RollProcess process;
  process.id = reader.take<uint64_t>();
  process.pid = reader.take_between<int32_t>(0, INT32_MAX);
  process.host = printable(reader.take_text<uint16_t>(kNameBytesMax));
  process.address = printable(reader.take_text<uint16_t>(kNameBytesMax));
  const auto count = reader.take_between<uint32_t>(0, kRanksPerPieceMax);
  for (uint32_t i = 0; i < count; ++i) {
    auto rank = decode_rank(reader);
    if (!rank.has_value()) {
      return std::nullopt;
    }
    process.ranks.push_back(std::move(*rank));
  }
  return reader.whole() ? std::optional(std::move(process)) : std::nullopt;
}

std::string encode(const RollMessage& message) {
  ByteWriter writer;
  writer.put(RollMessageHead{.magic = kRollMagic,
                             .time_ms = message.time_ms,
                             .id = message.id,
                             .step = static_cast<uint8_t>(message.step),
                             .unused = {},
                             .pieces = static_cast<uint32_t>(message.pieces.size())});
  for (const std::string& piece : message.pieces) {
    writer.put_text<uint32_t>(piece);
  }
  return writer.take();
}

std::optional<RollMessage> decode_roll_message(std::string_view bytes) {
  ByteReader reader(bytes);
  const auto head = reader.take<RollMessageHead>();
  if (reader.broken() || head.magic != kRollMagic || head.step >= kRollSteps ||
      head.pieces > kPiecesMax) {
    return std::nullopt;
  }
  RollMessage message{
      .step = static_cast<RollStep>(head.step), .time_ms = head.time_ms, .id = head.id};
  for (uint32_t i = 0; i < head.pieces && !reader.broken(); ++i) {
    message.pieces.emplace_back(reader.take_text<uint32_t>(kPieceBytesMax));
  }
  return reader.whole() ? std::optional(std::move(message)) : std::nullopt;
}

}  // namespace plexus
