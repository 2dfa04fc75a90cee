// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/transfer.hpp"

#include <algorithm>

#include "guest/assert.hpp"

namespace plexus::net_ofi {
namespace {

/// Address for an empty message, because providers may check the address.
std::byte* address_of(const void* data, std::byte& nothing) {
  return data == nullptr ? &nothing
                         : static_cast<std::byte*>(const_cast<void*>(
                               data));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

/// The buffer of empty messages, which is never read or written.
std::byte& nothing() {
  static std::byte byte{};
  return byte;
}

}  // namespace

// ------------------------------------------------------------------------------------ Connection

Result<plexus_net_memory_t*> Connection::register_memory(const plexus_net_region_t& region) const {
  const Domain& first = rails().domain(0);
  if ((first.memory_kinds() & region.kind) == 0) {
    return fail(PLEXUS_INVALID_USAGE,
                "net-ofi does not support {} on {}; set PLEXUS_OFI_HMEM=1 to see why",
                kind_text(region.kind), first.name());
  }
  if (region.data == nullptr && region.size_bytes > 0) {
    return fail(PLEXUS_INVALID_ARGUMENT, "cannot register a region of {} bytes at a null address",
                region.size_bytes);
  }
  const bool is_needed = first.needs_registration(region.kind);
  if (!is_needed || region.size_bytes == 0) {
    return static_cast<plexus_net_memory_t*>(nullptr);
  }
  auto memory = std::make_unique<plexus_net_memory_t>();
  memory->rails = &rails();
  memory->begin = region.data;
  memory->kind = region.kind;
  for (uint32_t rail = 0; rail < rails().count(); ++rail) {
    Domain& domain = rails().domain(rail);
    auto registration = domain.memory().acquire(region, domain.name().c_str());
    if (registration.has_error()) {
      deregister(*memory);
      return registration.error();
    }
    memory->registrations[rail] = registration.value();
  }
  return memory.release();
}

void deregister(plexus_net_memory_t& memory) {
  for (uint32_t rail = 0; rail < memory.rails->count(); ++rail) {
    if (memory.registrations[rail] != nullptr) {
      memory.rails->domain(rail).memory().release(memory.registrations[rail]);
    }
  }
}

Connection::Connection(std::unique_ptr<Flow> flow) : flow_(std::move(flow)) {
  const auto lock = flow_->lock();
  flow_->set_messages(this);
}

void Connection::advance() {
  if (!flow_->progress()) {
    flow_->wait_idle();
    if (const Failure* end = flow_->ended(); end != nullptr && !is_broken()) {
      break_off(*end);
    }
  }
}

void Connection::take(const Event& event) {
  if (!is_broken()) {
    take_done(event);
  }
}

void Connection::break_off(Failure failure) {
  if (!failure_) {
    failure_ = std::move(failure);
  }
}

int32_t Connection::report_failure() noexcept {
  flow_->close(0);
  log().error(failure_->text.c_str());
  return failure_->code;
}

Failure Connection::failure_of(const Event& event, const char* what) const {
  if (const Failure* gone = flow_->departure()) {
    return *gone;
  }
  const bool is_gone = is_peer_gone(event.error) || event.error == FI_ECANCELED;
  return fail(is_gone ? PLEXUS_REMOTE_ERROR : PLEXUS_SYSTEM_ERROR,
              "lost the connection with {} while {}: {}", peer(), what, error_text(event.error));
}

// -------------------------------------------------------------------------------- SendConnection

SendConnection::SendConnection(std::unique_ptr<Flow> flow, const Options& options)
    : Connection(std::move(flow)), options_(options) {
  for (SendRequest& request : requests_) {
    request.kind = plexus_net_request::Kind::kSend;
    request.connection = this;
    for (uint32_t rail = 0; rail < kRailsMax; ++rail) {
      request.operations[rail].owner = &request;
      request.operations[rail].index = rail;
    }
    free_.push(request);
  }
}

SendConnection::~SendConnection() {
  const auto lock = flow().lock();
  flow().close(sent_);
}

int32_t SendConnection::isend(const void* data,
                              uint64_t size_bytes,
                              int32_t tag,
                              const plexus_net_memory_t* memory,
                              plexus_net_request_t** request) {
  const auto lock = flow().lock();
  if (is_broken()) {
    return report_failure();
  }
  if (size_bytes > options_.message_bytes_max) {
    log().error("a message is longer than message_bytes_max of the device");
    return PLEXUS_INVALID_ARGUMENT;
  }
  if (free_.is_empty() || !waiting_.is_empty() || is_far_ahead()) {
    start_waiting();
    advance();
    return is_broken() ? report_failure() : PLEXUS_AGAIN;
  }
  if (const Failure* gone = flow().departure()) {
    break_off(*gone);
    return report_failure();
  }
  SendRequest& fresh = free_.front();
  fresh.data = address_of(data, nothing());
  fresh.size_bytes = size_bytes;
  fresh.memory = memory;
  fresh.tag = tag;
  fresh.split = split_message(size_bytes, rails().count(), options_.stripe_bytes_min, sequence_);
  fresh.started_rails = 0;
  fresh.unfinished = fresh.split.blocks == 0 ? 1 : rails().count();
  if (!start_rail(fresh)) {
    advance();  // completions may free space in the provider's queue
    return is_broken() ? report_failure() : PLEXUS_AGAIN;
  }
  free_.pop();
  bytes_before_[sent_ % kWindow] = sent_bytes_;
  ++sent_;
  sent_bytes_ += size_bytes;
  ++sequence_;
  waiting_.push(fresh);
  start_waiting();
  *request = &fresh;
  return PLEXUS_OK;  // test() reports a failure of the rest, because the request exists
}

bool SendConnection::is_far_ahead() const noexcept {
  const uint64_t received = flow().peer_count();
  return sent_ - received >= kWindow ||
         (sent_ > received && sent_bytes_ - bytes_before_[received % kWindow] >= kWindowBytes);
}

bool SendConnection::start_rail(SendRequest& request) {
  const uint32_t rail = request.started_rails;
  const uint64_t first_bytes = request.size_bytes - request.split.blocks * kBlockBytes;
  const Part part = part_of(request.split, first_bytes, rails().count(), rail);
  const Bytes bytes = {request.data + part.begin, part.size_bytes,
                       descriptor(request.memory, rail)};
  Operation& operation = request.operations[rail];
  ssize_t result = 0;
  if (rail > 0) {
    operation.kind = OperationKind::kPart;
    if (part.size_bytes == 0) {
      --request.unfinished;  // fewer blocks than rails
    } else {
      result = rails().send(rail, bytes,
                            flow().tags().make(TagKind::kPart, request.tag, request.split.sequence),
                            operation);
    }
  } else {
    operation.kind = OperationKind::kMessage;
    const uint64_t tag = flow().tags().make(TagKind::kMessage, request.tag);
    result = request.split.blocks == 0
                 ? rails().send(rail, bytes, tag, operation)
                 : rails().send_with_data(rail, bytes, request.split.pack(), tag, operation);
  }
  if (result == 0) {
    ++request.started_rails;
    return true;
  }
  if (result != -FI_EAGAIN) {
    break_off(failure_of({&operation, 0, 0, static_cast<int>(-result), 0}, "starting to send"));
  }
  return false;
}

void SendConnection::start_waiting() {
  while (!waiting_.is_empty() && !is_broken()) {
    SendRequest& request = waiting_.front();
    const uint32_t count = request.split.blocks == 0 ? 1 : rails().count();
    while (request.started_rails < count) {
      if (!start_rail(request)) {
        return;
      }
    }
    waiting_.pop();
  }
}

void SendConnection::take_done(const Event& event) {
  auto& request = *static_cast<SendRequest*>(event.operation->owner);
  PLEXUS_DCHECK(request.unfinished > 0, request.tag);
  if (event.error != 0) {
    break_off(failure_of(event, "sending"));
    return;
  }
  --request.unfinished;
}

int32_t SendConnection::test(SendRequest& request, uint64_t* sizes_bytes) {
  const auto lock = flow().lock();
  if (request.unfinished > 0) {
    if (!is_broken()) {
      start_waiting();
      advance();
    }
    if (request.unfinished > 0) {
      return is_broken() ? report_failure() : PLEXUS_AGAIN;
    }
  }
  if (sizes_bytes != nullptr) {
    *sizes_bytes = request.size_bytes;
  }
  free_.push(request);
  return PLEXUS_OK;
}

// -------------------------------------------------------------------------------- RecvConnection

RecvConnection::RecvConnection(std::unique_ptr<Flow> flow) : Connection(std::move(flow)) {
  for (RecvRequest& request : requests_) {
    request.kind = plexus_net_request::Kind::kRecv;
    request.connection = this;
    for (RecvBuffer& buffer : request.buffers) {
      buffer.request = &request;
      for (uint32_t rail = 0; rail < kRailsMax; ++rail) {
        buffer.operations[rail].owner = &buffer;
        buffer.operations[rail].index = rail;
      }
    }
    free_.push(request);
  }
  waiting_parts_.reserve(size_t{kRequests} * PLEXUS_NET_RECVS_MAX * kRailsMax);
}

RecvConnection::~RecvConnection() {
  const auto lock = flow().lock();
  flow().close(received_);
}

int32_t RecvConnection::irecv(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request) {
  const auto lock = flow().lock();
  if (is_broken()) {
    return report_failure();
  }
  if (count < 1 || count > PLEXUS_NET_RECVS_MAX) {
    log().error("a grouped receive has 1..8 buffers");
    return PLEXUS_INVALID_ARGUMENT;
  }
  if (free_.is_empty()) {
    return PLEXUS_AGAIN;
  }
  RecvRequest& fresh = free_.pop();
  for (uint32_t i = 0; i < count; ++i) {
    RecvBuffer& buffer = fresh.buffers[i];
    buffer.data = address_of(buffers[i].data, nothing());
    buffer.capacity_bytes = buffers[i].size_bytes;
    buffer.memory = buffers[i].memory;
    buffer.tag = buffers[i].tag;
    buffer.size_bytes = 0;
    buffer.unfinished = 1;
  }
  fresh.count = count;
  fresh.posted = 0;
  fresh.unfinished = count;
  waiting_.push(fresh);
  post_waiting();  // test() reports a failure, because the request exists
  *request = &fresh;
  return PLEXUS_OK;
}

void RecvConnection::post_waiting() {
  while (!waiting_.is_empty() && !is_broken()) {
    RecvRequest& request = waiting_.front();
    while (request.posted < request.count) {
      if (!post_buffer(request.buffers[request.posted])) {
        return;
      }
      ++request.posted;
    }
    waiting_.pop();
  }
}

bool RecvConnection::post_buffer(RecvBuffer& buffer) {
  Operation& operation = buffer.operations[0];
  operation.kind = OperationKind::kMessage;
  const ssize_t result =
      rails().receive(0, {buffer.data, buffer.capacity_bytes, descriptor(buffer.memory, 0)},
                      flow().tags().make(TagKind::kMessage, buffer.tag), operation);
  if (result != 0 && result != -FI_EAGAIN) {
    break_off(failure_of({&operation, 0, 0, static_cast<int>(-result), 0}, "posting a receive"));
  }
  return result == 0;
}

bool RecvConnection::post_part(RecvBuffer& buffer, uint32_t rail) {
  const Part part = part_of(buffer.split, buffer.first_bytes, rails().count(), rail);
  Operation& operation = buffer.operations[rail];
  operation.kind = OperationKind::kPart;
  const ssize_t result = rails().receive(
      rail, {buffer.data + part.begin, part.size_bytes, descriptor(buffer.memory, rail)},
      flow().tags().make(TagKind::kPart, buffer.tag, buffer.split.sequence), operation);
  if (result != 0 && result != -FI_EAGAIN) {
    break_off(failure_of({&operation, 0, 0, static_cast<int>(-result), 0}, "posting a receive"));
  }
  return result == 0;
}

void RecvConnection::post_parts() {
  size_t posted = 0;
  while (posted < waiting_parts_.size() && !is_broken() &&
         post_part(*waiting_parts_[posted].buffer, waiting_parts_[posted].rail)) {
    ++posted;
  }
  waiting_parts_.erase(waiting_parts_.begin(),
                       waiting_parts_.begin() + static_cast<ptrdiff_t>(posted));
}

int32_t RecvConnection::flush(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request) {
  const auto lock = flow().lock();
  if (is_broken()) {
    return report_failure();
  }
  if (count < 1 || count > PLEXUS_NET_RECVS_MAX) {
    log().error("a flush has 1..8 buffers");
    return PLEXUS_INVALID_ARGUMENT;
  }
  FlushRequest* const fresh = flushes_.plan({buffers, count}, rails().count());
  if (fresh == nullptr) {
    *request = nullptr;  // host memory: visible already
    return PLEXUS_OK;
  }
  fresh->connection = this;
  start_flushes();
  *request = fresh;
  return PLEXUS_OK;  // test() reports a failure, because the request exists
}

void RecvConnection::start_flushes() {
  const ssize_t result = flushes_.start(rails());
  if (result != 0 && result != -FI_EAGAIN) {
    break_off(failure_of({nullptr, 0, 0, static_cast<int>(-result), 0}, "reading GPU memory back"));
  }
}

int32_t RecvConnection::test(FlushRequest& request) {
  const auto lock = flow().lock();
  if (request.unfinished > 0 && !is_broken()) {
    start_flushes();
    advance();
  }
  if (request.unfinished > 0) {
    return is_broken() ? report_failure() : PLEXUS_AGAIN;
  }
  flushes_.release(request);
  return PLEXUS_OK;
}

void RecvConnection::take_flushed(const Event& event) {
  if (event.error != 0) {
    return break_off(failure_of(event, "reading GPU memory back"));
  }
  auto& request = *static_cast<FlushRequest*>(event.operation->owner);
  PLEXUS_DCHECK(request.unfinished > 0 && request.started <= request.count, request.count);
  --request.unfinished;
}

void RecvConnection::take_done(const Event& event) {
  if (event.operation->kind == OperationKind::kFlush) {
    return take_flushed(event);
  }
  auto& buffer = *static_cast<RecvBuffer*>(event.operation->owner);
  if (event.error == FI_ETRUNC || event.error == FI_EMSGSIZE) {
    break_off(too_long(buffer, buffer.capacity_bytes + event.excess_bytes));
  } else if (event.error != 0) {
    break_off(failure_of(event, "receiving"));
  } else if (event.operation->kind == OperationKind::kMessage) {
    take_message(buffer, event);
  } else {
    const Part part =
        part_of(buffer.split, buffer.first_bytes, rails().count(), event.operation->index);
    if (event.size_bytes != part.size_bytes) {
      break_off(fail(
          PLEXUS_REMOTE_ERROR,
          "{} sent a part of {} bytes, expected {}: use the same version of net-ofi on both ends",
          peer(), event.size_bytes, part.size_bytes));
    } else if (--buffer.unfinished == 0) {
      end_buffer(buffer);
    }
  }
}

void RecvConnection::take_message(RecvBuffer& buffer, const Event& event) {
  buffer.split = rails().count() > 1 ? Split::unpack(event.data) : Split{};
  buffer.first_bytes = event.size_bytes;
  buffer.size_bytes = event.size_bytes + buffer.split.blocks * kBlockBytes;
  if (buffer.size_bytes > buffer.capacity_bytes) {
    return break_off(too_long(buffer, buffer.size_bytes));
  }
  PLEXUS_DCHECK(buffer.unfinished == 1, buffer.unfinished);
  --buffer.unfinished;
  for (uint32_t rail = 1; buffer.split.blocks > 0 && rail < rails().count(); ++rail) {
    PLEXUS_DCHECK(waiting_parts_.size() < waiting_parts_.capacity(), waiting_parts_.size());
    if (part_of(buffer.split, buffer.first_bytes, rails().count(), rail).size_bytes > 0) {
      waiting_parts_.push_back({&buffer, rail});
      ++buffer.unfinished;
    }
  }
  if (buffer.unfinished == 0) {
    end_buffer(buffer);
  }
}

void RecvConnection::end_buffer(RecvBuffer& buffer) {
  PLEXUS_DCHECK(buffer.request->unfinished > 0 && announced_ <= received_, announced_, received_);
  --buffer.request->unfinished;
  ++received_;
  unannounced_bytes_ += buffer.size_bytes;
}

Failure RecvConnection::too_long(const RecvBuffer& buffer, uint64_t size_bytes) const {
  // Not every provider reports the excess.
  const std::string size = size_bytes > buffer.capacity_bytes
                               ? fmt::format("{} bytes", size_bytes)
                               : fmt::format("more than {} bytes", buffer.capacity_bytes);
  return fail(
      PLEXUS_INVALID_USAGE,
      "{} sent {} with tag {}, but the receive has room for {}: the ranks' calls differ in size",
      peer(), size, buffer.tag, buffer.capacity_bytes);
}

void RecvConnection::send_credit() {
  const bool is_due =
      received_ - announced_ >= kCreditStep || unannounced_bytes_ >= kCreditStepBytes;
  if (is_due && flow().departure() == nullptr &&
      flow().send_control(make_control(ControlType::kCredit, received_))) {
    announced_ = received_;
    unannounced_bytes_ = 0;
  }
}

int32_t RecvConnection::test(RecvRequest& request, uint64_t* sizes_bytes) {
  const auto lock = flow().lock();
  if (request.unfinished > 0) {
    if (!is_broken()) {
      post_waiting();
      advance();
      post_parts();
      send_credit();
    }
    if (request.unfinished > 0) {
      return is_broken() ? report_failure() : PLEXUS_AGAIN;
    }
  }
  if (sizes_bytes != nullptr) {
    for (uint32_t i = 0; i < request.count; ++i) {
      sizes_bytes[i] = request.buffers[i].size_bytes;
    }
  }
  free_.push(request);
  return PLEXUS_OK;
}

}  // namespace plexus::net_ofi
