// SPDX-License-Identifier: Apache-2.0
#include "core/transport/net.hpp"

#include <array>
#include <cstring>

#include "core/base/log.hpp"
#include "core/transport/fifo_memory.hpp"
#include "core/transport/gpu_memory.hpp"
#include "core/transport/net_message.hpp"

namespace plexus {
namespace {

constexpr int32_t kTag = 0;
constexpr int32_t kHeaderTag = 1;
constexpr size_t kRouteTextMax = 512;  // of a peer's, in a message

/// From the receiver to the sender; the route comes behind it.
struct ControlMessageHead {
  NetHandle handle;
  uint32_t wants_answer;
};

/// Of the sender's control message to the receiver: beside those of the other direction's handles.
uint64_t answer_tag(const ConnectionKey& key) {
  constexpr uint64_t kAnswers = uint64_t{1} << 61;
  return kAnswers | static_cast<uint64_t>(key.index);
}

}  // namespace

// ---- both directions ----

NetEnd::NetEnd(const ConnectionKey& key, NetEndOptions options)
    : ConnectionEnd(key),
      options_(std::move(options)),
      identity_(identify_connection(options_.exchange->group(),
                                    key.sends ? options_.exchange->rank() : key.peer,
                                    key.sends ? key.peer : options_.exchange->rank(),
                                    key.index)),
      // Two messages a step are no pieces of one.
      takes_pieces_(options_.runtime == nullptr && !options_.path.apart &&
                    options_.path.context->takes_pieces(options_.path.device)) {
  has_pump_ = true;
}

size_t NetEnd::message_bytes_max() const { return sizeof(NetHeader) + options_.slot_bytes; }
size_t NetEnd::slot_stride() const {
  return payloads_ == nullptr ? message_bytes_max() : sizeof(NetHeader);
}
Fifo& NetEnd::fifo() const { return *fifo_at(memory_->memory()); }
std::byte* NetEnd::slot(uint64_t step) const {
  return slots_at(memory_->memory()) + (step % kSlots) * slot_stride();
}
std::byte* NetEnd::payload(uint64_t step) const {
  return payloads_ == nullptr ? slot(step) + sizeof(NetHeader)
                              : payloads_.get() + (step % kSlots) * options_.slot_bytes;
}

Result<void> NetEnd::make_slots(Registrations& registrations, const Register& add) {
  if (options_.path.gpu_kinds != 0 && !*options_.gdr_refused) {
    const auto made = make_payloads(registrations, add);
    if (made.has_error()) {
      *options_.gdr_refused = true;
      PLEXUS_INFO(kNet, "no GDR with {} and later peers, messages go through host memory: {}",
                  options_.peer_name, made.error().message());
    }
  }
  PLEXUS_TRY(memory, LocalFifo::create(slot_stride(),
                                       {.runtime = options_.runtime, .user = options_.device}));
  memory_ = std::move(memory);
  PLEXUS_TRY(host, add({.data = slots_at(memory_->memory()),
                        .size_bytes = kSlots * slot_stride(),
                        .dmabuf_offset_bytes = 0,
                        .dmabuf_fd = -1,
                        .kind = PLEXUS_MEMORY_HOST}));
  registrations.host = std::move(host);
  return ok();
}

Result<void> NetEnd::make_payloads(Registrations& registrations, const Register& add) {
  const size_t size_bytes = align_up(kSlots * options_.slot_bytes, kExportGranule);
  PLEXUS_TRY(memory, allocate_device(*options_.runtime, options_.device, size_bytes));
  PLEXUS_TRY(registered, register_gpu_memory({.runtime = options_.runtime,
                                              .device = options_.device,
                                              .data = memory.get(),
                                              .size_bytes = size_bytes,
                                              .kinds = options_.path.gpu_kinds},
                                             add));
  PLEXUS_INFO(kNet, "{} slots of {} lie in memory of cuda:{} (GDR, {})",
              key().sends ? "send" : "recv", options_.peer_name, options_.device,
              registered.by_dmabuf ? "by dma-buf" : "registered as CUDA memory");
  registrations.gpu = std::move(registered.memory);
  payloads_ = std::move(memory);
  return ok();
}

/// For the kernels of a CUDA rank.
DeviceView NetEnd::view() const {
  DeviceView view = view_for_devices(memory_->seen_by_devices(), slot_stride(), Reach::kNothing);
  view.lines = nullptr;
  view.inline_bytes_max = 0;  // payload always in the data area
  if (payloads_ == nullptr) {
    view.slots += sizeof(NetHeader);
  } else {
    view.slots = payloads_.get();
    view.slot_stride = options_.slot_bytes;
  }
  return view;
}

/// A connection that fails in use means that its peer is gone.
Error NetEnd::failed(Error error) const {
  return fail(Code::kRemoteError, "lost the connection to {}: {}", options_.peer_name,
              error.message());
}

// ---- sending ----

/// False: the receiver's has not come.
Result<bool> NetSendEnd::take_control_message() {
  const auto bytes = options_.exchange->try_take(key().peer, static_cast<uint64_t>(key().index));
  if (!bytes.has_value()) {
    return false;
  }
  ControlMessageHead head{};
  if (bytes->size() < sizeof(head)) {
    return fail(Code::kInternalError,
                "{} sent a network handle of {} bytes, {} or more are expected", options_.peer_name,
                bytes->size(), sizeof(head));
  }
  // A handle is for the plugin that made it: another one would read nonsense, and wait for ever.
  const auto theirs = std::string_view(*bytes).substr(sizeof(head));
  if (theirs != options_.path.route) {
    return fail(Code::kInvalidUsage,
                "rank {} and {} chose different paths for one connection: this rank {}, that one "
                "{}; use the same version of Plexus on all ranks",
                options_.exchange->rank(), options_.peer_name, options_.path.route,
                theirs.substr(0, kRouteTextMax));
  }
  std::memcpy(&head, bytes->data(), sizeof(head));
  is_asked_to_answer_ = head.wants_answer != 0;
  net_ = options_.path.context->connect(options_.path.device, head.handle, options_.peer_name);
  return true;
}

Result<bool> NetSendEnd::progress_connect() {
  if (!net_.has_value()) {
    PLEXUS_TRY(is_there, take_control_message());
    if (!is_there) {
      return false;
    }
  }
  auto progress = net_->try_connect();
  if (progress.has_error()) {
    return std::move(progress).error().with_context(
        fmt::format("connecting to {}", options_.peer_name));
  }
  if (std::exchange(is_asked_to_answer_, false)) {
    PLEXUS_TRY(options_.exchange->post(key().peer, answer_tag(key()), "connects"));
  }
  if (progress.value() == NetProgress::kPending) {
    return false;
  }
  PLEXUS_TRY(make_slots(registrations_, [this](const plexus_net_region_t& region) {
    return net_->register_memory(region);
  }));
  if (options_.runtime != nullptr) {
    device_view = view();
  } else {
    send = SendConnection(&fifo(), slot(0) + sizeof(NetHeader),
                          {.peer = key().peer,
                           .reach = takes_pieces_ ? Reach::kProcess : Reach::kNothing,
                           .inline_bytes_max = 0,
                           .slot_stride = slot_stride()});
  }
  connected_ = true;
  PLEXUS_INFO(kNet, "connected to {} through {}", options_.peer_name, options_.path.route);
  return true;
}

Result<bool> NetSendEnd::progress_pump() {
  PLEXUS_TRY(sent, send_filled());
  PLEXUS_TRY(tested, test_sent());
  return sent || tested;
}

Result<bool> NetSendEnd::send_filled() {
  bool moved = false;
  for (;;) {
    const SlotHeader& header = fifo().headers[sent_ % kSlots];
    // Filled by this thread, or by a kernel: pairs with its release.
    if (header.ready.load(std::memory_order_acquire) != sent_ + 1) {
      return moved;
    }
    if (observer_ != nullptr) {
      observer_->on_step(StepChange::kFilled, header.size_bytes);
    }
    const auto status = send_step(header);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      return failed(net_->explain("isend", status));
    }
    if (observer_ != nullptr) {
      observer_->on_step(StepChange::kSent, header.size_bytes);
    }
    ++sent_;
    moved = true;
  }
}

