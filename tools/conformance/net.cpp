// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/net.hpp"

#include <deque>

#include "core/plugin/descriptor.hpp"

namespace plexus::conformance {
namespace {

plexus_net_region_t make_region(const void* data, uint64_t size_bytes) {
  // A sending end only reads the memory.
  return {const_cast<void*>(data), size_bytes, 0, -1, PLEXUS_MEMORY_HOST};
}

const void* address(const void* handle) { return handle; }  // fmt accepts no other pointers

/// Writes how a post ended.
void trace_post(Trace& trace, int32_t code, const plexus_net_request_t* request) {
  if (code == PLEXUS_OK) {
    trace.add("ok {}", address(request));
  } else {
    trace.add("{}", code == PLEXUS_AGAIN ? "again" : "failed");
  }
}
void trace_test(Trace& trace, int32_t code, const plexus_net_request_t* request) {
  if (code != PLEXUS_AGAIN) {
    trace.add("done {}", address(request));
  }
}
std::string format_buffer(const void* data, uint64_t size_bytes, int32_t tag) {
  constexpr uintptr_t kAlignment = 64;
  return fmt::format("{} {} {} {}", size_bytes, tag, reinterpret_cast<uintptr_t>(data) % kAlignment,
                     data == nullptr ? 1 : 0);
}

}  // namespace

Error failed(Monitor& monitor, const char* call, int32_t code) {
  return wrong("{} failed with code {}: {}", call, code, monitor.last_failure());
}

Result<Net> Net::load(Fixture& fixture) {
  fixture.status().place = Place::kLoading;
  auto plugin = NetPlugin::load(fixture.file(), {.abi = fixture.subject().abi, .v11 = ""});
  fixture.status().place = Place::kKit;
  if (plugin.has_error()) {
    return wrong("it cannot be loaded: {}", plugin.error().message());
  }
  return Net{&fixture, plugin.value()};
}

Result<Context> Context::open(const Net& net, uint64_t comm_id) {
  Monitor& monitor = net.fixture->monitor();
  plexus_net_config_t config{sizeof config,  -1,     comm_id, &Monitor::write_line,
                             monitor.sink(), nullptr};
  plexus_net_context_t* raw = nullptr;
  const int32_t made = monitor.call(Place::kInit, [&] { return net.plugin->init(&config, &raw); });
  if (made != PLEXUS_OK) {
    return failed(monitor, "init", made);
  }
  net.fixture->trace().add("init {} {}", address(raw), comm_id);
  Context context(net, raw);
  uint32_t count = 0;
  const int32_t counted =
      monitor.call(Place::kDeviceCount, [&] { return net.ops().device_count(raw, &count); });
  if (counted != PLEXUS_OK) {
    return failed(monitor, "device_count", counted);
  }
  if (count == 0 || count > kNetDevicesMax) {
    return wrong("it has {} devices here, 1..{} are needed to check it", count, kNetDevicesMax);
  }
  for (uint32_t device = 0; device < count; ++device) {
    plexus_net_properties_t properties{};
    const int32_t code = monitor.call(
        Place::kProperties, [&] { return net.ops().properties(raw, device, &properties); });
    if (code != PLEXUS_OK) {
      return failed(monitor, "properties", code);
    }
    context.properties_.push_back(properties);
  }
  return context;
}

Result<Listen> Context::listen(uint32_t device) const {
  NetHandle handle{};
  plexus_net_listen_t* raw = nullptr;
  const int32_t code = monitor().call(
      Place::kListen, [&] { return net_->ops().listen(raw_, device, &handle, &raw); });
  if (code != PLEXUS_OK) {
    return failed(monitor(), "listen", code);
  }
  if (raw == nullptr) {
    return wrong("listen returned PLEXUS_OK but no handle");
  }
  trace().add("listen {} {} {} {}", address(raw_), device, address(raw),
              Trace::fingerprint(handle));
  return Listen(*net_, raw, handle, properties(device).message_bytes_max);
}

int32_t Send::try_connect() {
  if (traced_ == 0) {
    traced_ = trace().next_end();
    trace().add("connect {} {} {} {}", traced_, address(context_), device_,
                Trace::fingerprint(handle_));
  }
  const int32_t code = monitor().call(
      Place::kConnect, [&] { return net_->ops().connect(context_, device_, &handle_, &raw_); });
  if (code == PLEXUS_OK) {
    trace().add("connected {}", traced_);
  }
  return code;
}

int32_t Send::isend(const void* data,
                    uint64_t size_bytes,
                    int32_t tag,
                    plexus_net_memory_t* memory,
                    plexus_net_request_t** request) {
  *request = nullptr;
  trace().add("isend {} {}", traced_, format_buffer(data, size_bytes, tag));
  const int32_t code = monitor().call(Place::kIsend, [&] {
    return net_->ops().isend(raw_, data, size_bytes, tag, memory, request);
  });
  trace_post(trace(), code, *request);
  if (code == PLEXUS_OK && *request == nullptr) {
    monitor().report("isend returned PLEXUS_OK but no request");
  }
  return code;
}

int32_t Send::isend_pieces(std::span<const plexus_net_piece_t> pieces,
                           int32_t tag,
                           plexus_net_request_t** request) {
  *request = nullptr;
  return monitor().call(Place::kIsend, [&] {
    return net_->ops().isend_pieces(raw_, static_cast<uint32_t>(pieces.size()), pieces.data(), tag,
                                    request);
  });
}

int32_t Send::isend_gathered(std::span<const plexus_net_source_t> sources,
                             int32_t tag,
                             plexus_net_request_t** request) {
  *request = nullptr;
  return monitor().call(Place::kIsend, [&] {
    return net_->ops().isend_gathered(raw_, static_cast<uint32_t>(sources.size()), sources.data(),
                                      tag, request);
  });
}

int32_t Send::test(plexus_net_request_t* request, uint64_t* size_bytes) {
  const int32_t code =
      monitor().call(Place::kTest, [&] { return net_->ops().test(request, size_bytes); });
  trace_test(trace(), code, request);
  return code;
}

Result<plexus_net_memory_t*> Send::register_memory(const void* data, uint64_t size_bytes) {
  const plexus_net_region_t region = make_region(data, size_bytes);
  plexus_net_memory_t* memory = nullptr;
  const int32_t code = monitor().call(
      Place::kRegisterSend, [&] { return net_->ops().register_send(raw_, &region, &memory); });
  if (code != PLEXUS_OK) {
    return failed(monitor(), "register_send", code);
  }
  return memory;
}

int32_t Recv::try_accept() {
  if (traced_ == 0) {
    traced_ = trace().next_end();
    trace().add("accept {} {}", traced_, address(listen_));
  }
  const int32_t code =
      monitor().call(Place::kAccept, [&] { return net_->ops().accept(listen_, &raw_); });
  if (code == PLEXUS_OK) {
    trace().add("connected {}", traced_);
  }
  return code;
}

int32_t Recv::irecv(std::span<const plexus_net_buffer_t> buffers, plexus_net_request_t** request) {
  *request = nullptr;
  std::string traced;
  for (const plexus_net_buffer_t& buffer : buffers) {
    traced += " " + format_buffer(buffer.data, buffer.size_bytes, buffer.tag);
  }
  trace().add("irecv {}{}", traced_, traced);
  const int32_t code = monitor().call(Place::kIrecv, [&] {
    return net_->ops().irecv(raw_, static_cast<uint32_t>(buffers.size()), buffers.data(), request);
  });
  trace_post(trace(), code, *request);
  if (code == PLEXUS_OK && *request == nullptr) {
    monitor().report("irecv returned PLEXUS_OK but no request");
  }
  return code;
}

int32_t Recv::irecv_pieces(std::span<const plexus_net_piece_t> pieces,
                           int32_t tag,
                           plexus_net_request_t** request) {
  *request = nullptr;
  return monitor().call(Place::kIrecv, [&] {
    return net_->ops().irecv_pieces(raw_, static_cast<uint32_t>(pieces.size()), pieces.data(), tag,
                                    request);
  });
}

int32_t Recv::test(plexus_net_request_t* request, uint64_t* sizes_bytes) {
  const int32_t code =
      monitor().call(Place::kTest, [&] { return net_->ops().test(request, sizes_bytes); });
  trace_test(trace(), code, request);
  return code;
}

Result<plexus_net_memory_t*> Recv::register_memory(const void* data, uint64_t size_bytes) {
  const plexus_net_region_t region = make_region(data, size_bytes);
  plexus_net_memory_t* memory = nullptr;
  const int32_t code = monitor().call(
      Place::kRegisterRecv, [&] { return net_->ops().register_recv(raw_, &region, &memory); });
  if (code != PLEXUS_OK) {
    return failed(monitor(), "register_recv", code);
  }
  return memory;
}

void deregister(const Net& net, plexus_net_memory_t* memory) {
  if (memory == nullptr) {
    return;
  }
  Monitor& monitor = net.fixture->monitor();
  const int32_t code =
      monitor.call(Place::kDeregister, [&] { return net.ops().deregister(memory); });
  if (code != PLEXUS_OK) {
    monitor.report("deregister failed: " + monitor.last_failure());
  }
}

Result<bool> progress(Send& send, bool& is_connected, Recv& recv, bool& is_accepted) {
  Monitor& monitor = send.net().fixture->monitor();
  if (!is_connected) {
    const int32_t code = send.try_connect();
    if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
      return failed(monitor, "connect", code);
    }
    is_connected = code == PLEXUS_OK;
  }
  if (!is_accepted) {
    const int32_t code = recv.try_accept();
    if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
      return failed(monitor, "accept", code);
    }
    is_accepted = code == PLEXUS_OK;
  }
  if ((is_connected && send.raw() == nullptr) || (is_accepted && recv.raw() == nullptr)) {
    return wrong("connect or accept returned PLEXUS_OK but no handle");
  }
  return is_connected && is_accepted;
}

