// SPDX-License-Identifier: Apache-2.0
#include "tests/soak/model.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <utility>

namespace plexus::soak {
namespace {

enum class Life { kUnborn, kAlive, kGone };

/// The calls of one step at one place: its collectives in order, then its sends and receives.
struct Part {
  int place = 0;
  bool has_stream = false;
  std::vector<const ModelCall*> collectives{};
  std::vector<const ModelCall*> point_to_point{};
  size_t ncollectives_started = 0;
  bool are_pairs_started = false;
};

struct Issued {
  std::vector<Part> parts;
  std::vector<int> streams;
  bool is_started = false;
  bool is_complete = false;
};

struct Thread {
  size_t next = 0;     // step
  int waits_for = -1;  // an Issued, if the call has no stream
  bool is_in_make = false;
};

/// One direction between two places: the operations at both ends, in the order in which they
/// started.
struct Pairing {
  std::vector<int> sends;
  std::vector<int> recvs;
};

class Run {
 public:
  explicit Run(const ModelProgram& program)
      : program_(program),
        threads_(program.threads.size()),
        arrived_(program.participants.size()),
        of_place_(static_cast<size_t>(program.nplaces)),
        unsynchronized_(static_cast<size_t>(program.nplaces)),
        of_stream_(static_cast<size_t>(program.nstreams)),
        life_(static_cast<size_t>(program.nplaces)) {}

  Verdict judge() {
    bool has_moved = true;
    while (has_moved && why_.empty()) {
      has_moved = false;
      for (size_t thread = 0; thread < threads_.size() && why_.empty(); ++thread) {
        while (why_.empty() && advance(thread)) {
          has_moved = true;
        }
      }
      has_moved = progress_issued() || has_moved;
    }
    if (why_.empty()) {
      find_stuck();
    }
    return {.is_legal = why_.empty(), .why = why_};
  }

 private:
  void refuse(std::string why) {
    if (why_.empty()) {
      why_ = std::move(why);
    }
  }

  const ModelStep* step_of(size_t thread) const {
    const auto& steps = program_.threads[thread];
    return threads_[thread].next < steps.size() ? &steps[threads_[thread].next] : nullptr;
  }

  /// Executes one step of a thread, or a part of one; false: it waits or has ended.
  bool advance(size_t index) {
    Thread& thread = threads_[index];
    const ModelStep* const step = step_of(index);
    if (step == nullptr) {
      return false;
    }
    bool is_done = true;
    switch (step->kind) {
      case ModelStepKind::kCalls:
        is_done = advance_calls(thread, *step);
        break;
      case ModelStepKind::kMake:
        is_done = advance_make(thread, *step);
        break;
      case ModelStepKind::kSync:
        is_done = advance_sync(*step);
        break;
      case ModelStepKind::kDestroy:
      case ModelStepKind::kFinalize:
        is_done = advance_leave(*step);
        break;
      case ModelStepKind::kPause:
        break;
    }
    if (is_done) {
      ++thread.next;
      thread.waits_for = -1;
      thread.is_in_make = false;
    }
    return is_done;
  }

  bool advance_calls(Thread& thread, const ModelStep& step) {
    if (thread.waits_for < 0) {
      const int issued = issue(step);
      const bool is_blocking =
          std::any_of(step.calls.begin(), step.calls.end(),
                      [](const ModelCall& call) { return call.stream == kNoStream; });
      if (!is_blocking) {
        return true;
      }
      thread.waits_for = issued;
      progress_issued();
    }
    const Issued& issued = issued_[static_cast<size_t>(thread.waits_for)];
    for (const Part& part : issued.parts) {
      if (issued.is_complete && !part.has_stream) {  // so is everything before it at that place
        unsynchronized_[static_cast<size_t>(part.place)].clear();
      }
    }
    return issued.is_complete;
  }

  bool advance_sync(const ModelStep& step) {
    for (const int stream : step.streams) {
      if (!of_stream_[static_cast<size_t>(stream)].empty()) {
        return false;
      }
    }
    for (auto& of_place : unsynchronized_) {
      std::erase_if(of_place, [&](int index) {
        const auto& streams = issued_[static_cast<size_t>(index)].streams;
        return std::find_first_of(streams.begin(), streams.end(), step.streams.begin(),
                                  step.streams.end()) != streams.end();
      });
    }
    return true;
  }

