// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-jail/connection.hpp"

#include <algorithm>

#include "plugins/support/handle.hpp"

namespace plexus::net_jail {
namespace {

/// What fills the rest of a copy's last page: it shows that the plugin wrote past the memory. What
/// writes further meets a page that is not there.
constexpr std::byte kGuard{0xa5};
constexpr uint64_t kGuardBytesMax = 64;

uint64_t guard_bytes(const Copy& copy) {
  return std::min(page_bytes(copy.size_bytes) - copy.size_bytes, kGuardBytesMax);
}
bool has_guard(const Copy& copy) {
  const std::byte* const guard = copy.mapping.data() + copy.size_bytes;
  return std::all_of(guard, guard + guard_bytes(copy),
                     [](std::byte each) { return each == kGuard; });
}

}  // namespace

Connection::~Connection() {
  for (const auto& each : requests_) {
    if (each->connection != nullptr) {  // abandoned
      cell_.give_back_request(each->index);
    }
  }
}

Result<plexus_net_memory_t*> Connection::register_memory(const plexus_net_region_t& region) {
  if (region.kind != PLEXUS_MEMORY_HOST) {
    return fail(PLEXUS_INVALID_ARGUMENT,
                "net-jail: a plugin in a process of its own has no GPU "
                "memory: leave isolate=1 out");
  }
  PLEXUS_TRY(copy, cell_.make_copy(region.size_bytes));
  std::fill_n(copy.mapping.data() + copy.size_bytes, guard_bytes(copy), kGuard);
  std::unique_ptr<plexus_net_memory_t> made(new plexus_net_memory_t{
      this, std::move(copy), static_cast<const std::byte*>(region.data), 0});
  const int32_t code = cell_.call(
      is_send_ ? Entry::kRegisterSend : Entry::kRegisterRecv,
      [&](Call& call) {
        call.object = object_;
        call.source = made->copy.place_bytes;
        call.target = made->copy.size_bytes;
      },
      [&](const Call& call) { made->helper_memory = call.made; });
  if (code != PLEXUS_OK) {
    cell_.drop_copy(made->copy);
  }
  PLEXUS_TRY(plugin::pass_on(code));
  return plugin::give_to_host(std::move(made));
}

int32_t Connection::deregister(plexus_net_memory_t* memory) {
  const std::unique_ptr<plexus_net_memory_t> owner(memory);
  const int32_t code = cell_.call(
      Entry::kDeregister, [&](Call& call) { call.object = memory->helper_memory; },
      [](const Call&) {});
  cell_.drop_copy(memory->copy);
  return code;
}

bool Connection::find_part(const plexus_net_buffer_t& buffer, Part& part) {
  part = {.memory = 0, .offset_bytes = 0, .size_bytes = buffer.size_bytes, .tag = buffer.tag};
  if (buffer.memory == nullptr) {
    return buffer.size_bytes == 0;
  }
  const plexus_net_memory_t& memory = *buffer.memory;
  part.memory = memory.helper_memory;
  if (buffer.size_bytes == 0) {
    return true;
  }
  const auto* const data = static_cast<const std::byte*>(buffer.data);
  if (data < memory.begin || buffer.size_bytes > memory.copy.size_bytes) {
    return false;
  }
  part.offset_bytes = static_cast<uint64_t>(data - memory.begin);
  return part.offset_bytes <= memory.copy.size_bytes - buffer.size_bytes;
}

plexus_net_request_t* Connection::begin(uint32_t count, const plexus_net_buffer_t* buffers) {
  const uint32_t index = cell_.take_request();
  if (index == kRequestsMax) {
    return nullptr;
  }
  if (free_.empty()) {  // as many as are ever under way at once
    requests_.push_back(std::make_unique<plexus_net_request_t>());
    free_.push_back(requests_.back().get());
  }
  plexus_net_request_t* const made = free_.back();
  free_.pop_back();
  made->connection = this;
  made->index = index;
  made->count = count;
  std::copy_n(buffers, count, made->buffers.begin());
  return made;
}

void Connection::give_back(plexus_net_request_t& request) {
  cell_.give_back_request(request.index);
  request.connection = nullptr;
  free_.push_back(&request);
}

int32_t Connection::start(Entry entry,
                          plexus_net_request_t& request,
                          plexus_net_request_t** result) {
  std::array<Part, PLEXUS_NET_RECVS_MAX> parts{};
  for (uint32_t i = 0; i < request.count; ++i) {
    if (!find_part(request.buffers[i], parts[i])) {
      give_back(request);
      log_.error("net-jail: a message is not in the memory that is registered for it");
      return PLEXUS_INVALID_ARGUMENT;
    }
  }
  if (const plexus_net_buffer_t& first = request.buffers[0]; is_send_ && first.size_bytes > 0) {
    std::memcpy(first.memory->copy.mapping.data() + parts[0].offset_bytes, first.data,
                first.size_bytes);
  }
  const int32_t code = cell_.call(
      entry,
      [&](Call& call) {
        call.object = object_;
        call.request = request.index;
        call.count = request.count;
        call.parts = parts;
      },
      [](const Call&) {});
  if (code != PLEXUS_OK) {
    give_back(request);
    return code;
  }
  *result = &request;
  return PLEXUS_OK;
}

int32_t Connection::isend(const void* data,
                          uint64_t size_bytes,
                          int32_t tag,
                          plexus_net_memory_t* memory,
                          plexus_net_request_t** request) {
  // Only read. NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
  const plexus_net_buffer_t buffer = {const_cast<void*>(data), size_bytes, memory, tag, 0};
  plexus_net_request_t* const made = begin(1, &buffer);
  return made == nullptr ? PLEXUS_AGAIN : start(Entry::kIsend, *made, request);
}

int32_t Connection::irecv(uint32_t count,
                          const plexus_net_buffer_t* buffers,
                          plexus_net_request_t** request) {
  if (count == 0 || count > PLEXUS_NET_RECVS_MAX) {
    log_.error("net-jail: wrong number of buffers in a receive");
    return PLEXUS_INVALID_ARGUMENT;
  }
  plexus_net_request_t* const made = begin(count, buffers);
  return made == nullptr ? PLEXUS_AGAIN : start(Entry::kIrecv, *made, request);
}

int32_t Connection::take_received(const plexus_net_request_t& request,
                                  const Request& done,
                                  uint64_t* sizes_bytes) {
  for (uint32_t i = 0; i < request.count; ++i) {
    const plexus_net_buffer_t& buffer = request.buffers[i];
    const uint64_t size = done.sizes_bytes[i];  // once: the helper could change it
    Part part{};
    if (size > buffer.size_bytes || !find_part(buffer, part)) {
      return cell_.end_for(Entry::kTest, "reported more bytes than its buffer has");
    }
    if (size > 0) {
      const Copy& copy = buffer.memory->copy;
      std::memcpy(buffer.data, copy.mapping.data() + part.offset_bytes, size);
    }
    if (sizes_bytes != nullptr) {
      sizes_bytes[i] = size;
    }
  }
  return PLEXUS_OK;
}

int32_t Connection::test(plexus_net_request_t& request, uint64_t* sizes_bytes) {
  const Request& done = cell_.request(request.index);
  if (done.state.load(std::memory_order_acquire) != kDone) {
    const int32_t code = cell_.wait_on(request.index);
    if (code != PLEXUS_AGAIN) {
      give_back(request);
    }
    return code;
  }
  int32_t code = done.code;
  const auto is_spoilt = [](const plexus_net_buffer_t& each) {
    return each.memory != nullptr && !has_guard(each.memory->copy);
  };
  const auto* const buffers = request.buffers.data();
  if (std::any_of(buffers, buffers + request.count, is_spoilt)) {
    code = cell_.end_for(is_send_ ? Entry::kIsend : Entry::kIrecv,
                         "wrote past the end of the memory that it was given");
  } else if (code == PLEXUS_OK && !is_send_) {
    code = take_received(request, done, sizes_bytes);
  } else if (code == PLEXUS_OK && sizes_bytes != nullptr) {
    sizes_bytes[0] = std::min(uint64_t{done.sizes_bytes[0]}, request.buffers[0].size_bytes);
  } else if (code != PLEXUS_OK) {
    log_.error(read_text(done.text).c_str());
    code = code < PLEXUS_OK || code >= PLEXUS_AGAIN ? PLEXUS_INTERNAL_ERROR : code;
  }
  give_back(request);
  return code;
}

}  // namespace plexus::net_jail
