// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/send.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <netinet/in.h>

#include "guest/assert.hpp"

namespace plexus::net_ib {
namespace {

using Kind = plexus_net_request::Kind;

/// Writes besides the data: a long message's size, and an immediate of its own.
constexpr uint32_t kExtraWrites = 2;

bool is_in_host_memory(const SendRequest& request) noexcept {
  return std::all_of(request.sources.begin(), request.sources.begin() + request.sources_count,
                     [](const plexus_net_source_t& source) {
                       return source.size_bytes == 0 || source.memory->kind == PLEXUS_MEMORY_HOST;
                     });
}

}  // namespace

uint64_t message_bytes_max(const Device& device) {
  uint64_t bytes = kMessageBytesMax;
  for (const Port* const port : device.ports) {
    bytes = std::min<uint64_t>(bytes,
                               uint64_t{port->attributes.max_msg_sz} * (kSendDepth - kExtraWrites));
  }
  return bytes;
}

SendConnection::SendConnection(Link link, const Place& place)
    : Connection(std::move(link), place, Role::kSender), chunk_bytes_(kMessageBytesMax) {
  for (SendRequest& request : requests_) {
    request.kind = Kind::kSend;
    request.connection = this;
    request.number = static_cast<uint32_t>(&request - requests_.data());
    free_.push(request);
  }
  for (uint32_t i = 0; i < rails(); ++i) {
    chunk_bytes_ = std::min<uint64_t>(chunk_bytes_, rail(i).port().attributes.max_msg_sz);
  }
  enlist();
}

SendConnection::~SendConnection() {
  retire();
  say_bye();
}

int32_t SendConnection::isend(std::span<const plexus_net_source_t> sources,
                              int32_t tag,
                              plexus_net_request_t** request) {
  const Turn turn(*this);
  if (is_broken()) {
    return report_failure();
  }
  if (sources.empty() || sources.size() > PLEXUS_NET_PIECES_MAX) {
    log().error("net-ib: a message that is sent has 1..4 sources");
    return PLEXUS_INVALID_ARGUMENT;
  }
  uint64_t size_bytes = 0;
  for (const plexus_net_source_t& source : sources) {
    size_bytes += source.size_bytes;
    if (source.size_bytes > 0 && source.memory == nullptr) {
      log().error("net-ib: isend needs registered memory");
      return PLEXUS_INVALID_ARGUMENT;
    }
  }
  if (free_.is_empty()) {
    progress();
    return is_broken() ? report_failure() : PLEXUS_AGAIN;
  }
  SendRequest& fresh = free_.pop();
  PLEXUS_DCHECK(!fresh.is_used, fresh.number);
  std::copy(sources.begin(), sources.end(), fresh.sources.begin());
  fresh.sources_count = static_cast<uint32_t>(sources.size());
  fresh.size_bytes = size_bytes;
  fresh.tag = tag;
  fresh.is_used = true;
  fresh.is_matched = false;
  take_posted();
  // An older message with this tag that waits would have taken the buffer.
  if (is_broken() || !match(fresh)) {
    unmatched_.push(fresh);
  }
  *request = &fresh;  // test() reports a failure, because the request exists
  return PLEXUS_OK;
}

int32_t SendConnection::test(SendRequest& request, uint64_t* sizes_bytes) {
  const Turn turn(*this);
  if (!request.is_done() && !is_broken()) {
    progress();
  }
  if (!request.is_done()) {
    return is_broken() ? report_failure() : PLEXUS_AGAIN;
  }
  if (sizes_bytes != nullptr) {
    *sizes_bytes = request.size_bytes;
  }
  request.is_used = false;
  free_.push(request);
  return PLEXUS_OK;
}

void SendConnection::progress() {
  take_posted();
  if (!is_broken() && !unposted_.is_empty()) {
    post_waiting();
  }
  if (!is_broken()) {
    poll();
  }
}

// ------------------------------------------------------------------------------- posted receives

void SendConnection::take_posted() {
  bool has_new = false;
  while (!is_broken()) {
    const PostedGroup& group = area().posted[next_order_ % kPostedRing];
    // The card writes it; `order` comes last.
    if (__atomic_load_n(&group[0].order, __ATOMIC_ACQUIRE) != next_order_ || !take_group(group)) {
      break;
    }
    ++next_order_;
    has_new = true;
  }
  if (has_new) {
    match_waiting();
  }
}

/// False: it is not complete yet, or wrong.
bool SendConnection::take_group(const PostedGroup& group) {
  const uint32_t count = group[0].count;
  const uint32_t number = group[0].request;
  if (count == 0 || count > group.size() || number >= kRequests ||
      open_[number].free_buffers != 0) {
    break_off(fail(PLEXUS_REMOTE_ERROR, "{} posted an invalid receive (number {}, {} buffers)",
                   peer(), number, count));
    return false;
  }
  for (uint32_t i = 1; i < count; ++i) {
    if (__atomic_load_n(&group[i].order, __ATOMIC_ACQUIRE) != next_order_) {
      return false;
    }
  }
  OpenGroup& open = open_[number];
  std::copy_n(group.begin(), count, open.buffers.begin());
  open.free_buffers = (1U << count) - 1;
  oldest_.push(open);
  return true;
}

void SendConnection::match_waiting() {
  for (uint32_t i = 0; i < unmatched_.size() && !oldest_.is_empty() && !is_broken();) {
    if (match(unmatched_.at(i))) {
      unmatched_.erase(i);
    } else {
      ++i;
    }
  }
}

bool SendConnection::match(SendRequest& request) {
  for (uint32_t i = 0; i < oldest_.size(); ++i) {
    OpenGroup& group = oldest_.at(i);
    for (uint32_t left = group.free_buffers; left != 0; left &= left - 1) {
      const auto buffer = static_cast<uint32_t>(std::countr_zero(left));
      if (group.buffers[buffer].tag != request.tag) {
        continue;
      }
      group.free_buffers &= ~(1U << buffer);
      if (group.free_buffers == 0) {
        oldest_.erase(i);
      }
      request.target = group.buffers[buffer];
      request.target_buffer = buffer;
      start(request);
      return true;
    }
  }
  return false;
}

// ------------------------------------------------------------------------------------- the writes

uint32_t SendConnection::lanes() const noexcept {
  return rail_set().up() * (settings().splits_on_qps ? settings().qps : 1);
}

void SendConnection::start(SendRequest& request) {
  request.is_matched = true;
  request.parts = count_parts(request.size_bytes, lanes(), settings().stripe_bytes_min);
  request.waiting = request.parts;
  request.unfinished = request.parts;
  std::fill_n(request.part.begin(), request.parts, SendRequest::SentPart{});
  if (request.size_bytes > request.target.size_bytes) {
    break_off(fail(PLEXUS_INVALID_USAGE,
                   "a message of {} bytes with tag {} is longer than the receive of {}, which has "
                   "room for {}: the ranks' calls differ in size",
                   request.size_bytes, request.tag, peer(), request.target.size_bytes));
    return;
  }
  if (!unposted_.is_empty() || !post_parts(request)) {
    unposted_.push(request);
  }
}

void SendConnection::post_waiting() {
  while (!unposted_.is_empty() && !is_broken() && post_parts(unposted_.front())) {
    unposted_.pop();
  }
}

bool SendConnection::post_parts(SendRequest& request) {
  for (uint32_t i = 0; i < request.parts && request.waiting > 0; ++i) {
    if (request.part[i].state == SendRequest::PartState::kWaiting && !post_part(request, i)) {
      return false;
    }
  }
  return true;
}

/// Adaptive routing may deliver packets out of order: a long write is then followed by an immediate
/// of its own, which the card orders behind it.
bool SendConnection::announces_apart(uint64_t size_bytes) const noexcept {
  const Choice choice = settings().adaptive_routing;
  const bool routes =
      choice == Choice::kOn || (choice == Choice::kAuto && rail(0).port().is_infiniband());
  return routes && size_bytes > settings().adaptive_routing_bytes;
}

uint32_t SendConnection::count_places(const SendRequest& request, const Part& part) const noexcept {
  const auto writes =
      part.size_bytes <= chunk_bytes_
          ? 1
          : static_cast<uint32_t>((part.size_bytes + chunk_bytes_ - 1) / chunk_bytes_);
  const bool is_long = request.parts > 1 || request.size_bytes > kShortBytesMax;
  return writes + (is_long ? 1 : 0) + (announces_apart(part.size_bytes) ? 1 : 0);
}

/// The next rail and queue pair in turn; a rail that is not up or has no room is passed over. A
/// lane without room is returned when none has it.
SendConnection::Lane SendConnection::choose_lane(uint32_t places) {
  const uint32_t all = rails() * settings().qps;
  Lane lane;
  for (uint32_t tries = 0; tries < all; ++tries) {
    lane = take_lane();
    if (rail_set().is_up(lane.rail) && rail(lane.rail).room(lane.qp) >= places) {
      break;
    }
  }
  return lane;
}

SendConnection::Lane SendConnection::take_lane() noexcept {
  const Lane lane = next_lane_;
  if (++next_lane_.rail == rails()) {
    next_lane_ = {0, lane.qp + 1 == settings().qps ? 0 : lane.qp + 1};
  }
  return lane;
}

bool SendConnection::post_part(SendRequest& request, uint32_t index) {
  const uint32_t places = count_places(request, cut_part(request.size_bytes, request.parts, index));
  const Lane lane = choose_lane(places);
  if (!rail_set().is_up(lane.rail) || rail(lane.rail).room(lane.qp) < places) {
    return false;
  }
  const uint32_t count = lay_out(request, index, lane.rail);
  PLEXUS_DCHECK(count == places, count, places);
  PLEXUS_DCHECK(request.waiting > 0 && request.waiting <= request.unfinished, request.waiting,
                request.unfinished);
  request.part[index] = {SendRequest::PartState::kPosted, static_cast<uint8_t>(lane.rail),
                         static_cast<uint8_t>(lane.qp), static_cast<uint16_t>(count)};
  --request.waiting;
  if (const int error = rail(lane.rail).post_data(lane.qp, work_[0], count); error != 0) {
    // Some of the writes may be under way: the part goes over another rail when this one is
    // stopped.
    rail_set().lose_posting(lane.rail, error);
  }
  return !is_broken();
}

uint32_t SendConnection::gather(const SendRequest& request,
                                uint64_t begin,
                                uint64_t size_bytes,
                                uint32_t rail_index) {
  const uint32_t first = pieces_count_;
  for (uint32_t i = 0; i < request.sources_count && size_bytes > 0; ++i) {
    const plexus_net_source_t& source = request.sources[i];
    if (begin >= source.size_bytes) {
      begin -= source.size_bytes;
      continue;
    }
    const uint64_t bytes = std::min(source.size_bytes - begin, size_bytes);
    pieces_[pieces_count_++] = {reinterpret_cast<uintptr_t>(source.data) + begin,
                                static_cast<uint32_t>(bytes),
                                source.memory->rails[rail_index].region->lkey};
    size_bytes -= bytes;
    begin = 0;
  }
  PLEXUS_DCHECK(size_bytes == 0 && pieces_count_ <= pieces_.size(), size_bytes, pieces_count_);
  return pieces_count_ - first;
}

uint32_t SendConnection::lay_out(const SendRequest& request, uint32_t index, uint32_t rail_index) {
  const Rail& rail = this->rail(rail_index);
  const Part part = cut_part(request.size_bytes, request.parts, index);
  const PostedBuffer& target = request.target;
  const bool is_long = request.parts > 1 || request.size_bytes > kShortBytesMax;
  uint32_t count = 0;
  pieces_count_ = 0;
  // Writes the last `pieces` of pieces_.
  const auto add = [&](uint32_t pieces, const RemotePlace& to) {
    PLEXUS_DCHECK(count < work_.size(), count);
    ibv_send_wr& work = work_[count];
    work.wr_id = WorkId{WorkKind::kData, request.number, index}.pack();
    work.next = nullptr;
    work.sg_list = &pieces_[pieces_count_ - pieces];
    work.num_sge = static_cast<int>(pieces);
    work.opcode = IBV_WR_RDMA_WRITE;
    work.send_flags = 0;
    work.wr.rdma = {to.address, to.rkey};
    if (count > 0) {
      work_[count - 1].next = &work;
    }
    ++count;
  };
  if (is_long) {  // every part says it, because any may be the only one that is sent again
    uint64_t& size = area().sizes[target.request][request.target_buffer];
    size = request.size_bytes;
    const uint64_t there =
        peer_area() + offsetof(Area, sizes) +
        (target.request * PLEXUS_NET_RECVS_MAX + request.target_buffer) * sizeof(uint64_t);
    pieces_[pieces_count_++] = {reinterpret_cast<uintptr_t>(&size), sizeof size, rail.area_lkey()};
    add(1, {there, rail.peer().area_rkey});
  }
  const bool is_apart = announces_apart(part.size_bytes);
  for (uint64_t done = 0; done < part.size_bytes;) {
    const uint64_t bytes = std::min(part.size_bytes - done, chunk_bytes_);
    add(gather(request, part.begin + done, bytes, rail_index),
        {target.address + part.begin + done, target.rkeys[rail_index]});
    done += bytes;
  }
  if (part.size_bytes == 0 || is_apart) {
    add(0, {peer_area(), rail.peer().area_rkey});
  }
  ibv_send_wr& last = work_[count - 1];
  last.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  last.send_flags = IBV_SEND_SIGNALED;
  const bool is_inline = count == 1 && part.size_bytes <= rail.inline_bytes_max() &&
                         part.size_bytes > 0 && is_in_host_memory(request);
  last.send_flags |= flag_if(is_inline, IBV_SEND_INLINE);
  const Immediate immediate = {.request = target.request,
                               .buffer = request.target_buffer,
                               .round = static_cast<uint32_t>(target.round),
                               .is_short = !is_long,
                               .size_bytes = static_cast<uint32_t>(is_long ? 0 : part.size_bytes),
                               .part = index,
                               .parts = request.parts};
  last.imm_data = htonl(immediate.pack());
  return count;
}

// ------------------------------------------------------------------------------------- their ends

void SendConnection::finish_part(SendRequest& request, uint32_t index) {
  PLEXUS_DCHECK(request.part[index].state == SendRequest::PartState::kPosted, index);
  PLEXUS_DCHECK(request.unfinished > request.waiting, request.unfinished, request.waiting);
  request.part[index].state = SendRequest::PartState::kDone;
  finished_ += --request.unfinished == 0 ? 1 : 0;
}

void SendConnection::take_done(uint32_t rail_index, const ibv_wc& completion) {
  const WorkId id = WorkId::unpack(completion.wr_id);
  if (id.kind != WorkKind::kData || id.index >= requests_.size()) {
    return;
  }
  SendRequest& request = requests_[id.index];
  if (id.detail >= request.parts ||
      request.part[id.detail].state != SendRequest::PartState::kPosted) {
    return;
  }
  const SendRequest::SentPart& part = request.part[id.detail];
  rail(rail_index).give_back(part.qp, part.places);
  finish_part(request, id.detail);
}

void SendConnection::resend(uint32_t rail_index, const WireDone& done) {
  for (SendRequest& request : requests_) {
    if (!request.is_used || !request.is_matched) {
      continue;
    }
    const bool was_waiting = request.waiting > 0;
    const uint32_t there = parts_there(request, done);
    for (uint32_t i = 0; i < request.parts; ++i) {
      SendRequest::SentPart& part = request.part[i];
      if (part.state != SendRequest::PartState::kPosted || part.rail != rail_index) {
        continue;
      }
      if ((there >> i & 1) != 0) {
        finish_part(request, i);
      } else {
        part.state = SendRequest::PartState::kWaiting;
        ++request.waiting;
      }
    }
    if (request.waiting > 0 && !was_waiting) {
      unposted_.push(request);
    }
  }
  post_waiting();
}

void SendConnection::write_done(WireDone& done) const { done.messages = finished_; }

uint32_t SendConnection::parts_there(const SendRequest& request, const WireDone& done) {
  const uint32_t number = request.target.request;
  if (done.order[number] != request.target.order) {
    return done.order[number] > request.target.order ? ~0U : 0;
  }
  return done.parts[number][request.target_buffer];
}

void SendConnection::take_bye(const WireDone& done) {
  for (SendRequest& request : requests_) {
    if (!request.is_used || !request.is_matched) {
      continue;
    }
    const uint32_t there = parts_there(request, done);
    for (uint32_t i = 0; i < request.parts; ++i) {
      if (request.part[i].state == SendRequest::PartState::kPosted && (there >> i & 1) != 0) {
        finish_part(request, i);
      }
    }
  }
}

bool SendConnection::has_all(const WireDone&) const { return true; }

}  // namespace plexus::net_ib
