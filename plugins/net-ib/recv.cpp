// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/recv.hpp"

#include <cstddef>
#include <netinet/in.h>

#include "guest/assert.hpp"
#include "plugins/support/errno_text.hpp"

namespace plexus::net_ib {

RecvConnection::RecvConnection(Link link, const Place& place)
    : Connection(std::move(link), place, Role::kReceiver) {
  for (RecvRequest& request : requests_) {
    request.kind = plexus_net_request::Kind::kRecv;
    request.connection = this;
    free_.push(request);
  }
  for (FlushRequest& request : flushes_) {
    request.kind = plexus_net_request::Kind::kFlush;
    request.connection = this;
    request.number = static_cast<uint32_t>(&request - flushes_.data());
    free_flushes_.push(request);
  }
  enlist();
}

RecvConnection::~RecvConnection() {
  retire();
  say_bye();
}

int32_t RecvConnection::irecv(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request) {
  const Turn turn(*this);
  if (is_broken()) {
    return report_failure();
  }
  if (count == 0 || count > PLEXUS_NET_RECVS_MAX) {
    log().error("a grouped receive has 1..8 buffers");
    return PLEXUS_INVALID_ARGUMENT;
  }
  if (free_.is_empty()) {
    poll();
    return is_broken() ? report_failure() : PLEXUS_AGAIN;
  }
  RecvRequest& fresh = free_.pop();
  PLEXUS_DCHECK(!fresh.is_used && fresh.unfinished == 0, fresh.order, fresh.unfinished);
  fresh.order = next_order_++;
  ++fresh.round;
  fresh.count = count;
  fresh.unfinished = count;
  fresh.is_used = true;
  PostedGroup& group = area().posted[fresh.order % kPostedRing];
  for (uint32_t i = 0; i < count; ++i) {
    const plexus_net_buffer_t& from = buffers[i];
    fresh.buffers[i] = {from.size_bytes, 0, 0};
    PostedBuffer& to = group[i];
    to.address = reinterpret_cast<uintptr_t>(from.data);
    to.size_bytes = from.size_bytes;
    to.tag = from.tag;
    to.request = static_cast<uint16_t>(&fresh - requests_.data());
    to.count = static_cast<uint16_t>(count);
    to.round = fresh.round;
    to.order = fresh.order;
    for (uint32_t rail = 0; rail < rails() && from.memory != nullptr; ++rail) {
      to.rkeys[rail] = from.memory->rails[rail].region->rkey;
    }
  }
  announce(fresh);
  *request = &fresh;  // test() reports a failure, because the request exists
  return PLEXUS_OK;
}

void RecvConnection::announce(const RecvRequest& request) {
  for (uint32_t i = 0; i < rails() && !is_broken(); ++i) {
    if (!rail_set().is_up(i)) {
      continue;
    }
    const uint64_t slot = request.order % kPostedRing;
    const uint64_t bytes = request.count * sizeof(PostedBuffer);
    const uint64_t there = peer_area() + offsetof(Area, posted) + slot * sizeof(PostedGroup);
    const int error = rail(i).post_control({area().posted[slot].data(), bytes, rail(i).area_lkey()},
                                           {there, rail(i).peer().area_rkey});
    if (error == 0) {
      return;
    }
    rail_set().lose_posting(i, error);  // resend() announces it when the rail is stopped
    return;
  }
}

int32_t RecvConnection::test(RecvRequest& request, uint64_t* sizes_bytes) {
  const Turn turn(*this);
  if (request.unfinished > 0 && !is_broken()) {
    poll();
  }
  if (request.unfinished > 0) {
    return is_broken() ? report_failure() : PLEXUS_AGAIN;
  }
  for (uint32_t i = 0; sizes_bytes != nullptr && i < request.count; ++i) {
    sizes_bytes[i] = request.buffers[i].size_bytes;
  }
  request.is_used = false;
  free_.push(request);
  return PLEXUS_OK;
}

void RecvConnection::take_done(uint32_t rail_index, const ibv_wc& completion) {
  const WorkId id = WorkId::unpack(completion.wr_id);
  if (id.kind != WorkKind::kArrival || id.index >= rail(rail_index).qps()) {
    return;
  }
  take_arrival(Immediate::unpack(ntohl(completion.imm_data)));
  if (is_broken()) {
    return;
  }
  if (const int error = rail(rail_index).replace_arrival(id.index); error != 0) {
    rail_set().lose_posting(rail_index, error);
  }
}

void RecvConnection::take_arrival(const Immediate& immediate) {
  RecvRequest& request = requests_[immediate.request];
  const bool is_of_use = request.is_used && immediate.buffer < request.count &&
                         request.round % kImmediateRounds == immediate.round;
  if (!is_of_use || (request.buffers[immediate.buffer].parts_here >> immediate.part & 1) != 0) {
    break_off(fail(PLEXUS_REMOTE_ERROR,
                   "{} sent what no receive waits for (request {}, buffer {}, round {}, part {})",
                   peer(), immediate.request, immediate.buffer, immediate.round, immediate.part));
    return;
  }
  if (immediate.is_short) {
    finish_buffer(request, immediate.buffer, immediate.size_bytes);
    return;
  }
  RecvBuffer& buffer = request.buffers[immediate.buffer];
  buffer.parts_here |= 1U << immediate.part;
  const uint32_t all = immediate.parts == kPartsMax ? ~0U : (1U << immediate.parts) - 1;
  if (buffer.parts_here == all) {
    finish_buffer(
        request, immediate.buffer,
        __atomic_load_n(&area().sizes[immediate.request][immediate.buffer], __ATOMIC_ACQUIRE));
  }
}

void RecvConnection::finish_buffer(RecvRequest& request, uint32_t index, uint64_t size_bytes) {
  RecvBuffer& buffer = request.buffers[index];
  if (size_bytes > buffer.capacity_bytes) {
    break_off(fail(PLEXUS_REMOTE_ERROR, "{} says that it sent {} bytes into a receive of {}",
                   peer(), size_bytes, buffer.capacity_bytes));
    return;
  }
  buffer.size_bytes = size_bytes;
  buffer.parts_here = ~0U;
  PLEXUS_DCHECK(request.unfinished > 0, request.order, index);
  --request.unfinished;
  ++finished_;
}

void RecvConnection::resend(uint32_t, const WireDone&) {
  // A receive that the sender has seen already is passed over there.
  for (const RecvRequest& request : requests_) {
    if (request.is_used && request.unfinished > 0) {
      announce(request);
    }
  }
}

void RecvConnection::write_done(WireDone& done) const {
  done.messages = finished_;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const RecvRequest& request = requests_[i];
    done.order[i] = request.order;
    for (uint32_t buffer = 0; buffer < request.count; ++buffer) {
      done.parts[i][buffer] = request.buffers[buffer].parts_here;
    }
  }
}

