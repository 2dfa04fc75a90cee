// SPDX-License-Identifier: Apache-2.0
#include "core/transport/network/net.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/bytes.hpp"
#include "core/base/log.hpp"
#include "core/base/units.hpp"
#include "core/control/control_tag.hpp"
#include "core/transport/network/checksum.hpp"
#include "core/transport/network/gpu_memory.hpp"
#include "core/transport/network/net_message.hpp"
#include "guest/assert.hpp"

namespace plexus {
namespace {

constexpr int32_t kDataTag = 0;
constexpr int32_t kHeaderTag = 1;

/// From the receiver to the sender; the route comes behind it.
struct ControlMessageHead {
  NetHandle handle;
  uint32_t wants_answer;
};

uint64_t tag_of(ControlTag what, const ConnectionKey& key) {
  return plexus::tag_of(what, static_cast<uint64_t>(key.index));
}

}  // namespace

// ---- both directions ----

NetPump::NetPump(const ConnectionKey& key, NetEndOptions options)
    : key_(key),
      options_(std::move(options)),
      identity_(identify_connection(options_.exchange->group(),
                                    key.sends ? options_.exchange->rank() : key.peer,
                                    key.sends ? key.peer : options_.exchange->rank(),
                                    key.index)),
      // Two messages a step are no pieces of one.
      takes_pieces_(options_.runtime == nullptr && !options_.path.apart &&
                    options_.path.context->takes_pieces(options_.path.device)) {}

Result<void> NetPump::make_slots(Registrations& registrations, const Register& add) {
  PLEXUS_DCHECK(!fifo_.has_memory(), key_.peer, key_.index);  // once
  if (options_.path.gpu_kinds != 0 && !*options_.gdr_refused) {
    const auto made = make_payloads(registrations, add);
    if (made.has_error()) {
      *options_.gdr_refused = true;
      PLEXUS_INFO(kNet, "no GDR with {} and later peers, messages are staged in host memory: {}",
                  options_.peer_name, made.error().message());
    }
  }
  PLEXUS_TRY(fifo, PumpFifo::create({.payload_bytes = options_.slot_bytes,
                                     .header_bytes = sizeof(NetHeader),
                                     .payloads = payloads_.get(),
                                     .runtime = options_.runtime,
                                     .device = options_.device}));
  PLEXUS_TRY(host, add({.data = fifo.slot(0),
                        .size_bytes = fifo.slots_bytes(),
                        .dmabuf_offset_bytes = 0,
                        .dmabuf_fd = -1,
                        .kind = PLEXUS_MEMORY_HOST}));
  fifo_ = std::move(fifo);
  registrations.host = std::move(host);
  return ok();
}

size_t NetPump::payloads_bytes() const noexcept {
  return align_up(kSlots * options_.slot_bytes, kExportGranule);
}

Result<void> NetPump::make_payloads(Registrations& registrations, const Register& add) {
  const size_t size_bytes = payloads_bytes();
  PLEXUS_TRY(memory, allocate_device(*options_.runtime, options_.device, size_bytes));
  PLEXUS_TRY(registered, register_gpu_memory({.runtime = options_.runtime,
                                              .device = options_.device,
                                              .data = memory.get(),
                                              .size_bytes = size_bytes,
                                              .kinds = options_.path.gpu_kinds},
                                             add));
  PLEXUS_INFO(kNet, "{} slots of {} lie in memory of cuda:{} (GDR, {}{})",
              key_.sends ? "send" : "recv", options_.peer_name, options_.device,
              registered.by_dmabuf ? "by dma-buf" : "registered as CUDA memory",
              options_.has_checksums ? "; PLEXUS_NET_CHECKSUM covers headers only" : "");
  registrations.gpu = std::move(registered.memory);
  payloads_ = std::move(memory);
  return ok();
}

/// A connection that fails in use means that its peer is gone.
Error NetPump::failed(Error error) const {
  return fail(Code::kRemoteError, "lost the connection to {}: {}", options_.peer_name,
              error.message());
}

std::string NetPump::describe_entry(std::string_view entry) const {
  return fmt::format("{} of {} {} {}", entry, options_.path.context->describe(options_.path.device),
                     key_.sends ? "to" : "from", options_.peer_name);
}

// ---- sending ----

NetSender::NetSender(const ConnectionKey& key, NetEndOptions options)
    : NetPump(key, std::move(options)),
      gathers_(!takes_pieces_ && options_.registered != nullptr && options_.runtime == nullptr &&
               !options_.path.apart && options_.path.context->gathers()) {}

NetSender::~NetSender() {
  if (!gathers_) {
    return;
  }
  sources_ = {};
  options_.registered->forget(this);
  if (gathered_messages_ > 0) {
    PLEXUS_INFO(kNet, "{} messages with {} bytes were sent to {} from registered memory",
                gathered_messages_, gathered_bytes_, options_.peer_name);
  }
}

/// False: the receiver's has not come.
Result<bool> NetSender::take_control_message() {
  const auto bytes = options_.exchange->try_take(key_.peer, tag_of(ControlTag::kHandle, key_));
  if (!bytes.has_value()) {
    return false;
  }
  ByteReader reader(*bytes);
  const auto head = reader.take<ControlMessageHead>();
  if (reader.broken()) {
    return fail(Code::kInternalError,
                "{} sent a network handle of {} bytes, expected {} or more: use the same version "
                "of Plexus on all ranks",
                options_.peer_name, bytes->size(), sizeof(head));
  }
  PLEXUS_TRY(check_route({.mine = options_.path.route,
                          .peers = reader.rest(),
                          .rank = options_.exchange->rank(),
                          .peer_name = options_.peer_name}));
  is_asked_to_answer_ = head.wants_answer != 0;
  awaits_accept_ = is_asked_to_answer_;
  net_ = options_.path.context->connect(options_.path.device, head.handle, options_.peer_name);
  return true;
}

Result<bool> NetSender::progress_connect() {
  if (!net_.has_value()) {
    PLEXUS_TRY(is_there, take_control_message());
    if (!is_there) {
      return false;
    }
  }
  if (!is_connected_) {
    PLEXUS_TRY(connects, try_connect());
    is_connected_ = connects;
    if (!connects) {
      return false;
    }
    PLEXUS_TRY(make_slots(registrations_, [this](const plexus_net_region_t& region) {
      return net_->register_memory(region);
    }));
  }
  awaits_accept_ =
      awaits_accept_ &&
      !options_.exchange->try_take(key_.peer, tag_of(ControlTag::kNetAccept, key_)).has_value();
  return !awaits_accept_;
}

/// One call of the plugin. False: pending.
Result<bool> NetSender::try_connect() {
  auto progress = net_->try_connect();
  if (progress.has_error()) {
    return std::move(progress).error().with_context(
        fmt::format("connecting to {}", options_.peer_name));
  }
  if (std::exchange(is_asked_to_answer_, false)) {
    PLEXUS_TRY(
        options_.exchange->post(key_.peer, tag_of(ControlTag::kNetAnswer, key_), "connects"));
  }
  return progress.value() == NetProgress::kDone;
}

Result<bool> NetSender::progress() {
  if (broken_.has_value()) {
    return false;
  }
  const bool sent = send_filled();
  const bool tested = test_sent();
  return sent || tested;
}

bool NetSender::send_filled() {
  bool moved = false;
  for (;;) {
    if (!fifo_.is_filled(sent_)) {
      return moved;
    }
    PLEXUS_DCHECK(sent_ - done_ < kSlots, sent_, done_);
    const SlotHeader& header = fifo_.header(sent_);
    if (observer_ != nullptr) {
      observer_->on_step(StepChange::kFilled, header.size_bytes);
    }
    const auto status = send_step(header);
    is_refused_ = status == NetStatus::kAgain;
    if (is_refused_) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      broken_ = failed(net_->explain("isend", status));
      return moved;
    }
    if (observer_ != nullptr) {
      observer_->on_step(StepChange::kSent, header.size_bytes);
    }
    ++sent_;
    moved = true;
  }
}