/// Starts the message of the step that is next.
NetStatus NetSendEnd::send_step(const SlotHeader& header) {
  const uint32_t size_bytes = header.size_bytes;
  const size_t index = sent_ % kSlots;
  std::byte* const message = slot(sent_);
  plexus_net_memory_t* const of_host = registrations_.host->raw();
  if (!header_sent_) {
    NetHeader message_header = header_of(fifo(), sent_);
    message_header.connection = identity_;
    message_header.step = sent_;
    std::memcpy(message, &message_header, sizeof(message_header));
  }
  if (header.kind == SlotKind::kPointer) {
    // The plugin only reads.
    auto* const bytes = const_cast<std::byte*>(
        header.payload.pointer);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    const std::array<NetPiece, 2> pieces = {{{message, sizeof(NetHeader)}, {bytes, size_bytes}}};
    return net_->isend_pieces(pieces, kTag, &requests_[index]);
  }
  if (!options_.path.apart) {
    return net_->isend({message, sizeof(NetHeader) + size_bytes}, kTag, of_host, &requests_[index]);
  }
  if (!header_sent_) {
    const auto status =
        net_->isend({message, sizeof(NetHeader)}, kHeaderTag, of_host, &headers_[index]);
    if (status != NetStatus::kOk) {
      return status;
    }
    header_sent_ = true;
  }
  const auto status = net_->isend({payload(sent_), size_bytes}, kTag, registrations_.of_payload(),
                                  &requests_[index]);
  header_sent_ = status != NetStatus::kOk;
  return status;
}