  bool advance_make(Thread& thread, const ModelStep& step) {
    auto& arrived = arrived_[static_cast<size_t>(step.operation)];
    if (!thread.is_in_make) {
      for (const int place : step.places) {
        check_alive(place, "used for another communicator");
        if (!unsynchronized_[static_cast<size_t>(place)].empty()) {
          refuse("a communicator is made from one with work under way");
        }
      }
      arrived += static_cast<int>(std::max(step.places.size(), step.made.size()));
      thread.is_in_make = true;
    }
    if (arrived < program_.participants[static_cast<size_t>(step.operation)]) {
      return false;
    }
    for (const int place : step.made) {
      if (place >= 0) {
        life_[static_cast<size_t>(place)] = Life::kAlive;
      }
    }
    return true;
  }

  bool advance_leave(const ModelStep& step) {
    for (const int place : step.places) {
      check_alive(place, "destroyed");
      if (step.kind == ModelStepKind::kDestroy &&
          !unsynchronized_[static_cast<size_t>(place)].empty()) {
        refuse("a communicator is destroyed with work under way");
      }
      if (!of_place_[static_cast<size_t>(place)].empty()) {
        return false;
      }
    }
    for (const int place : step.places) {
      life_[static_cast<size_t>(place)] = Life::kGone;
    }
    return true;
  }

  void check_alive(int place, const char* what) {
    if (life_[static_cast<size_t>(place)] != Life::kAlive) {
      refuse(std::string("a communicator is ") + what +
             (life_[static_cast<size_t>(place)] == Life::kGone ? " after its end"
                                                               : " before it is made"));
    }
  }

  int issue(const ModelStep& step) {
    Issued issued;
    for (const ModelCall& call : step.calls) {
      check_alive(call.place, "used");
      auto part = std::find_if(issued.parts.begin(), issued.parts.end(),
                               [&](const Part& known) { return known.place == call.place; });
      if (part == issued.parts.end()) {
        issued.parts.push_back({.place = call.place});
        part = std::prev(issued.parts.end());
      }
      (call.kind == ModelKind::kCollective ? part->collectives : part->point_to_point)
          .push_back(&call);
      part->has_stream = part->has_stream || call.stream != kNoStream;
      if (call.stream != kNoStream && std::find(issued.streams.begin(), issued.streams.end(),
                                                call.stream) == issued.streams.end()) {
        issued.streams.push_back(call.stream);
      }
    }
    const int index = static_cast<int>(issued_.size());
    for (const Part& part : issued.parts) {
      check_aggregate(part);
      of_place_[static_cast<size_t>(part.place)].push_back(index);
      unsynchronized_[static_cast<size_t>(part.place)].push_back(index);
    }
    for (const int stream : issued.streams) {
      of_stream_[static_cast<size_t>(stream)].push_back(index);
    }
    issued_.push_back(std::move(issued));
    open_.push_back(index);
    return index;
  }

  void check_aggregate(const Part& part) {
    if (!program_.allows_mixed && !part.collectives.empty() && !part.point_to_point.empty()) {
      refuse("a group has collectives and point-to-point calls on one communicator");
    }
    std::vector<int> together;
    for (const ModelCall* const call : part.collectives) {
      together.push_back(call->operation);
    }
    for (const int operation : together) {
      const auto [known, is_new] = aggregates_.try_emplace(operation, together);
      if (!is_new && known->second != together) {
        refuse("collectives of a communicator are grouped in another way by another rank");
      }
    }
  }

  bool progress_issued() {
    bool has_moved = false;
    for (bool again = true; again && why_.empty();) {
      again = false;
      for (size_t at = 0; at < open_.size(); ++at) {
        again = progress(open_[at]) || again;
      }
      std::erase_if(open_,
                    [&](int index) { return issued_[static_cast<size_t>(index)].is_complete; });
      has_moved = has_moved || again;
    }
    return has_moved;
  }