/// The sum of the payload of the step that is next; 0: it is in GPU memory. A step that the plugin
/// has no room for is asked about again.
uint32_t NetSender::sum_of(const SlotHeader& header) {
  if (payloads_ != nullptr) {
    return 0;
  }
  if (summed_ != sent_ + 1) {
    const std::byte* const payload =
        header.kind == SlotKind::kPointer ? header.payload.pointer : fifo_.payload(sent_);
    sum_ = sum_payload({std::span(payload, header.size_bytes)});
    summed_ = sent_ + 1;
  }
  return sum_;
}

/// Starts the message of the step that is next.
NetStatus NetSender::send_step(const SlotHeader& header) {
  const uint32_t size_bytes = header.size_bytes;
  const size_t index = sent_ % kSlots;
  std::byte* const message = fifo_.slot(sent_);
  plexus_net_memory_t* const of_host = registrations_.host->raw();
  if (!header_sent_) {
    NetHeader message_header = header_of(fifo_.fifo(), sent_);
    message_header.connection = identity_;
    message_header.step = sent_;
    if (options_.has_checksums || message_header.call.has_checksum != 0) {
      message_header.payload_sum = sum_of(header);
      sign_header(message_header);
    }
    std::memcpy(message, &message_header, sizeof(message_header));
  }
  if (header.kind == SlotKind::kPointer) {
    return send_from_user(header);
  }
  if (!options_.path.apart) {
    return net_->isend({message, sizeof(NetHeader) + size_bytes}, kDataTag, of_host,
                       &requests_[index]);
  }
  if (!header_sent_) {
    PLEXUS_DCHECK(headers_[index] == nullptr, sent_);
    const auto status =
        net_->isend({message, sizeof(NetHeader)}, kHeaderTag, of_host, &headers_[index]);
    if (status != NetStatus::kOk) {
      return status;
    }
    header_sent_ = true;
  }
  const auto status = net_->isend({fifo_.payload(sent_), size_bytes}, kDataTag,
                                  registrations_.of_payload(), &requests_[index]);
  header_sent_ = status != NetStatus::kOk;
  return status;
}