Result<bool> NetSendEnd::test_sent() {
  bool moved = false;
  for (; done_ < sent_; moved = true) {
    const size_t index = done_ % kSlots;
    auto status = NetStatus::kOk;
    if (headers_[index] != nullptr) {
      status = net_->test(headers_[index], nullptr);
      headers_[index] = status == NetStatus::kOk ? nullptr : headers_[index];
    }
    if (status == NetStatus::kOk) {
      status = net_->test(requests_[index], nullptr);
    }
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      return failed(net_->explain("test", status));
    }
    if (observer_ != nullptr) {
      observer_->on_step(StepChange::kDone, 0);
    }
    ++done_;
    fifo().taken.store(done_, std::memory_order_release);  // pairs with try_acquire() in a kernel
  }
  return moved;
}

bool NetSendEnd::drained() noexcept {
  return done_ == sent_ &&
         fifo().headers[sent_ % kSlots].ready.load(std::memory_order_relaxed) != sent_ + 1;
}

// ---- receiving ----

Result<void> NetRecvEnd::start_listening() {
  const NetContext& context = *options_.path.context;
  PLEXUS_TRY(listen, context.listen(options_.path.device, options_.peer_name));
  listen_ = std::move(listen);
  awaits_answer_ = !context.plugin().is_native();
  const ControlMessageHead head{.handle = listen_->handle(),
                                .wants_answer = awaits_answer_ ? 1U : 0U};
  std::string bytes(sizeof(head), '\0');
  std::memcpy(bytes.data(), &head, sizeof(head));
  bytes += options_.path.route;
  PLEXUS_TRY(
      options_.exchange->post(key().peer, static_cast<uint64_t>(key().index), std::move(bytes)));
  net_ = listen_->accept(options_.peer_name);
  return ok();
}

