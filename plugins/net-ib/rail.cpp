// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/rail.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "guest/assert.hpp"
#include "plugins/support/errno_text.hpp"

namespace plexus::net_ib {
namespace {

/// Bytes that the card may take from the work request itself: of two posted buffers, or a host's
/// shortest messages, which have a header before their data.
constexpr uint32_t kInlineBytes = 128;
/// One write of posted receives in so many is signalled, to free the queue's places.
constexpr uint32_t kControlsPerSignal = 16;
/// Flushes in flight: one for each receive.
constexpr uint32_t kFlushDepth = kRequests;

const char* likely_cause(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
      return "the peer's port does not answer: it is down, its process died, the two ports are not "
             "connected, or packets are lost (NCCL_IB_TIMEOUT, NCCL_IB_RETRY_CNT)";
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return "the peer takes no more messages";
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
    case IBV_WC_REM_OP_ERR:
      return "the peer no longer has the memory of its receive registered: it closed or failed";
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
      return "memory was used that is not registered, or was deregistered too early";
    case IBV_WC_WR_FLUSH_ERR:
      return "the queue pair had failed or was stopped before";
    default:
      return "see the kernel's log for the card";
  }
}

bool poll_queue(ibv_cq* queue, std::span<ibv_wc> room, size_t& count) noexcept {
  const int found =
      queue == nullptr ? 0 : ::ibv_poll_cq(queue, static_cast<int>(room.size()), room.data());
  count = found > 0 ? static_cast<size_t>(found) : 0;
  return found >= 0;
}

}  // namespace

Result<std::unique_ptr<Rail>> Rail::create(const Options& options) {
  std::unique_ptr<Rail> rail(new Rail(options));
  PLEXUS_TRY(area, register_ordered(options.port->card->pd(), options.area, sizeof(Area)));
  rail->area_ = std::move(area);
  rail->gid_ = options.port->gid;
  PLEXUS_TRY(rail->make_queues());
  const bool may_flush = options.role == Role::kReceiver && options.settings->flushes;
  if (may_flush && options.port->card->memory_kinds() != PLEXUS_MEMORY_HOST) {
    PLEXUS_TRY(rail->make_flush_queue());
  }
  return rail;
}

Result<CqPtr> Rail::make_completion_queue(uint32_t entries) const {
  CqPtr queue(
      verbs().create_cq(port().card->context(), static_cast<int>(entries), nullptr, nullptr, 0));
  if (queue == nullptr) {
    return cannot(port(), "make a completion queue", errno);
  }
  return queue;
}

Result<void> Rail::make_queues() {
  const bool is_sender = options_.role == Role::kSender;
  const uint32_t sends = is_sender ? kSendDepth : 1;
  const uint32_t arrivals = is_sender ? 0 : kArrivalDepth;
  PLEXUS_TRY(queue, make_completion_queue(options_.qps * (sends + arrivals) + kControlDepth));
  cq_ = std::move(queue);
  PLEXUS_TRY(control, QueuePair::create(
                          {&port(), options_.settings, cq_.get(), kControlDepth, 0, kInlineBytes}));
  control_ = std::move(control);
  data_.clear();
  is_stopped_ = false;
  arrivals_expected_ = 0;
  for (uint32_t qp = 0; qp < options_.qps; ++qp) {
    const bool is_inline = is_sender && options_.settings->sends_inline;
    PLEXUS_TRY(data, QueuePair::create({&port(), options_.settings, cq_.get(), sends, arrivals,
                                        is_inline ? kInlineBytes : 0}));
    data_.push_back(std::move(data));
  }
  return ok();
}

Result<void> Rail::make_flush_queue() {
  PLEXUS_TRY(queue, make_completion_queue(kFlushDepth));
  flush_cq_ = std::move(queue);
  PLEXUS_TRY(flush,
             QueuePair::create({&port(), options_.settings, flush_cq_.get(), kFlushDepth, 0, 0}));
  flush_ = std::move(flush);
  PLEXUS_TRY(made, flush_.connect(place(options_.settings->traffic_class), describe(),
                                  {flush_.qp->qp_num, flush_.sequence, {}}, retries_));
  if (made == Progress::kPending) {
    return cannot(port(), "connect a queue pair with itself", ETIMEDOUT);
  }
  return ok();
}

