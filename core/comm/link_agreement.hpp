// SPDX-License-Identifier: Apache-2.0
// How the ranks of a communicator agree on what is left of the links between datacenters, and from
// which collective on: choices of algorithms depend on it, so that no rank may change before
// another. One object per rank; rank 0 leads.
//
//   a rank   what it has left changes: kReport to rank 0
//   rank 0   proposes to all what is left, from collective `at` on, some collectives ahead of its
//            own: kPropose
//   a rank   has not come to `at`: kAccept, and from now on it does not pass `at` without knowing
//            the end. Has: kRefuse
//   rank 0   all have accepted: kCommit to all. One refused: kCancel, and another proposal, farther
//            ahead
// A rank that comes to `at` before it knows the end asks for it, by kRefuse, and waits: rank 0
// cancels what is not committed yet. So a call is kept at most for one way to rank 0 and back,
// seldom, and by no other rank's calls: a rank that is idle, or late, answers from the thread of
// its control plane. (Without any wait there is no agreement: whichever message were the last that
// a rank needs in time could be late.) Rank 0 cancels what is open when it leaves; another rank
// that has left accepts nothing, so that nothing changes any more. A change costs rank 0 three
// messages with each rank.
//
// A pure state machine: no clock, no threads, no sockets. Threads: one at a time, but due() any.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.hpp"
#include "core/control/exchange.hpp"
#include "core/setup/tuner_facts.hpp"

namespace plexus {

class LinkAgreement {
 public:
  using Posts = std::vector<Exchange::Posted>;  // to be posted

  struct Options {
    int rank;
    int nranks;
    uint32_t datacenters;
    /// Number of collectives that this rank has called. Whoever calls the next one after this was
    /// asked sees what due() was then.
    std::function<uint64_t()> calls;
  };
  explicit LinkAgreement(Options options) : options_(std::move(options)) {}

  /// `share` of the way between two datacenters is left to this rank.
  Posts report(std::pair<uint32_t, uint32_t> link, uint32_t share);
  /// A message of another rank. An Error: it makes no sense.
  Result<Posts> take(int from, std::string_view blob);
  /// This rank makes no further calls.
  Posts leave();

  /// Before the collective with this number, and all later ones, admit() must say that it may
  /// begin.
  [[nodiscard]] const std::atomic<uint64_t>& due() const noexcept { return due_; }
  struct Admission {
    bool may_begin;                    // false: ask again after the next message
    std::optional<LinkShares> shares;  // valid from this collective on; nullopt: as before
    Posts posts;
  };
  Admission admit(uint64_t call);

 private:
  enum class Kind : uint32_t { kReport, kPropose, kAccept, kRefuse, kCommit, kCancel };
  struct Message {
    Kind kind;
    uint64_t version = 0;  // of a proposal
    uint64_t at = 0;       // kPropose: from this collective on; kRefuse: where the sender is
    LinkShares shares = {};
  };
  struct Change {
    uint64_t at;
    LinkShares shares;
  };
  struct Proposal {
    uint64_t version;
    Change change;
    std::set<int> accepted;  // at rank 0
    bool asked = false;      // for its end, by a rank that has come to it
  };
  static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
  static constexpr uint64_t kAheadMin = 4;
  static constexpr uint64_t kAheadMax = uint64_t{1} << 20;

  [[nodiscard]] static std::string encode(const Message& message);
  [[nodiscard]] Result<Message> decode(int from, std::string_view blob) const;
  void send(int to, Message message);
  void send_all(const Message& message);
  Posts flush();
  void handle(int from, const Message& message);
  void take_proposal(const Message& message);
  void take_end(const Message& message);
  void lead(int from, const Message& message);
  void propose();
  void end(Kind how);
  [[nodiscard]] LinkShares worst() const;
  void note_due() noexcept;

  Options options_;
  std::atomic<uint64_t> due_{kNever};
  LinkShares own_;                    // what this rank reported
  std::optional<Proposal> proposal_;  // accepted, of unknown end
  std::deque<Change> committed_;      // not reached yet
  Posts posts_;
  std::deque<Message> to_self_;
  // rank 0
  std::map<int, LinkShares> reports_;
  std::optional<Proposal> led_;
  LinkShares agreed_;
  uint64_t agreed_at_ = 0;
  uint64_t versions_ = 0;
  uint64_t ahead_ = kAheadMin;
  uint64_t farthest_ = 0;  // collective that a refusing rank was at
  bool is_over_ = false;   // it has left
};

}  // namespace plexus
