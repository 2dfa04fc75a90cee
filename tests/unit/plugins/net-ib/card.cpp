// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/plugins/net-ib/card.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace plexus::net_ib::test {
namespace {

struct Queue {
  ibv_cq base{};
  std::deque<ibv_wc> entries;
  std::deque<uint32_t> pairs;  // [entries] which queue pair it is of
};

struct Region {
  ibv_mr base{};
  Card* card = nullptr;
};

struct Work {
  ibv_send_wr request{};
  std::vector<ibv_sge> pieces;
  std::vector<std::byte> inline_bytes;
  bool is_carried_out = false;  // and not acknowledged
};

/// All that is registered, and all queue pairs, of all cards.
struct World {
  std::vector<Region*> regions;
  std::vector<QueuePair*> pairs;
  uint32_t numbers = 100;
};
World& world() {
  static World all;
  return all;
}

}  // namespace

struct QueuePair {
  ibv_qp base{};
  Card* card = nullptr;
  Queue* completions = nullptr;
  uint32_t peer = 0;
  std::deque<Work> work;
  std::deque<uint64_t> arrivals;
};

namespace {

Card& card_of(ibv_context* context) { return *reinterpret_cast<Card*>(context->abi_compat); }

void complete(QueuePair& pair, uint64_t id, ibv_wc_status status, uint32_t immediate = 0) {
  ibv_wc entry{};
  entry.wr_id = id;
  entry.status = status;
  entry.imm_data = immediate;
  entry.qp_num = pair.base.qp_num;
  pair.completions->entries.push_back(entry);
  pair.completions->pairs.push_back(pair.base.qp_num);
}

/// Everything ends: nothing is under way any more.
void fail_pair(QueuePair& pair, ibv_wc_status first) {
  pair.base.state = IBV_QPS_ERR;
  for (const Work& work : pair.work) {
    complete(pair, work.request.wr_id, std::exchange(first, IBV_WC_WR_FLUSH_ERR));
  }
  for (const uint64_t id : pair.arrivals) {
    complete(pair, id, IBV_WC_WR_FLUSH_ERR);
  }
  pair.work.clear();
  pair.arrivals.clear();
}

QueuePair* find_pair(uint32_t number) {
  const auto& all = world().pairs;
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const QueuePair* each) { return each->base.qp_num == number; });
  return found == all.end() ? nullptr : *found;
}

/// `key`: an rkey, or an lkey, which are equal here.
bool is_registered(uint64_t address, uint64_t size_bytes, uint32_t key) {
  const auto& all = world().regions;
  return size_bytes == 0 || std::any_of(all.begin(), all.end(), [&](const Region* each) {
           const auto begin = reinterpret_cast<uintptr_t>(each->base.addr);
           return each->base.rkey == key && begin <= address &&
                  address + size_bytes <= begin + each->base.length;
         });
}

std::vector<std::byte> bytes_of(const std::vector<ibv_sge>& pieces) {
  std::vector<std::byte> bytes;
  for (const ibv_sge& piece : pieces) {
    const auto* const from = reinterpret_cast<const std::byte*>(piece.addr);
    bytes.insert(bytes.end(), from, from + piece.length);
  }
  return bytes;
}

/// False: it cannot be done now.
bool carry_out(QueuePair& pair, Work& work) {
  QueuePair* const peer = find_pair(pair.peer);
  if (peer == nullptr || peer->base.state < IBV_QPS_RTR || peer->base.state == IBV_QPS_ERR ||
      !peer->card->is_port_up) {
    return false;
  }
  const bool has_immediate = work.request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (has_immediate && peer->arrivals.empty()) {
    return false;
  }
  uint64_t size_bytes = 0;
  for (const ibv_sge& piece : work.pieces) {
    size_bytes += piece.length;
    if (work.inline_bytes.empty() && !is_registered(piece.addr, piece.length, piece.lkey)) {
      fail_pair(pair, IBV_WC_LOC_PROT_ERR);
      return false;
    }
  }
  const uint64_t there = work.request.wr.rdma.remote_addr;
  if (!is_registered(there, size_bytes, work.request.wr.rdma.rkey)) {
    fail_pair(pair, IBV_WC_REM_ACCESS_ERR);
    return false;
  }
  if (work.request.opcode == IBV_WR_RDMA_READ) {
    ++pair.card->reads;
    std::memcpy(reinterpret_cast<void*>(work.pieces.front().addr),
                reinterpret_cast<const void*>(there), size_bytes);
  } else if (size_bytes > 0) {
    ++pair.card->writes;
    const std::vector<std::byte> bytes =
        work.inline_bytes.empty() ? bytes_of(work.pieces) : work.inline_bytes;
    std::memcpy(reinterpret_cast<void*>(there), bytes.data(), size_bytes);
  }
  if (has_immediate) {
    complete(*peer, peer->arrivals.front(), IBV_WC_SUCCESS, work.request.imm_data);
    peer->arrivals.pop_front();
  }
  return true;
}

