// SPDX-License-Identifier: Apache-2.0
#include "tools/conformance/raw_net.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/plugin/nccl_net/choose.hpp"
#include "core/plugin/nccl_net/log.hpp"
#include "tools/conformance/library.hpp"
#include "tools/conformance/traffic.hpp"

namespace plexus::conformance {
namespace {

constexpr int kTag = 3;
constexpr int kGarbage = 0x5A5A5A5A;
constexpr uint8_t kUntouched = 0xA5;
constexpr uint64_t kSpareBytes = 100;  // by which the receive's buffer is larger

/// An event of a profiler, which a plugin passes back and does not look into.
void* event_handle() {
  static std::array<std::byte, 64> event{};
  return event.data();
}

}  // namespace

Result<RawNet> RawNet::choose(Fixture& fixture) {
  PLEXUS_TRY(library, load_library(fixture));
  auto choice =
      nccl_net::choose_net(library, fixture.subject().nccl_version(), nccl_net::V11Layout::kBySize);
  if (choice.has_error()) {
    return wrong("{}", choice.error().message());
  }
  const int version = std::atoi(choice.value().entry.c_str() + std::strlen("ncclNetPlugin_v"));
  return RawNet{&fixture, std::move(choice.value().net), version};
}

template <class Call>
int32_t RawPair::call(Place place, const char* name, const Call& made) const {
  Monitor& monitor = fixture_->monitor();
  return monitor.call(place, [&] {
    nccl_net::LogScope scope({&Monitor::write_line, monitor.sink()});
    return scope.finish(name, made());
  });
}

Result<std::unique_ptr<RawPair>> RawPair::connect(const RawNet& raw,
                                                  const RawArguments& arguments) {
  std::unique_ptr<RawPair> pair(new RawPair(raw, arguments));
  PLEXUS_TRY(pair->open());
  return pair;
}

Result<void> RawPair::open() {
  Monitor& monitor = fixture_->monitor();
  if (net_->is_per_communicator()) {  // the others are initialised once, by the adapter
    const int32_t code = call(Place::kInit, "init", [&] { return net_->init(comm_, 1); });
    if (code != PLEXUS_OK) {
      return failed(monitor, "init", code);
    }
    is_open_ = true;
  }
  alignas(16) Handle handle;
  handle.fill(kUntouched);
  const int32_t code = call(Place::kListen, "listen",
                            [&] { return net_->listen(comm_, 0, handle.data(), &listen_); });
  if (code != PLEXUS_OK) {
    return failed(monitor, "listen", code);
  }
  PLEXUS_TRY(fixture_->wait_until("connect and accept of both ends",
                                  [&] { return advance_connect(handle); }));
  return expect(std::all_of(handle.begin() + PLEXUS_NET_HANDLE_BYTES, handle.end(),
                            [](uint8_t byte) { return byte == kUntouched; }),
                "listen or connect wrote beyond the {} bytes of the handle",
                PLEXUS_NET_HANDLE_BYTES);
}

Result<bool> RawPair::advance_connect(Handle& handle) {
  nccl_device_handle_t* offload = nullptr;
  nccl_device_handle_t** const place = arguments_.has_offload ? &offload : nullptr;
  int32_t code = PLEXUS_OK;
  if (send_.raw == nullptr) {
    code = call(Place::kConnect, "connect",
                [&] { return net_->connect(comm_, 0, handle.data(), &send_.raw, place); });
    if (code != PLEXUS_OK) {
      return failed(fixture_->monitor(), "connect", code);
    }
  }
  if (recv_.raw == nullptr) {
    code = call(Place::kAccept, "accept", [&] { return net_->accept(listen_, &recv_.raw, place); });
    if (code != PLEXUS_OK) {
      return failed(fixture_->monitor(), "accept", code);
    }
  }
  return send_.raw != nullptr && recv_.raw != nullptr;
}

RawPair::~RawPair() {
  Monitor& monitor = fixture_->monitor();
  if (send_.raw != nullptr) {
    monitor.call_void(Place::kCloseSend, [&] { net_->close_send(send_.raw); });
  }
  if (recv_.raw != nullptr) {
    monitor.call_void(Place::kCloseRecv, [&] { net_->close_recv(recv_.raw); });
  }
  if (listen_ != nullptr) {
    monitor.call_void(Place::kCloseListen, [&] { net_->close_listen(listen_); });
  }
  if (is_open_) {
    monitor.call_void(Place::kFinalize, [&] { net_->finalize(comm_); });
  }
}

Result<void> RawPair::register_memory(End& end, Place place, std::vector<std::byte>& bytes) {
  const plexus_net_region_t region{bytes.data(), bytes.size(), 0, -1, PLEXUS_MEMORY_HOST};
  const int32_t code =
      call(place, "regMr", [&] { return net_->register_memory(end.raw, region, &end.memory); });
  return code == PLEXUS_OK ? Result<void>(ok()) : failed(fixture_->monitor(), "regMr", code);
}

/// Also called for memory that needs no registration: NCCL passes back what regMr gave.
void RawPair::deregister(End& end) {
  call(Place::kDeregister, "deregMr", [&] { return net_->deregister(end.raw, end.memory); });
}

Result<void> RawPair::post_recv(std::vector<std::byte>& target) {
  auto* const early = reinterpret_cast<void*>(uintptr_t{NCCL_OPTIONAL_COMPLETION});
  void* request = arguments_.is_early ? early : nullptr;
  nccl_net::Buffers buffers;
  std::array<void*, PLEXUS_NET_RECVS_MAX> profiles{};
  profiles.fill(event_handle());
  buffers.count = 1;
  buffers.data[0] = target.data();
  buffers.sizes[0] = target.size();
  buffers.tags[0] = kTag;
  buffers.memory[0] = recv_.memory;
  buffers.profiles = arguments_.has_profiles ? profiles.data() : nullptr;
  const int32_t code =
      call(Place::kIrecv, "irecv", [&] { return net_->irecv(recv_.raw, buffers, &request); });
  if (code != PLEXUS_OK) {
    return failed(fixture_->monitor(), "irecv", code);
  }
  PLEXUS_TRY(expect(request != early,
                    "irecv left `*request` as it was, {}, which NCCL then tests as a request",
                    NCCL_OPTIONAL_COMPLETION));
  recv_.request = request;
  return ok();
}

Result<void> RawPair::post_send(std::vector<std::byte>& source) {
  void* const profile = arguments_.has_profiles ? event_handle() : nullptr;
  const int32_t code = call(Place::kIsend, "isend", [&] {
    return net_->isend(send_.raw, source.data(), source.size(), kTag, send_.memory, profile,
                       &send_.request);
  });
  return code == PLEXUS_OK ? Result<void>(ok()) : failed(fixture_->monitor(), "isend", code);
}

/// NCCL zeroes the sizes of a receive, and neither `done` nor the one size of a send.
Result<void> RawPair::test(End& end, uint64_t size_bytes) {
  const bool is_send = &end == &send_;
  int is_done = kGarbage;
  std::array<int, NCCL_TEST_SIZES> sizes{};
  sizes.fill(is_send ? kGarbage : 0);
  const int32_t code = call(Place::kTest, "test", [&] {
    return net_->test(end.request, &is_done, arguments_.has_sizes ? sizes.data() : nullptr);
  });
  if (code != PLEXUS_OK) {
    return failed(fixture_->monitor(), is_send ? "test of a send" : "test of a receive", code);
  }
  PLEXUS_TRY(expect(is_done == 0 || is_done == 1,
                    "test returned without a value of 0 or 1 in `*done`: NCCL does not set it "
                    "before the call"));
  end.is_done = is_done == 1;
  if (!end.is_done) {
    return ok();
  }
  end.request = nullptr;
  PLEXUS_TRY(expect(std::all_of(sizes.begin() + 1, sizes.end(),
                                [&](int size) { return size == (is_send ? kGarbage : 0); }),
                    "test of a {} wrote more than one size", is_send ? "send" : "receive"));
  return expect(is_send || sizes[0] == 0 || static_cast<uint64_t>(sizes[0]) == size_bytes,
                "test of a receive reports {} bytes, sent were {}", sizes[0], size_bytes);
}

Result<void> RawPair::deliver(uint64_t size_bytes) {
  Bytes source = make_message(size_bytes, 1);
  source.reserve(size_bytes + 1);  // an empty message has an address, too
  Bytes target(size_bytes + kSpareBytes);
  PLEXUS_TRY(register_memory(recv_, Place::kRegisterRecv, target));
  PLEXUS_TRY(register_memory(send_, Place::kRegisterSend, source));
  send_.is_done = recv_.is_done = false;
  const auto state = [](const End& end) {
    return end.is_done ? "done" : end.request != nullptr ? "posted" : "not posted";
  };
  PLEXUS_TRY(fixture_->wait_until(
      [&] {
        return fmt::format("a message of {} bytes: its send is {}, its receive is {}", size_bytes,
                           state(send_), state(recv_));
      },
      [&]() -> Result<bool> {
        if (!recv_.is_done) {
          PLEXUS_TRY(recv_.request == nullptr ? post_recv(target) : test(recv_, size_bytes));
        }
        if (!send_.is_done) {
          PLEXUS_TRY(send_.request == nullptr ? post_send(source) : test(send_, size_bytes));
        }
        return send_.is_done && recv_.is_done;
      }));
  const auto has_arrived = [&] { return std::equal(source.begin(), source.end(), target.begin()); };
  if (arguments_.is_early) {
    PLEXUS_TRY(fixture_->wait_until("the bytes of a receive that was done early",
                                    [&]() -> Result<bool> { return has_arrived(); }));
  }
  PLEXUS_TRY(expect(has_arrived(), "a message of {} bytes arrived corrupted", size_bytes));
  deregister(recv_);
  deregister(send_);
  return ok();
}

}  // namespace plexus::conformance
