// SPDX-License-Identifier: Apache-2.0
// An inquiry: one rank asks all ranks of its communicator what they do, through a tree whose root
// it is. Answers are merged on the way up, so that every link carries a bounded number of bytes. A
// rank that does not confirm a question is taken for silent, and who asked it asks those below it.
// Every rank keeps its part of the inquiries under way here. Pure: no threads, no clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.hpp"
#include "core/stall/rank_status.hpp"

namespace plexus {

enum class InquiryStep : uint8_t {
  kAsk,      // what do you do?
  kHeard,    // the question has come
  kAnswer,   // `payload`: the summary of this rank and those below it
  kVerdict,  // `payload`: the verdict, to all ranks
};
inline constexpr uint8_t kInquirySteps = 4;

struct InquiryMessage {
  InquiryStep step = InquiryStep::kAsk;
  uint32_t time_ms = 0;  // kAsk: when the answer has to be there
  int32_t root = 0;
  uint64_t id = 0;  // random; with `root` it names the inquiry
  std::string payload = {};
};
std::string encode(const InquiryMessage& message);
/// nullopt: the bytes are no message of an inquiry in a communicator of `nranks` ranks.
std::optional<InquiryMessage> decode_inquiry(std::string_view bytes, int nranks);

class Inquiries {
 public:
  using TimePoint = Clock::time_point;
  struct Surroundings {
    std::function<void(int rank, const InquiryMessage&)> send;
    std::function<RankStatus()> look;  // the status of this rank
    /// This rank's inquiry has its answers.
    std::function<void(uint64_t id, const StatusSummary&)> conclude;
    /// A verdict of another rank's inquiry.
    std::function<void(std::string_view verdict)> hear;
  };

  Inquiries(int rank, int nranks, Surroundings surroundings);

  /// Asks all ranks. `time`: for their answers, at most kTime.
  void start(uint64_t id, TimePoint now, std::chrono::milliseconds time = kTime);
  void take(int from, const InquiryMessage& message, TimePoint now);
  void tick(TimePoint now);
  /// `rank` has left the communicator and answers nothing.
  void skip(int rank, TimePoint now);
  /// Tells all ranks that answered the verdict of the inquiry that has just concluded.
  void broadcast(uint64_t id, std::string_view verdict);
  /// An inquiry is under way that this rank has a part in.
  [[nodiscard]] bool any() const noexcept { return !rounds_.empty(); }

  /// Time for the answers of all ranks.
  static constexpr std::chrono::milliseconds kTime{10'000};
  /// The same for who cannot wait for long.
  static constexpr std::chrono::milliseconds kShortTime{1'500};
  /// Time for one rank to confirm a question; a third of what the answer has, if that is less.
  static constexpr std::chrono::milliseconds kHearTime{2'000};

 private:
  struct Below {
    TimePoint asked;
    bool has_heard = false;
    bool is_over = false;  // it has answered, or is taken for silent
  };
  struct Round {
    int parent = -1;  // -1: this rank is the root
    TimePoint until;
    TimePoint keep_until;  // for the verdict
    bool is_answered = false;
    InquiryMessage question;
    StatusSummary summary;
    std::map<int, Below> below;
  };
  using Name = std::pair<int32_t, uint64_t>;  // root, id

  void open(const Name& name, const InquiryMessage& question, int parent, TimePoint now);
  void ask_below(Round& round, int rank, TimePoint now);
  void take_silent(Round& round, int rank, TimePoint now);
  void finish(Round& round);
  void pass_on(const Round& round, const InquiryMessage& verdict);

  int rank_;
  int nranks_;
  Surroundings out_;
  std::map<Name, Round> rounds_;
};

}  // namespace plexus