void advance(QueuePair& pair) {
  if (pair.card->is_holding || !pair.card->is_port_up) {
    return;
  }
  for (Work& work : pair.work) {
    if (!work.is_carried_out && !carry_out(pair, work)) {
      break;
    }
    work.is_carried_out = true;
  }
  while (!pair.work.empty() && pair.work.front().is_carried_out &&
         !pair.card->loses_acknowledgements) {
    if ((pair.work.front().request.send_flags & IBV_SEND_SIGNALED) != 0) {
      complete(pair, pair.work.front().request.wr_id, IBV_WC_SUCCESS);
    }
    pair.work.pop_front();
  }
}

// ------------------------------------------------------------------------- libibverbs's functions

int post_send(ibv_qp* raw, ibv_send_wr* first, ibv_send_wr** bad) {
  auto& pair = *reinterpret_cast<QueuePair*>(raw);
  for (ibv_send_wr* each = first; each != nullptr; each = each->next) {
    if (pair.card->posts_until_refusal != UINT32_MAX && pair.card->posts_until_refusal-- == 0) {
      *bad = each;
      return ENOMEM;
    }
    Work& work = pair.work.emplace_back();
    work.request = *each;
    work.pieces.assign(each->sg_list, each->sg_list + each->num_sge);
    if ((each->send_flags & IBV_SEND_INLINE) != 0) {
      work.inline_bytes = bytes_of(work.pieces);
    }
  }
  if (pair.base.state == IBV_QPS_ERR) {
    fail_pair(pair, IBV_WC_WR_FLUSH_ERR);
  }
  return 0;
}

int post_recv(ibv_qp* raw, ibv_recv_wr* first, ibv_recv_wr**) {
  auto& pair = *reinterpret_cast<QueuePair*>(raw);
  for (; first != nullptr; first = first->next) {
    pair.arrivals.push_back(first->wr_id);
  }
  if (pair.base.state == IBV_QPS_ERR) {
    fail_pair(pair, IBV_WC_WR_FLUSH_ERR);
  }
  return 0;
}

int poll_cq(ibv_cq* raw, int room, ibv_wc* entries) {
  auto& queue = *reinterpret_cast<Queue*>(raw);
  for (QueuePair* const each : std::vector<QueuePair*>(world().pairs)) {
    advance(*each);
  }
  int count = 0;
  for (; count < room && !queue.entries.empty(); ++count) {
    entries[count] = queue.entries.front();
    queue.entries.pop_front();
    queue.pairs.pop_front();
  }
  return count;
}

ibv_pd* alloc_pd(ibv_context* context) {
  auto* const pd = new ibv_pd{};  // NOLINT(*-owning-memory): dealloc_pd ends it
  pd->context = context;
  return pd;
}
int dealloc_pd(ibv_pd* pd) {
  delete pd;  // NOLINT(*-owning-memory)
  return 0;
}

ibv_mr* reg_mr(ibv_pd* pd, void* data, size_t size_bytes, uint64_t, unsigned) {
  auto* const region = new Region{};  // NOLINT(*-owning-memory): dereg_mr ends it
  region->card = &card_of(pd->context);
  region->base.addr = data;
  region->base.length = size_bytes;
  region->base.lkey = region->base.rkey = ++world().numbers;
  world().regions.push_back(region);
  return &region->base;
}
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t, size_t size_bytes, uint64_t address, int fd, int) {
  if (!card_of(pd->context).takes_dmabufs || fd < 0) {
    errno = card_of(pd->context).takes_dmabufs ? EBADF : EOPNOTSUPP;
    return nullptr;
  }
  return reg_mr(pd, reinterpret_cast<void*>(address), size_bytes, address, 0);
}
int dereg_mr(ibv_mr* raw) {
  auto* const region = reinterpret_cast<Region*>(raw);
  std::erase(world().regions, region);
  delete region;  // NOLINT(*-owning-memory)
  return 0;
}

