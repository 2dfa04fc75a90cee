// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-socket/transfer.hpp"

#include <algorithm>
#include <cstring>
#include <sys/socket.h>
#include <sys/uio.h>

#include "guest/assert.hpp"
#include "plugins/net-socket/option.hpp"

namespace plexus::net_socket {
namespace {

/// Limit per system call and message, so that one connection does not keep the engine from the
/// others. It exceeds what a socket buffer takes at once.
constexpr uint64_t kBytesPerCall = 4 << 20;

/// A connection carries data in one direction, so the kernel answers every small message with a
/// separate ACK packet, which takes a third of the time of an 8-byte exchange. With TCP_QUICKACK
/// off it answers every second message. The kernel resets the option when the connection is idle,
/// so it is set repeatedly, rarely enough to cost nothing.
constexpr uint32_t kReadsPerAckHint = 64;

void hint_sparse_acks(int fd) {
  const int off = 0;  // only a hint: a failure does not matter
  ::setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
}

uint64_t div_ceil(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

/// Offset of part `index` of a message.
uint64_t part_begin(const WireHeader& header, uint32_t index) {
  return index * header.size_bytes / header.parts;
}

iovec make_iovec(const void* data, uint64_t size_bytes) {
  // sendmsg does not write to it; iovec has no const form.
  return {const_cast<void*>(data), size_bytes};  // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

/// Whether the error means that the peer is gone, rather than a problem of this host.
bool is_peer_gone(int error) {
  return error == 0 || error == EBADMSG || error == EPIPE || error == ECONNRESET ||
         error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH ||
         error == ECONNABORTED;
}

}  // namespace

// ---------------------------------------------------------------------------------------- Pieces

size_t Pieces::lay_out(uint64_t offset, uint64_t most, iovec* out) const noexcept {
  size_t count = 0;
  for (uint32_t i = 0; i < count_ && most > 0; ++i) {
    const uint64_t skipped = std::min(offset, pieces_[i].size_bytes);
    const uint64_t bytes = std::min(pieces_[i].size_bytes - skipped, most);
    if (bytes > 0) {
      out[count++] = {pieces_[i].data + skipped, bytes};
    }
    offset -= skipped;
    most -= bytes;
  }
  return count;
}

void Pieces::fill(uint64_t offset, const std::byte* from, uint64_t size_bytes) const noexcept {
  std::array<iovec, PLEXUS_NET_PIECES_MAX> places{};
  const size_t count = lay_out(offset, size_bytes, places.data());
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(places[i].iov_base, from, places[i].iov_len);
    from += places[i].iov_len;
  }
}

// ------------------------------------------------------------------------------------ Connection

Connection::Connection(Link link, const Settings& settings, const plugin::Log& log)
    : log_(log),
      peer_(link.peer.text()),
      threads_(link.threads),
      timeout_(settings.timeout),
      sockets_(std::move(link.sockets)) {}

Result<void> Connection::start_helpers(Direction direction) {
  for (uint32_t thread = 0; thread < threads_; ++thread) {
    Helper::Options options{direction, {},      kSendRequests * PLEXUS_NET_PIECES_MAX,
                            peer_,     &fault_, timeout_};
    for (uint32_t socket = thread; socket < data_sockets(); socket += threads_) {
      options.sockets.push_back(&sockets_[1 + socket]);
    }
    PLEXUS_TRY(helper, Helper::start(std::move(options)));
    helpers_.push_back(std::move(helper));
  }
  return ok();
}

void Connection::push_parts(const WireHeader& header,
                            const Pieces& payload,
                            std::atomic<uint32_t>& parts_left) noexcept {
  PLEXUS_DCHECK(header.parts <= data_sockets() && payload.size_bytes() >= header.size_bytes,
                header.parts, data_sockets(), header.size_bytes);
  std::array<iovec, PLEXUS_NET_PIECES_MAX> places{};
  for (uint32_t index = 0; index < header.parts; ++index) {
    const uint32_t socket = (header.first_part_socket + index) % data_sockets();
    const uint64_t begin = part_begin(header, index);
    const size_t count =
        payload.lay_out(begin, part_begin(header, index + 1) - begin, places.data());
    PLEXUS_DCHECK(count > 0, index, header.parts, header.size_bytes);
    parts_left.fetch_add(static_cast<uint32_t>(count) - 1, std::memory_order_relaxed);
    for (size_t i = 0; i < count; ++i) {
      helpers_[socket % threads_]->push(
          socket / threads_,
          {static_cast<std::byte*>(places[i].iov_base), places[i].iov_len, &parts_left});
    }
  }
}

bool Connection::take_pieces(uint32_t count,
                             const plexus_net_piece_t* pieces,
                             Pieces& taken) const {
  if (count == 0 || count > PLEXUS_NET_PIECES_MAX) {
    log_.error("a message has 1..4 pieces");
    return false;
  }
  for (uint32_t i = 0; i < count; ++i) {
    taken.add(pieces[i].data, pieces[i].size_bytes);
  }
  return true;
}

Result<plexus_net_memory_t*> Connection::register_memory(const plexus_net_region_t& region) {
  if (region.kind != PLEXUS_MEMORY_HOST) {
    return fail(
        PLEXUS_INVALID_USAGE,
        "net-socket supports host memory only, not kind {}; stage GPU memory through the host",
        region.kind);
  }
  if (region.data == nullptr && region.size_bytes > 0) {
    return fail(PLEXUS_INVALID_ARGUMENT, "cannot register a region of {} bytes at a null address",
                region.size_bytes);
  }
  return nullptr;
}

int32_t Connection::report_fault() noexcept {
  // On this report the caller may free all buffers of the connection, so no helper may access them.
  helpers_.clear();
  log_.error(fault_.failure().text.c_str());
  return fault_.failure().code;
}

// -------------------------------------------------------------------------------- SendConnection

SendConnection::SendConnection(Link link, const Settings& settings, const plugin::Log& log)
    : Connection(std::move(link), settings, log),
      silence_(settings.timeout, sockets().size()),
      inline_bytes_max_(settings.inline_bytes_max),
      task_bytes_min_(settings.task_bytes_min) {
  for (SendRequest& request : requests_) {
    request.kind = plexus_net_request::Kind::kSend;
    request.connection = this;
    free_.push(request);
  }
}

Result<std::unique_ptr<SendConnection>> SendConnection::create(Link link,
                                                               const Settings& settings,
                                                               const plugin::Log& log) {
  std::unique_ptr<SendConnection> connection(new SendConnection(std::move(link), settings, log));
  PLEXUS_TRY(connection->start_helpers(Direction::kSend));
  return connection;
}

WireHeader SendConnection::make_header(uint64_t size_bytes, int32_t tag) {
  WireHeader header{size_bytes, tag, 0, 0};
  if (data_sockets() > 0 && size_bytes > inline_bytes_max_) {
    const uint64_t task_bytes = std::max(task_bytes_min_, div_ceil(size_bytes, data_sockets()));
    header.parts = static_cast<uint16_t>(div_ceil(size_bytes, task_bytes));
    header.first_part_socket = static_cast<uint16_t>(next_data_socket_);
    next_data_socket_ = (next_data_socket_ + header.parts) % data_sockets();
  }
  return header;
}

int32_t SendConnection::isend(const void* data,
                              uint64_t size_bytes,
                              int32_t tag,
                              const plexus_net_memory_t* /*memory*/,
                              plexus_net_request_t** request) {
  Pieces payload;
  payload.add(data, size_bytes);
  return post(payload, tag, request);
}

int32_t SendConnection::isend_pieces(uint32_t count,
                                     const plexus_net_piece_t* pieces,
                                     int32_t tag,
                                     plexus_net_request_t** request) {
  Pieces payload;
  return take_pieces(count, pieces, payload) ? post(payload, tag, request)
                                             : PLEXUS_INVALID_ARGUMENT;
}

int32_t SendConnection::post(const Pieces& payload, int32_t tag, plexus_net_request_t** request) {
  if (is_broken()) {
    return report_fault();
  }
  if (free_.is_empty()) {
    progress();
    wait_idle();
    return is_broken() ? report_fault() : PLEXUS_AGAIN;
  }
  SendRequest& fresh = free_.pop();
  PLEXUS_DCHECK(fresh.is_done(), fresh.written_bytes, fresh.first_socket_bytes);
  fresh.payload = payload;
  fresh.header = make_header(payload.size_bytes(), tag);
  fresh.first_socket_bytes =
      sizeof(WireHeader) + (fresh.header.parts == 0 ? payload.size_bytes() : 0);
  fresh.written_bytes = 0;
  fresh.parts_left.store(fresh.header.parts, std::memory_order_relaxed);
  if (fresh.header.parts > 0) {
    push_parts(fresh.header, fresh.payload, fresh.parts_left);
  }
  unwritten_.push(fresh);
  progress();  // test() reports a failure, because the request exists
  *request = &fresh;
  return PLEXUS_OK;
}

int32_t SendConnection::test(SendRequest& request, uint64_t* sizes_bytes) {
  if (!request.is_done()) {
    if (!is_broken()) {
      progress();
    }
    if (!request.is_done()) {
      wait_idle();
      return is_broken() ? report_fault() : PLEXUS_AGAIN;
    }
  }
  if (sizes_bytes != nullptr) {
    *sizes_bytes = request.header.size_bytes;
  }
  free_.push(request);
  return PLEXUS_OK;
}

void SendConnection::progress() {
  if (unwritten_.is_empty()) {
    return;
  }
  SendRequest& request = unwritten_.front();
  std::array<iovec, 1 + PLEXUS_NET_PIECES_MAX> pieces{};
  size_t piece_count = 0;
  uint64_t payload_written = 0;
  if (request.written_bytes < sizeof(WireHeader)) {
    pieces[piece_count++] =
        make_iovec(reinterpret_cast<const std::byte*>(&request.header) + request.written_bytes,
                   sizeof(WireHeader) - request.written_bytes);
  } else {
    payload_written = request.written_bytes - sizeof(WireHeader);
  }
  if (request.header.parts == 0) {
    piece_count +=
        request.payload.lay_out(payload_written, kBytesPerCall, pieces.data() + piece_count);
  }
  const ssize_t n = first_socket().session.send(std::span(pieces).first(piece_count));
  if (n < 0) {
    if (const int error = errno; !is_would_block(error)) {
      break_off(fail(is_peer_gone(error) ? PLEXUS_REMOTE_ERROR : PLEXUS_SYSTEM_ERROR,
                     "lost the connection to {} while sending {} bytes with tag {}: {}", peer(),
                     request.header.size_bytes, request.header.tag,
                     first_socket().describe_loss(error, timeout())));
    }
    return;
  }
  request.written_bytes += static_cast<uint64_t>(n);
  PLEXUS_DCHECK(request.written_bytes <= request.first_socket_bytes, request.written_bytes,
                request.first_socket_bytes);
  if (request.written_bytes == request.first_socket_bytes) {
    unwritten_.pop();
  }
}

void SendConnection::wait_idle() {
  if (!is_broken() && silence_.has_expired(sockets())) {
    break_off(fail(PLEXUS_REMOTE_ERROR, "lost the connection to {} while sending: {}", peer(),
                   silence_.describe()));
  }
}

// -------------------------------------------------------------------------------- RecvConnection

RecvConnection::RecvConnection(Link link, const Settings& settings, const plugin::Log& log)
    : Connection(std::move(link), settings, log) {
  for (RecvRequest& request : requests_) {
    request.kind = plexus_net_request::Kind::kRecv;
    request.connection = this;
    free_.push(request);
  }
}

Result<std::unique_ptr<RecvConnection>> RecvConnection::create(Link link,
                                                               const Settings& settings,
                                                               const plugin::Log& log) {
  std::unique_ptr<RecvConnection> connection(new RecvConnection(std::move(link), settings, log));
  PLEXUS_TRY(connection->start_helpers(Direction::kRecv));
  return connection;
}

int32_t RecvConnection::irecv(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request) {
  if (is_broken()) {
    return report_fault();
  }
  if (count == 0 || count > PLEXUS_NET_RECVS_MAX) {
    log().error("a grouped receive has 1..8 buffers");
    return PLEXUS_INVALID_ARGUMENT;
  }
  RecvRequest* const fresh = post(count);
  if (fresh == nullptr) {
    return PLEXUS_AGAIN;
  }
  for (uint32_t i = 0; i < count; ++i) {
    fresh->buffers[i] = {{}, 0, buffers[i].tag, false};
    fresh->buffers[i].room.add(buffers[i].data, buffers[i].size_bytes);
  }
  *request = fresh;
  return PLEXUS_OK;
}

int32_t RecvConnection::irecv_pieces(uint32_t count,
                                     const plexus_net_piece_t* pieces,
                                     int32_t tag,
                                     plexus_net_request_t** request) {
  Pieces room;
  if (!take_pieces(count, pieces, room)) {
    return PLEXUS_INVALID_ARGUMENT;
  }
  if (is_broken()) {
    return report_fault();
  }
  RecvRequest* const fresh = post(1);
  if (fresh == nullptr) {
    return PLEXUS_AGAIN;
  }
  fresh->buffers[0] = {room, 0, tag, false};
  *request = fresh;
  return PLEXUS_OK;
}

RecvRequest* RecvConnection::post(uint32_t count) noexcept {
  if (free_.is_empty()) {
    return nullptr;
  }
  RecvRequest& fresh = free_.pop();
  PLEXUS_DCHECK(fresh.is_done(), fresh.unfinished_messages);
  fresh.count = count;
  fresh.free_buffers = count;
  fresh.unfinished_messages = count;
  fresh.parts_left.store(0, std::memory_order_relaxed);
  posted_.push(fresh);
  return &fresh;
}

int32_t RecvConnection::test(RecvRequest& request, uint64_t* sizes_bytes) {
  if (!request.is_done()) {
    if (!is_broken()) {
      progress(request);
    }
    if (!request.is_done()) {
      return is_broken() ? report_fault() : PLEXUS_AGAIN;
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

void RecvConnection::progress(const RecvRequest& wanted) {
  constexpr int kCallsMax = 2;
  for (int call = 0; use_stash() && !wanted.is_done() && call < kCallsMax; ++call) {
    if (wanted.unfinished_messages == 0) {
      return;  // the helpers move the rest
    }
    if (is_drained_) {  // the last read took everything: do not read again now
      is_drained_ = false;
      return;
    }
    if (!read_more()) {
      return;
    }
  }
}

bool RecvConnection::read_more() {
  std::array<iovec, PLEXUS_NET_PIECES_MAX + 1> pieces{};
  size_t piece_count = 0;
  uint64_t wanted_bytes = 0;
  if (current_ != nullptr) {
    wanted_bytes = std::min(current_buffer_->size_bytes - current_bytes_, kBytesPerCall);
    piece_count = current_buffer_->room.lay_out(current_bytes_, wanted_bytes, pieces.data());
  }
  // Behind a large message read only the next header: its payload goes directly to its buffer.
  const bool is_big = wanted_bytes > kStashBytes;
  if (current_ == nullptr || current_bytes_ + wanted_bytes == current_buffer_->size_bytes) {
    pieces[piece_count++] = make_iovec(stash_.data() + stash_end_,
                                       is_big ? sizeof(WireHeader) : kStashBytes - stash_end_);
  }
  const ssize_t n = piece_count == 1
                        ? first_socket().session.receive(pieces[0].iov_base, pieces[0].iov_len)
                        : first_socket().session.receive(std::span(pieces).first(piece_count));
  if (n <= 0) {
    break_off_reading(n, errno);
    return false;
  }
  if (reads_++ % kReadsPerAckHint == 0) {
    hint_sparse_acks(first_socket().fd.get());
  }
  size_t asked_bytes = 0;
  for (size_t i = 0; i < piece_count; ++i) {
    asked_bytes += pieces[i].iov_len;
  }
  is_drained_ = static_cast<size_t>(n) < asked_bytes;
  const uint64_t here = std::min(wanted_bytes, static_cast<uint64_t>(n));
  current_bytes_ += here;
  stash_end_ += static_cast<uint64_t>(n) - here;
  PLEXUS_DCHECK(stash_begin_ <= stash_end_ && stash_end_ <= kStashBytes, stash_begin_, stash_end_);
  if (current_ != nullptr && current_bytes_ == current_buffer_->size_bytes) {
    end_message();
  }
  return true;
}

bool RecvConnection::use_stash() {
  while (true) {
    if (current_ != nullptr) {
      const uint64_t n = std::min(stash_size(), current_buffer_->size_bytes - current_bytes_);
      if (n > 0) {  // an empty message may have a null address
        current_buffer_->room.fill(current_bytes_, stash_.data() + stash_begin_, n);
      }
      stash_begin_ += n;
      current_bytes_ += n;
      if (current_bytes_ == current_buffer_->size_bytes) {
        end_message();
        continue;
      }
    } else if (stash_size() >= sizeof(WireHeader)) {
      WireHeader header{};
      std::memcpy(&header, stash_.data() + stash_begin_, sizeof header);
      if (!begin_message(header)) {
        return false;
      }
      stash_begin_ += sizeof header;
      continue;
    }
    // At most an incomplete header is left: move it to the front.
    std::memmove(stash_.data(), stash_.data() + stash_begin_, stash_size());
    stash_end_ -= stash_begin_;
    stash_begin_ = 0;
    return true;
  }
}

bool RecvConnection::begin_message(const WireHeader& header) {
  const bool is_sane = header.size_bytes <= PLEXUS_NET_MESSAGE_BYTES_MAX &&
                       header.parts <= data_sockets() && header.parts <= header.size_bytes &&
                       (header.parts == 0 || header.first_part_socket < data_sockets());
  if (!is_sane) {
    break_off(fail(PLEXUS_REMOTE_ERROR,
                   "{} sent an invalid header ({} bytes in {} parts): use the same version of "
                   "net-socket on both ends",
                   peer(), header.size_bytes, header.parts));
    return false;
  }
  RecvRequest* owner = nullptr;
  RecvBuffer* buffer = take_buffer(header.tag, &owner);
  if (buffer == nullptr) {
    if (posted_.size() == kRequests) {
      break_off(fail(PLEXUS_INVALID_USAGE,
                     "{} sent a message with tag {}, which matches none of the {} posted receives: "
                     "the ranks' calls differ",
                     peer(), header.tag, kRequests));
    }
    return false;
  }
  if (header.size_bytes > buffer->room.size_bytes()) {
    break_off(fail(PLEXUS_INVALID_USAGE,
                   "{} sent {} bytes with tag {}, but the receive has room for {}: the ranks' "
                   "calls differ in size",
                   peer(), header.size_bytes, header.tag, buffer->room.size_bytes()));
    return false;
  }
  buffer->size_bytes = header.size_bytes;
  if (header.parts > 0) {
    owner->parts_left.fetch_add(header.parts, std::memory_order_relaxed);
    push_parts(header, buffer->room, owner->parts_left);
    PLEXUS_DCHECK(owner->unfinished_messages > 0, header.tag);
    --owner->unfinished_messages;
    return true;
  }
  PLEXUS_DCHECK(current_ == nullptr && current_buffer_ == nullptr);
  current_ = owner;
  current_buffer_ = buffer;
  current_bytes_ = 0;
  return true;
}

RecvBuffer* RecvConnection::take_buffer(int32_t tag, RecvRequest** owner) {
  for (uint32_t i = 0; i < posted_.size(); ++i) {
    RecvRequest& request = posted_.at(i);
    const auto end = request.buffers.begin() + request.count;
    const auto buffer = std::find_if(request.buffers.begin(), end, [&](const RecvBuffer& each) {
      return !each.is_taken && each.tag == tag;
    });
    if (buffer == end) {
      continue;
    }
    PLEXUS_DCHECK(request.free_buffers > 0, tag);
    buffer->is_taken = true;
    *owner = &request;
    if (--request.free_buffers == 0) {
      posted_.erase(i);
    }
    return &*buffer;
  }
  return nullptr;
}

void RecvConnection::end_message() {
  PLEXUS_DCHECK(current_->unfinished_messages > 0 && current_bytes_ == current_buffer_->size_bytes,
                current_bytes_);
  --current_->unfinished_messages;
  current_ = nullptr;
  current_buffer_ = nullptr;
}

void RecvConnection::break_off_reading(ssize_t result, int error) {
  if (result < 0 && is_would_block(error)) {
    return;
  }
  const int reason = result == 0 ? 0 : error;
  const std::string what = current_ == nullptr
                               ? "while a receive was waiting"
                               : fmt::format("after {} of the {} bytes of a message",
                                             current_bytes_, current_buffer_->size_bytes);
  break_off(fail(is_peer_gone(reason) ? PLEXUS_REMOTE_ERROR : PLEXUS_SYSTEM_ERROR,
                 "lost the connection from {} {}: {}", peer(), what,
                 first_socket().describe_loss(reason, timeout())));
}

}  // namespace plexus::net_socket