WireRail Rail::describe() const {
  WireRail wire{};
  wire.gid = gid_.bytes;
  wire.lid = port().attributes.lid;
  wire.link_layer = port().attributes.link_layer;
  wire.mtu = static_cast<uint8_t>(port().attributes.active_mtu);
  wire.port = port().number;
  wire.area_rkey = area_->rkey;
  write_text(wire.name, port().card->name());
  wire.control = control_.describe();
  std::transform(data_.begin(), data_.end(), wire.data.begin(),
                 [](const QueuePair& each) { return each.describe(); });
  return wire;
}

Result<Progress> Rail::connect(const WireRail& peer) {
  peer_ = peer;
  if (peer.link_layer != port().attributes.link_layer) {
    return fail(PLEXUS_INVALID_USAGE,
                "{} port {} is {} and the peer's {} port {} is not: choose devices of one kind "
                "with NCCL_IB_HCA",
                port().card->name(), port().number,
                port().is_infiniband() ? "InfiniBand" : "Ethernet (RoCE)", readable(peer.name),
                peer.port);
  }
  if (!retries_.is_due()) {
    return Progress::kPending;
  }
  PLEXUS_TRY(progress, control_.connect(place(options_.settings->control_traffic_class), peer,
                                        peer.control, retries_));
  for (uint32_t qp = 0; qp < qps() && progress == Progress::kDone; ++qp) {
    if (data_[qp].is_ready) {
      continue;
    }
    PLEXUS_TRY(made, data_[qp].connect(place(options_.settings->traffic_class), peer, peer.data[qp],
                                       retries_));
    progress = made;
    if (progress == Progress::kDone) {
      PLEXUS_TRY(post_arrivals(qp));
    }
  }
  return progress;
}

Result<void> Rail::post_arrivals(uint32_t qp) {
  if (options_.role == Role::kSender) {
    return ok();
  }
  for (uint32_t i = 0; i < kArrivalDepth; ++i) {
    ibv_recv_wr work{WorkId{WorkKind::kArrival, qp}.pack(), nullptr, nullptr, 0};
    ibv_recv_wr* bad = nullptr;
    if (const int error = ::ibv_post_recv(data_[qp].qp.get(), &work, &bad); error != 0) {
      return cannot(port(), "post a receive", error);
    }
    ++arrivals_expected_;
  }
  return ok();
}

void Rail::stop() noexcept {
  is_stopped_ = true;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  const auto stop_queue = [&](const QueuePair& queue) {
    if (queue.qp != nullptr) {
      verbs().modify_qp(queue.qp.get(), &attributes, IBV_QP_STATE);
    }
  };
  stop_queue(control_);
  std::for_each(data_.begin(), data_.end(), stop_queue);
}

void Rail::destroy() noexcept {
  control_ = {};
  data_.clear();
  cq_.reset();
  arrivals_expected_ = 0;
  retries_ = {};
}

Result<void> Rail::renew() {
  // An address that went with the port and came back may be at another place of the table.
  PLEXUS_TRY(gids, list_gids(port().card->context(), port().number));
  const auto found = std::find_if(gids.begin(), gids.end(), [&](const Gid& each) {
    return each.bytes == gid_.bytes && each.kind == gid_.kind;
  });
  if (found != gids.end()) {
    gid_ = *found;
  } else if (!port().is_infiniband()) {
    return fail(PLEXUS_SYSTEM_ERROR, "{} port {} no longer has the address {}", port().card->name(),
                port().number, gid_.text());
  }
  destroy();
  controls_ = 0;
  return make_queues();
}

