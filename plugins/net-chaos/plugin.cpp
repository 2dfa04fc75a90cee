// SPDX-License-Identifier: Apache-2.0
// net-chaos: a wrapper that simulates bad paths of another net plugin. This file has the settings,
// the descriptor and the table, each entry of which is one `guard` statement over the C++ code.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "plugin-api/plexus_net.h"

#include "guest/file.hpp"
#include "plugins/net-chaos/connection.hpp"
#include "plugins/net-chaos/inner.hpp"
#include "plugins/net-chaos/script.hpp"
#include "plugins/support/abi_boundary.hpp"
#include "plugins/support/handle.hpp"
#include "plugins/support/nccl_export.hpp"
#include "plugins/support/settings.hpp"

using plexus::net_chaos::Connection;
using plexus::net_chaos::load_inner;
using plexus::net_chaos::Neighbours;
using plexus::net_chaos::Random;
using plexus::net_chaos::RecvConnection;
using plexus::net_chaos::Script;
using plexus::net_chaos::SendConnection;
using plexus::plugin::fail;
using plexus::plugin::give_to_host;
using plexus::plugin::guard;
using plexus::plugin::Log;
using plexus::plugin::ok;
using plexus::plugin::Result;
using plexus::plugin::SettingReader;
using plexus::plugin::take_from_host;

