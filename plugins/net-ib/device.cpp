// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ib/device.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <poll.h>

#include "plugins/net-ib/merge.hpp"
#include "plugins/net-ib/wire.hpp"
#include "plugins/support/errno_text.hpp"
#include "plugins/support/interface.hpp"

namespace plexus::net_ib {
namespace {

constexpr const char* kClassFolder = "/sys/class/infiniband";
constexpr size_t kGidsMax = 2000;  // of a card, over all ports; the kernel takes 64 KiB of entries

/// Kinds of memory that the card accesses besides host memory.
uint32_t find_gpu_kinds(ibv_pd* pd, const Settings& settings) {
  if (settings.gpu_memory == Choice::kOff) {
    return 0;
  }
  uint32_t kinds = 0;
  for (const char* const path :
       {"/sys/module/nvidia_peermem/version", "/sys/kernel/mm/memory_peers/nv_mem/version",
        "/sys/kernel/mm/memory_peers/nv_mem_nc/version"}) {
    std::error_code ignored;
    if (std::filesystem::exists(path, ignored)) {
      kinds |= PLEXUS_MEMORY_CUDA;
    }
  }
  if (verbs().reg_dmabuf_mr != nullptr) {
    // No descriptor: a driver that knows dma-bufs says so.
    errno = 0;
    const MrPtr none(verbs().reg_dmabuf_mr(pd, 0, 0, 0, -1, 0));
    if (errno != EOPNOTSUPP && errno != EPROTONOSUPPORT && errno != ENOSYS) {
      kinds |= PLEXUS_MEMORY_DMABUF;
    }
  }
  return kinds;
}

struct DeviceListDeleter {
  void operator()(ibv_device** list) const noexcept { verbs().free_device_list(list); }
};

GidKind kind_of_gid(uint32_t type) {
  return type == IBV_GID_TYPE_ROCE_V2   ? GidKind::kRoceV2
         : type == IBV_GID_TYPE_ROCE_V1 ? GidKind::kRoceV1
                                        : GidKind::kInfiniBand;
}

/// The default ids of InfiniBand and RoCE devices are fabrics of their own.
struct FabricPlace {
  uint64_t datacenter;
  uint64_t rail;
};
FabricPlace place_of(const FabricSettings& settings, uint64_t id) {
  if (id == settings.ib_default || id == settings.roce_default) {
    return {0, id};
  }
  return {id / settings.rails_max, id % settings.rails_max};
}

}  // namespace

// ------------------------------------------------------------------------------------------- Card

Card::Card(ContextPtr context, PdPtr pd, const ibv_device_attr& limits, bool orders_relaxed)
    : context_(std::move(context)),
      pd_(std::move(pd)),
      name_(context_->device->name),
      limits_(limits),
      memory_(pd_.get(), orders_relaxed) {}

Result<std::unique_ptr<Card>> Card::open(ibv_device* device, const Settings& settings) {
  ContextPtr context = open_device(device);
  if (context == nullptr) {
    return fail(PLEXUS_SYSTEM_ERROR,
                "cannot open {}: {}; check the permissions of /dev/infiniband, or exclude it with "
                "NCCL_IB_HCA=^{}",
                device->name, plugin::errno_text(), device->name);
  }
  ibv_device_attr limits{};
  if (const int error = verbs().query_device(context.get(), &limits); error != 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot query {}: {}", device->name,
                plugin::errno_text(error));
  }
  PdPtr pd(verbs().alloc_pd(context.get()));
  if (pd == nullptr) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot make a protection domain on {}: {}", device->name,
                plugin::errno_text());
  }
  // Events are taken in passing, never waited for.
  const int flags = ::fcntl(context->async_fd, F_GETFL);
  if (flags < 0 || ::fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot read the events of {} without blocking: {}",
                device->name, plugin::errno_text());
  }
  std::unique_ptr<Card> card(
      new Card(std::move(context), std::move(pd), limits, settings.orders_relaxed));
  card->heeds_events_ = settings.heeds_events;
  card->memory_kinds_ |= find_gpu_kinds(card->pd(), settings);
  std::error_code error;
  const auto path = std::filesystem::canonical(
      std::filesystem::path(kClassFolder) / card->name_ / "device", error);
  card->pci_path_ = error ? "" : path.string();
  std::ifstream(path / "numa_node") >> card->numa_node_;
  return card;
}

void Card::take_events() {
  if (!heeds_events_) {
    return;
  }
  ibv_async_event event{};
  while (verbs().get_async_event(context_.get(), &event) == 0) {
    take(event);
    verbs().ack_async_event(&event);
  }
}