bool Rail::poll(std::span<ibv_wc> room, size_t& count) noexcept {
  const bool works = poll_queue(cq_.get(), room, count);
  if (options_.role == Role::kReceiver) {
    const auto arrived = static_cast<uint32_t>(std::count_if(
        room.begin(), room.begin() + static_cast<ptrdiff_t>(count),
        [](const ibv_wc& each) { return WorkId::unpack(each.wr_id).kind == WorkKind::kArrival; }));
    PLEXUS_DCHECK(arrived <= arrivals_expected_, arrived, arrivals_expected_);
    arrivals_expected_ -= arrived;
  }
  return works;
}

bool Rail::poll_flushes(std::span<ibv_wc> room, size_t& count) noexcept {
  return poll_queue(flush_cq_.get(), room, count);
}

int Rail::post_data(uint32_t qp, ibv_send_wr& first, uint32_t places) noexcept {
  PLEXUS_DCHECK(places > 0 && places <= data_[qp].room, places, data_[qp].room);
  ibv_send_wr* bad = nullptr;
  const int error = ::ibv_post_send(data_[qp].qp.get(), &first, &bad);
  data_[qp].room -= error == 0 ? places : 0;
  return error;
}

int Rail::post_control(const LocalPlace& from, const RemotePlace& to) noexcept {
  ibv_sge piece{reinterpret_cast<uintptr_t>(from.data), static_cast<uint32_t>(from.size_bytes),
                from.lkey};
  ibv_send_wr work{};
  work.wr_id = WorkId{WorkKind::kControl}.pack();
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.send_flags = flag_if(from.size_bytes <= control_.inline_bytes_max, IBV_SEND_INLINE) |
                    flag_if(++controls_ % kControlsPerSignal == 0, IBV_SEND_SIGNALED);
  work.wr.rdma = {to.address, to.rkey};
  ibv_send_wr* bad = nullptr;
  return ::ibv_post_send(control_.qp.get(), &work, &bad);
}

int Rail::post_probe(const RemotePlace& to) noexcept {
  ibv_send_wr work{};
  work.wr_id = WorkId{WorkKind::kProbe}.pack();
  work.opcode = IBV_WR_RDMA_WRITE;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma = {to.address, to.rkey};
  ibv_send_wr* bad = nullptr;
  return ::ibv_post_send(control_.qp.get(), &work, &bad);
}

int Rail::post_flush(const LocalPlace& to, const RemotePlace& from, uint32_t request) noexcept {
  ibv_sge piece{reinterpret_cast<uintptr_t>(to.data), static_cast<uint32_t>(to.size_bytes),
                to.lkey};
  ibv_send_wr work{};
  work.wr_id = request;
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_READ;
  work.send_flags = IBV_SEND_SIGNALED;
  work.wr.rdma = {from.address, from.rkey};
  ibv_send_wr* bad = nullptr;
  return ::ibv_post_send(flush_.qp.get(), &work, &bad);
}

int Rail::replace_arrival(uint32_t qp) noexcept {
  QueuePair& queue = data_[qp];
  if (is_stopped_ || ++queue.arrivals < kArrivalBatch) {
    return 0;
  }
  std::array<ibv_recv_wr, kArrivalBatch> batch{};
  for (size_t i = 0; i < batch.size(); ++i) {
    batch[i].wr_id = WorkId{WorkKind::kArrival, qp}.pack();
    batch[i].next = i + 1 < batch.size() ? &batch[i + 1] : nullptr;
  }
  ibv_recv_wr* bad = nullptr;
  const int error = ::ibv_post_recv(queue.qp.get(), batch.data(), &bad);
  queue.arrivals = 0;
  arrivals_expected_ += error == 0 ? kArrivalBatch : static_cast<uint32_t>(bad - batch.data());
  return error;
}

std::string Rail::explain(const ibv_wc& completion) const {
  const std::string event = port().card->last_event();
  return fmt::format("{} port {} (to {} port {}): {} (status {}, vendor's code {:#x}{}{}): {}",
                     port().card->name(), port().number, readable(peer_.name), peer_.port,
                     verbs().wc_status_str(completion.status), static_cast<int>(completion.status),
                     completion.vendor_err, event.empty() ? "" : "; last event: ", event,
                     likely_cause(completion.status));
}

}  // namespace plexus::net_ib