void RecvConnection::take_bye(const WireDone&) {}

bool RecvConnection::has_all(const WireDone& done) const { return finished_ >= done.messages; }

// ------------------------------------------------------------------------------------------ flush

int32_t RecvConnection::flush(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request) {
  const Turn turn(*this);
  *request = nullptr;
  const plexus_net_buffer_t* last = nullptr;  // the card's reads follow all of its writes
  for (uint32_t i = 0; i < count; ++i) {
    if (buffers[i].size_bytes > 0 && buffers[i].memory != nullptr &&
        buffers[i].memory->kind != PLEXUS_MEMORY_HOST) {
      last = &buffers[i];
    }
  }
  if (last == nullptr || !settings().flushes) {
    return PLEXUS_OK;
  }
  if (is_broken()) {
    return report_failure();
  }
  if (free_flushes_.is_empty()) {
    log().error("net-ib: there are more flushes than receives in flight");
    return PLEXUS_INVALID_ARGUMENT;
  }
  FlushRequest& fresh = free_flushes_.pop();
  fresh.unfinished = 0;
  for (uint32_t i = 0; i < rails() && !is_broken(); ++i) {
    if (!rail(i).can_flush()) {
      continue;
    }
    const LocalPlace to = {&area().flushed, 1, rail(i).area_lkey()};
    const RemotePlace from = {reinterpret_cast<uintptr_t>(last->data),
                              last->memory->rails[i].region->rkey};
    if (const int error = rail(i).post_flush(to, from, fresh.number); error != 0) {
      break_off(fail(PLEXUS_SYSTEM_ERROR, "cannot flush received data to the GPU with {}: {}",
                     rail(i).port().name, plugin::errno_text(error)));
    } else {
      ++fresh.unfinished;
    }
  }
  *request = &fresh;  // test() reports a failure, because the request exists
  return PLEXUS_OK;
}

void RecvConnection::poll_flushes() {
  for (uint32_t i = 0; i < rails() && !is_broken(); ++i) {
    std::array<ibv_wc, kRequests> completions;  // NOLINT(*-member-init): written by poll
    size_t count = 0;
    const bool works = rail(i).poll_flushes(completions, count);
    for (size_t j = 0; j < count && !is_broken(); ++j) {
      if (completions[j].status == IBV_WC_SUCCESS) {
        --flushes_[completions[j].wr_id].unfinished;
      } else {
        break_off(fail(PLEXUS_SYSTEM_ERROR, "cannot flush received data to the GPU: {}",
                       rail(i).explain(completions[j])));
      }
    }
    if (!works && !is_broken()) {
      break_off(fail(PLEXUS_SYSTEM_ERROR,
                     "cannot flush received data to the GPU: the completion queue of {} failed",
                     rail(i).port().name));
    }
  }
}

int32_t RecvConnection::test(FlushRequest& request) {
  const Turn turn(*this);
  if (request.unfinished > 0 && !is_broken()) {
    poll_flushes();
  }
  if (request.unfinished > 0 && !is_broken()) {
    poll();
  }
  if (request.unfinished > 0) {
    return is_broken() ? report_failure() : PLEXUS_AGAIN;
  }
  free_flushes_.push(request);
  return PLEXUS_OK;
}

}  // namespace plexus::net_ib
