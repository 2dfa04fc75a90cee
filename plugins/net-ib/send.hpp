// SPDX-License-Identifier: Apache-2.0
// The sending end. The receiver writes its posted receives into this end's Area; a message takes
// the oldest free buffer with its tag and is written straight into it, in one part or, over several
// queue pairs, in several. The last write of a part has immediate data, which completes it at the
// receiver. Messages without a buffer wait here.
//
// All requests exist from the start; nothing allocates after connecting, except the reason of a
// failure. Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "plugins/net-ib/connection.hpp"
#include "plugins/support/pointer_queue.hpp"

namespace plexus::net_ib {

/// Longest message of a device: its writes fit in the send queue of one queue pair.
[[nodiscard]] uint64_t message_bytes_max(const Device& device);

class SendConnection;

struct SendRequest : plexus_net_request {
  enum class PartState : uint8_t { kWaiting, kPosted, kDone };
  struct SentPart {
    PartState state = PartState::kWaiting;
    uint8_t rail = 0;     // posted
    uint8_t qp = 0;       // posted
    uint16_t places = 0;  // posted: in the send queue
  };
  SendConnection* connection = nullptr;
  uint32_t number = 0;                                               // its index
  std::array<plexus_net_source_t, PLEXUS_NET_PIECES_MAX> sources{};  // one behind the other
  uint32_t sources_count = 0;
  uint64_t size_bytes = 0;
  int32_t tag = 0;
  bool is_used = false;
  bool is_matched = false;
  PostedBuffer target{};  // matched
  uint32_t target_buffer = 0;
  uint32_t parts = 0;
  uint32_t waiting = 0;     // parts that are not posted
  uint32_t unfinished = 0;  // parts that are not done; 0 of a matched request: it is done
  std::array<SentPart, kPartsMax> part;

  [[nodiscard]] bool is_done() const noexcept { return is_matched && unfinished == 0; }
};

class SendConnection final : public Connection {
 public:
  SendConnection(Link link, const Place& place);
  ~SendConnection() override;

  /// Each returns a PLEXUS_* code, as plexus_net.h specifies.
  [[nodiscard]] int32_t isend(const void* data,
                              uint64_t size_bytes,
                              int32_t tag,
                              plexus_net_memory_t* memory,
                              plexus_net_request_t** request) {
    const plexus_net_source_t source = {data, size_bytes, memory};
    return isend({&source, 1}, tag, request);
  }
  [[nodiscard]] int32_t isend_gathered(uint32_t count,
                                       const plexus_net_source_t* sources,
                                       int32_t tag,
                                       plexus_net_request_t** request) {
    return isend({sources, count}, tag, request);
  }
  [[nodiscard]] int32_t isend(std::span<const plexus_net_source_t> sources,
                              int32_t tag,
                              plexus_net_request_t** request);
  [[nodiscard]] int32_t test(SendRequest& request, uint64_t* sizes_bytes);

 private:
  /// A posted receive with free buffers.
  struct OpenGroup {
    PostedGroup buffers{};
    uint32_t free_buffers = 0;  // bit mask
  };
  struct Lane {
    uint32_t rail = 0;
    uint32_t qp = 0;
  };

  void take_done(uint32_t rail, const ibv_wc& completion) override;
  void resend(uint32_t rail, const WireDone& done) override;
  void write_done(WireDone& done) const override;
  void take_bye(const WireDone& done) override;
  [[nodiscard]] bool has_all(const WireDone& done) const override;

  void progress();
  void take_posted();
  [[nodiscard]] bool take_group(const PostedGroup& group);
  void match_waiting();
  /// False: no buffer has its tag.
  [[nodiscard]] bool match(SendRequest& request);
  void start(SendRequest& request);
  void post_waiting();
  /// Posts what can be posted. False: some is left.
  [[nodiscard]] bool post_parts(SendRequest& request);
  [[nodiscard]] bool post_part(SendRequest& request, uint32_t index);
  [[nodiscard]] Lane choose_lane(uint32_t places);
  [[nodiscard]] Lane take_lane() noexcept;
  [[nodiscard]] uint32_t lanes() const noexcept;
  /// Builds the writes of a part in work_; returns their number.
  [[nodiscard]] uint32_t lay_out(const SendRequest& request, uint32_t index, uint32_t rail);
  /// Adds to pieces_ what of the message lies in [begin, begin + size); returns how many.
  uint32_t gather(const SendRequest& request, uint64_t begin, uint64_t size_bytes, uint32_t rail);
  [[nodiscard]] uint32_t count_places(const SendRequest& request, const Part& part) const noexcept;
  [[nodiscard]] bool announces_apart(uint64_t size_bytes) const noexcept;
  void finish_part(SendRequest& request, uint32_t index);
  /// Parts of `request` that the receiver has, whether they were acknowledged or not.
  [[nodiscard]] static uint32_t parts_there(const SendRequest& request, const WireDone& done);

  uint64_t chunk_bytes_;     // longest single write
  uint64_t next_order_ = 1;  // the order of the next posted receive
  Lane next_lane_;
  uint64_t finished_ = 0;                              // messages
  std::array<OpenGroup, kRequests> open_;              // [receiver's request]
  plugin::PointerQueue<OpenGroup, kRequests> oldest_;  // those with free buffers
  std::array<SendRequest, kSendRequests> requests_;
  plugin::PointerQueue<SendRequest, kSendRequests> free_;
  plugin::PointerQueue<SendRequest, kSendRequests> unmatched_;
  plugin::PointerQueue<SendRequest, kSendRequests> unposted_;  // matched, with waiting parts
  std::array<ibv_send_wr, kSendDepth> work_{};
  // The pieces of all writes of one part; each boundary between two sources makes one more.
  std::array<ibv_sge, kSendDepth + PLEXUS_NET_PIECES_MAX - 1> pieces_{};
  uint32_t pieces_count_ = 0;
};

}  // namespace plexus::net_ib
