// SPDX-License-Identifier: Apache-2.0
#include "core/stall/inquiry.hpp"

#include <algorithm>
#include <utility>

#include "core/base/bytes.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

using std::chrono::milliseconds;

constexpr int kWidth = 16;              // of the tree
constexpr size_t kRoundsMax = 64;       // inquiries of other ranks at once
constexpr milliseconds kMargin{1'000};  // for an answer on its way to the rank above
constexpr milliseconds kTimeMin{500};
constexpr milliseconds kKeepTime{10'000};
constexpr milliseconds kHearTimeMin{500};
constexpr uint16_t kPayloadBytesMax = 60'000;

// A first word that no StallProbe has.
constexpr uint32_t kMagic = 0x51494e51;

struct InquiryHead {
  uint32_t magic;
  uint32_t time_ms;
  uint64_t id;
  int32_t root;
  uint8_t step;
  uint8_t unused[3];
};

}  // namespace

std::string encode(const InquiryMessage& message) {
  ByteWriter writer;
  writer.put(InquiryHead{.magic = kMagic,
                         .time_ms = message.time_ms,
                         .id = message.id,
                         .root = message.root,
                         .step = static_cast<uint8_t>(message.step),
                         .unused = {}});
  writer.put_text<uint16_t>(std::string_view(message.payload).substr(0, kPayloadBytesMax));
  return writer.take();
}

std::optional<InquiryMessage> decode_inquiry(std::string_view bytes, int nranks) {
  ByteReader reader(bytes);
  const auto head = reader.take<InquiryHead>();
  const std::string_view payload = reader.take_text<uint16_t>(kPayloadBytesMax);
  const bool fits = head.magic == kMagic && head.step < kInquirySteps && head.root >= 0 &&
                    head.root < nranks && head.time_ms <= Inquiries::kTime.count();
  if (!reader.whole() || !fits) {
    return std::nullopt;
  }
  return InquiryMessage{.step = static_cast<InquiryStep>(head.step),
                        .time_ms = head.time_ms,
                        .root = head.root,
                        .id = head.id,
                        .payload = std::string(payload)};
}

Inquiries::Inquiries(int rank, int nranks, Surroundings surroundings)
    : rank_(rank), nranks_(nranks), out_(std::move(surroundings)) {}

void Inquiries::start(uint64_t id, TimePoint now, milliseconds time) {
  open({rank_, id},
       {.step = InquiryStep::kAsk,
        .time_ms = static_cast<uint32_t>(time.count()),
        .root = rank_,
        .id = id},
       -1, now);
  tick(now);
}

void Inquiries::open(const Name& name, const InquiryMessage& question, int parent, TimePoint now) {
  Round round;  // complete before it is kept, as memory may be refused on the way
  round.parent = parent;
  round.question = question;
  round.until = now + milliseconds(question.time_ms);
  round.keep_until = now + kTime + kKeepTime;
  round.summary.add(out_.look());
  ask_below(round, rank_, now);
  const bool is_new = rounds_.emplace(name, std::move(round)).second;
  PLEXUS_DCHECK(is_new, name.first, name.second);
}

/// Asks those that are below `rank` in the tree over the ranks, in which the root has position 0.
void Inquiries::ask_below(Round& round, int rank, TimePoint now) {
  InquiryMessage question = round.question;
  const auto left = std::chrono::duration_cast<milliseconds>(round.until - now) - kMargin;
  question.time_ms = static_cast<uint32_t>(std::max(left, kTimeMin).count());
  const int64_t position = (int64_t{rank} - question.root + nranks_) % nranks_;
  for (int64_t below = kWidth * position + 1; below <= kWidth * (position + 1) && below < nranks_;
       ++below) {
    const int child = static_cast<int>((below + question.root) % nranks_);
    PLEXUS_DCHECK(child != rank_ && child >= 0, child, rank_);
    round.below[child].asked = now;
    out_.send(child, question);
  }
}

void Inquiries::take(int from, const InquiryMessage& message, TimePoint now) {
  const Name name{message.root, message.id};
  if (message.step == InquiryStep::kAsk) {
    // Also when it asks again: another rank may have taken the one above this one for silent.
    out_.send(from, {.step = InquiryStep::kHeard, .root = message.root, .id = message.id});
    if (rounds_.size() < kRoundsMax && rounds_.count(name) == 0 && message.root != rank_) {
      open(name, message, from, now);
      tick(now);
    }
    return;
  }
  const auto at = rounds_.find(name);
  if (at == rounds_.end()) {
    return;
  }
  Round& round = at->second;
  if (message.step == InquiryStep::kVerdict) {
    if (from == round.parent) {
      pass_on(round, message);
      out_.hear(message.payload);
      rounds_.erase(at);
    }
    return;
  }
  const auto below = round.below.find(from);
  if (below == round.below.end() || below->second.is_over || round.is_answered) {
    return;
  }
  below->second.has_heard = true;
  if (message.step == InquiryStep::kAnswer) {
    below->second.is_over = true;
    if (const auto summary = decode_summary(message.payload, nranks_); summary.has_value()) {
      round.summary.merge(*summary);
    }
    tick(now);
  }
}

void Inquiries::skip(int rank, TimePoint now) {
  for (auto& [name, round] : rounds_) {
    const auto below = round.below.find(rank);
    if (below != round.below.end() && !below->second.is_over && !round.is_answered) {
      below->second.is_over = true;
      ask_below(round, rank, now);
    }
  }
  tick(now);
}

void Inquiries::tick(TimePoint now) {
  for (auto at = rounds_.begin(); at != rounds_.end();) {
    Round& round = at->second;
    if (!round.is_answered) {
      const auto hear_time =
          std::clamp(milliseconds(round.question.time_ms) / 3, kHearTimeMin, kHearTime);
      std::vector<int> silent;
      for (const auto& [rank, below] : round.below) {
        if (!below.is_over &&
            (now >= round.until || (!below.has_heard && now - below.asked >= hear_time))) {
          silent.push_back(rank);
        }
      }
      for (const int rank : silent) {
        take_silent(round, rank, now);
      }
      if (std::all_of(round.below.begin(), round.below.end(),
                      [](const auto& below) { return below.second.is_over; })) {
        finish(round);
      }
    }
    at = now >= round.keep_until ? rounds_.erase(at) : std::next(at);
  }
}

/// One that has heard the question, and does not answer in time, waits for others itself.
void Inquiries::take_silent(Round& round, int rank, TimePoint now) {
  Below& below = round.below[rank];
  PLEXUS_DCHECK(!below.is_over && !round.is_answered, rank);
  below.is_over = true;
  if (below.has_heard) {
    ++round.summary.others;
    return;
  }
  round.summary.add({.activity = RankActivity::kSilent, .rank = rank});
  if (now < round.until) {
    ask_below(round, rank, now);
  }
}

void Inquiries::finish(Round& round) {
  PLEXUS_DCHECK(!round.is_answered && round.parent != rank_, round.parent);
  round.is_answered = true;
  if (round.parent < 0) {
    out_.conclude(round.question.id, round.summary);
    return;
  }
  out_.send(round.parent, {.step = InquiryStep::kAnswer,
                           .root = round.question.root,
                           .id = round.question.id,
                           .payload = encode(round.summary)});
}

void Inquiries::broadcast(uint64_t id, std::string_view verdict) {
  const auto at = rounds_.find({rank_, id});
  if (at == rounds_.end()) {
    return;
  }
  pass_on(
      at->second,
      {.step = InquiryStep::kVerdict, .root = rank_, .id = id, .payload = std::string(verdict)});
  at->second.keep_until = {};
}

void Inquiries::pass_on(const Round& round, const InquiryMessage& verdict) {
  for (const auto& [rank, below] : round.below) {
    if (below.has_heard) {
      out_.send(rank, verdict);
    }
  }
}

}  // namespace plexus
