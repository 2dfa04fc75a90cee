// SPDX-License-Identifier: Apache-2.0
#include "core/programs/program_json.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/text.hpp"

namespace plexus {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "plexus-program";
constexpr int kVersion = 1;

constexpr std::pair<const char*, Buffer> kBuffers[] = {
    {"input", Buffer::kInput}, {"output", Buffer::kOutput}, {"scratch", Buffer::kScratch}};

std::string shown(const Json& json) {
  constexpr size_t kShown = 60;
  return printable(json.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, kShown));
}

// ---- reading ----

/// An object of the file; `where` names it for messages.
class Object {
 public:
  Object(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  Result<void> check(std::initializer_list<const char*> known) const {
    if (!json_.is_object()) {
      return fail(Code::kInvalidArgument, "{} is not an object but {}", where_, shown(json_));
    }
    for (const auto& [key, value] : json_.items()) {
      if (std::find(known.begin(), known.end(), std::string_view(key)) == known.end()) {
        return fail(Code::kInvalidArgument, "{} has the unknown member '{}'", where_,
                    printable(key));
      }
    }
    return ok();
  }

  [[nodiscard]] const Json* find(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() ? nullptr : &*at;
  }

  Result<uint64_t> number(const char* key, uint64_t low, uint64_t high) const {
    const Json* const value = find(key);
    if (value == nullptr || !value->is_number_unsigned() || value->get<uint64_t>() < low ||
        value->get<uint64_t>() > high) {
      return fail(Code::kInvalidArgument, "{}: '{}' is {}, expected a number from {} to {}", where_,
                  key, value == nullptr ? "missing" : shown(*value), low, high);
    }
    return value->get<uint64_t>();
  }
  Result<int> integer(const char* key, int low, int high) const {
    PLEXUS_TRY(value, number(key, static_cast<uint64_t>(low), static_cast<uint64_t>(high)));
    return static_cast<int>(value);
  }
  Result<int> integer_or(const char* key, int low, int high, int otherwise) const {
    return find(key) == nullptr ? Result<int>(otherwise) : integer(key, low, high);
  }
  Result<bool> flag(const char* key, bool otherwise) const {
    const Json* const value = find(key);
    if (value != nullptr && !value->is_boolean()) {
      return fail(Code::kInvalidArgument, "{}: '{}' is {}, expected true or false", where_, key,
                  shown(*value));
    }
    return value == nullptr ? otherwise : value->get<bool>();
  }
  Result<std::string> text(const char* key) const {
    const Json* const value = find(key);
    if (value == nullptr || !value->is_string()) {
      return fail(Code::kInvalidArgument, "{}: '{}' is {}, expected a text", where_, key,
                  value == nullptr ? "missing" : shown(*value));
    }
    return value->get<std::string>();
  }
  /// [low..high, ...]; empty if it is missing.
  Result<std::vector<int>> integers(const char* key, int low, int high, size_t most) const {
    std::vector<int> numbers;
    const Json* const value = find(key);
    const auto is_right = [&](const Json& each) {
      return each.is_number_unsigned() && each.get<uint64_t>() >= static_cast<uint64_t>(low) &&
             each.get<uint64_t>() <= static_cast<uint64_t>(high);
    };
    if (value == nullptr) {
      return numbers;
    }
    if (!value->is_array() || value->size() > most ||
        !std::all_of(value->begin(), value->end(), is_right)) {
      return fail(Code::kInvalidArgument,
                  "{}: '{}' is {}, expected a list of up to {} numbers from {} to {}", where_, key,
                  shown(*value), most, low, high);
    }
    for (const Json& each : *value) {
      numbers.push_back(each.get<int>());
    }
    return numbers;
  }
  /// The elements of a list that has to be there.
  Result<std::vector<Object>> objects(const char* key, const char* what, size_t most) const {
    const Json* const value = find(key);
    if (value == nullptr || !value->is_array() || value->size() > most) {
      return fail(Code::kInvalidArgument, "{}: '{}' is {}, expected a list of up to {}", where_,
                  key, value == nullptr ? "missing" : shown(*value), most);
    }
    std::vector<Object> all;
    for (const Json& each : *value) {
      all.emplace_back(each, fmt::format("{}, {} {}", where_, what, all.size()));
    }
    return all;
  }
  /// ["input", 3]; nothing if it is missing.
  Result<At> place(const char* key, int chunks) const {
    const Json* const value = find(key);
    if (value == nullptr) {
      return At{Buffer::kNone, 0};
    }
    const bool is_pair = value->is_array() && value->size() == 2 && (*value)[0].is_string() &&
                         (*value)[1].is_number_unsigned() &&
                         (*value)[1].get<uint64_t>() < static_cast<uint64_t>(chunks);
    for (const auto& [name, buffer] : kBuffers) {
      if (is_pair && (*value)[0].get<std::string>() == name) {
        return At{buffer, (*value)[1].get<int>()};
      }
    }
    return fail(Code::kInvalidArgument,
                "{}: '{}' is {}, expected [\"input\", \"output\" or \"scratch\", chunk]", where_,
                key, shown(*value));
  }
  [[nodiscard]] const std::string& where() const { return where_; }

 private:
  const Json& json_;
  std::string where_;
};

/// Any chunk index; which ones a buffer has, the verifier knows.
constexpr int kChunkIndices = 4 * kFileChunksMax;

Result<Step> read_step(const Object& object, Program& program) {
  PLEXUS_TRY(object.check({"recv", "source", "target", "send", "own_position", "completes",
                           "by_address", "accumulates", "with_next", "after"}));
  const int last_rank = program.nranks - 1;
  PLEXUS_TRY(from, object.integers("recv", 0, last_rank, kOperandsMax - 1));
  PLEXUS_TRY(to, object.integers("send", 0, last_rank, kOperandsMax - 1));
  PLEXUS_TRY(source, object.place("source", kChunkIndices));
  PLEXUS_TRY(target, object.place("target", kChunkIndices));
  PLEXUS_TRY(own_position, object.integer_or("own_position", 0, kOperandsMax, 0));
  PLEXUS_TRY(completes, object.flag("completes", false));
  PLEXUS_TRY(by_address, object.flag("by_address", false));
  PLEXUS_TRY(accumulates, object.flag("accumulates", false));
  PLEXUS_TRY(with_next, object.flag("with_next", false));
  PLEXUS_TRY(after, object.integers("after", 0, static_cast<int>(kFileStepsMax), 2));
  if (after.size() == 1) {
    return fail(Code::kInvalidArgument, "{}: 'after' is not [lane, step]", object.where());
  }
  Step step{.source = source.buffer,
            .target = target.buffer,
            .completes = completes,
            .by_address = by_address,
            .accumulates = accumulates,
            .with_next = with_next,
            .source_chunk = source.chunk,
            .target_chunk = target.chunk,
            .peers_first = static_cast<int>(program.peers.size()),
            .receives = static_cast<int>(from.size()),
            .sends = static_cast<int>(to.size()),
            .own_position = own_position,
            .after = after.empty() ? After{} : After{.lane = after[0], .step = after[1]}};
  program.peers.insert(program.peers.end(), from.begin(), from.end());
  program.peers.insert(program.peers.end(), to.begin(), to.end());
  return step;
}

Result<void> read_rank(const Object& object, int64_t& steps_left, Program& program) {
  PLEXUS_TRY(object.check({"lanes"}));
  PLEXUS_TRY(lanes, object.objects("lanes", "lane", static_cast<size_t>(kFileStepsMax)));
  for (const Object& each : lanes) {
    PLEXUS_TRY(each.check({"connection", "steps"}));
    Lane& lane = program.lanes.emplace_back();
    PLEXUS_TRY(connection, each.integer_or("connection", 0, kConnectionsMax - 1, 0));
    lane.connection = connection;
    PLEXUS_TRY(steps, each.objects("steps", "step", static_cast<size_t>(steps_left)));
    steps_left -= static_cast<int64_t>(steps.size());
    for (const Object& step : steps) {
      PLEXUS_TRY(one, read_step(step, program));
      lane.steps.push_back(one);
    }
  }
  return ok();
}

Result<void> read_collective(const Object& object, ProgramFile& file) {
  PLEXUS_TRY(text, object.text("collective"));
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (text == name(collective) && !is_point_to_point(collective)) {
      file.collective = collective;
      return ok();
    }
  }
  return fail(Code::kInvalidArgument, "'{}' is not a collective that an algorithm can be for",
              printable(text));
}