void Card::take(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_PORT_ACTIVE:
      set_port_up(static_cast<uint8_t>(event.element.port_num), true);
      return;
    case IBV_EVENT_PORT_ERR:
      set_port_up(static_cast<uint8_t>(event.element.port_num), false);
      break;
    case IBV_EVENT_DEVICE_FATAL:
      for (auto& is_up : is_up_) {
        is_up.store(false, std::memory_order_relaxed);
      }
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_CQ_ERR:
      break;  // the queue pair's completions say the same; the words are kept
    default:
      return;
  }
  const std::scoped_lock lock(mutex_);
  last_event_ = verbs().event_type_str(event.event_type);
}

std::string Card::last_event() const {
  const std::scoped_lock lock(mutex_);
  return last_event_;
}

// ---------------------------------------------------------------------------------------- Devices

Result<std::vector<Gid>> list_gids(ibv_context* context, uint8_t port) {
  std::vector<ibv_gid_entry> table(kGidsMax);
  const ssize_t count =
      verbs().query_gid_table(context, table.data(), table.size(), 0, sizeof(ibv_gid_entry));
  if (count < 0) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot read the addresses of {}: {}", context->device->name,
                plugin::errno_text(static_cast<int>(-count)));
  }
  table.resize(static_cast<size_t>(count));
  std::vector<Gid> gids;
  for (const ibv_gid_entry& entry : table) {
    if (entry.port_num == port) {
      Gid gid{entry.gid_index, kind_of_gid(entry.gid_type), {}};
      std::copy(std::begin(entry.gid.raw), std::end(entry.gid.raw), gid.bytes.begin());
      gids.push_back(gid);
    }
  }
  return gids;
}

uint32_t speed_of(uint8_t active_speed, uint8_t active_width) noexcept {
  struct Row {
    uint8_t code;
    uint32_t value;
  };
  // Mbit/s of a lane: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR, XDR
  constexpr Row kSpeeds[] = {{1, 2500},   {2, 5000},   {4, 10000},  {8, 10000},
                             {16, 14000}, {32, 25000}, {64, 50000}, {128, 100000}};
  constexpr Row kWidths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  const auto find = [](std::span<const Row> rows, uint8_t code) -> uint32_t {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const Row& each) { return each.code == code; });
    return row == rows.end() ? 0 : row->value;
  };
  const uint32_t speed = find(kSpeeds, active_speed) * find(kWidths, active_width);
  return speed == 0 ? PLEXUS_UNKNOWN_U32 : speed;
}

Result<void> Devices::add_port(Card& card,
                               uint8_t number,
                               const Settings& settings,
                               const plugin::Log& log) {
  const auto wish = settings.hcas.find(card.name(), number);
  if (!wish) {
    return ok();
  }
  PLEXUS_TRY(attributes, query_port(card.context(), number));
  const bool has_link = attributes.link_layer == IBV_LINK_LAYER_INFINIBAND ||
                        attributes.link_layer == IBV_LINK_LAYER_ETHERNET;
  if (attributes.state != IBV_PORT_ACTIVE || !has_link) {
    log.info("net-ib: port {} of {} is not used: it is not active", number, card.name());
    return ok();
  }
  auto port = std::make_unique<Port>();
  port->card = &card;
  port->number = number;
  port->pci_path = card.pci_path();
  port->numa_node = card.numa_node();
  port->name =
      card.limits().phys_port_cnt > 1 ? fmt::format("{}:{}", card.name(), number) : card.name();
  port->attributes = attributes;
  port->rail = wish->rail;
  port->plane = wish->plane;
  port->guid = be64toh(card.limits().sys_image_guid);
  port->fabric_id = wish->fabric_id.value_or(port->is_infiniband() ? settings.fabric.ib_default
                                                                   : settings.fabric.roce_default);
  port->speed_mbit_per_s = speed_of(attributes.active_speed, attributes.active_width);
  PLEXUS_TRY(gids, list_gids(card.context(), number));
  GidWish gid_wish = settings.gid;
  if (port->is_infiniband() && gid_wish.index < 0) {
    gid_wish.index = 0;
  }
  PLEXUS_TRY(gid, choose_gid(gids, gid_wish, fmt::format("port {} of {}", number, card.name())));
  port->gid = gid;
  card.set_port_up(number, true);
  ports_.push_back(std::move(port));
  return ok();
}

