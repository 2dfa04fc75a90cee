// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-chaos/connection.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "guest/assert.hpp"

namespace plexus::net_chaos {
namespace {

using Kind = plexus_net_request_t::Kind;

std::byte* bytes_of(const plexus_net_buffer_t& buffer) {
  return static_cast<std::byte*>(buffer.data);
}
plexus_net_memory_t* inner_of(const plexus_net_memory_t* memory) {
  return memory == nullptr ? nullptr : memory->inner;
}

}  // namespace

uint64_t Random::next(uint64_t most) noexcept {
  state_ += 0x9e3779b97f4a7c15u;  // NOLINT(*-magic-numbers): splitmix64
  uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;  // NOLINT(*-magic-numbers): splitmix64
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;  // NOLINT(*-magic-numbers)
  mixed ^= mixed >> 31;                                   // NOLINT(*-magic-numbers)
  return most == UINT64_MAX ? mixed : mixed % (most + 1);
}

// ---- neighbours ----

void Neighbours::advance_others(const Connection& tested) const {
  for (Connection* const each : connections_) {
    if (each != &tested) {
      each->advance_elsewhere();
    }
  }
}

bool Neighbours::have_overtaken(const Connection& connection, uint64_t completion) const {
  return std::any_of(connections_.begin(), connections_.end(), [&](const Connection* each) {
    return each != &connection && each->last_reported() > completion;
  });
}

// ---- both ends ----

Connection::Connection(Options options)
    : options_(options),
      random_(options_.seed),
      advanced_elsewhere_(Clock::now()),
      requests_(options_.requests) {
  const auto turn = options_.neighbours->turn();
  options_.neighbours->add(*this);
  for (plexus_net_request_t& request : requests_) {
    request.connection = this;
    free_.push_back(&request);
  }
}

Connection::~Connection() = default;

void Connection::leave() {
  const auto turn = options_.neighbours->turn();
  options_.neighbours->remove(*this);
}

Result<plexus_net_memory_t*> Connection::register_memory(const plexus_net_region_t& region) {
  const auto turn = options_.neighbours->turn();
  PLEXUS_TRY(plugin::pass_on(report_fault()));
  plexus_net_memory_t* inner = nullptr;
  PLEXUS_TRY(plugin::pass_on(register_inner(region, &inner)));
  if (inner == nullptr) {
    return nullptr;
  }
  memory_.push_back(
      std::unique_ptr<plexus_net_memory_t>(new plexus_net_memory_t{this, inner}).release());
  return memory_.back();
}

int32_t Connection::deregister(plexus_net_memory_t* memory) {
  const auto turn = options_.neighbours->turn();
  const std::unique_ptr<plexus_net_memory_t> owner(memory);
  const size_t erased = std::erase(memory_, memory);
  PLEXUS_DCHECK(erased == 1 || memory->inner == nullptr, erased);  // cut() has forgotten it
  return memory->inner == nullptr ? PLEXUS_OK : options_.ops->deregister(memory->inner);
}

plexus_net_request_t* Connection::begin(Kind kind) {
  constexpr uint64_t kHundred = 100;
  const bool refuses = random_.next(kHundred - 1) < options_.effects.again_percent;
  if (free_.empty() && kind == Kind::kFlush) {  // a flush cannot be postponed
    free_.push_back(&more_requests_.emplace_back());
  }
  if (free_.empty() || (refuses && kind != Kind::kFlush)) {
    return nullptr;
  }
  plexus_net_request_t* request = free_.back();
  free_.pop_back();
  *request = {};
  request->kind = kind;
  request->connection = this;
  return request;
}

int32_t Connection::test_inner(plexus_net_request_t& request, uint64_t* sizes_bytes) const {
  PLEXUS_DCHECK(request.inner != nullptr && !request.is_done, request.kind);
  const int32_t code = options_.ops->test(request.inner, sizes_bytes);
  if (code != PLEXUS_AGAIN) {
    request.inner = nullptr;
  }
  return code;
}

void Connection::finish(plexus_net_request_t& request) {
  PLEXUS_DCHECK(!request.is_done && request.inner == nullptr, request.kind);
  request.is_done = true;
  request.done = Clock::now();
  request.completion = options_.neighbours->next_completion();
  request.tests_held = static_cast<uint32_t>(random_.next(options_.effects.reorder_tests_max));
}

bool Connection::is_cut_by(uint64_t size_bytes) const {
  return bytes_ + size_bytes > options_.effects.cut_at_byte;
}

void Connection::forget_memory() {
  for (plexus_net_memory_t* memory : memory_) {
    static_cast<void>(options_.ops->deregister(std::exchange(memory->inner, nullptr)));
  }
  memory_.clear();
}

void Connection::cut() {
  is_cut_ = true;
  fault_ = PLEXUS_REMOTE_ERROR;
  fault_text_ = fmt::format("net-chaos: the script cuts this connection at byte {}",
                            options_.effects.cut_at_byte);
  forget_memory();
  close_inner();
}

int32_t Connection::break_off(int32_t code) {
  fault_ = code;
  fault_text_ = "net-chaos: the connection already failed";
  return code;
}

int32_t Connection::report_fault() const {
  if (fault_ != PLEXUS_OK) {
    options_.log.error(fault_text_.c_str());
  }
  return fault_;
}

void Connection::advance_elsewhere() {
  if (options_.effects.elsewhere > Nanoseconds(0) && fault_ == PLEXUS_OK) {
    advanced_elsewhere_ = Clock::now();
    static_cast<void>(progress());  // a failure is kept for the connection's own test
  }
}

int32_t Connection::progress_here() {
  const Nanoseconds patience = options_.effects.elsewhere;
  const bool is_left_to_others =
      patience > Nanoseconds(0) && Clock::now() < advanced_elsewhere_ + patience;
  return is_left_to_others ? PLEXUS_OK : progress();
}

bool Connection::is_held(plexus_net_request_t& request) const {
  const Effects& effects = options_.effects;
  if (request.tests_held > 0) {
    --request.tests_held;
    return true;
  }
  const auto age = Clock::now() - request.done;
  return age < effects.late || (age < effects.overtake &&
                                !options_.neighbours->have_overtaken(*this, request.completion));
}

int32_t Connection::test_undone(plexus_net_request_t& request) {
  // Messages that arrived before the cut can still be flushed.
  const bool is_flush = request.kind == Kind::kFlush && !is_cut();
  int32_t code = is_flush ? PLEXUS_OK : report_fault();
  if (code == PLEXUS_OK) {
    code = is_flush ? test_inner(request, nullptr) : progress_here();
  }
  if (request.is_done) {
    return PLEXUS_OK;  // the connection ended in another request
  }
  if (code == PLEXUS_OK && request.kind == Kind::kFlush) {
    request.is_done = true;
  }
  return code;
}

int32_t Connection::test(plexus_net_request_t& request, uint64_t* sizes_bytes) {
  const auto turn = options_.neighbours->turn();
  options_.neighbours->advance_others(*this);
  const int32_t code = request.is_done ? PLEXUS_OK : test_undone(request);
  if (code == PLEXUS_AGAIN || (code == PLEXUS_OK && (!request.is_done || is_held(request)))) {
    return PLEXUS_AGAIN;
  }
  last_reported_ = std::max(last_reported_, request.completion);
  if (code == PLEXUS_OK && sizes_bytes != nullptr) {
    std::copy_n(request.sizes_bytes.begin(), request.count, sizes_bytes);
  }
  give_back(request);
  return code;
}

// ---- sending ----

SendConnection::~SendConnection() {
  leave();
  close_inner();
}

void SendConnection::close_inner() {
  if (!std::exchange(is_closed_, true)) {
    options_.ops->close_send(inner_);
  }
}

int32_t SendConnection::register_inner(const plexus_net_region_t& region,
                                       plexus_net_memory_t** memory) {
  return options_.ops->register_send(inner_, &region, memory);
}

Clock::time_point SendConnection::compute_due(uint64_t size_bytes) {
  const Effects& effects = options_.effects;
  path_free_ = std::max(path_free_, Clock::now());
  if (effects.rate_bit_per_s > 0) {
    constexpr double kBitNanoseconds = 8e9;
    path_free_ +=
        Nanoseconds(static_cast<int64_t>(static_cast<double>(size_bytes) * kBitNanoseconds /
                                         static_cast<double>(effects.rate_bit_per_s)));
  }
  bytes_since_stall_ += size_bytes;
  if (effects.stall_every_bytes > 0 && bytes_since_stall_ >= effects.stall_every_bytes) {
    bytes_since_stall_ = 0;
    path_free_ += effects.stall;
  }
  const auto jitter = Nanoseconds(random_.next(static_cast<uint64_t>(effects.jitter.count())));
  last_due_ = std::max(last_due_, path_free_ + effects.delay + jitter);
  return last_due_;
}

int32_t SendConnection::isend(const void* data,
                              uint64_t size_bytes,
                              int32_t tag,
                              plexus_net_memory_t* memory,
                              plexus_net_request_t** request) {
  options_.block->block_in("isend");
  const auto turn = options_.neighbours->turn();
  if (const int32_t code = report_fault(); code != PLEXUS_OK) {
    return code;
  }
  plexus_net_request_t* const made = begin(Kind::kSend);
  if (made == nullptr) {
    return PLEXUS_AGAIN;
  }
  // Only read. NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
  made->buffer = {const_cast<void*>(data), size_bytes, memory, tag, 0};
  made->count = 1;
  made->sizes_bytes[0] = size_bytes;
  made->due = compute_due(size_bytes);
  unsent_.push_back(made);
  *request = made;
  if (const int32_t code = send_due(); code != PLEXUS_OK) {
    unsent_.clear();
    return code;
  }
  return PLEXUS_OK;
}

int32_t SendConnection::send_piece(plexus_net_request_t& request) {
  const uint64_t piece = options_.effects.piece_bytes;
  const uint64_t left = request.buffer.size_bytes - request.moved_bytes;
  const bool is_last = piece == 0 || left < piece;
  const uint64_t size = is_last ? left : piece;
  const int32_t code =
      options_.ops->isend(inner_, bytes_of(request.buffer) + request.moved_bytes, size,
                          request.buffer.tag, inner_of(request.buffer.memory), &request.inner);
  if (code == PLEXUS_OK) {
    request.is_last = is_last;
    request.moved_bytes += size;
  }
  return code;
}

int32_t SendConnection::progress() {
  const int32_t code = send_due();
  return code == PLEXUS_OK ? test_sent() : code;
}

int32_t SendConnection::send_due() {
  while (!unsent_.empty()) {
    plexus_net_request_t& first = *unsent_.front();
    const bool is_begun = first.inner != nullptr;  // an earlier piece is in flight
    if (is_begun) {
      const int32_t code = test_inner(first, nullptr);
      if (code != PLEXUS_OK) {
        return code == PLEXUS_AGAIN ? PLEXUS_OK : break_off(code);
      }
    } else if (first.moved_bytes == 0 && Clock::now() < first.due) {
      return PLEXUS_OK;
    } else if (first.moved_bytes == 0 && is_cut_by(first.buffer.size_bytes)) {
      cut();
      return report_fault();
    }
    const int32_t code = send_piece(first);
    if (code != PLEXUS_OK) {
      return code == PLEXUS_AGAIN ? PLEXUS_OK : break_off(code);
    }
    if (first.is_last) {
      bytes_ += first.buffer.size_bytes;
      sent_.push_back(&first);
      unsent_.erase(unsent_.begin());
    }
  }
  return PLEXUS_OK;
}

int32_t SendConnection::test_sent() {
  for (size_t i = 0; i < sent_.size();) {
    const int32_t code = test_inner(*sent_[i], nullptr);
    if (code == PLEXUS_OK) {
      finish(*sent_[i]);
      sent_.erase(sent_.begin() + static_cast<std::ptrdiff_t>(i));
    } else if (code == PLEXUS_AGAIN) {
      ++i;
    } else {
      return break_off(code);
    }
  }
  return PLEXUS_OK;
}

// ---- receiving ----

RecvConnection::~RecvConnection() {
  leave();
  close_inner();
}

void RecvConnection::close_inner() {
  if (!std::exchange(is_closed_, true)) {
    options_.ops->close_recv(inner_);
  }
}

int32_t RecvConnection::register_inner(const plexus_net_region_t& region,
                                       plexus_net_memory_t** memory) {
  return options_.ops->register_recv(inner_, &region, memory);
}

int32_t RecvConnection::irecv(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request) {
  options_.block->block_in("irecv");
  const auto turn = options_.neighbours->turn();
  if (const int32_t code = report_fault(); code != PLEXUS_OK) {
    return code;
  }
  const bool has_pieces = options_.effects.piece_bytes > 0;
  if (count == 0 || count > (has_pieces ? 1 : PLEXUS_NET_RECVS_MAX)) {
    options_.log.error("net-chaos: wrong number of buffers in a receive");
    return PLEXUS_INVALID_ARGUMENT;
  }
  plexus_net_request_t* const made = begin(Kind::kRecv);
  if (made == nullptr) {
    return PLEXUS_AGAIN;
  }
  made->count = count;
  made->buffer = buffers[0];
  if (!has_pieces) {
    std::array<plexus_net_buffer_t, PLEXUS_NET_RECVS_MAX> wanted{};
    std::transform(buffers, buffers + count, wanted.begin(), [](plexus_net_buffer_t buffer) {
      buffer.memory = inner_of(buffer.memory);
      return buffer;
    });
    const int32_t code = options_.ops->irecv(inner_, count, wanted.data(), &made->inner);
    if (code != PLEXUS_OK) {
      give_back(*made);
      return code == PLEXUS_AGAIN ? code : break_off(code);
    }
    made->is_last = true;
  }
  unfinished_.push_back(made);
  *request = made;
  return progress_here();
}

int32_t RecvConnection::flush(uint32_t count,
                              const plexus_net_buffer_t* buffers,
                              plexus_net_request_t** request) {
  const auto turn = options_.neighbours->turn();
  *request = nullptr;
  if (options_.ops->flush == nullptr || is_cut()) {
    return report_fault();
  }
  if (count > PLEXUS_NET_RECVS_MAX) {
    options_.log.error("net-chaos: wrong number of buffers in a flush");
    return PLEXUS_INVALID_ARGUMENT;
  }
  plexus_net_request_t* const made = begin(Kind::kFlush);
  std::array<plexus_net_buffer_t, PLEXUS_NET_RECVS_MAX> wanted{};
  std::transform(buffers, buffers + count, wanted.begin(), [](plexus_net_buffer_t buffer) {
    buffer.memory = inner_of(buffer.memory);
    return buffer;
  });
  const int32_t code = options_.ops->flush(inner_, count, wanted.data(), &made->inner);
  if (code == PLEXUS_OK && made->inner != nullptr) {
    *request = made;
  } else {
    give_back(*made);
  }
  return code;
}

bool RecvConnection::is_first_of_its_tag(size_t index) const {
  const int32_t tag = unfinished_[index]->buffer.tag;
  return std::none_of(unfinished_.begin(), unfinished_.begin() + static_cast<std::ptrdiff_t>(index),
                      [&](const auto* earlier) { return earlier->buffer.tag == tag; });
}

int32_t RecvConnection::receive_piece(plexus_net_request_t& request) {
  plexus_net_buffer_t wanted = request.buffer;
  wanted.data = bytes_of(request.buffer) + request.moved_bytes;
  wanted.size_bytes =
      std::min(options_.effects.piece_bytes, request.buffer.size_bytes - request.moved_bytes);
  wanted.memory = inner_of(request.buffer.memory);
  return options_.ops->irecv(inner_, 1, &wanted, &request.inner);
}

int32_t RecvConnection::progress() {
  int32_t failure = PLEXUS_OK;
  for (size_t i = 0; i < unfinished_.size();) {
    plexus_net_request_t& request = *unfinished_[i];
    int32_t code = PLEXUS_OK;
    if (request.inner == nullptr && is_first_of_its_tag(i)) {
      code = receive_piece(request);
    }
    Sizes sizes{};
    if (code == PLEXUS_OK) {
      code = request.inner == nullptr ? PLEXUS_AGAIN : test_inner(request, sizes.data());
    }
    if (code != PLEXUS_OK && code != PLEXUS_AGAIN) {
      // The connection ended; earlier requests may contain what arrived before.
      failure = code;
      unfinished_.erase(unfinished_.begin() + static_cast<std::ptrdiff_t>(i));
      i = 0;
      continue;
    }
    if (code == PLEXUS_AGAIN) {
      ++i;
      continue;
    }
    if (is_cut_by(std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}))) {
      cut();
      return report_fault();
    }
    if (take_piece(request, sizes)) {
      finish(request);
      unfinished_.erase(unfinished_.begin() + static_cast<std::ptrdiff_t>(i));
    }  // otherwise its next piece is posted in the next turn
  }
  return failure == PLEXUS_OK ? PLEXUS_OK : break_off(failure);
}

void RecvConnection::spoil(const plexus_net_request_t& request, uint64_t size_bytes) const {
  const uint64_t at = options_.effects.flip_at_byte;
  if (at >= bytes_ && at - bytes_ < size_bytes) {
    bytes_of(request.buffer)[request.moved_bytes + (at - bytes_)] ^= std::byte{1};
  }
}

bool RecvConnection::take_piece(plexus_net_request_t& request, const Sizes& sizes) {
  spoil(request, sizes[0]);
  for (uint32_t buffer = 0; buffer < request.count; ++buffer) {
    request.sizes_bytes[buffer] += sizes[buffer];
    request.moved_bytes += sizes[buffer];
    bytes_ += sizes[buffer];
  }
  const uint64_t piece = options_.effects.piece_bytes;
  return piece == 0 || sizes[0] < piece;
}

}  // namespace plexus::net_chaos
