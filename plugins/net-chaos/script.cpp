// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-chaos/script.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

namespace plexus::net_chaos {
namespace {

struct Unit {
  std::string_view name;
  uint64_t factor;
};
constexpr uint64_t kThousand = 1000;
constexpr uint64_t kKibi = 1024;
constexpr Unit kTimes[] = {{"ns", 1},
                           {"us", kThousand},
                           {"ms", kThousand* kThousand},
                           {"s", kThousand* kThousand* kThousand}};
constexpr Unit kSizes[] = {
    {"", 1}, {"B", 1}, {"KiB", kKibi}, {"MiB", kKibi* kKibi}, {"GiB", kKibi* kKibi* kKibi}};
constexpr Unit kRates[] = {{"bit/s", 1},
                           {"Kbit/s", kThousand},
                           {"Mbit/s", kThousand* kThousand},
                           {"Gbit/s", kThousand* kThousand* kThousand}};
constexpr Unit kPercent[] = {{"%", 1}};
constexpr Unit kCount[] = {{"", 1}};

/// A number with a unit, in 0 .. `most` in units of factor 1.
template <size_t kUnits>
Result<uint64_t> parse_number(std::string_view text, const Unit (&units)[kUnits], uint64_t most) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const std::string_view unit(stop, static_cast<size_t>(end - stop));
  for (const Unit& known : units) {
    if (error == std::errc{} && unit == known.name && value <= most / known.factor) {
      return value * known.factor;
    }
  }
  return fail(PLEXUS_INVALID_USAGE,
              "'{}' is not a number with a valid unit; see the README of net-chaos", text);
}

constexpr uint64_t kTimeMost = 60 * kThousand * kThousand * kThousand;  // one minute, in ns
constexpr uint64_t kSizeMost = uint64_t{1} << 50;
constexpr uint64_t kRateMost = kThousand * kThousand * kThousand * kThousand;

Result<Nanoseconds> parse_time(std::string_view text) {
  PLEXUS_TRY(value, parse_number(text, kTimes, kTimeMost));
  return Nanoseconds(value);
}

using Parse = Result<void>(std::string_view value, Effects& effects);

template <Nanoseconds Effects::*kEffect>
Result<void> parse_time_of(std::string_view value, Effects& effects) {
  PLEXUS_TRY(time, parse_time(value));
  effects.*kEffect = time;
  return ok();
}
Result<void> parse_rate(std::string_view value, Effects& effects) {
  PLEXUS_TRY(rate, parse_number(value, kRates, kRateMost));
  if (rate == 0) {
    return fail(PLEXUS_INVALID_USAGE, "rate={} lets nothing through; use stall or cut", value);
  }
  effects.rate_bit_per_s = rate;
  return ok();
}
Result<void> parse_stall(std::string_view value, Effects& effects) {
  const size_t slash = value.find('/');
  if (slash == std::string_view::npos) {
    return fail(PLEXUS_INVALID_USAGE, "stall={} is not SIZE/TIME, as in 1MiB/20ms", value);
  }
  PLEXUS_TRY(size, parse_number(value.substr(0, slash), kSizes, kSizeMost));
  PLEXUS_TRY(time, parse_time(value.substr(slash + 1)));
  effects.stall_every_bytes = size;
  effects.stall = time;
  return ok();
}
Result<void> parse_cut(std::string_view value, Effects& effects) {
  PLEXUS_TRY(size, parse_number(value, kSizes, kSizeMost));
  effects.cut_at_byte = size;
  return ok();
}
Result<void> parse_again(std::string_view value, Effects& effects) {
  constexpr uint64_t kMost = 99;  // at 100 nothing would ever start
  PLEXUS_TRY(percent, parse_number(value, kPercent, kMost));
  effects.again_percent = static_cast<uint32_t>(percent);
  return ok();
}
Result<void> parse_reorder(std::string_view value, Effects& effects) {
  constexpr uint64_t kMost = 1'000'000;
  PLEXUS_TRY(tests, parse_number(value, kCount, kMost));
  effects.reorder_tests_max = static_cast<uint32_t>(tests);
  return ok();
}
Result<void> parse_flip(std::string_view value, Effects& effects) {
  PLEXUS_TRY(size, parse_number(value, kSizes, kSizeMost));
  effects.flip_at_byte = size;
  return ok();
}
Result<void> parse_piece(std::string_view value, Effects& effects) {
  PLEXUS_TRY(size, parse_number(value, kSizes, kSizeMost));
  effects.piece_bytes = size;
  return ok();
}

struct EffectName {
  std::string_view name;
  Parse* parse;
};
constexpr std::array<EffectName, 13> kEffects = {{{"delay", parse_time_of<&Effects::delay>},
                                                  {"jitter", parse_time_of<&Effects::jitter>},
                                                  {"rate", parse_rate},
                                                  {"stall", parse_stall},
                                                  {"cut", parse_cut},
                                                  {"again", parse_again},
                                                  {"reorder", parse_reorder},
                                                  {"flip", parse_flip},
                                                  {"late", parse_time_of<&Effects::late>},
                                                  {"overtake", parse_time_of<&Effects::overtake>},
                                                  {"elsewhere", parse_time_of<&Effects::elsewhere>},
                                                  {"slow", parse_time_of<&Effects::slow>},
                                                  {"piece", parse_piece}}};
constexpr uint32_t kPieceBit = 1u << (kEffects.size() - 1);
constexpr uint32_t kSlowBit = 1u << (kEffects.size() - 2);

void copy_effect(size_t number, const Effects& from, Effects& to) {
  switch (number) {
    case 0:
      to.delay = from.delay;
      break;
    case 1:
      to.jitter = from.jitter;
      break;
    case 2:
      to.rate_bit_per_s = from.rate_bit_per_s;
      break;
    case 3:
      to.stall_every_bytes = from.stall_every_bytes;
      to.stall = from.stall;
      break;
    case 4:
      to.cut_at_byte = from.cut_at_byte;
      break;
    case 5:
      to.again_percent = from.again_percent;
      break;
    case 6:
      to.reorder_tests_max = from.reorder_tests_max;
      break;
    case 7:
      to.flip_at_byte = from.flip_at_byte;
      break;
    case 8:
      to.late = from.late;
      break;
    case 9:
      to.overtake = from.overtake;
      break;
    case 10:
      to.elsewhere = from.elsewhere;
      break;
    case 11:
      to.slow = from.slow;
      break;
    default:
      to.piece_bytes = from.piece_bytes;
  }
}

std::string_view next_word(std::string_view& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  text.remove_prefix(begin == std::string_view::npos ? text.size() : begin);
  const std::string_view word = text.substr(0, text.find_first_of(" \t\r"));
  text.remove_prefix(word.size());
  return word;
}

Result<void> parse_selector(std::string_view word, Rule& rule) {
  const auto number = [&](std::string_view name) -> Result<uint32_t> {
    PLEXUS_TRY(value, parse_number(word.substr(name.size()), kCount, UINT32_MAX));
    return static_cast<uint32_t>(value);
  };
  if (word == "*") {
    return ok();
  }
  if (word == "send" || word == "recv") {
    rule.is_send = word == "send";
    return ok();
  }
  if (word.starts_with("device=")) {
    PLEXUS_TRY(device, number("device="));
    rule.device = device;
    return ok();
  }
  if (word.starts_with("connection=")) {
    PLEXUS_TRY(connection, number("connection="));
    rule.connection = connection;
    return ok();
  }
  if (word.starts_with("rank=")) {
    PLEXUS_TRY(rank, number("rank="));
    rule.rank = rank;
    return ok();
  }
  if (word.starts_with("peer=")) {
    PLEXUS_TRY(peer, number("peer="));
    rule.peer = peer;
    return ok();
  }
  return fail(PLEXUS_INVALID_USAGE,
              "'{}' is not a selector: expected *, send, recv, device=N, "
              "connection=N, rank=N or peer=N",
              word);
}

Result<void> parse_effect(std::string_view word, Rule& rule) {
  const size_t equals = word.find('=');
  for (size_t number = 0; number < kEffects.size(); ++number) {
    if (equals != std::string_view::npos && word.substr(0, equals) == kEffects[number].name) {
      rule.set |= 1u << number;
      return kEffects[number].parse(word.substr(equals + 1), rule.effects);
    }
  }
  return fail(PLEXUS_INVALID_USAGE,
              "'{}' is not an effect: expected delay, jitter, rate, stall, "
              "cut, again, reorder, flip, late, overtake, elsewhere, slow or piece, each with =",
              word);
}

Result<Rule> parse_rule(std::string_view text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) {
    return fail(PLEXUS_INVALID_USAGE, "the rule '{}' has no ':' between selectors and effects",
                text);
  }
  std::string_view selectors = text.substr(0, colon);
  std::string_view effects = text.substr(colon + 1);
  Rule rule;
  uint32_t words = 0;
  for (auto word = next_word(selectors); !word.empty(); word = next_word(selectors), ++words) {
    PLEXUS_TRY(parse_selector(word, rule));
  }
  if (words == 0) {
    return fail(PLEXUS_INVALID_USAGE, "the rule '{}' selects nothing: begin it with * or more",
                text);
  }
  for (auto word = next_word(effects); !word.empty(); word = next_word(effects)) {
    PLEXUS_TRY(parse_effect(word, rule));
  }
  if ((rule.set & kPieceBit) != 0 &&
      (rule.is_send || rule.device || rule.connection || rule.rank || rule.peer)) {
    return fail(PLEXUS_INVALID_USAGE,
                "piece= applies to all connections, since both ends must "
                "agree: put it in a rule with *");
  }
  if ((rule.set & kSlowBit) != 0 && (rule.is_send || rule.device || rule.connection || rule.peer)) {
    return fail(PLEXUS_INVALID_USAGE,
                "slow= applies to ranks, not to connections: put it in a rule with * or rank=N");
  }
  return rule;
}