/// A function that does not return while a file exists.
struct Block {
  std::string function = {};  // "": none
  std::string file = {};
  void stay_in(std::string_view called) const {
    if (called == function && std::filesystem::exists(file)) {
      std::ofstream(file + ".reached").flush();
    }
    while (called == function && std::filesystem::exists(file)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
};

struct plexus_net_context {
  Log log;
  const plexus_net_ops_t* ops;
  Script script;
  Block block;
  uint64_t seed;
  plexus_net_context_t* inner = nullptr;
  std::atomic<uint32_t> sends{0};
  std::atomic<uint32_t> recvs{0};
  Neighbours neighbours = {};
};

struct plexus_net_listen {
  plexus_net_context* context;
  uint32_t device;
  plexus_net_listen_t* inner;
};

struct plexus_net_send {
  plexus_net_context* context;
  uint32_t number;
  plexus_net_send_t* connecting = nullptr;     // until it is connected
  std::unique_ptr<SendConnection> connection;  // afterwards
};

struct plexus_net_recv {
  plexus_net_context* context;
  plexus_net_recv_t* accepting = nullptr;      // until it is accepted
  std::unique_ptr<RecvConnection> connection;  // afterwards
};

namespace {

constexpr size_t kRequestsMax = 64;
constexpr size_t kSendRequestsMax = kRequestsMax * PLEXUS_NET_RECVS_MAX;

std::string read_variable(const SettingReader& read, const char* name) {
  const char* value = read(name);
  return value == nullptr ? "" : value;
}

Result<Script> parse_script(std::string_view text) {
  auto script = Script::parse(text);
  if (script.has_error()) {
    return fail(script.error().code, "PLEXUS_CHAOS_SCRIPT: {}", script.error().text);
  }
  if (script.value().names_ranks()) {
    return fail(PLEXUS_INVALID_USAGE,
                "PLEXUS_CHAOS_SCRIPT: rank=, peer= and slow= are for `plexus sim`, since a network "
                "does not know ranks: use device=N or connection=N");
  }
  return script;
}

Result<Script> read_script(const SettingReader& read) {
  const std::string text = read_variable(read, "PLEXUS_CHAOS_SCRIPT");
  if (!text.starts_with('@')) {
    return parse_script(text);
  }
  const plexus::FileText file = plexus::read_regular_file(text.substr(1));
  if (!file.refusal.empty()) {
    return fail(PLEXUS_INVALID_USAGE, "PLEXUS_CHAOS_SCRIPT={}: the file cannot be read: {}", text,
                file.refusal);
  }
  return parse_script(file.text);
}

Result<uint64_t> read_seed(const SettingReader& read) {
  const std::string text = read_variable(read, "PLEXUS_CHAOS_SEED");
  char* end = nullptr;
  const uint64_t seed = text.empty() ? 1 : std::strtoull(text.c_str(), &end, 0);
  if (end != nullptr && *end != '\0') {
    return fail(PLEXUS_INVALID_USAGE, "PLEXUS_CHAOS_SEED={} is not a number; correct or unset it",
                text);
  }
  return seed;
}

/// PLEXUS_CHAOS_BLOCK, "FUNCTION@FILE".
Result<Block> read_block(const SettingReader& read) {
  const std::string text = read_variable(read, "PLEXUS_CHAOS_BLOCK");
  const size_t at = text.find('@');
  if (!text.empty() && (at == 0 || at == std::string::npos || at + 1 == text.size())) {
    return fail(PLEXUS_INVALID_USAGE, "PLEXUS_CHAOS_BLOCK={} is not FUNCTION@FILE, as isend@/tmp/x",
                text);
  }
  return text.empty() ? Block()
                      : Block{.function = text.substr(0, at), .file = text.substr(at + 1)};
}

int32_t init(const plexus_net_config_t* config, plexus_net_context_t** context) {
  const Log log(config->log, config->log_sink);
  const SettingReader read(*config);
  int32_t inner_code = PLEXUS_OK;
  const int32_t code = guard(log, [&]() -> Result<void> {
    PLEXUS_TRY(script, read_script(read));
    PLEXUS_TRY(seed, read_seed(read));
    PLEXUS_TRY(block, read_block(read));
    PLEXUS_TRY(ops, load_inner(read_variable(read, "PLEXUS_CHAOS_NET")));
    auto made = std::unique_ptr<plexus_net_context>(new plexus_net_context{
        log, ops, std::move(script), std::move(block), seed ^ config->comm_id});
    made->block.stay_in("init");
    inner_code = ops->init(config, &made->inner);
    if (inner_code == PLEXUS_OK) {
      *context = give_to_host(std::move(made));
    }
    return ok();
  });
  return code != PLEXUS_OK ? code : inner_code;
}

void finalize(plexus_net_context_t* context) {
  context->ops->finalize(context->inner);
  take_from_host(context);
}

int32_t device_count(plexus_net_context_t* context, uint32_t* count) {
  return context->ops->device_count(context->inner, count);
}

int32_t properties(plexus_net_context_t* context,
                   uint32_t device,
                   plexus_net_properties_t* result) {
  const int32_t code = context->ops->properties(context->inner, device, result);
  if (code == PLEXUS_OK) {
    result->takes_pieces = 0;  // effects on messages apply to one contiguous buffer
    if (context->script.piece_bytes() > 0) {
      result->recvs_max = 1;  // a message in pieces is joined in one buffer
    }
  }
  return code;
}

int32_t start_listening(plexus_net_context_t* context,
                        uint32_t device,
                        plexus_net_handle_t* handle,
                        plexus_net_listen_t** listen) {
  return guard(context->log, [&]() -> int32_t {
    context->block.stay_in("listen");
    auto made = std::unique_ptr<plexus_net_listen>(new plexus_net_listen{context, device, nullptr});
    const int32_t code = context->ops->listen(context->inner, device, handle, &made->inner);
    if (code == PLEXUS_OK) {
      *listen = give_to_host(std::move(made));
    }
    return code;
  });
}

Connection::Options options_of(plexus_net_context& context,
                               const plexus::net_chaos::Subject& subject) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;  // gives neighbouring connections different seeds
  const uint64_t number = uint64_t{subject.connection} * 2 + (subject.is_send ? 1 : 0);
  return {context.ops,
          context.log,
          context.script.effects_of(subject),
          context.seed ^ (number + 1) * kOdd,
          subject.is_send ? kSendRequestsMax : kRequestsMax,
          &context.neighbours};
}

int32_t connect(plexus_net_context_t* context,
                uint32_t device,
                const plexus_net_handle_t* handle,
                plexus_net_send_t** send) {
  return guard(context->log, [&]() -> int32_t {
    if (*send == nullptr) {
      *send = give_to_host(std::unique_ptr<plexus_net_send>(
          new plexus_net_send{context, context->sends.fetch_add(1), nullptr, nullptr}));
    }
    context->block.stay_in("connect");
    const int32_t code =
        context->ops->connect(context->inner, device, handle, &(*send)->connecting);
    if (code == PLEXUS_OK) {
      const auto options =
          options_of(*context, {.is_send = true, .device = device, .connection = (*send)->number});
      (*send)->connection = std::make_unique<SendConnection>(options, (*send)->connecting);
      (*send)->connecting = nullptr;
    }
    return code;
  });
}

int32_t accept(plexus_net_listen_t* listen, plexus_net_recv_t** recv) {
  plexus_net_context* const context = listen->context;
  return guard(context->log, [&]() -> int32_t {
    if (*recv == nullptr) {
      *recv = give_to_host(
          std::unique_ptr<plexus_net_recv>(new plexus_net_recv{context, nullptr, nullptr}));
    }
    context->block.stay_in("accept");
    const int32_t code = context->ops->accept(listen->inner, &(*recv)->accepting);
    if (code == PLEXUS_OK) {
      const auto options = options_of(
          *context,
          {.is_send = false, .device = listen->device, .connection = context->recvs.fetch_add(1)});
      (*recv)->connection = std::make_unique<RecvConnection>(options, (*recv)->accepting);
      (*recv)->accepting = nullptr;
    }
    return code;
  });
}

int32_t register_send(plexus_net_send_t* send,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  return guard(send->context->log,
               [&] { return send->connection->register_memory(*region, memory); });
}

int32_t register_recv(plexus_net_recv_t* recv,
                      const plexus_net_region_t* region,
                      plexus_net_memory_t** memory) {
  return guard(recv->context->log,
               [&] { return recv->connection->register_memory(*region, memory); });
}

int32_t deregister(plexus_net_memory_t* memory) { return memory->connection->deregister(memory); }

int32_t isend(plexus_net_send_t* send,
              const void* data,
              uint64_t size_bytes,
              int32_t tag,
              plexus_net_memory_t* memory,
              plexus_net_request_t** request) {
  return guard(send->context->log, [&] {
    send->context->block.stay_in("isend");
    return send->connection->isend({const_cast<void*>(data), size_bytes, memory, tag, 0}, request);
  });
}

int32_t irecv(plexus_net_recv_t* recv,
              uint32_t count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  return guard(recv->context->log, [&] {
    recv->context->block.stay_in("irecv");
    return recv->connection->irecv(count, buffers, request);
  });
}

int32_t flush(plexus_net_recv_t* recv,
              uint32_t count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  return guard(recv->context->log,
               [&] { return recv->connection->flush(count, buffers, request); });
}

int32_t test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
  return guard(request->connection->log(),
               [&] { return request->connection->test(*request, sizes_bytes); });
}

void close_send(plexus_net_send_t* send) {
  if (send->connecting != nullptr) {
    send->context->ops->close_send(send->connecting);
  }
  take_from_host(send);
}
void close_recv(plexus_net_recv_t* recv) {
  if (recv->accepting != nullptr) {
    recv->context->ops->close_recv(recv->accepting);
  }
  take_from_host(recv);
}
void close_listen(plexus_net_listen_t* listen) {
  listen->context->ops->close_listen(listen->inner);
  take_from_host(listen);
}

int32_t net_path(plexus_net_context_t* context,
                 uint64_t source,
                 uint64_t target,
                 plexus_net_path_t* path) {
  if (context->ops->net_path != nullptr) {
    return context->ops->net_path(context->inner, source, target, path);
  }
  *path = {source == target ? PLEXUS_NET_LEVEL_SAME_DC : PLEXUS_NET_LEVEL_UNKNOWN,
           PLEXUS_UNKNOWN_U32,
           PLEXUS_UNKNOWN_U64,
           PLEXUS_UNKNOWN_U64,
           PLEXUS_UNKNOWN_U64,
           {}};
  return PLEXUS_OK;
}

constexpr plexus_net_ops_t kOps = {
    .struct_size = sizeof(plexus_net_ops_t),
    .reserved = 0,
    .init = init,
    .finalize = finalize,
    .device_count = device_count,
    .properties = properties,
    .listen = start_listening,
    .connect = connect,
    .accept = accept,
    .register_send = register_send,
    .register_recv = register_recv,
    .deregister = deregister,
    .isend = isend,
    .irecv = irecv,
    .flush = flush,
    .test = test,
    .close_send = close_send,
    .close_recv = close_recv,
    .close_listen = close_listen,
    .net_path = net_path,
    .isend_pieces = nullptr,
    .irecv_pieces = nullptr,
    .isend_gathered = nullptr,
};

constexpr plexus_plugin_t kPlugin = {
    .magic = PLEXUS_PLUGIN_MAGIC,
    .struct_size = sizeof(plexus_plugin_t),
    .abi_major = PLEXUS_ABI_MAJOR,
    .abi_minor = PLEXUS_ABI_MINOR,
    .kind = PLEXUS_KIND_NET,
    .reserved = 0,
    .name = "Chaos",
    .version = PLEXUS_VERSION,
    .net = &kOps,
    .tuner = nullptr,
};

}  // namespace

const plexus_plugin_t* plexus_plugin_query(uint32_t host_abi) {
  return host_abi >> 16 == PLEXUS_ABI_MAJOR ? &kPlugin : nullptr;
}

PLEXUS_EXPORT_NCCL_NET(kOps, kPlugin.name)
