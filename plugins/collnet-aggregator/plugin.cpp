// SPDX-License-Identifier: Apache-2.0
// collnet-aggregator: a network that reduces, built from a TCP server. This file has the settings,
// the descriptor and the table, each entry of which is one `guard` statement over the C++ code.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "plugins/collnet-aggregator/arithmetic.hpp"
#include "plugins/collnet-aggregator/member.hpp"
#include "plugins/collnet-aggregator/secret.hpp"
#include "plugins/support/abi_boundary.hpp"
#include "plugins/support/handle.hpp"
#include "plugins/support/port_setting.hpp"
#include "plugins/support/security_mode.hpp"
#include "plugins/support/settings.hpp"

using plexus::aggregator::Address;
using plexus::aggregator::find_own_address;
using plexus::aggregator::HostedServer;
using plexus::aggregator::kHandleMagic;
using plexus::aggregator::kMessageBytesMax;
using plexus::aggregator::kRequestsMax;
using plexus::aggregator::kSecretFileSetting;
using plexus::aggregator::listen_at;
using plexus::aggregator::Member;
using plexus::aggregator::parse_addresses;
using plexus::aggregator::read_secret;
using plexus::aggregator::WireHandle;
using plexus::plugin::fail;
using plexus::plugin::give_to_host;
using plexus::plugin::guard;
using plexus::plugin::Log;
using plexus::plugin::ok;
using plexus::plugin::Progress;
using plexus::plugin::read_mode;
using plexus::plugin::Result;
using plexus::plugin::SettingReader;
using plexus::plugin::take_from_host;
using plexus::plugin::UniqueFd;
using plexus::security::Terms;

struct plexus_collnet_context {
  Log log;
  std::vector<Address> servers;  // one per device; empty: member 0 hosts one
  std::string interfaces;
  plexus::security::Mode mode;
  plexus::security::Key secret;  // of `servers`
  plexus::PortRange ports;       // of the one that is hosted
};

struct plexus_collnet_listen {
  plexus_collnet_context* context;
  UniqueFd listener;  // for the server if this member hosts it
};

struct plexus_collnet_group {
  plexus_collnet_context* context;
  Member member;
};