/// Starts the message of the step that is next, whose payload is in user memory and whose header is
/// in its slot.
NetStatus NetSender::send_from_user(const SlotHeader& header) {
  const uint32_t size_bytes = header.size_bytes;
  const size_t index = sent_ % kSlots;
  std::byte* const message = fifo_.slot(sent_);
  const std::byte* const payload = header.payload.pointer;
  if (takes_pieces_) {
    // The plugin only reads.
    auto* const bytes =
        const_cast<std::byte*>(payload);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    const std::array<NetPiece, 2> pieces = {{{message, sizeof(NetHeader)}, {bytes, size_bytes}}};
    return net_->isend_pieces(pieces, kDataTag, &requests_[index]);
  }
  plexus_net_memory_t* const of_slots = registrations_.host->raw();
  if (copied_ != sent_ + 1) {
    auto held = options_.registered->find(
        this, payload, size_bytes,
        [this](const plexus_net_region_t& region) { return net_->register_memory(region); });
    if (held != nullptr) {
      const std::array<NetSource, 2> sources = {
          {{message, sizeof(NetHeader), of_slots}, {payload, size_bytes, held->raw()}}};
      const auto status = net_->isend_gathered(sources, kDataTag, &requests_[index]);
      if (status == NetStatus::kOk) {
        PLEXUS_DCHECK(sources_[index] == nullptr, sent_);
        sources_[index] = std::move(held);
        gathered_bytes_ += size_bytes;
        ++gathered_messages_;
      }
      return status;
    }
    std::memcpy(fifo_.payload(sent_), payload, size_bytes);
    copied_ = sent_ + 1;
  }
  return net_->isend({message, sizeof(NetHeader) + size_bytes}, kDataTag, of_slots,
                     &requests_[index]);
}

std::optional<HeldUp> NetSender::held_up() const {
  if (!net_.has_value()) {
    return std::nullopt;
  }
  if (registrations_.host == std::nullopt) {
    return HeldUp{.what = describe_entry("connect") + " does not finish"};
  }
  uint64_t waiting = 0;
  while (waiting < kSlots && fifo_.is_filled(sent_ + waiting)) {
    ++waiting;
  }
  if (is_refused_ && waiting > 0) {
    return HeldUp{
        .what = fmt::format("{} has no room (PLEXUS_AGAIN) for message {} of {} bytes, "
                            "with {} requests under way",
                            describe_entry("isend"), sent_,
                            sizeof(NetHeader) + fifo_.header(sent_).size_bytes, sent_ - done_),
        .is_refusal = true,
        .messages = waiting};
  }
  if (done_ < sent_) {
    return HeldUp{.what = fmt::format("{} does not finish message {}, the oldest of {} under way",
                                      describe_entry("test"), done_, sent_ - done_),
                  .messages = waiting};
  }
  return std::nullopt;
}

