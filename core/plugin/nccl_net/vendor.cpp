// SPDX-License-Identifier: Apache-2.0
#include "core/plugin/nccl_net/vendor.hpp"

#include "core/plugin/nccl_net/call.hpp"
#include "core/plugin/nccl_net/properties.hpp"

namespace plexus::nccl_net {

std::string Vendor::name() const {
  const std::scoped_lock lock(turn());
  const char* name = net_->name();
  return name == nullptr ? "" : name;
}

int32_t Vendor::init_once(CommState& comm, const LogTarget& log) const {
  if (!failed_.empty()) {
    return report(log,
                  fail(Code::kSystemError, "its init already failed in this process: {}", failed_));
  }
  if (is_initialised_) {
    return PLEXUS_OK;
  }
  LogScope scope(log);
  const int32_t code = scope.finish("init", net_->init(comm, 0));
  is_initialised_ = code == PLEXUS_OK;
  if (!is_initialised_) {
    failed_ = scope.reason();
  }
  return code;
}

/// The table is checked only after init, because some plugins fill it in there.
int32_t Vendor::init_comm(CommState& comm, uint64_t comm_id, const LogTarget& log) const {
  const int32_t code = net_->is_per_communicator()
                           ? call_vendor(log, "init", [&] { return net_->init(comm, comm_id); })
                           : init_once(comm, log);
  if (code != PLEXUS_OK) {
    return code;
  }
  if (const char* const missing = net_->find_missing_entry()) {
    net_->finalize(comm);
    return report(
        log,
        fail(Code::kInvalidUsage,
             "its table has no entry `{}` after its init; this is a bug in the plugin", missing));
  }
  return PLEXUS_OK;
}

int32_t Vendor::read_devices(plexus_net_context_t& context) const {
  int count = 0;
  const int32_t counted = call_vendor(context.log, "devices", [&] { return net_->devices(count); });
  if (counted != PLEXUS_OK) {
    return counted;
  }
  if (count < 0 || static_cast<uint32_t>(count) > kNetDevicesMax) {
    return report(context.log,
                  fail(Code::kInvalidUsage,
                       "it reports {} devices, expected 0..{}; this is a bug in the plugin", count,
                       kNetDevicesMax));
  }
  for (int device = 0; device < count; ++device) {
    ForeignProperties foreign;
    const int32_t code = call_vendor(context.log, "getProperties",
                                     [&] { return net_->get_properties(device, foreign); });
    if (code != PLEXUS_OK) {
      return code;
    }
    auto properties = convert_properties(foreign, device, net_->requests_max());
    if (properties.has_error()) {
      return report(context.log, properties.error());
    }
    if (!net_->has_dmabuf()) {
      properties.value().pointer_support &= ~PLEXUS_MEMORY_DMABUF;
    }
    context.devices.push_back(properties.value());
  }
  return PLEXUS_OK;
}

int32_t Vendor::init(const plexus_net_config_t* config, plexus_net_context_t** context) const {
  auto made = std::unique_ptr<plexus_net_context>(
      new plexus_net_context{shared_from_this(), {config->log, config->log_sink}, {}, {}});
  made->comm.config.traffic_class = config->traffic_class;
  const std::scoped_lock lock(turn());
  if (const int32_t code = init_comm(made->comm, config->comm_id, made->log); code != PLEXUS_OK) {
    return code;
  }
  if (const int32_t code = read_devices(*made); code != PLEXUS_OK) {
    net_->finalize(made->comm);
    return code;
  }
  *context = give_to_host(std::move(made));
  return PLEXUS_OK;
}

void Vendor::finalize(CommState& comm, const LogTarget& log) const {
  const std::scoped_lock lock(turn());
  const LogScope scope(log);
  net_->finalize(comm);
}

}  // namespace plexus::nccl_net