Result<void> read_use(const Object& object, int nranks, ProgramFile& file) {
  PLEXUS_TRY(file_name, object.text("name"));
  file.name = printable(file_name);
  PLEXUS_TRY(read_collective(object, file));
  if (object.find("root") != nullptr) {
    PLEXUS_TRY(root, object.integer("root", 0, nranks - 1));
    file.root = root;
  }
  if (object.find("protocol") != nullptr) {
    PLEXUS_TRY(text, object.text("protocol"));
    const auto* const at =
        std::find_if(kProtocols.begin(), kProtocols.end(),
                     [text = std::string_view(text)](Protocol each) { return text == name(each); });
    if (at == kProtocols.end()) {
      return fail(Code::kInvalidArgument, "the protocol '{}' is not Simple, LL or LL128",
                  printable(text));
    }
    file.protocol = *at;
  }
  if (object.find("bytes_min") != nullptr) {
    PLEXUS_TRY(bytes, object.number("bytes_min", 0, UINT64_MAX));
    file.bytes_min = bytes;
  }
  if (object.find("bytes_max") != nullptr) {
    PLEXUS_TRY(bytes, object.number("bytes_max", 0, UINT64_MAX));
    file.bytes_max = bytes;
  }
  PLEXUS_TRY(in_place, object.flag("in_place", true));
  PLEXUS_TRY(out_of_place, object.flag("out_of_place", true));
  file.in_place = in_place;
  file.out_of_place = out_of_place;
  return in_place || out_of_place
             ? Result<void>(ok())
             : fail(Code::kInvalidArgument, "it is for calls neither in place nor out of place");
}

// ---- writing ----