bool NetSender::test_sent() {
  bool moved = false;
  for (; done_ < sent_ && !broken_.has_value(); moved = true) {
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
    sources_[index].reset();
    if (status != NetStatus::kOk) {
      broken_ = failed(net_->explain("test", status));
      return moved;
    }
    if (observer_ != nullptr) {
      observer_->on_step(StepChange::kDone, 0);
    }
    PLEXUS_DCHECK(headers_[index] == nullptr && sources_[index] == nullptr, done_);
    ++done_;
    fifo_.release_until(done_);
  }
  return moved;
}

// ---- receiving ----

Result<void> NetReceiver::start_listening() {
  const NetContext& context = *options_.path.context;
  PLEXUS_TRY(listen, context.listen(options_.path.device, options_.peer_name));
  listen_ = std::move(listen);
  awaits_answer_ = !context.plugin().is_native();
  const ControlMessageHead head{.handle = listen_->handle(),
                                .wants_answer = awaits_answer_ ? 1U : 0U};
  ByteWriter writer;
  writer.put(head);
  writer.put_bytes(options_.path.route);
  PLEXUS_TRY(options_.exchange->post(key_.peer, tag_of(ControlTag::kHandle, key_), writer.take()));
  net_ = listen_->accept(options_.peer_name);
  return ok();
}

Result<bool> NetReceiver::progress_connect() {
  if (!listen_.has_value()) {
    PLEXUS_TRY(start_listening());
  }
  if (awaits_answer_) {
    if (!options_.exchange->try_take(key_.peer, tag_of(ControlTag::kNetAnswer, key_)).has_value()) {
      return false;
    }
    awaits_answer_ = false;
  }
  auto progress = net_->try_accept();
  if (progress.has_error()) {
    return std::move(progress).error().with_context(
        fmt::format("accepting the connection from {}", options_.peer_name));
  }
  if (progress.value() == NetProgress::kPending) {
    return false;
  }
  listen_.reset();
  if (!options_.path.context->plugin().is_native()) {
    PLEXUS_TRY(
        options_.exchange->post(key_.peer, tag_of(ControlTag::kNetAccept, key_), "accepted"));
  }
  PLEXUS_TRY(make_slots(registrations_, [this](const plexus_net_region_t& region) {
    return net_->register_memory(region);
  }));
  return true;
}

Result<bool> NetReceiver::progress() {
  if (broken_.has_value()) {
    return false;
  }
  report_.tell_taken(fifo_);
  PLEXUS_TRY(posted, post_free());
  PLEXUS_TRY(tested, test_posted());
  const bool announced = announce_flushed();
  PLEXUS_DCHECK(arrived_ <= received_ && received_ <= posted_, arrived_, received_, posted_);
  PLEXUS_DCHECK(posted_ - arrived_ <= kSlots, posted_, arrived_);
  PLEXUS_DCHECK(takes_pieces_ || posted_ <= expected_, posted_, expected_);
  if (cannot_post_.has_value() && arrived_ == posted_) {
    broken_ = std::move(cannot_post_);
  }
  return posted || tested || announced;
}