bool applies(const Rule& rule, const Subject& subject) {
  return rule.is_send.value_or(subject.is_send) == subject.is_send &&
         rule.device.value_or(subject.device) == subject.device &&
         rule.connection.value_or(subject.connection) == subject.connection &&
         rule.rank.value_or(subject.rank) == subject.rank &&
         rule.peer.value_or(subject.peer) == subject.peer;
}

}  // namespace

Result<Script> Script::parse(std::string_view text) {
  Script script;
  while (!text.empty()) {
    const size_t end = text.find_first_of(";\n#");
    std::string_view rule = text.substr(0, end);
    const bool is_comment = end != std::string_view::npos && text[end] == '#';
    const size_t next = is_comment ? text.find('\n', end) : end;
    text.remove_prefix(next == std::string_view::npos ? text.size() : next + 1);
    std::string_view rest = rule;
    if (next_word(rest).empty()) {
      continue;
    }
    PLEXUS_TRY(parsed, parse_rule(rule));
    script.rules_.push_back(parsed);
  }
  return script;
}

bool Script::names_ranks() const {
  return std::any_of(rules_.begin(), rules_.end(), [](const Rule& rule) {
    return rule.rank || rule.peer || (rule.set & kSlowBit) != 0;
  });
}

std::string_view Script::find_effect_not_in(std::initializer_list<std::string_view> known) const {
  for (const Rule& rule : rules_) {
    for (size_t number = 0; number < kEffects.size(); ++number) {
      if ((rule.set >> number & 1u) != 0 &&
          std::find(known.begin(), known.end(), kEffects[number].name) == known.end()) {
        return kEffects[number].name;
      }
    }
  }
  return {};
}

Effects Script::effects_of(const Subject& subject) const {
  Effects effects;
  for (const Rule& rule : rules_) {
    for (size_t number = 0; applies(rule, subject) && number < kEffects.size(); ++number) {
      if ((rule.set >> number & 1u) != 0) {
        copy_effect(number, rule.effects, effects);
      }
    }
  }
  return effects;
}

}  // namespace plexus::net_chaos
