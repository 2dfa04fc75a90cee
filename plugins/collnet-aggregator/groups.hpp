// SPDX-License-Identifier: Apache-2.0
// The aggregator's mind, without sockets: groups of members, the parts that came, the sums that go.
// Everything a member says is checked; one that breaks the rules loses its connection, and its
// group ends with a sentence that names it.
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
  /// What a link is to be told; several links may get the same bytes.
  using Send = std::function<void(int link, std::shared_ptr<const Bytes> bytes)>;
  explicit Groups(Send send) : send_(std::move(send)) {}

  /// A new connection; `peer` names it in sentences.
  void open(int link, std::string peer);
  /// Bytes that came. An error: the link is to be closed once it has been told all (close() is
  /// still to be called).
  Result<void> feed(int link, std::span<const std::byte> bytes);
  /// The link is gone. `why`: half a sentence.
  void close(int link, const std::string& why);

  /// Has the link said to which group it belongs?
  [[nodiscard]] bool is_member(int link) const;
  [[nodiscard]] size_t group_count() const { return groups_.size(); }

 private:
  /// The k-th reduction of a group.
  struct Round {
    uint8_t type = 0;
    uint8_t op = 0;
    std::vector<Bytes> parts;  // [members]
    uint32_t parts_here = 0;
  };
  struct Group {
    Secret secret{};
    std::vector<int> links;  // [members]; -1: not here yet, or gone
    uint32_t links_here = 0;
    uint64_t rounds_done = 0;
    std::deque<Round> rounds;  // from number rounds_done on
    std::string failure;       // not empty: it ended
  };
  struct Link {
    std::string peer;
    Bytes unread;
    std::shared_ptr<Group> group;  // shared by its links
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
  std::map<Secret, std::shared_ptr<Group>> groups_;
};

/// Checks what stands in the first bytes of a frame.
Result<void> check_frame(const WireFrame& frame);
/// A frame of `kind` with `payload`.
std::shared_ptr<const Bytes> make_frame(WireFrame frame, std::span<const std::byte> payload);

}  // namespace plexus::aggregator