Result<bool> NetReceiver::post_free() {
  bool moved = false;
  while (!cannot_post_.has_value() && may_post()) {
    const auto status = takes_pieces_ ? post_landing() : post_step();
    is_refused_ = status == NetStatus::kAgain;
    if (is_refused_) {
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

std::optional<HeldUp> NetReceiver::held_up() const {
  if (registrations_.host == std::nullopt) {
    const bool is_accepting = listen_.has_value() && !awaits_answer_;
    return is_accepting
               ? std::optional(HeldUp{.what = describe_entry("accept") + " does not finish"})
               : std::nullopt;
  }
  if (is_refused_ && posted_ == received_) {
    return HeldUp{.what = fmt::format("{} has no room (PLEXUS_AGAIN) for the buffer of message {}, "
                                      "with no request under way",
                                      describe_entry("irecv"), posted_),
                  .is_refusal = true};
  }
  if (arrived_ < received_) {
    return HeldUp{.what = fmt::format("{} does not finish the flush of message {}",
                                      describe_entry("test"), arrived_)};
  }
  return std::nullopt;
}

bool NetReceiver::may_post() const {
  if (takes_pieces_) {
    return reader_->wanted().step == posted_ + 1;
  }
  return posted_ < expected_ && fifo_.is_free(posted_);
}

/// Posts the place that the executor wants the message of the step that is next to come to.
NetStatus NetReceiver::post_landing() {
  constexpr uint32_t kLandingBytesMin = 8 * 1024;  // below, a copy is cheaper than a piece
  const size_t index = posted_ % kSlots;
  const RecvConnection::Wanted& wanted = reader_->wanted();
  landings_[index] = wanted.size_bytes < kLandingBytesMin ? nullptr : wanted.place;
  landing_bytes_[index] = wanted.size_bytes;
  if (landings_[index] == nullptr) {
    return post_step();
  }
  // When a message is longer than it should be, the rest goes to the slot, and the executor sees in
  // the header what is wrong. None is longer than a slot.
  PLEXUS_DCHECK(wanted.size_bytes <= options_.slot_bytes, wanted.size_bytes, options_.slot_bytes);
  const size_t rest_bytes = options_.slot_bytes - wanted.size_bytes;
  const std::array<NetPiece, 3> pieces = {{{fifo_.slot(posted_), sizeof(NetHeader)},
                                           {landings_[index], wanted.size_bytes},
                                           {fifo_.payload(posted_), rest_bytes}}};
  return net_->irecv_pieces(std::span(pieces).first(rest_bytes == 0 ? 2 : 3), kDataTag,
                            &requests_[index]);
}

/// Posts what the message of the step that is next comes into.
NetStatus NetReceiver::post_step() {
  const size_t index = posted_ % kSlots;
  const bool apart = options_.path.apart;
  if (!header_posted_) {
    forget_header(fifo_.slot(posted_));
  }
  const NetBuffer first{.data = fifo_.slot(posted_),
                        .size_bytes = apart ? sizeof(NetHeader) : message_bytes_max(),
                        .memory = registrations_.host->raw(),
                        .tag = apart ? kHeaderTag : kDataTag,
                        .flags = 0};
  if (!apart) {
    return net_->irecv({&first, 1}, &requests_[index]);
  }
  if (!header_posted_) {
    PLEXUS_DCHECK(headers_[index] == nullptr, posted_);
    const auto status = net_->irecv({&first, 1}, &headers_[index]);
    if (status != NetStatus::kOk) {
      return status;
    }
    header_posted_ = true;
  }
  const NetBuffer second{.data = fifo_.payload(posted_),
                         .size_bytes = options_.slot_bytes,
                         .memory = registrations_.of_payload(),
                         .tag = kDataTag,
                         .flags = 0};
  const auto status = net_->irecv({&second, 1}, &requests_[index]);
  header_posted_ = status != NetStatus::kOk;
  return status;
}

Result<bool> NetReceiver::test_posted() {
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
    if (options_.has_checksums || is_signed(fifo_.slot(received_), size_bytes)) {
      PLEXUS_TRY(check_sums());
    }
    auto message_header = check_received(size_bytes);
    if (message_header.has_error()) {
      return std::move(message_header).error().with_context(describe_entry("test"));
    }
    if (!flush_received(message_header.value().size_bytes)) {
      return moved;
    }
    ++received_;
  }
  return moved;
}

/// The header of the message that was received.
Result<NetHeader> NetReceiver::check_received(uint64_t size_bytes) const {
  PLEXUS_TRY(message_header, read_header(fifo_.slot(received_), size_bytes, message_bytes_max(),
                                         source(received_)));
  PLEXUS_TRY(check_identity(message_header, identity_, received_, options_.peer_name));
  return message_header;
}

Result<void> NetReceiver::check_sums() const {
  const SummedLink link{.peer_name = options_.peer_name,
                        .rank = options_.exchange->rank(),
                        .route = options_.path.route};
  NetHeader header{};
  std::memcpy(&header, fifo_.slot(received_), sizeof(header));
  PLEXUS_TRY(check_header(header, link));
  if (payloads_ != nullptr) {
    return ok();
  }
  const size_t index = received_ % kSlots;
  const size_t size_bytes = std::min<size_t>(header.size_bytes, options_.slot_bytes);
  const std::byte* const landing = landings_[index];
  const size_t landed_bytes = landing == nullptr ? 0 : std::min(size_bytes, landing_bytes_[index]);
  return check_payload(
      header,
      {.first = std::span(landing, landed_bytes),
       .rest = std::span<const std::byte>(fifo_.payload(received_), size_bytes - landed_bytes)},
      link);
}

/// Tests the oldest message that is posted. `size_bytes`: header and payload.
NetStatus NetReceiver::test_step(uint64_t& size_bytes) {
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
    size_bytes = join_sizes(header_bytes_[index], size_bytes, source(received_));
  }
  return status;
}

/// False: the connection is broken.
bool NetReceiver::flush_received(uint32_t payload_bytes) {
  if (payloads_ == nullptr || !options_.path.flushes || payload_bytes == 0) {
    return true;
  }
  const NetBuffer buffer{.data = fifo_.payload(received_),
                         .size_bytes = payload_bytes,
                         .memory = registrations_.of_payload(),
                         .tag = kDataTag,
                         .flags = 0};
  PLEXUS_DCHECK(flushes_[received_ % kSlots] == nullptr, received_);
  const auto status = net_->flush({&buffer, 1}, &flushes_[received_ % kSlots]);
  if (status != NetStatus::kOk) {
    broken_ = failed(net_->explain("flush", status));
  }
  return status == NetStatus::kOk;
}

/// Makes known what was received and is where its reader looks.
bool NetReceiver::announce_flushed() {
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
    std::memcpy(&message_header, fifo_.slot(arrived_), sizeof(message_header));
    announce(fifo_.fifo(), arrived_, message_header, landings_[arrived_ % kSlots]);
    report_.tell_arrived(message_header.size_bytes);
    ++arrived_;
  }
  return moved;
}

