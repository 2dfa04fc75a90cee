// SPDX-License-Identifier: Apache-2.0
// net-socket as a plugin that ends its process, or never returns, or writes where it must not, in a
// function that PLEXUS_TEST_CRASH names: "FUNCTION:KIND:N", in its N-th call, from 1. jail_test.py
// runs jobs over it in the jail.
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <unistd.h>

#include "plugin-api/plexus_net.h"

#include "tests/support/load_descriptor.hpp"

struct plexus_net_memory {
  std::byte* data;
  uint64_t size_bytes;
};

namespace {

/// What was registered last.
plexus_net_memory_t* latest = nullptr;

const plexus_plugin_t& wrapped() {
  static const auto& kWrapped =
      plexus::test::load_descriptor<plexus_plugin_t>(PLEXUS_WRAPPED, "plexus_plugin_query");
  return kWrapped;
}

/// Past the end of the memory, a little or beyond its last page; without any, through the
/// function's own argument.
void overwrite(void* argument, const plexus_net_memory_t* memory, size_t bytes) {
  std::memset(memory == nullptr ? argument : memory->data + memory->size_bytes, 0, bytes);
}

void crash(std::string_view kind, void* argument) {
  if (kind == "segv") {
    // The signal itself, because a compiler knows what null is.
    std::raise(SIGSEGV);
  } else if (kind == "abort") {
    std::abort();
  } else if (kind == "exit") {
    std::exit(0);  // NOLINT(concurrency-mt-unsafe)
  } else if (kind == "kill") {
    ::kill(::getpid(), SIGKILL);
  } else if (kind == "overwrite") {
    constexpr size_t kFar = 1 << 20;
    overwrite(argument, latest, kFar);
  } else if (kind == "overrun") {
    constexpr size_t kNear = 16;
    overwrite(argument, latest, kNear);
  } else {
    for (volatile bool forever = true; forever;) {
    }
  }
}

/// Crashes if this is the call for it.
void enter(const char* function, void* argument) {
  static const std::string wanted = [] {
    const char* const text = std::getenv("PLEXUS_TEST_CRASH");  // NOLINT(concurrency-mt-unsafe)
    return std::string(text == nullptr ? "" : text);
  }();
  static std::atomic<long> calls{0};
  const size_t first = wanted.find(':');
  const size_t second = wanted.find(':', first + 1);
  if (first != std::string::npos && wanted.compare(0, first, function) == 0 &&
      ++calls == std::stol(wanted.substr(second + 1))) {
    const char* const mark =
        std::getenv("PLEXUS_TEST_CRASH_MARK");  // NOLINT(concurrency-mt-unsafe)
    if (mark != nullptr) {
      std::ofstream(mark).flush();
    }
    crash(std::string_view(wanted).substr(first + 1, second - first - 1), argument);
  }
}

/// One entry of the table, which crashes or is the wrapped one.
template <auto kEntry>
struct Wrap;
template <class R, class First, class... Args, R (*plexus_net_ops_t::*kEntry)(First, Args...)>
struct Wrap<kEntry> {
  static inline const char* name;
  static R call(First first, Args... args) {
    enter(name, const_cast<void*>(static_cast<const void*>(first)));  // NOLINT(*-const-cast)
    return (wrapped().net->*kEntry)(first, args...);
  }
};

template <auto kEntry>
void wrap(plexus_net_ops_t& ops, const char* name) {
  Wrap<kEntry>::name = name;
  ops.*kEntry = Wrap<kEntry>::call;
}

/// net-socket needs no registration and ignores what is passed for one.
template <class End>
int32_t register_memory(const char* name,
                        End* end,
                        const plexus_net_region_t* region,
                        plexus_net_memory_t** memory) {
  enter(name, end);
  *memory = new plexus_net_memory_t{// NOLINT(*-owning-memory): deregister ends it
                                    static_cast<std::byte*>(region->data), region->size_bytes};
  latest = *memory;
  return PLEXUS_OK;
}
int32_t deregister(plexus_net_memory_t* memory) {
  enter("deregister", memory);
  latest = memory == latest ? nullptr : latest;
  delete memory;  // NOLINT(*-owning-memory)
  return PLEXUS_OK;
}
int32_t isend(plexus_net_send_t* send,
              const void* data,
              uint64_t size_bytes,
              int32_t tag,
              plexus_net_memory_t* memory,
              plexus_net_request_t** request) {
  latest = memory == nullptr ? latest : memory;
  enter("isend", send);
  return wrapped().net->isend(send, data, size_bytes, tag, nullptr, request);
}
int32_t irecv(plexus_net_recv_t* recv,
              uint32_t count,
              const plexus_net_buffer_t* buffers,
              plexus_net_request_t** request) {
  latest = buffers[0].memory == nullptr ? latest : buffers[0].memory;
  enter("irecv", recv);
  return wrapped().net->irecv(recv, count, buffers, request);
}

int32_t net_path(plexus_net_context_t* context,
                 uint64_t source,
                 uint64_t target,
                 plexus_net_path_t* path) {
  enter("net_path", context);
  *path = {source == target ? PLEXUS_NET_LEVEL_SAME_DC : PLEXUS_NET_LEVEL_UNKNOWN,
           PLEXUS_UNKNOWN_U32,
           PLEXUS_UNKNOWN_U64,
           PLEXUS_UNKNOWN_U64,
           PLEXUS_UNKNOWN_U64,
           {}};
  return PLEXUS_OK;
}

plexus_net_ops_t make_ops() {
  plexus_net_ops_t ops = *wrapped().net;
  wrap<&plexus_net_ops_t::init>(ops, "init");
  wrap<&plexus_net_ops_t::finalize>(ops, "finalize");
  wrap<&plexus_net_ops_t::device_count>(ops, "device_count");
  wrap<&plexus_net_ops_t::properties>(ops, "properties");
  wrap<&plexus_net_ops_t::listen>(ops, "listen");
  wrap<&plexus_net_ops_t::connect>(ops, "connect");
  wrap<&plexus_net_ops_t::accept>(ops, "accept");
  wrap<&plexus_net_ops_t::test>(ops, "test");
  wrap<&plexus_net_ops_t::close_send>(ops, "close_send");
  wrap<&plexus_net_ops_t::close_recv>(ops, "close_recv");
  wrap<&plexus_net_ops_t::close_listen>(ops, "close_listen");
  ops.register_send = [](auto... arguments) {
    return register_memory("register_send", arguments...);
  };
  ops.register_recv = [](auto... arguments) {
    return register_memory("register_recv", arguments...);
  };
  ops.deregister = deregister;
  ops.isend = isend;
  ops.irecv = irecv;
  ops.net_path = net_path;
  return ops;
}

}  // namespace

const plexus_plugin_t* plexus_plugin_query(uint32_t /*host_abi*/) {
  static const plexus_net_ops_t kOps = make_ops();
  static const plexus_plugin_t kPlugin = [] {
    plexus_plugin_t plugin = wrapped();
    plugin.name = "crashing";
    plugin.net = &kOps;
    return plugin;
  }();
  return &kPlugin;
}