Result<bool> NetRecvEnd::progress_connect() {
  if (!listen_.has_value()) {
    PLEXUS_TRY(start_listening());
  }
  if (awaits_answer_) {
    if (!options_.exchange->try_take(key().peer, answer_tag(key())).has_value()) {
      return false;
    }
    awaits_answer_ = false;
  }
  auto progress = net_->try_accept();
  if (progress.has_error()) {
    return std::move(progress).error().with_context(
        fmt::format("accepting the connection of {}", options_.peer_name));
  }
  if (progress.value() == NetProgress::kPending) {
    return false;
  }
  listen_.reset();
  PLEXUS_TRY(make_slots(registrations_, [this](const plexus_net_region_t& region) {
    return net_->register_memory(region);
  }));
  if (options_.runtime != nullptr) {
    device_view = view();
  } else {
    recv = RecvConnection(&fifo(), slot(0) + sizeof(NetHeader),
                          {.peer = key().peer, .slot_stride = slot_stride()});
  }
  connected_ = true;
  return true;
}

Result<bool> NetRecvEnd::progress_pump() {
  if (broken_.has_value()) {
    return false;
  }
  if (observer_ != nullptr) {
    tell_taken();
  }
  PLEXUS_TRY(posted, post_free());
  PLEXUS_TRY(tested, test_posted());
  const bool announced = announce_flushed();
  if (cannot_post_.has_value() && arrived_ == posted_) {
    broken_ = std::move(cannot_post_);
  }
  return posted || tested || announced;
}

Result<bool> NetRecvEnd::post_free() {
  bool moved = false;
  while (!cannot_post_.has_value() && may_post()) {
    const auto status = takes_pieces_ ? post_landing() : post_step();
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      cannot_post_ = failed(net_->explain("irecv", status));
      return moved;
    }
    ++posted_;
    moved = true;
  }
  return moved;
}

bool NetRecvEnd::may_post() const {
  if (takes_pieces_) {
    return recv.wanted().step == posted_ + 1;
  }
  // Released by this thread, or by a kernel.
  return posted_ < expected_ && posted_ < fifo().taken.load(std::memory_order_acquire) + kSlots;
}

/// Posts the place that the executor wants the message of the step that is next to come to.
NetStatus NetRecvEnd::post_landing() {
  constexpr uint32_t kLandingBytesMin = 8 * 1024;  // below, a copy is cheaper than a piece
  const size_t index = posted_ % kSlots;
  const RecvConnection::Wanted& wanted = recv.wanted();
  landings_[index] = wanted.size_bytes < kLandingBytesMin ? nullptr : wanted.place;
  if (landings_[index] == nullptr) {
    return post_step();
  }
  // Of a message that is longer than it should be the rest goes to the slot, and the executor sees
  // by the header what is wrong.
  const std::array<NetPiece, 3> pieces = {{{slot(posted_), sizeof(NetHeader)},
                                           {landings_[index], wanted.size_bytes},
                                           {payload(posted_), options_.slot_bytes}}};
  return net_->irecv_pieces(pieces, kTag, &requests_[index]);
}

/// Posts what the message of the step that is next comes into.
NetStatus NetRecvEnd::post_step() {
  const size_t index = posted_ % kSlots;
  const bool apart = options_.path.apart;
  if (!header_posted_) {
    forget_header(slot(posted_));
  }
  const NetBuffer first{.data = slot(posted_),
                        .size_bytes = apart ? sizeof(NetHeader) : message_bytes_max(),
                        .memory = registrations_.host->raw(),
                        .tag = apart ? kHeaderTag : kTag,
                        .flags = 0};
  if (!apart) {
    return net_->irecv({&first, 1}, &requests_[index]);
  }
  if (!header_posted_) {
    const auto status = net_->irecv({&first, 1}, &headers_[index]);
    if (status != NetStatus::kOk) {
      return status;
    }
    header_posted_ = true;
  }
  const NetBuffer second{.data = payload(posted_),
                         .size_bytes = options_.slot_bytes,
                         .memory = registrations_.of_payload(),
                         .tag = kTag,
                         .flags = 0};
  const auto status = net_->irecv({&second, 1}, &requests_[index]);
  header_posted_ = status != NetStatus::kOk;
  return status;
}