Json json_of(Buffer buffer, int chunk) {
  for (const auto& [name, each] : kBuffers) {
    if (each == buffer) {
      return Json::array({name, chunk});
    }
  }
  return nullptr;
}

Json json_of(const Program& program, const Step& step) {
  Json json = Json::object();
  const auto put = [&json](const char* key, const Json& value, bool is_default) {
    if (!is_default) {
      json[key] = value;
    }
  };
  const std::span<const int> from = program.recv_peers(step);
  const std::span<const int> to = program.send_peers(step);
  put("recv", Json(std::vector<int>(from.begin(), from.end())), from.empty());
  put("source", json_of(step.source, step.source_chunk), step.source == Buffer::kNone);
  put("target", json_of(step.target, step.target_chunk), step.target == Buffer::kNone);
  put("send", Json(std::vector<int>(to.begin(), to.end())), to.empty());
  put("own_position", step.own_position, step.own_position == 0);
  put("completes", true, !step.completes);
  put("by_address", true, !step.by_address || to.empty());
  put("accumulates", true, !step.accumulates);
  put("with_next", true, !step.with_next);
  put("after", Json::array({step.after.lane, step.after.step}), step.after.lane < 0);
  return json;
}

Json head_of(const ProgramFile& file) {
  const Program& one = file.programs.front();
  Json json;
  json["format"] = kFormat;
  json["version"] = kVersion;
  json["name"] = file.name;
  json["collective"] = name(file.collective);
  json["nranks"] = file.nranks();
  if (file.root.has_value() && is_rooted(file.collective)) {
    json["root"] = *file.root;
  }
  json["chunks"] = one.chunks;
  json["scratch_chunks"] = one.scratch_chunks;
  json["shares_scratch"] = one.shares_scratch;
  if (file.protocol.has_value()) {
    json["protocol"] = name(*file.protocol);
  }
  if (file.bytes_min > 0) {
    json["bytes_min"] = file.bytes_min;
  }
  if (file.bytes_max != UINT64_MAX) {
    json["bytes_max"] = file.bytes_max;
  }
  json["in_place"] = file.in_place;
  json["out_of_place"] = file.out_of_place;
  return json;
}

}  // namespace

Result<ProgramFile> parse_program_json(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    return fail(Code::kInvalidArgument, "it is neither JSON nor XML");
  }
  const Object object(json, "the file");
  PLEXUS_TRY(format, object.text("format"));
  PLEXUS_TRY(version, object.integer("version", 0, INT32_MAX));
  if (format != kFormat || version != kVersion) {
    return fail(Code::kInvalidArgument, "it is '{}' of version {}, expected '{}' of version {}",
                printable(format), version, kFormat, kVersion);
  }
  PLEXUS_TRY(object.check({"format", "version", "name", "collective", "nranks", "root", "chunks",
                           "scratch_chunks", "shares_scratch", "protocol", "bytes_min", "bytes_max",
                           "in_place", "out_of_place", "ranks"}));
  ProgramFile file;
  PLEXUS_TRY(nranks, object.integer("nranks", 2, kFileRanksMax));
  PLEXUS_TRY(read_use(object, nranks, file));
  PLEXUS_TRY(chunks, object.integer("chunks", 1, kFileChunksMax));
  PLEXUS_TRY(scratch_chunks, object.integer_or("scratch_chunks", 0, kFileChunksMax, 0));
  PLEXUS_TRY(shares_scratch, object.flag("shares_scratch", false));
  PLEXUS_TRY(ranks, object.objects("ranks", "rank", kFileRanksMax));
  if (ranks.size() != static_cast<size_t>(nranks)) {
    return fail(Code::kInvalidArgument, "it is for {} ranks, but has programs of {}", nranks,
                ranks.size());
  }
  int64_t steps_left = kFileStepsMax;
  for (const Object& rank : ranks) {
    Program& program = file.programs.emplace_back();
    program.rank = static_cast<int>(file.programs.size()) - 1;
    program.nranks = nranks;
    program.chunks = chunks;
    program.scratch_chunks = scratch_chunks;
    program.divides_buffer = true;
    program.shares_scratch = shares_scratch;
    PLEXUS_TRY(read_rank(rank, steps_left, program));
  }
  PLEXUS_TRY(check_proof_size(file));
  return file;
}

std::string format_program_json(const ProgramFile& file) {
  std::string text = head_of(file).dump(1);
  text.resize(text.size() - 2);  // without "\n}"
  text += ",\n \"ranks\": [";
  for (const Program& program : file.programs) {
    text += program.rank == 0 ? "\n  {\"lanes\": [" : ",\n  {\"lanes\": [";
    for (size_t i = 0; i < program.lanes.size(); ++i) {
      const Lane& lane = program.lanes[i];
      text += fmt::format("{}\n   {{\"connection\": {}, \"steps\": [", i == 0 ? "" : ",",
                          lane.connection);
      for (size_t at = 0; at < lane.steps.size(); ++at) {
        text += (at == 0 ? "\n    " : ",\n    ") + json_of(program, lane.steps[at]).dump();
      }
      text += "]}";
    }
    text += "]}";
  }
  return text + "]\n}\n";
}

}  // namespace plexus