ibv_cq* create_cq(ibv_context* context, int, void*, ibv_comp_channel*, int) {
  auto* const queue = new Queue{};  // NOLINT(*-owning-memory): destroy_cq ends it
  queue->base.context = context;
  return &queue->base;
}
int destroy_cq(ibv_cq* queue) {
  delete reinterpret_cast<Queue*>(queue);  // NOLINT(*-owning-memory)
  return 0;
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  if (attributes->cap.max_inline_data > card_of(pd->context).inline_bytes_max) {
    errno = EINVAL;
    return nullptr;
  }
  auto* const pair = new QueuePair{};  // NOLINT(*-owning-memory): destroy_qp ends it
  pair->card = &card_of(pd->context);
  pair->completions = reinterpret_cast<Queue*>(attributes->send_cq);
  pair->base.context = pd->context;
  pair->base.qp_num = ++world().numbers;
  pair->base.state = IBV_QPS_RESET;
  pair->card->pairs.push_back(pair);
  world().pairs.push_back(pair);
  return &pair->base;
}
int modify_qp(ibv_qp* raw, ibv_qp_attr* attributes, int mask) {
  auto& pair = *reinterpret_cast<QueuePair*>(raw);
  if ((mask & IBV_QP_DEST_QPN) != 0) {
    if (pair.card->unresolved > 0) {
      --pair.card->unresolved;
      return ETIMEDOUT;
    }
    pair.peer = attributes->dest_qp_num;
  }
  pair.base.state = attributes->qp_state;
  if (pair.base.state == IBV_QPS_ERR) {
    fail_pair(pair, IBV_WC_WR_FLUSH_ERR);
  }
  return 0;
}
/// As drivers do, takes its completions with it.
int destroy_qp(ibv_qp* raw) {
  auto* const pair = reinterpret_cast<QueuePair*>(raw);
  Queue& queue = *pair->completions;
  for (size_t i = queue.entries.size(); i-- > 0;) {
    if (queue.pairs[i] == raw->qp_num) {
      queue.entries.erase(queue.entries.begin() + static_cast<ptrdiff_t>(i));
      queue.pairs.erase(queue.pairs.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  std::erase(pair->card->pairs, pair);
  std::erase(world().pairs, pair);
  delete pair;  // NOLINT(*-owning-memory)
  return 0;
}

int query_device(ibv_context*, ibv_device_attr* attributes) {
  *attributes = {};
  attributes->phys_port_cnt = 1;
  attributes->max_qp = 1000;
  return 0;
}
ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, size_t, uint32_t, size_t) {
  entries[0] = {};
  entries[0].gid_index = card_of(context).gid_index;
  entries[0].port_num = 1;
  entries[0].gid_type = IBV_GID_TYPE_ROCE_V2;
  std::memcpy(entries[0].gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\1", sizeof(ibv_gid));
  return 1;
}

int get_async_event(ibv_context* context, ibv_async_event* event) {
  auto& events = card_of(context).events;
  if (events.empty()) {
    return -1;
  }
  *event = events.front();
  events.pop_front();
  return 0;
}
const char* event_type_str(ibv_event_type type) {
  return type == IBV_EVENT_PORT_ERR ? "port error" : "another event";
}
const char* wc_status_str(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR ? "transport retry counter exceeded" : "another error";
}

Verbs make_table() {
  Verbs table;
  table.query_device = &query_device;
  table.query_gid_table = &query_gid_table;
  table.alloc_pd = &alloc_pd;
  table.dealloc_pd = &dealloc_pd;
  table.reg_mr = &reg_mr;
  table.reg_dmabuf_mr = &reg_dmabuf_mr;
  table.dereg_mr = &dereg_mr;
  table.create_cq = &create_cq;
  table.destroy_cq = &destroy_cq;
  table.create_qp = &create_qp;
  table.modify_qp = &modify_qp;
  table.destroy_qp = &destroy_qp;
  table.get_async_event = &get_async_event;
  table.ack_async_event = [](ibv_async_event*) {};
  table.event_type_str = &event_type_str;
  table.wc_status_str = &wc_status_str;
  return table;
}

}  // namespace

Card::Card(const std::string& name) {
  std::copy(name.begin(), name.end(), device.name);
  context.device = &device;
  context.abi_compat = this;
  context.ops.post_send = &post_send;
  context.ops.post_recv = &post_recv;
  context.ops.poll_cq = &poll_cq;
}

void Card::set_port_up(bool is_up) {
  is_port_up = is_up;
  ibv_async_event event{};
  event.event_type = is_up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR;
  event.element.port_num = 1;
  events.push_back(event);
}

void Card::exhaust_retries() {
  for (QueuePair* const pair : pairs) {
    if (!pair->work.empty()) {
      fail_pair(*pair, IBV_WC_RETRY_EXC_ERR);
    }
  }
}

}  // namespace plexus::net_ib::test

// ------------------------------------------------------------------------ in place of verbs.cpp

namespace plexus::net_ib {

const Verbs& verbs() {
  static const Verbs kTable = test::make_table();
  return kTable;
}

ContextPtr open_device(ibv_device* device) {
  // the device is a card's first member
  auto& card = *reinterpret_cast<test::Card*>(device);
  card.context.async_fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  return ContextPtr(&card.context);
}

void VerbsDeleter::operator()(ibv_context* it) const noexcept { ::close(it->async_fd); }

Result<ibv_port_attr> query_port(ibv_context* context, uint8_t) {
  ibv_port_attr attributes{};
  attributes.state = test::card_of(context).is_port_up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
  attributes.active_mtu = IBV_MTU_4096;
  attributes.max_msg_sz = 1U << 30;
  return attributes;
}

}  // namespace plexus::net_ib