// ---- ends ----

template class PumpedEnd<SendEnd, NetSender>;
template class PumpedEnd<RecvEnd, NetReceiver>;
template class PumpedEnd<DeviceEnd, NetSender>;
template class PumpedEnd<DeviceEnd, NetReceiver>;

namespace {

template <class End, class P>
std::unique_ptr<End> make_net_end(EndRequest& request) {
  const ConnectionKey& key = request.id.key;
  const TransportContext& context = request.context;
  const int source = key.sends ? context.rank : key.peer;
  const int target = key.sends ? key.peer : context.rank;
  const auto channel = static_cast<uint32_t>(key.index / 2);
  auto path = context.nets->find_path(context.rank, source, target, channel, *context.infos);
  if (path.has_error()) {
    return std::make_unique<UnreachableEnd<End>>(std::move(request.id), std::move(path).error());
  }
  if (request.own_runtime() == nullptr) {  // a CUDA rank's, for messages of host memory
    path.value().gpu_kinds = 0;
  }
  bool& gdr_refused = request.shared.gdr_refused[{path.value().context, path.value().device}];
  return std::make_unique<PumpedEnd<End, P>>(
      std::move(request.id), NetEndOptions{.exchange = context.exchange,
                                           .path = std::move(path).value(),
                                           .slot_bytes = context.slot_bytes,
                                           .peer_name = describe_rank(key.peer, *request.peers),
                                           .runtime = request.own_runtime(),
                                           .device = request.mine.device,
                                           .gdr_refused = &gdr_refused,
                                           .has_checksums = request.mine.net_checksum != 0,
                                           .registered = context.registered});
}

}  // namespace

std::unique_ptr<SendEnd> make_net_send(EndRequest& request) {
  return make_net_end<SendEnd, NetSender>(request);
}
std::unique_ptr<RecvEnd> make_net_recv(EndRequest& request) {
  return make_net_end<RecvEnd, NetReceiver>(request);
}
std::unique_ptr<DeviceEnd> make_net_on_device(EndRequest& request) {
  return request.id.key.sends ? make_net_end<DeviceEnd, NetSender>(request)
                              : make_net_end<DeviceEnd, NetReceiver>(request);
}

}  // namespace plexus
