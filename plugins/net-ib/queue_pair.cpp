// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/queue_pair.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include "plugins/support/errno_text.hpp"
#include "security/terms.hpp"

namespace plexus::net_ib {
namespace {

constexpr uint8_t kHopsMax = 255;
constexpr uint8_t kRnrTimer = 12;   // 0.64 ms
constexpr uint8_t kRnrRetries = 7;  // for ever: the receiver always has arrivals posted
constexpr uint32_t kSequenceBits = 24;
constexpr size_t kSubnetBytes = 8;  // of an InfiniBand GID

uint32_t random_sequence() {
  std::array<uint8_t, sizeof(uint32_t)> bytes{};
  (void)security::fill_random(bytes);  // any number will do
  uint32_t number = 0;
  for (const uint8_t byte : bytes) {
    number = number << 8 | byte;
  }
  return number & ((uint32_t{1} << kSequenceBits) - 1);
}

ibv_ah_attr address_of(const LocalEnd& here, const WireRail& peer) noexcept {
  ibv_ah_attr address{};
  address.port_num = here.port->number;
  address.sl = here.settings->service_level;
  address.dlid = peer.lid;
  const bool is_other_subnet =
      !std::equal(peer.gid.begin(), peer.gid.begin() + kSubnetBytes, here.gid->bytes.begin());
  if (!here.port->is_infiniband() || is_other_subnet) {
    address.is_global = 1;
    std::copy(peer.gid.begin(), peer.gid.end(), std::begin(address.grh.dgid.raw));
    address.grh.sgid_index = static_cast<uint8_t>(here.gid->index);
    address.grh.hop_limit = kHopsMax;
    address.grh.traffic_class = here.traffic_class;
  }
  return address;
}

Result<void> initialise(ibv_qp& qp, const Port& port, const Settings& settings) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.pkey_index = settings.pkey_index;
  attributes.port_num = port.number;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  const int error = verbs().modify_qp(
      &qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) {
    return cannot(port, "initialise a queue pair (NCCL_IB_PKEY is an index)", error);
  }
  return ok();
}

}  // namespace

Failure cannot(const Port& port, const char* what, int error) {
  const char* const remedy =
      error == ENOMEM ? "; raise the limit of locked memory (ulimit -l)" : "";
  return fail(PLEXUS_SYSTEM_ERROR, "cannot {} on {} port {}: {}{}", what, port.card->name(),
              port.number, plugin::errno_text(error), remedy);
}

/// For RoCE the kernel looks for the peer's hardware address when a queue pair is connected, and
/// gives up after about a second; where many hosts ask at once, answers are lost.
bool Retries::may_retry(int error, const Settings& settings) {
  if ((error != ETIMEDOUT && !settings.retries_all) || count_ >= settings.connect_retries) {
    return false;
  }
  ++count_;
  time_ = Clock::now() + count_ * settings.connect_retry_pause;
  return true;
}

Result<QueuePair> QueuePair::create(Options options) {
  const Port& port = *options.port;
  QueuePair queue;
  ibv_qp_init_attr attributes{};
  attributes.send_cq = options.cq;
  attributes.recv_cq = options.cq;
  attributes.qp_type = IBV_QPT_RC;
  attributes.cap = {options.sends, options.arrivals, PLEXUS_NET_PIECES_MAX,
                    options.arrivals == 0 ? 0U : 1U, options.inline_bytes};
  queue.qp.reset(verbs().create_qp(port.card->pd(), &attributes));
  if (queue.qp == nullptr && errno == EINVAL && options.inline_bytes > 0) {
    options.inline_bytes /= 2;
    return create(options);  // some cards take less
  }
  if (queue.qp == nullptr) {
    return cannot(port, "make a queue pair", errno);
  }
  queue.inline_bytes_max = options.inline_bytes > 0 ? attributes.cap.max_inline_data : 0;
  queue.sequence = random_sequence();
  queue.room = options.sends;
  queue.has_ece = options.settings->uses_ece && verbs().query_ece != nullptr &&
                  verbs().query_ece(queue.qp.get(), &queue.ece) == 0;
  PLEXUS_TRY(initialise(*queue.qp, port, *options.settings));
  return queue;
}

WireQp QueuePair::describe() const noexcept {
  return {qp->qp_num,
          sequence,
          {has_ece ? ece.vendor_id : 0, has_ece ? ece.options : 0, has_ece ? ece.comp_mask : 0}};
}

Result<Progress> QueuePair::connect(const LocalEnd& here,
                                    const WireRail& peer,
                                    const WireQp& peer_qp,
                                    Retries& retries) {
  const Port& port = *here.port;
  if (is_ready) {
    return Progress::kDone;
  }
  if (has_ece && peer_qp.ece[0] != 0 && verbs().set_ece != nullptr) {
    ibv_ece wanted{peer_qp.ece[0], peer_qp.ece[1], peer_qp.ece[2]};
    has_ece = verbs().set_ece(qp.get(), &wanted) == 0;  // a hint: without it, as ever
  }
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  attributes.path_mtu = static_cast<ibv_mtu>(std::min<int>(port.attributes.active_mtu, peer.mtu));
  attributes.dest_qp_num = peer_qp.number;
  attributes.rq_psn = peer_qp.sequence;
  attributes.max_dest_rd_atomic = 1;
  attributes.min_rnr_timer = kRnrTimer;
  attributes.ah_attr = address_of(here, peer);
  int error =
      verbs().modify_qp(qp.get(), &attributes,
                        IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                            IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  if (error != 0 && retries.may_retry(error, *here.settings)) {
    return Progress::kPending;
  }
  if (error != 0) {
    const Gid gid{0, GidKind::kInfiniBand, peer.gid};
    return fail(PLEXUS_SYSTEM_ERROR,
                "{} port {} (address {}) cannot be connected with the peer's {} port {} (address "
                "{}): {}; check that they are in one network (NCCL_IB_GID_INDEX, "
                "NCCL_IB_ADDR_RANGE)",
                port.card->name(), port.number, here.gid->text(), readable(peer.name), peer.port,
                gid.text(), plugin::errno_text(error));
  }
  if (has_ece) {
    (void)verbs().query_ece(qp.get(), &ece);  // what both sides can do
  }
  attributes = {};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.timeout = here.settings->timeout;
  attributes.retry_cnt = here.settings->retries;
  attributes.rnr_retry = kRnrRetries;
  attributes.sq_psn = sequence;
  attributes.max_rd_atomic = 1;
  error = verbs().modify_qp(qp.get(), &attributes,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
  if (error != 0) {
    return cannot(port, "start a queue pair", error);
  }
  is_ready = true;
  return Progress::kDone;
}

}  // namespace plexus::net_ib
