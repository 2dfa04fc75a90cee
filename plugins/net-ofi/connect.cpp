// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-ofi/connect.hpp"

#include <algorithm>
#include <cstring>
#include <span>

namespace plexus::net_ofi {
namespace {

using namespace std::chrono_literals;

/// Limits what pending peers can make this side hold. Beyond them the oldest is dropped.
constexpr size_t kPendingPeersMax = 64;
constexpr size_t kSeenMax = 1024;
/// Limits the duration of one call under a flood.
constexpr int kPollsPerCall = 16;
constexpr uint32_t kRefusalsLogged = 8;
constexpr auto kRetryPause = 100ms;
/// A listener that closes does not report it, so the greeting is repeated until it answers.
constexpr auto kHelloPause = 1s;

template <class T>
Result<T> random_value() {
  T value{};
  if (!security::fill_random({reinterpret_cast<uint8_t*>(&value), sizeof value})) {
    return fail(PLEXUS_SYSTEM_ERROR, "this system has no source of randomness");
  }
  return value;
}

uint64_t listener_tag(const Device& device) {
  return Tags(0, device.tag_mask()).make(TagKind::kGreeting);
}

}  // namespace

// -------------------------------------------------------------------------------------- Listener

Result<std::unique_ptr<Listener>> Listener::create(const Place& place,
                                                   const std::string& provider,
                                                   plexus_net_handle_t& handle) {
  std::unique_ptr<Listener> listener(new Listener(place));
  WireHandle& wire = listener->wire_;
  wire.magic = kWireMagic;
  PLEXUS_TRY(key, random_value<security::Key>());
  wire.key = key;
  wire.origin = place.links->number_of(*place.device);
  wire.mode = place.settings->security;
  if (provider.size() >= wire.provider.size()) {
    return fail(PLEXUS_INTERNAL_ERROR, "the name of the provider {} is too long for a handle",
                provider);
  }
  std::copy(provider.begin(), provider.end(), wire.provider.begin());
  Domain& domain = *place.device->rails.front();
  PLEXUS_TRY(memory,
             register_own(domain, listener->greetings_.data(), sizeof listener->greetings_));
  listener->memory_ = std::move(memory);
  PLEXUS_TRY(endpoint, Endpoint::open(place.device->rails.front()));
  PLEXUS_TRY(end, share_listen_end(std::move(endpoint)));
  listener->end_ = std::move(end);
  PLEXUS_TRY(size, listener->end_->endpoint.read_address(wire.address));
  wire.address_bytes = static_cast<uint16_t>(size);
  for (uint32_t i = 0; i < kGreetings; ++i) {
    listener->operations_[i].kind = OperationKind::kGreetingReceive;
    listener->operations_[i].index = i;
    PLEXUS_TRY(listener->post(i));
  }
  std::memcpy(handle.bytes, &wire, sizeof wire);
  return listener;
}

Listener::~Listener() {
  if (end_ == nullptr) {
    return;  // it could not be made
  }
  if (has_listened_) {
    end_->endpoint.settle();
  }
  pending_peers_.clear();  // so that connectors find what they have here
  end_->has_ended.store(true);
  end_.reset();
}

Result<void> Listener::post(uint32_t index) {
  return check_call(
      end_->endpoint.receive({&greetings_[index], sizeof(WireGreeting), descriptor_of(memory_)},
                             listener_tag(*place_.device), operations_[index]),
      "post a receive", place_.device->name());
}

Result<Progress> Listener::try_accept(std::unique_ptr<Flow>& flow) {
  PLEXUS_TRY(hear());
  for (auto pending = pending_peers_.begin(); pending != pending_peers_.end();) {
    const Result<Progress> progress = advance(*pending);
    if (progress.has_error()) {
      refuse(progress.error().text);
      pending = forget(pending);
    } else if (progress.value() == Progress::kDone) {
      flow = std::move(pending->flow);
      pending_peers_.erase(pending);
      return Progress::kDone;
    } else {
      ++pending;
    }
  }
  return Progress::kPending;
}

Result<void> Listener::hear() {
  std::array<Event, kGreetings> events;
  has_listened_ = true;
  for (int poll = 0; poll < kPollsPerCall; ++poll) {
    const size_t count = end_->endpoint.poll(events);
    if (count == 0) {
      break;
    }
    for (const Event& event : std::span(events).first(count)) {
      if (event.operation == nullptr) {
        return fail(PLEXUS_SYSTEM_ERROR, "libfabric can no longer listen on {}: {}",
                    place_.device->name(), error_text(event.error));
      }
      const uint32_t index = event.operation->index;
      const auto bytes = std::as_bytes(std::span(&greetings_[index], 1));
      auto greeting =
          event.error != 0
              ? Result<WireGreeting>(
                    fail(PLEXUS_REMOTE_ERROR, "a greeting failed: {}", error_text(event.error)))
              : read_greeting(bytes.first(std::min<size_t>(event.size_bytes, bytes.size())),
                              wire_.key, nullptr);
      PLEXUS_TRY(post(index));
      if (greeting.has_error()) {
        refuse(greeting.error().text);
        continue;
      }
      PLEXUS_TRY(admit(greeting.value()));
    }
  }
  return ok();
}

Result<void> Listener::admit(const WireGreeting& greeting) {
  if (std::find(seen_.begin(), seen_.end(), greeting.nonce) != seen_.end()) {
    return ok();
  }
  if (seen_.size() == kSeenMax) {
    seen_.erase(seen_.begin());
  }
  seen_.push_back(greeting.nonce);
  if (greeting.address_bytes != wire_.address_bytes) {
    refuse("its greeting has addresses of another kind");
    return ok();
  }
  const auto rails = std::min(static_cast<uint32_t>(place_.device->rails.size()),
                              static_cast<uint32_t>(greeting.rails));
  PLEXUS_TRY(flow,
             Flow::open({place_.device, place_.settings, place_.links, place_.log, Direction::kIn,
                         greeting.origin, greeting.link, rails, greeting.nonce}));
  const Result<WireGreeting> answer = make_answer(*flow, greeting);
  if (answer.has_error()) {
    refuse(answer.error().text);
    std::erase(seen_, greeting.nonce);
    return ok();
  }
  if (pending_peers_.size() == kPendingPeersMax) {
    forget(pending_peers_.begin());
  }
  pending_peers_.push_back({std::move(flow), answer.value(), greeting.nonce,
                            Clock::now() + place_.settings->connect_timeout});
  return ok();
}

Result<WireGreeting> Listener::make_answer(Flow& flow, const WireGreeting& greeting) {
  const auto lock = flow.lock();
  PLEXUS_TRY(flow.meet(greeting));
  PLEXUS_TRY(answer, flow.greetings().make());
  seal(answer, wire_.key, &greeting.challenge);
  flow.greetings().expect_ready(wire_.key,
                                {.caller = greeting.challenge, .listener = answer.challenge});
  return answer;
}

/// Drops a connection that is not made. Its peer, if it still waits for the answer, may greet
/// again.
std::vector<Listener::PendingPeer>::iterator Listener::forget(
    std::vector<PendingPeer>::iterator pending) {
  std::erase(seen_, pending->nonce);
  return pending_peers_.erase(pending);
}

Result<Progress> Listener::advance(PendingPeer& pending) {
  Flow& flow = *pending.flow;
  const auto lock = flow.lock();
  if (!flow.progress()) {
    flow.wait_idle();
  }
  const bool is_ready = flow.greetings().is_ready();
  const Failure* const gone = flow.departure();
  // a peer that was ready may have sent all its data before it closed
  if (gone != nullptr && !is_ready) {
    return *gone;
  }
  if (!is_ready && Clock::now() > pending.deadline) {
    return fail(PLEXUS_TIMEOUT, "{} did not finish connecting in time", flow.peer());
  }
  PLEXUS_TRY(sent, flow.greetings().send(pending.answer, flow.rails().peer(0),
                                         flow.tags().make(TagKind::kGreeting)));
  return sent == Progress::kDone && is_ready ? Progress::kDone : Progress::kPending;
}

void Listener::refuse(const std::string& reason) {
  ++refusals_;
  if (refusals_ <= kRefusalsLogged) {
    place_.log.info("net-ofi: refused a connection: {}{}", reason,
                    refusals_ == kRefusalsLogged ? " (further ones are not logged)" : "");
  }
}

// ------------------------------------------------------------------------------------- Connector

Result<Connector> Connector::create(const Place& place,
                                    const std::string& provider,
                                    const plexus_net_handle_t& handle) {
  Connector connector(place);
  PLEXUS_TRY(wire, read_handle(handle, provider));
  if (wire.mode != place.settings->security) {
    return fail(PLEXUS_INVALID_USAGE, "net-ofi: {}",
                security::describe_difference(place.settings->security, wire.mode, "the peer"));
  }
  connector.wire_ = wire;
  connector.deadline_ = Clock::now() + place.settings->connect_timeout;
  PLEXUS_TRY(connector.start_attempt());
  return connector;
}

Result<void> Connector::start_attempt() {
  ++attempts_;
  PLEXUS_TRY(nonce, random_value<uint32_t>());
  const auto rails = static_cast<uint32_t>(place_.device->rails.size());
  PLEXUS_TRY(flow, Flow::open({place_.device, place_.settings, place_.links, place_.log,
                               Direction::kOut, wire_.origin, 0, rails, nonce}));
  auto lock = flow->lock();
  target_ = flow->rails().endpoint(0).address_text(wire_.address);
  const auto listener = find_listener(*flow);
  if (listener.has_error()) {
    return fail(listener.error().code,
                "cannot connect to {}: {}; check that the peer runs, or choose another card with "
                "PLEXUS_OFI_DOMAIN",
                target_, listener.error().text);
  }
  PLEXUS_TRY(hello, flow->greetings().make());
  hello.origin = place_.links->number_of(*place_.device);
  seal(hello, wire_.key, nullptr);
  if (hello.address_bytes != wire_.address_bytes) {
    return fail(PLEXUS_INVALID_USAGE,
                "the peer's address {} is of another kind than those of {}; set the same "
                "NCCL_SOCKET_FAMILY and PLEXUS_OFI_DOMAIN on all hosts",
                target_, place_.device->name());
  }
  lock.unlock();
  hello_ = hello;
  listener_ = listener.value();
  flow_ = std::move(flow);
  step_ = Step::kHello;
  next_hello_ = Clock::now() + kHelloPause;
  return ok();
}

Result<fi_addr_t> Connector::find_listener(Flow& flow) const {
  if (flow.is_shared_memory()) {
    PLEXUS_TRY(inside, find_listen_end(wire_.address));
    flow.greetings().keep_open(std::move(inside));
  }
  return flow.rails().endpoint(0).insert(wire_.address);
}

Result<Progress> Connector::try_connect(std::unique_ptr<Flow>& flow) {
  if (flow_ == nullptr) {
    if (Clock::now() < retry_time_) {
      return Progress::kPending;
    }
    PLEXUS_TRY(start_attempt());
  }
  if (const auto& greeted = flow_->greetings().greeted(); greeted && greeted->has_ended.load()) {
    return fail(PLEXUS_REMOTE_ERROR, "cannot connect to {}: it was closed before it answered",
                target_);
  }
  const Result<Progress> progress = advance();
  if (progress.has_error()) {
    PLEXUS_TRY(retry(progress.error().text));
    return Progress::kPending;
  }
  if (progress.value() == Progress::kDone) {
    flow = std::move(flow_);
  }
  return progress.value();
}

Result<void> Connector::greet() {
  PLEXUS_TRY(sent, flow_->greetings().send(hello_, listener_, listener_tag(*place_.device)));
  const auto now = Clock::now();
  if (sent == Progress::kDone) {
    step_ = Step::kAnswer;
    deadline_ = now + place_.settings->connect_timeout;
  } else if (now > deadline_) {
    return fail(PLEXUS_REMOTE_ERROR, "it does not answer");
  }
  return ok();
}

Result<Progress> Connector::advance() {
  const auto lock = flow_->lock();
  if (!flow_->progress()) {
    flow_->wait_idle();
  }
  if (const Failure* gone = flow_->departure()) {
    return *gone;
  }
  if (step_ != Step::kReady) {
    PLEXUS_TRY(greet());
    PLEXUS_TRY(answer, flow_->greetings().answer(wire_.key, hello_.challenge));
    if (!answer) {
      if (step_ == Step::kAnswer && Clock::now() > next_hello_ && !flow_->is_shared_memory()) {
        next_hello_ = Clock::now() + kHelloPause;
        flow_->greetings().forget();
      }
      return Progress::kPending;
    }
    PLEXUS_TRY(flow_->meet(*answer));
    challenges_ = {.caller = hello_.challenge, .listener = answer->challenge};
    step_ = Step::kReady;
    rails_announced_ = 0;
  }
  while (
      rails_announced_ < flow_->rails().count() &&
      flow_->send_control(make_ready(wire_.key, challenges_, rails_announced_), rails_announced_)) {
    ++rails_announced_;
  }
  const bool is_done = rails_announced_ == flow_->rails().count() && flow_->are_controls_sent();
  return is_done ? Progress::kDone : Progress::kPending;
}

Result<void> Connector::retry(const std::string& reason) {
  flow_.reset();
  if (Clock::now() + kRetryPause > deadline_) {
    return fail(PLEXUS_REMOTE_ERROR,
                "cannot connect to {}: {} ({} attempt{}); check that the peer runs and that no "
                "firewall is between, or choose another card with PLEXUS_OFI_DOMAIN",
                target_, reason, attempts_, attempts_ == 1 ? "" : "s");
  }
  retry_time_ = Clock::now() + kRetryPause;
  return ok();
}

}  // namespace plexus::net_ofi