Result<bool> NetRecvEnd::test_posted() {
  bool moved = false;
  for (; received_ < posted_; moved = true) {
    uint64_t size_bytes = 0;
    const auto status = test_step(size_bytes);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      cannot_post_ = failed(net_->explain("test", status));
      posted_ = received_;  // what is posted behind it never comes
      return moved;
    }
    PLEXUS_TRY(message_header,
               read_header(slot(received_), size_bytes, message_bytes_max(), source()));
    PLEXUS_TRY(check_identity(message_header, identity_, received_, options_.peer_name));
    if (!flush_received(message_header.size_bytes)) {
      return moved;
    }
    ++received_;
  }
  return moved;
}

/// Of the message that is next. `size_bytes`: header and payload.
NetStatus NetRecvEnd::test_step(uint64_t& size_bytes) {
  const size_t index = received_ % kSlots;
  if (headers_[index] != nullptr) {
    const auto status = net_->test(headers_[index], &header_bytes_[index]);
    if (status != NetStatus::kOk) {
      return status;
    }
    headers_[index] = nullptr;
  }
  const auto status = net_->test(requests_[index], &size_bytes);
  if (status == NetStatus::kOk && options_.path.apart) {
    size_bytes = join_sizes(header_bytes_[index], size_bytes, source());
  }
  return status;
}

/// False: the connection is broken.
bool NetRecvEnd::flush_received(uint32_t payload_bytes) {
  if (payloads_ == nullptr || !options_.path.flushes || payload_bytes == 0) {
    return true;
  }
  const NetBuffer buffer{.data = payload(received_),
                         .size_bytes = payload_bytes,
                         .memory = registrations_.of_payload(),
                         .tag = kTag,
                         .flags = 0};
  const auto status = net_->flush({&buffer, 1}, &flushes_[received_ % kSlots]);
  if (status != NetStatus::kOk) {
    broken_ = failed(net_->explain("flush", status));
  }
  return status == NetStatus::kOk;
}

/// Makes known what was received and is where its reader looks.
bool NetRecvEnd::announce_flushed() {
  bool moved = false;
  for (; arrived_ < received_ && !broken_.has_value(); moved = true) {
    NetRequest*& flush = flushes_[arrived_ % kSlots];
    if (flush != nullptr) {
      const auto status = net_->test(flush, nullptr);
      if (status == NetStatus::kAgain) {
        return moved;
      }
      if (status != NetStatus::kOk) {
        broken_ = failed(net_->explain("test", status));
        return moved;
      }
      flush = nullptr;
    }
    NetHeader message_header{};
    std::memcpy(&message_header, slot(arrived_), sizeof(message_header));
    announce(fifo(), arrived_, message_header, landings_[arrived_ % kSlots]);
    if (observer_ != nullptr) {
      observer_->on_step(StepChange::kArrived, message_header.size_bytes);
    }
    ++arrived_;
  }
  return moved;
}

/// Messages that came before anybody listened are nobody's.
void NetRecvEnd::observe(StepObserver* observer) {
  ConnectionEnd::observe(observer);
  if (observer == nullptr || memory_ == nullptr) {
    return;
  }
  told_ = fifo().taken.load(std::memory_order_relaxed);
  for (uint64_t step = told_; step < arrived_; ++step) {  // early for the call that begins
    observer->on_step(StepChange::kArrived, fifo().headers[step % kSlots].size_bytes);
  }
}

void NetRecvEnd::tell_taken() {
  for (const uint64_t taken = fifo().taken.load(std::memory_order_relaxed); told_ < taken;
       ++told_) {
    observer_->on_step(StepChange::kDone, 0);
  }
}

}  // namespace plexus