namespace {

std::string read_text(const SettingReader& read, const char* name) {
  const char* const value = read(name);
  return value == nullptr ? "" : value;
}

Result<plexus_collnet_context> read_settings(const Log& log, const SettingReader& read) {
  const std::string text = read_text(read, "PLEXUS_AGGREGATOR");
  auto servers = parse_addresses(text);
  if (servers.has_error()) {
    return fail(PLEXUS_INVALID_USAGE, "PLEXUS_AGGREGATOR={}: {}", text, servers.error().text);
  }
  const std::string file = read_text(read, kSecretFileSetting);
  auto secret = read_secret(file);
  if (secret.has_error()) {
    return fail(PLEXUS_INVALID_USAGE, "{}: {}", kSecretFileSetting, secret.error().text);
  }
  PLEXUS_TRY(mode, read_mode(read));
  PLEXUS_TRY(ports, plexus::plugin::read_ports(read));
  const bool is_exposed =
      file.empty() && std::any_of(servers.value().begin(), servers.value().end(),
                                  [](const Address& each) { return !each.is_loopback(); });
  if (is_exposed) {
    log.warn(
        "PLEXUS_AGGREGATOR={} without {}: whoever reaches these servers can use them, and "
        "whoever takes their address can read and change sums",
        text, kSecretFileSetting);
  }
  return plexus_collnet_context{
      log,  std::move(servers).value(), read_text(read, "NCCL_SOCKET_IFNAME"), mode, secret.value(),
      ports};
}

int32_t init(const plexus_collnet_config_t* config, plexus_collnet_context_t** context) {
  const Log log(config->log, config->log_sink);
  return guard(log, [&]() -> Result<void> {
    PLEXUS_TRY(settings, read_settings(log, SettingReader(*config)));
    *context = give_to_host(std::make_unique<plexus_collnet_context>(std::move(settings)));
    return ok();
  });
}

void finalize(plexus_collnet_context_t* context) { take_from_host(context); }

int32_t device_count(plexus_collnet_context_t* context, uint32_t* count) {
  *count = std::max<uint32_t>(1, static_cast<uint32_t>(context->servers.size()));
  return PLEXUS_OK;
}

int32_t properties(plexus_collnet_context_t* context,
                   uint32_t device,
                   plexus_collnet_properties_t* result) {
  return guard(context->log, [&]() -> Result<void> {
    const bool is_hosted = context->servers.empty();
    if (device >= std::max<size_t>(1, context->servers.size())) {
      return fail(PLEXUS_INVALID_ARGUMENT, "there is no device {}", device);
    }
    const std::string name = is_hosted ? "hosted" : context->servers[device].to_string();
    std::memcpy(result->name, name.data(), std::min(name.size(), sizeof(result->name) - 1));
    result->message_bytes_max = kMessageBytesMax;
    result->pointer_support = PLEXUS_MEMORY_HOST;
    result->requests_max = kRequestsMax;
    result->speed_mbit_per_s = PLEXUS_UNKNOWN_U32;
    return ok();
  });
}

int32_t reduce_support(plexus_collnet_context_t*, int32_t type, int32_t op, uint32_t* supported) {
  *supported = plexus::aggregator::can_reduce(type, op) ? 1 : 0;
  return PLEXUS_OK;
}

int32_t start_listening(plexus_collnet_context_t* context,
                        uint32_t device,
                        plexus_net_handle_t* handle,
                        plexus_collnet_listen_t** listen) {
  return guard(context->log, [&]() -> Result<void> {
    if (device >= std::max<size_t>(1, context->servers.size())) {
      return fail(PLEXUS_INVALID_ARGUMENT, "there is no device {}", device);
    }
    auto made = std::unique_ptr<plexus_collnet_listen>(new plexus_collnet_listen{context, {}});
    WireHandle wire{};
    wire.magic = kHandleMagic;
    wire.mode = context->mode;
    if (!plexus::security::fill_random(wire.secret)) {
      return fail(PLEXUS_SYSTEM_ERROR, "this system has no source of randomness");
    }
    if (context->servers.empty()) {
      PLEXUS_TRY(own, find_own_address(context->interfaces));
      PLEXUS_TRY(listener, listen_at(own, context->ports));
      listener.address.store(wire);
      made->listener = std::move(listener.fd);
    } else {
      context->servers[device].store(wire);
    }
    std::memcpy(handle->bytes, &wire, sizeof wire);
    *listen = give_to_host(std::move(made));
    return ok();
  });
}

Result<std::unique_ptr<plexus_collnet_group>> make_group(plexus_collnet_listen& listen,
                                                         const plexus_net_handle_t& first,
                                                         uint32_t members,
                                                         uint32_t member) {
  WireHandle wire{};
  std::memcpy(&wire, first.bytes, sizeof wire);
  PLEXUS_TRY(server, Address::load(wire));
  if (member >= members || members > plexus::aggregator::kMembersMax) {
    return fail(PLEXUS_INVALID_ARGUMENT, "member {} of {}", member, members);
  }
  plexus_collnet_context* const context = listen.context;
  if (wire.mode != context->mode) {
    return fail(PLEXUS_INVALID_USAGE, "{}",
                plexus::security::describe_difference(context->mode, wire.mode, "member 0"));
  }
  const bool is_hosted = context->servers.empty();
  const Terms terms{.mode = context->mode, .key = is_hosted ? wire.secret : context->secret};
  auto made = std::unique_ptr<plexus_collnet_group>(new plexus_collnet_group{
      context, Member({.log = context->log,
                       .server = server,
                       .terms = terms,
                       .group = plexus::security::authenticate(wire.secret, "aggregator group", {}),
                       .members = members,
                       .member = member})});
  if (member == 0 && listen.listener.is_open()) {
    context->log.info("hosting an aggregator for {} members at {}", members, server.to_string());
    made->member.host(std::make_unique<HostedServer>(
        std::move(listen.listener), terms,
        [log = context->log](const std::string& line) { log.warn("aggregator: {}", line); }));
  }
  return made;
}

int32_t connect(plexus_collnet_listen_t* listen,
                const plexus_net_handle_t* handles,
                uint32_t members,
                uint32_t member,
                plexus_collnet_group_t** group) {
  return guard(listen->context->log, [&]() -> Result<Progress> {
    if (*group == nullptr) {
      PLEXUS_TRY(made, make_group(*listen, handles[0], members, member));
      *group = give_to_host(std::move(made));
    }
    return (*group)->member.connect();
  });
}

/// No-op, because sockets accept any memory.
int32_t register_memory(plexus_collnet_group_t*,
                        const plexus_net_region_t*,
                        plexus_collnet_memory_t** memory) {
  *memory = nullptr;
  return PLEXUS_OK;
}
int32_t deregister(plexus_collnet_memory_t*) { return PLEXUS_OK; }

int32_t iallreduce(plexus_collnet_group_t* group,
                   const plexus_collnet_reduction_t* reduction,
                   plexus_collnet_request_t** request) {
  return guard(group->context->log, [&]() -> Result<Progress> {
    PLEXUS_TRY(started, group->member.start(*reduction));
    *request = reinterpret_cast<plexus_collnet_request_t*>(started);
    return started == nullptr ? Progress::kPending : Progress::kDone;
  });
}

int32_t test(plexus_collnet_request_t* request) {
  auto& under_way = *reinterpret_cast<Member::Request*>(request);
  return guard(under_way.member->log(), [&] { return under_way.member->test(under_way); });
}

void close_group(plexus_collnet_group_t* group) { take_from_host(group); }
void close_listen(plexus_collnet_listen_t* listen) { take_from_host(listen); }

constexpr plexus_collnet_ops_t kOps = {
    .struct_size = sizeof(plexus_collnet_ops_t),
    .reserved = 0,
    .init = init,
    .finalize = finalize,
    .device_count = device_count,
    .properties = properties,
    .reduce_support = reduce_support,
    .listen = start_listening,
    .connect = connect,
    .register_memory = register_memory,
    .deregister = deregister,
    .iallreduce = iallreduce,
    .test = test,
    .close_group = close_group,
    .close_listen = close_listen,
};

constexpr plexus_collnet_plugin_t kPlugin = {
    .magic = PLEXUS_PLUGIN_MAGIC,
    .struct_size = sizeof(plexus_collnet_plugin_t),
    .abi_major = PLEXUS_ABI_MAJOR,
    .abi_minor = PLEXUS_ABI_MINOR,
    .name = "Aggregator",
    .version = PLEXUS_VERSION,
    .ops = &kOps,
};

}  // namespace

const plexus_collnet_plugin_t* plexus_collnet_query(uint32_t host_abi) {
  return host_abi >> 16 == PLEXUS_ABI_MAJOR ? &kPlugin : nullptr;
}