Result<void> accept_after_quitters(const Context& context, const Listen& listen) {
  Send send = context.connect(listen.handle());
  std::deque<Recv> recvs;
  recvs.push_back(listen.accept());
  bool is_connected = false;
  size_t accepted = 0;
  return context.net().fixture->wait_until(
      "a connection after some abandoned attempts", [&]() -> Result<bool> {
        bool is_accepted = false;
        PLEXUS_TRY(progress(send, is_connected, recvs.back(), is_accepted));
        if (is_accepted) {
          ++accepted;
          recvs.push_back(listen.accept());
        }
        return is_connected && accepted > 0;
      });
}

Result<Send> connect_to_peer(const Context& context) {
  Fixture& fixture = *context.net().fixture;
  PLEXUS_TRY(handle, fixture.peer().receive<NetHandle>());
  Send send = context.connect(handle);
  PLEXUS_TRY(fixture.wait_until("connect to the other process", [&]() -> Result<bool> {
    const int32_t code = send.try_connect();
    if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
      return failed(fixture.monitor(), "connect", code);
    }
    return code == PLEXUS_OK;
  }));
  return send;
}

Result<Recv> accept_from_peer(const Context& context) {
  Fixture& fixture = *context.net().fixture;
  PLEXUS_TRY(listen, context.listen());
  PLEXUS_TRY(fixture.peer().send(listen.handle()));
  Recv recv = listen.accept();
  PLEXUS_TRY(fixture.wait_until("accept of the other process", [&]() -> Result<bool> {
    const int32_t code = recv.try_accept();
    if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
      return failed(fixture.monitor(), "accept", code);
    }
    return code == PLEXUS_OK;
  }));
  return recv;
}

}  // namespace plexus::conformance