  bool progress(int index) {
    Issued& issued = issued_[static_cast<size_t>(index)];
    if (issued.is_complete || (!issued.is_started && !is_at_front(index))) {
      return false;
    }
    bool has_moved = !issued.is_started;
    issued.is_started = true;
    bool is_complete = true;
    for (Part& part : issued.parts) {
      has_moved = progress_part(part) || has_moved;
      is_complete = is_complete && is_part_complete(part);
    }
    if (is_complete) {
      issued.is_complete = true;
      for (const Part& part : issued.parts) {
        of_place_[static_cast<size_t>(part.place)].pop_front();
      }
      for (const int stream : issued.streams) {
        of_stream_[static_cast<size_t>(stream)].pop_front();
      }
    }
    return has_moved || is_complete;
  }

  bool is_at_front(int index) const {
    const Issued& issued = issued_[static_cast<size_t>(index)];
    return std::all_of(issued.parts.begin(), issued.parts.end(),
                       [&](const Part& part) {
                         return of_place_[static_cast<size_t>(part.place)].front() == index;
                       }) &&
           std::all_of(issued.streams.begin(), issued.streams.end(), [&](int stream) {
             return of_stream_[static_cast<size_t>(stream)].front() == index;
           });
  }

  bool is_collective_complete(const ModelCall& call) const {
    return arrived_[static_cast<size_t>(call.operation)] ==
           program_.participants[static_cast<size_t>(call.operation)];
  }

  bool progress_part(Part& part) {
    bool has_moved = false;
    while (part.ncollectives_started < part.collectives.size() &&
           (part.ncollectives_started == 0 ||
            is_collective_complete(*part.collectives[part.ncollectives_started - 1]))) {
      const ModelCall& call = *part.collectives[part.ncollectives_started++];
      ++arrived_[static_cast<size_t>(call.operation)];
      has_moved = true;
    }
    if (!part.are_pairs_started && part.ncollectives_started == part.collectives.size() &&
        (part.collectives.empty() || is_collective_complete(*part.collectives.back()))) {
      part.are_pairs_started = true;
      has_moved = true;
      for (const ModelCall* const call : part.point_to_point) {
        start_pair(*call);
      }
    }
    return has_moved;
  }

  void start_pair(const ModelCall& call) {
    const bool is_send = call.kind == ModelKind::kSend;
    Pairing& pairing =
        is_send ? pairings_[{call.place, call.peer}] : pairings_[{call.peer, call.place}];
    auto& mine = is_send ? pairing.sends : pairing.recvs;
    auto& others = is_send ? pairing.recvs : pairing.sends;
    mine.push_back(call.operation);
    if (others.size() >= mine.size() && others[mine.size() - 1] != call.operation) {
      refuse("a send meets another receive than its own");
    }
    ++arrived_[static_cast<size_t>(call.operation)];
  }

  bool is_part_complete(const Part& part) const {
    return part.are_pairs_started &&
           std::all_of(part.point_to_point.begin(), part.point_to_point.end(),
                       [&](const ModelCall* call) { return is_collective_complete(*call); });
  }

  void find_stuck() {
    for (size_t thread = 0; thread < threads_.size(); ++thread) {
      if (step_of(thread) != nullptr) {
        refuse("thread " + std::to_string(thread) + " waits for ever in its step " +
               std::to_string(threads_[thread].next));
      }
    }
    if (!open_.empty()) {
      refuse("a call on a stream never completes");
    }
  }

  const ModelProgram& program_;
  std::vector<Thread> threads_;
  std::vector<int> arrived_;                      // by operation: how many calls of it have started
  std::vector<std::deque<int>> of_place_;         // Issued in order, until complete
  std::vector<std::vector<int>> unsynchronized_;  // by place: Issued that may not be complete
  std::vector<std::deque<int>> of_stream_;
  std::vector<Life> life_;
  std::deque<Issued> issued_;
  std::vector<int> open_;
  std::map<std::pair<int, int>, Pairing> pairings_;
  std::map<int, std::vector<int>>
      aggregates_;  // by operation: the collectives of its group and place
  std::string why_;
};

}  // namespace

Verdict judge(const ModelProgram& program) { return Run(program).judge(); }

}  // namespace plexus::soak
