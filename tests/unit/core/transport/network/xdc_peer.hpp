// SPDX-License-Identifier: Apache-2.0
// The other end of a cross-DC connection, played by a test: the control messages as they travel
// (core/transport/network/xdc.hpp), and connections of a plugin made by hand.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/control/control_tag.hpp"
#include "core/transport/network/xdc.hpp"
#include "tests/support/net_pair.hpp"

namespace plexus::test {

struct XdcMessage {
  enum Kind : uint64_t { kListening, kAcks, kMove, kCalled, kTry, kReady, kSwitch };
  uint64_t kind;
  uint64_t epoch;
  uint64_t count;
  NetHandle handle = {};
  std::string route = {};
};

/// Of connection 4 between rank 0, which sends, and rank 1. The end under test is that of rank
/// `tested`; the test plays the other rank.
class XdcPeer {
 public:
  XdcPeer(int tested, size_t paths) : tested_(tested) {
    const auto plugin =
        load_plugin(built_file("PLEXUS_TEST_EXAMPLE_DIR", "libplexus-net-minimal.so"));
    for (size_t path = 0; path < paths; ++path) {
      contexts_.push_back(make_context(plugin));
    }
  }

  [[nodiscard]] EndId id() const {
    return {.key = {.peer = 1 - tested_, .sends = tested_ == 0, .index = 4}};
  }
  [[nodiscard]] XdcEndOptions options(std::chrono::milliseconds patience, uint32_t sockets = 1) {
    XdcEndOptions made{.exchange = exchanges_[static_cast<size_t>(tested_)].get(),
                       .paths = {},
                       .slot_bytes = 1024,
                       .life = 0,
                       .window = 12,
                       .sockets = sockets,
                       .patience = patience,
                       .peer_name = "rank P (there:22)"};
    for (size_t path = 0; path < contexts_.size(); ++path) {
      made.paths.push_back({&contexts_[path], 0, fmt::format("Minimal {}", path)});
    }
    return made;
  }
  [[nodiscard]] const NetContext& context() const { return contexts_.front(); }

  void post(const XdcMessage& message) {
    std::string bytes(3 * sizeof(uint64_t) + sizeof(NetHandle), '\0');
    std::memcpy(bytes.data(), &message.kind, 3 * sizeof(uint64_t));
    std::memcpy(bytes.data() + 3 * sizeof(uint64_t), &message.handle, sizeof(NetHandle));
    post_bytes(bytes + message.route);
  }
  void post_bytes(const std::string& bytes) {
    EXPECT_TRUE(mine().post(tested_, tag(tested_ == 1), bytes).has_value());
  }
  /// The next one of the end under test.
  std::optional<XdcMessage> take() {
    const auto bytes = mine().try_take(tested_, tag(tested_ == 0));
    if (!bytes.has_value()) {
      return std::nullopt;
    }
    constexpr size_t kHead = 3 * sizeof(uint64_t) + sizeof(NetHandle);
    EXPECT_GE(bytes->size(), kHead);
    XdcMessage message{};
    std::memcpy(&message.kind, bytes->data(), 3 * sizeof(uint64_t));
    std::memcpy(&message.handle, bytes->data() + 3 * sizeof(uint64_t), sizeof(NetHandle));
    message.route = bytes->substr(kHead);
    return message;
  }

 private:
  static uint64_t tag(bool to_receiver) {
    return tag_of(ControlTag::kXdc, 4U << 1 | (to_receiver ? 1U : 0U));
  }
  Exchange& mine() { return *exchanges_[static_cast<size_t>(1 - tested_)]; }

  int tested_;
  std::vector<NetContext> contexts_;
  std::vector<std::unique_ptr<Exchange>> exchanges_ = make_local_exchanges(2);
};

}  // namespace plexus::test
