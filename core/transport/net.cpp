// SPDX-License-Identifier: Apache-2.0
#include "core/transport/net.hpp"

#include <cstring>

#include "core/base/log.hpp"
#include "core/transport/fifo_memory.hpp"
#include "core/transport/net_message.hpp"

namespace plexus {
namespace {

constexpr int32_t kTag = 0;
constexpr size_t kRouteTextMax = 512;  // of a peer's, in a message

}  // namespace

// ---- both directions ----

NetEnd::NetEnd(const ConnectionKey& key, NetEndOptions options)
    : ConnectionEnd(key), options_(std::move(options)) {
  has_pump_ = true;
}

size_t NetEnd::slot_stride() const { return sizeof(NetHeader) + options_.slot_bytes; }
Fifo& NetEnd::fifo() const { return *fifo_at(memory_->memory()); }
std::byte* NetEnd::slot(uint64_t step) const {
  return slots_at(memory_->memory()) + (step % kSlots) * slot_stride();
}
plexus_net_region_t NetEnd::region() const {
  return {.data = slots_at(memory_->memory()),
          .size_bytes = kSlots * slot_stride(),
          .dmabuf_offset_bytes = 0,
          .dmabuf_fd = -1,
          .kind = PLEXUS_MEMORY_HOST};
}

Result<void> NetEnd::make_slots() {
  PLEXUS_TRY(memory, LocalFifo::create(slot_stride()));
  memory_ = std::move(memory);
  return ok();
}

/// A connection that fails in use means that its peer is gone.
Error NetEnd::failed(Error error) const {
  return fail(Code::kRemoteError, "lost the connection to {}: {}", options_.peer_name,
              error.message());
}

// ---- sending ----

Result<bool> NetSendEnd::progress_connect() {
  if (!net_.has_value()) {
    const auto bytes = options_.exchange->try_take(key().peer, static_cast<uint64_t>(key().index));
    if (!bytes.has_value()) {
      return false;
    }
    NetHandle handle{};
    if (bytes->size() < sizeof(handle)) {
      return fail(Code::kInternalError,
                  "{} sent a network handle of {} bytes, {} or more are expected",
                  options_.peer_name, bytes->size(), sizeof(handle));
    }
    // A handle is for the plugin that made it: another one would read nonsense, and wait for ever.
    const auto theirs = std::string_view(*bytes).substr(sizeof(handle));
    if (theirs != options_.way.route) {
      return fail(Code::kInvalidUsage,
                  "rank {} and {} chose different ways for one connection: this rank {}, that one "
                  "{}; use the same version of Plexus on all ranks",
                  options_.exchange->rank(), options_.peer_name, options_.way.route,
                  theirs.substr(0, kRouteTextMax));
    }
    std::memcpy(&handle, bytes->data(), sizeof(handle));
    net_ = options_.way.context->connect(options_.way.device, handle);
  }
  auto progress = net_->try_connect();
  if (progress.has_error()) {
    return std::move(progress).error().with_context(
        fmt::format("connecting to {}", options_.peer_name));
  }
  if (progress.value() == NetProgress::kPending) {
    return false;
  }
  PLEXUS_TRY(make_slots());
  PLEXUS_TRY(registration, net_->register_memory(region()));
  registration_ = std::move(registration);
  send = SendConnection(&fifo(), slot(0) + sizeof(NetHeader),
                        {.peer = key().peer, .inline_bytes_max = 0, .slot_stride = slot_stride()});
  connected_ = true;
  PLEXUS_INFO(kNet, "connected to {} through {}", options_.peer_name, options_.way.route);
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
    if (header.ready.load(std::memory_order_relaxed) != sent_ + 1) {  // same thread fills it
      return moved;
    }
    std::byte* const message = slot(sent_);
    const NetHeader news = news_of(fifo(), sent_);
    std::memcpy(message, &news, sizeof(news));
    const auto status = net_->isend({message, sizeof(news) + header.size_bytes}, kTag,
                                    registration_->raw(), &requests_[sent_ % kSlots]);
    if (status == NetStatus::kAgain) {
      if (observer_ != nullptr) {
        observer_->on_step(StepChange::kNoRoom, header.size_bytes);
      }
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

Result<bool> NetSendEnd::test_sent() {
  bool moved = false;
  for (; done_ < sent_; moved = true) {
    const auto status = net_->test(requests_[done_ % kSlots], nullptr);
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
    fifo().taken.store(done_, std::memory_order_relaxed);  // read by the same thread
  }
  return moved;
}

bool NetSendEnd::drained() noexcept {
  return done_ == sent_ &&
         fifo().headers[sent_ % kSlots].ready.load(std::memory_order_relaxed) != sent_ + 1;
}

// ---- receiving ----

Result<bool> NetRecvEnd::progress_connect() {
  if (!listen_.has_value()) {
    PLEXUS_TRY(listen, options_.way.context->listen(options_.way.device));
    listen_ = std::move(listen);
    std::string bytes(sizeof(NetHandle), '\0');
    std::memcpy(bytes.data(), &listen_->handle(), sizeof(NetHandle));
    bytes += options_.way.route;
    PLEXUS_TRY(
        options_.exchange->post(key().peer, static_cast<uint64_t>(key().index), std::move(bytes)));
    net_ = listen_->accept();
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
  PLEXUS_TRY(make_slots());
  PLEXUS_TRY(registration, net_->register_memory(region()));
  registration_ = std::move(registration);
  recv = RecvConnection(&fifo(), slot(0) + sizeof(NetHeader),
                        {.peer = key().peer, .slot_stride = slot_stride()});
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
  if (cannot_post_.has_value() && arrived_ == posted_) {
    broken_ = std::move(cannot_post_);
  }
  return posted || tested;
}

Result<bool> NetRecvEnd::post_free() {
  bool moved = false;
  while (!cannot_post_.has_value() &&
         posted_ < fifo().taken.load(std::memory_order_relaxed) + kSlots) {  // same thread releases
    const NetBuffer buffer{.data = slot(posted_),
                           .size_bytes = slot_stride(),
                           .memory = registration_->raw(),
                           .tag = kTag,
                           .flags = 0};
    const auto status = net_->irecv({&buffer, 1}, &requests_[posted_ % kSlots]);
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

Result<bool> NetRecvEnd::test_posted() {
  bool moved = false;
  for (; arrived_ < posted_; moved = true) {
    uint64_t size_bytes = 0;
    const auto status = net_->test(requests_[arrived_ % kSlots], &size_bytes);
    if (status == NetStatus::kAgain) {
      return moved;
    }
    if (status != NetStatus::kOk) {
      broken_ = failed(net_->explain("test", status));
      return moved;
    }
    PLEXUS_TRY(take_in(size_bytes));
    if (observer_ != nullptr) {
      observer_->on_step(StepChange::kArrived, size_bytes - sizeof(NetHeader));
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

Result<void> NetRecvEnd::take_in(uint64_t size_bytes) {
  PLEXUS_TRY(news, read_news(slot(arrived_), size_bytes, slot_stride(), options_.peer_name));
  announce(fifo(), arrived_, news);
  return ok();
}

}  // namespace plexus
