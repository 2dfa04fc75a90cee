// SPDX-License-Identifier: Apache-2.0
#include "core/comm/one_sided.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/log.hpp"
#include "core/control/control_tag.hpp"
#include "guest/assert.hpp"
#include "kernels/host/outside.hpp"

namespace plexus {

using one_sided::kNoWindow;
using one_sided::WindowInfo;
using one_sided::WindowNumber;

namespace {

constexpr uint64_t kOneSidedTag = tag_of(ControlTag::kOneSided, 0);
constexpr uint64_t kInFlightBytesMax = uint64_t{8} << 20;  // to one rank
constexpr uint32_t kRoundsPerLook = 4096;  // rounds of waiting between looks at who is gone

/// Whether [offset, offset + size) is within `limit` bytes.
bool is_inside(uint64_t offset, uint64_t size_bytes, uint64_t limit) {
  return offset <= limit && size_bytes <= limit - offset;
}

}  // namespace

OneSided::OneSided(Options options) : options_(std::move(options)) {
  for (const uint64_t process : options_.processes) {
    peers_.push_back(std::make_unique<Peer>(process));
  }
  awaited_.resize(static_cast<size_t>(options_.nranks) * options_.contexts * options_.signals);
}

Result<std::shared_ptr<OneSided>> OneSided::open(Options options) {
  auto made = std::make_shared<OneSided>(std::move(options));
  if (made->options_.is_eager) {
    PLEXUS_TRY(made->make_signals());
  }
  made->options_.exchange->on_post(
      kOneSidedTag, [made](Posted message) { return made->answer(std::move(message)); });
  return made;
}

size_t OneSided::counter_index(int source, uint32_t context, uint32_t signal) const {
  return (static_cast<size_t>(source) * options_.contexts + context) * options_.signals + signal;
}

Result<void> OneSided::make_signals() {
  if (has_signals()) {
    return ok();
  }
  const size_t size_bytes = std::max<size_t>(awaited_.size(), 1) * sizeof(uint64_t);
  auto memory = SharedMemory::create(size_bytes);
  if (memory.has_error()) {  // then nobody maps it
    memory = SharedMemory::create_private(size_bytes);
  }
  PLEXUS_TRY(made, std::move(memory));
  signals_ = std::move(made);
  has_signals_.store(true, std::memory_order_release);
  return ok();
}

// ---- windows, and what others ask of them ----

Result<WindowNumber> OneSided::add_window(void* buffer, size_t size_bytes) {
  std::vector<Posted> answers;
  WindowNumber number = 0;
  {
    const std::unique_lock lock(windows_mutex_);
    PLEXUS_TRY(make_signals());
    number = ++last_window_;
    windows_.emplace(number, Window{static_cast<std::byte*>(buffer), size_bytes});
    std::erase_if(unanswered_, [&](const auto& asked) {
      const bool is_known = asked.second == number || asked.second == kNoWindow;
      if (is_known) {
        answers.push_back({asked.first, one_sided::to_bytes(describe(asked.second))});
      }
      return is_known;
    });
  }
  for (Posted& each : answers) {
    PLEXUS_TRY(options_.exchange->post(each.peer, kOneSidedTag, std::move(each.blob)));
  }
  return number;
}

void OneSided::remove_window(WindowNumber number) {
  {
    const std::unique_lock lock(windows_mutex_);
    windows_.erase(number);
  }
  const std::lock_guard lock(info_mutex_);
  for (const auto& peer : peers_) {
    peer->info.erase(number);
    peer->asked.erase(number);
  }
}

WindowInfo OneSided::describe(WindowNumber number) const {
  WindowInfo info{};
  info.window = number;
  info.contexts = options_.contexts;
  info.signals = options_.signals;
  info.signals_place = {.segment = signals_.id(),
                        .segment_bytes = signals_.size(),
                        .offset = 0,
                        .pid = getpid(),
                        .fd = signals_.fd()};
  if (const auto at = windows_.find(number); at != windows_.end()) {
    info.size_bytes = at->second.size_bytes;
    info.address = reinterpret_cast<uint64_t>(at->second.buffer);
    info.place = options_.memory->find_place(at->second.buffer, at->second.size_bytes);
  }
  return info;
}

void OneSided::take_write(const one_sided::Write& write, int from) {
  const std::shared_lock lock(windows_mutex_);
  const auto at = windows_.find(write.window);
  if (at == windows_.end() || !is_inside(write.offset, write.data.size(), at->second.size_bytes)) {
    PLEXUS_WARN("rank {} put {} bytes at {} of window {}, which rank {} does not have: dropped",
                from, write.data.size(), write.offset, write.window, options_.rank);
    return;
  }
  std::memcpy(at->second.buffer + write.offset, write.data.data(), write.data.size());
}

void OneSided::raise(uint32_t context, uint32_t signal, int source) {
  if (!has_signals() || context >= options_.contexts || signal >= options_.signals) {
    PLEXUS_WARN("rank {} raised signal {} of context {}, which rank {} does not have: dropped",
                source, signal, context, options_.rank);
    return;
  }
  auto* const counters = reinterpret_cast<std::atomic<uint64_t>*>(signals_.data());
  // pairs with the acquire in wait(): the data is there
  counters[counter_index(source, context, signal)].fetch_add(1, std::memory_order_release);
}

/// In a thread of the control plane.
std::vector<OneSided::Posted> OneSided::answer(Posted message) {
  const auto read = one_sided::from_bytes(message.blob);
  if (read.has_error()) {
    PLEXUS_WARN("rank {}: {}", message.peer, read.error().message());
    return {};
  }
  const auto reply = [&](const one_sided::Message& what) -> std::vector<Posted> {
    std::vector<Posted> replies;
    replies.push_back({message.peer, one_sided::to_bytes(what)});
    return replies;
  };
  Peer& peer = *peers_[static_cast<size_t>(message.peer)];
  if (const auto* const ask = std::get_if<one_sided::Ask>(&read.value())) {
    const std::unique_lock lock(windows_mutex_);
    if (has_signals() && (ask->window == kNoWindow || windows_.count(ask->window) != 0)) {
      return reply(describe(ask->window));
    }
    unanswered_.emplace_back(message.peer, ask->window);
    return {};
  }
  if (const auto* const info = std::get_if<WindowInfo>(&read.value())) {
    const std::lock_guard lock(info_mutex_);
    peer.info[info->window] = *info;
    return {};
  }
  if (const auto* const write = std::get_if<one_sided::Write>(&read.value())) {
    take_write(*write, message.peer);
    return reply(one_sided::Taken{write->data.size()});
  }
  if (const auto* const raised = std::get_if<one_sided::Raise>(&read.value())) {
    raise(raised->context, raised->signal, message.peer);
    return reply(one_sided::Taken{one_sided::kRaiseBytes});
  }
  const uint64_t taken = std::get<one_sided::Taken>(read.value()).size_bytes;
  const uint64_t in_flight = peer.in_flight_bytes.load(std::memory_order_relaxed);
  peer.in_flight_bytes.fetch_sub(std::min(taken, in_flight), std::memory_order_release);
  return {};
}

// ---- operations ----

Result<const WindowInfo*> OneSided::find_info(int rank, WindowNumber window) {
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  {
    const std::lock_guard lock(info_mutex_);
    if (const auto at = peer.info.find(window); at != peer.info.end()) {
      return &at->second;  // stays: only this rank's calls remove it
    }
    if (std::exchange(peer.asked[window], true)) {
      return nullptr;
    }
  }
  PLEXUS_TRY(
      options_.exchange->post(rank, kOneSidedTag, one_sided::to_bytes(one_sided::Ask{window})));
  return nullptr;
}

std::byte* OneSided::map_window(int rank, const WindowInfo& info) {
  const uint64_t process = options_.processes[static_cast<size_t>(rank)];
  if (process == options_.own_process) {
    return reinterpret_cast<std::byte*>(info.address);  // NOLINT(performance-no-int-to-ptr)
  }
  return process == 0 || info.place.segment == 0
             ? nullptr
             : peers_[static_cast<size_t>(rank)]->segments.find(info.place, info.size_bytes);
}

std::atomic<uint64_t>* OneSided::map_counter(int rank, const WindowInfo& info, size_t index) {
  if (options_.processes[static_cast<size_t>(rank)] == 0 || info.signals_place.segment == 0) {
    return nullptr;
  }
  std::byte* const counters = peers_[static_cast<size_t>(rank)]->segments.find(
      info.signals_place, (index + 1) * sizeof(uint64_t));
  return counters == nullptr ? nullptr : reinterpret_cast<std::atomic<uint64_t>*>(counters) + index;
}

Result<bool> OneSided::progress(const OneSidedCall& call, Progress& begun) {
  return call.kind == OneSidedCall::Kind::kPut ? put(call, begun) : wait(call, begun);
}

Result<bool> OneSided::put(const OneSidedCall& call, Progress& begun) {
  Peer& peer = *peers_[static_cast<size_t>(call.peer)];
  if (begun.has_begun) {
    return send(call, begun);
  }
  PLEXUS_TRY(info, find_info(call.peer, call.window));
  if (info == nullptr) {
    return is_gone(call.peer) ? Result<bool>(describe_gone(call.peer)) : false;
  }
  if (call.context >= info->contexts || call.signal >= info->signals) {
    return fail(Code::kInvalidArgument,
                "signal {} of context {}: rank {} has {} signals in each of {} contexts",
                call.signal, call.context, call.peer, info->signals, info->contexts);
  }
  if (!is_inside(call.offset, call.size_bytes, info->size_bytes)) {
    return fail(Code::kInvalidArgument,
                "a put of {} bytes at {} of the window of rank {} ends beyond its {} bytes",
                call.size_bytes, call.offset, call.peer, info->size_bytes);
  }
  // The peer's counters are laid out by its own numbers of contexts and signals.
  const size_t index =
      (static_cast<size_t>(options_.rank) * info->contexts + call.context) * info->signals +
      call.signal;
  std::byte* const target = call.size_bytes == 0 ? nullptr : map_window(call.peer, *info);
  std::atomic<uint64_t>* const counter = map_counter(call.peer, *info, index);
  if (counter == nullptr || (call.size_bytes > 0 && target == nullptr)) {
    begun.has_begun = true;
    return send(call, begun);
  }
  // What went by messages before is done first.
  if (peer.in_flight_bytes.load(std::memory_order_acquire) != 0) {
    return is_gone(call.peer) ? Result<bool>(describe_gone(call.peer)) : false;
  }
  if (call.size_bytes > 0) {
    std::memmove(target + call.offset, call.data, call.size_bytes);
  }
  note_sent_outside();                               // the peer has its counter at another address
  counter->fetch_add(1, std::memory_order_release);  // pairs with the acquire in wait()
  return true;
}

Result<bool> OneSided::send(const OneSidedCall& call, Progress& begun) {
  std::atomic<uint64_t>& in_flight = peers_[static_cast<size_t>(call.peer)]->in_flight_bytes;
  const auto post = [&](const one_sided::Message& message, uint64_t size_bytes) {
    in_flight.fetch_add(size_bytes, std::memory_order_relaxed);
    return options_.exchange->post(call.peer, kOneSidedTag, one_sided::to_bytes(message));
  };
  while (begun.sent_bytes < call.size_bytes) {
    if (in_flight.load(std::memory_order_acquire) >= kInFlightBytesMax) {
      return is_gone(call.peer) ? Result<bool>(describe_gone(call.peer)) : false;
    }
    const auto size_bytes =
        std::min<uint64_t>(call.size_bytes - begun.sent_bytes, one_sided::kPieceBytesMax);
    const one_sided::Write write{
        .window = call.window,
        .offset = call.offset + begun.sent_bytes,
        .data = {reinterpret_cast<const char*>(call.data) + begun.sent_bytes, size_bytes}};
    PLEXUS_TRY(post(write, size_bytes));
    begun.sent_bytes += size_bytes;
  }
  PLEXUS_TRY(post(one_sided::Raise{call.context, call.signal}, one_sided::kRaiseBytes));
  return true;
}

Result<bool> OneSided::wait(const OneSidedCall& call, Progress& begun) {
  if (!begun.has_begun) {
    begun.has_begun = true;
    for (const OneSidedCall::Wait& each : call.waits) {
      uint64_t& awaited = awaited_[counter_index(each.peer, each.context, each.signal)];
      awaited += each.count;
      begun.targets.push_back(awaited);
    }
  }
  const auto* const counters = reinterpret_cast<const std::atomic<uint64_t>*>(signals_.data());
  for (size_t i = 0; i < call.waits.size(); ++i) {
    const OneSidedCall::Wait& each = call.waits[i];
    const size_t index = counter_index(each.peer, each.context, each.signal);
    // pairs with the release in put() and raise()
    const auto lacks = [&] {
      return counters[index].load(std::memory_order_acquire) < begun.targets[i];
    };
    if (lacks()) {
      // Who is gone may have raised it just before.
      return is_gone(each.peer) && lacks() ? Result<bool>(describe_gone(each.peer)) : false;
    }
  }
  note_heard_from_outside();
  return true;
}

bool OneSided::is_gone(int peer) {
  if (++looks_ % kRoundsPerLook != 0) {
    return false;
  }
  const std::vector<int> gone = options_.state->list_gone();
  return std::find(gone.begin(), gone.end(), peer) != gone.end();
}

Error OneSided::describe_gone(int peer) const {
  return fail(Code::kRemoteError,
              "rank {} waits for a one-sided operation with rank {}, which has left or died",
              options_.rank, peer);
}

}  // namespace plexus