Result<void> Devices::open_card(ibv_device* device,
                                const Settings& settings,
                                const plugin::Log& log) {
  // Cards that the user excludes are not opened.
  bool is_wanted = false;
  for (uint32_t port = 1; port < kCardPortsMax; ++port) {
    is_wanted = is_wanted || settings.hcas.find(device->name, port).has_value();
  }
  if (!is_wanted) {
    return ok();
  }
  PLEXUS_TRY(card, Card::open(device, settings));
  for (uint8_t port = 1; port <= std::min<uint8_t>(card->limits().phys_port_cnt, kCardPortsMax - 1);
       ++port) {
    PLEXUS_TRY(add_port(*card, port, settings, log));
  }
  cards_.push_back(std::move(card));
  return ok();
}

Result<std::unique_ptr<Devices>> Devices::open(const Settings& settings, const plugin::Log& log) {
  auto devices = std::make_unique<Devices>();
  std::error_code ignored;
  if (settings.is_disabled) {
    log.info("net-ib: not used, because NCCL_IB_DISABLE=1");
    return devices;
  }
  if (!std::filesystem::exists(kClassFolder, ignored)) {
    log.info("net-ib: this host has no InfiniBand or RoCE device ({} does not exist)",
             kClassFolder);
    return devices;
  }
  if (!verbs().problem.empty()) {
    log.info("net-ib: libibverbs cannot be used: {}; install rdma-core", verbs().problem);
    return devices;
  }
  if (!verbs().is_fork_safe) {
    log.info("net-ib: ibv_fork_init failed: on kernels before 5.12 this process must not fork");
  }
  int count = 0;
  const std::unique_ptr<ibv_device*, DeviceListDeleter> list(verbs().get_device_list(&count));
  for (int i = 0; list != nullptr && i < count; ++i) {
    PLEXUS_TRY(devices->open_card(list.get()[i], settings, log));
  }
  std::vector<const Port*> ports;
  for (const auto& port : devices->ports_) {
    ports.push_back(port.get());
  }
  if (settings.orders_by_pci) {
    sort_by_pci(ports);
  }
  PLEXUS_TRY(merged, merge_ports(ports, settings));
  devices->devices_ = std::move(merged);
  if (ports.empty()) {
    log.info("net-ib: none of this host's {} RDMA device{} is usable and selected by NCCL_IB_HCA",
             count, count == 1 ? "" : "s");
  }
  return devices;
}

void Devices::read_properties(const Device& device, plexus_net_properties_t& properties) {
  const Port& first = *device.ports.front();
  plugin::copy_text(properties.name, device.name);
  if (properties.name[0] == '\0') {
    plugin::copy_text(properties.name, first.name);
  }
  plugin::copy_text(properties.pci_path, first.pci_path);
  properties.guid = first.guid == 0 ? PLEXUS_UNKNOWN_U64 : first.guid;
  properties.fabric_id = first.fabric_id;
  properties.message_bytes_max = kMessageBytesMax;
  properties.pointer_support = PLEXUS_MEMORY_HOST;
  if (std::all_of(device.ports.begin(), device.ports.end(), [&](const Port* port) {
        return port->card->memory_kinds() == first.card->memory_kinds();
      })) {
    properties.pointer_support = first.card->memory_kinds();
  }
  properties.speed_mbit_per_s = 0;
  for (const Port* const port : device.ports) {
    const bool is_known = properties.speed_mbit_per_s != PLEXUS_UNKNOWN_U32 &&
                          port->speed_mbit_per_s != PLEXUS_UNKNOWN_U32;
    properties.speed_mbit_per_s =
        is_known ? properties.speed_mbit_per_s + port->speed_mbit_per_s : PLEXUS_UNKNOWN_U32;
  }
  properties.latency_ns = PLEXUS_UNKNOWN_U32;
  properties.port = first.number;
  properties.comms_max = static_cast<uint32_t>(std::max(first.card->limits().max_qp, 1));
  properties.recvs_max = PLEXUS_NET_RECVS_MAX;
  properties.requests_max = kRequests;
  properties.registration_is_global = 1;
  properties.rail_id = first.rail;
  properties.plane_id = first.plane;
}

void read_path(const FabricSettings& settings,
               uint64_t source,
               uint64_t target,
               plexus_net_path_t& path) {
  path = plugin::unknown_path();
  if (source == PLEXUS_UNKNOWN_U64 || target == PLEXUS_UNKNOWN_U64) {
    return;
  }
  const FabricPlace from = place_of(settings, source);
  const FabricPlace to = place_of(settings, target);
  path.level = from.rail != to.rail               ? PLEXUS_NET_LEVEL_DISCONNECTED
               : from.datacenter == to.datacenter ? PLEXUS_NET_LEVEL_SAME_DC
                                                  : PLEXUS_NET_LEVEL_OTHER_DC;
}

}  // namespace plexus::net_ib
