// SPDX-License-Identifier: Apache-2.0
// The aggregator's state machine, without sockets: groups of members, their parts, and the results.
// Everything that a member sends is checked; a member that breaks the protocol loses its
// connection, and its group ends with an error that names it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plugins/collnet-aggregator/wire.hpp"
#include "plugins/support/result.hpp"

namespace plexus::aggregator {

using plugin::fail;
using plugin::ok;
using plugin::Result;
using Bytes = std::vector<std::byte>;

/// Threads: one.
class Groups {
 public:
  /// Sends bytes to a link; several links may get the same bytes.
  using Send = std::function<void(int link, std::shared_ptr<const Bytes> bytes)>;
  explicit Groups(Send send) : send_(std::move(send)) {}

  /// A new connection; `peer` is its name in error messages.
  void open(int link, std::string peer);
  /// Takes bytes that were received. An Error: the link must be closed after everything was sent to
  /// it (close() must still be called).
  Result<void> feed(int link, std::span<const std::byte> bytes);
  /// The link is closed. `why`: half a sentence.
  void close(int link, const std::string& why);

  /// Whether the link has joined a group.
  [[nodiscard]] bool is_member(int link) const;
  [[nodiscard]] size_t group_count() const { return groups_.size(); }

 private:
  /// One reduction of a group.
  struct Round {
    uint8_t type = 0;
    uint8_t op = 0;
    std::vector<Bytes> parts;  // [members]
    uint32_t parts_here = 0;
  };
  struct Group {
    GroupId id{};
    std::vector<int> links;  // [members]; -1: not joined yet, or gone
    uint32_t links_here = 0;
    uint64_t rounds_done = 0;
    std::deque<Round> rounds;  // the first one has number rounds_done
    std::string failure;       // why the group ended; empty: it has not
  };
  struct Link {
    std::string peer;
    Bytes unread;
    std::shared_ptr<Group> group;  // shared by the group's links
    uint32_t member = 0;
    uint64_t next = 0;  // number of its next reduction
  };

  Result<void> take(int link, const WireFrame& frame, std::span<const std::byte> payload);
  Result<void> join(int link, std::span<const std::byte> payload);
  Result<void> add_part(Link& link, const WireFrame& frame, std::span<const std::byte> payload);
  void finish_rounds(Group& group);
  void end_group(Group& group, const std::string& why);
  void forget(const Group& group);

  Send send_;
  std::map<int, Link> links_;
  std::map<GroupId, std::shared_ptr<Group>> groups_;
};

/// Checks the header of a frame.
Result<void> check_frame(const WireFrame& frame);
/// A frame of `kind` with `payload`.
std::shared_ptr<const Bytes> make_frame(WireFrame frame, std::span<const std::byte> payload);

}  // namespace plexus::aggregator
