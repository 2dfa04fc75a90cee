// SPDX-License-Identifier: Apache-2.0
// What anybody on the host may send to the RAS port, and what a broken process may answer in a roll
// call: every accepted answer can be reported, and JSON stays JSON.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "core/ras/ras_command.hpp"
#include "core/ras/ras_report.hpp"

namespace plexus {
namespace {

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void fuzz_lines(std::string_view bytes) {
  constexpr size_t kStep = 7;
  RasLines lines;
  for (size_t at = 0; at < bytes.size() && !lines.is_too_long(); at += kStep) {
    lines.add(bytes.substr(at, kStep));
    while (const auto line = lines.next()) {
      require(line->size() < RasLines::kLineBytesMax);
      const RasCommand command = parse_ras_command(*line);
      const bool is_report =
          command.verb == RasVerb::kStatus || command.verb == RasVerb::kDiagnostics;
      require(is_report == command.reply.empty());
      require(is_report || command.reply.find('\n') == command.reply.size() - 1);
    }
  }
}

void fuzz(std::string_view bytes) {
  fuzz_lines(bytes);
  JobRoll roll;
  if (const auto message = decode_roll_message(bytes); message.has_value()) {
    require(encode(*message).size() == bytes.size());
    for (const std::string& piece : message->pieces) {
      if (auto process = decode_roll_process(piece); process.has_value()) {
        roll.processes.push_back(std::move(*process));
      }
    }
  }
  if (auto process = decode_roll_process(bytes); process.has_value()) {
    for (const std::string& piece : encode(*process)) {
      require(piece.size() <= kPieceBytesMax && decode_roll_process(piece).has_value());
    }
    roll.processes.push_back(std::move(*process));
  }
  for (const RollProcess& process : roll.processes) {
    for (const RollRank& rank : process.ranks) {
      if (rank.nranks > 4096) {
        return;  // its missing ranks would fill the memory of this target, not that of a process
      }
    }
  }
  const RasJob job(roll);
  require(nlohmann::json::accept(make_ras_json(job, "2026-01-01 00:00:00")));
  for (const bool is_verbose : {false, true}) {
    require(make_ras_text(job, is_verbose).find("\nErrors\n======\n") != std::string::npos);
  }
  require(!make_ras_diagnostics(job, "host:1").empty());
}

}  // namespace
}  // namespace plexus

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  plexus::fuzz({reinterpret_cast<const char*>(data), size});
  return 0;
}
