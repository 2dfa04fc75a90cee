// SPDX-License-Identifier: Apache-2.0
#include "plugins/net-socket/helper.hpp"

#include <algorithm>
#include <sys/eventfd.h>

#include "guest/assert.hpp"
#include "guest/thread.hpp"
#include "plugins/net-socket/liveness.hpp"
#include "plugins/support/descriptors.hpp"

namespace plexus::net_socket {
namespace {

/// Limit per system call, so that the sockets of a helper take turns.
constexpr uint64_t kHelperBytesPerCall = 1 << 20;

}  // namespace

Helper::Helper(Options options, plugin::UniqueFd wake)
    : options_(std::move(options)), wake_(std::move(wake)) {
  for (size_t i = 0; i < options_.sockets.size(); ++i) {
    queues_.push_back(std::make_unique<Queue>(options_.queue_size));
  }
  states_.reserve(1 + options_.sockets.size());
}

Result<std::unique_ptr<Helper>> Helper::start(Options options) {
  auto wake = plugin::UniqueFd::open([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
  if (!wake.is_open()) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot make an eventfd for a helper thread: {}",
                plugin::refused_descriptor_text());
  }
  std::unique_ptr<Helper> helper(new Helper(std::move(options), std::move(wake)));
  try {
    helper->thread_ = make_guest_thread([self = helper.get()] { self->run(); });
  } catch (const std::system_error& refused) {
    return fail(PLEXUS_SYSTEM_ERROR, "cannot start a helper thread: {}; lower NCCL_SOCKET_NTHREADS",
                refused.what());
  }
  return helper;
}

Helper::~Helper() {
  is_stopping_.store(true);
  wake_up();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Helper::push(size_t socket, const Part& part) noexcept {
  Queue& queue = *queues_[socket];
  const uint32_t tail = queue.tail.load(std::memory_order_relaxed);
  PLEXUS_DCHECK(tail - queue.head.load(std::memory_order_relaxed) < queue.parts.size(), tail);
  PLEXUS_DCHECK(part.size_bytes > 0 && part.parts_left->load(std::memory_order_relaxed) > 0,
                part.size_bytes);
  queue.parts[tail % queue.parts.size()] = part;
  // Sequentially consistent with sleep(): either this thread sees the helper asleep, or the helper
  // sees the part.
  queue.tail.store(tail + 1);
  if (is_asleep_.load()) {
    wake_up();
  }
}

void Helper::wake_up() noexcept {
  const uint64_t one = 1;
  const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  static_cast<void>(written);  // fails only if the counter is full; the helper is awake then
}

void Helper::run() noexcept {
  try {
    while (!is_stopping_.load()) {
      if (options_.fault->is_set() || !move_parts()) {
        sleep();
      }
    }
  } catch (const std::exception& thrown) {  // out of memory while making the failure's text
    options_.fault->set({PLEXUS_INTERNAL_ERROR, thrown.what()});
  }
}

bool Helper::move_parts() {
  bool has_moved = false;
  for (size_t socket = 0; socket < queues_.size(); ++socket) {
    has_moved = move_part(socket) || has_moved;
  }
  return has_moved;
}

bool Helper::move_part(size_t socket) {
  Queue& queue = *queues_[socket];
  const uint32_t head = queue.head.load(std::memory_order_relaxed);
  if (head == queue.tail.load(std::memory_order_acquire)) {  // pairs with the store in push()
    return false;
  }
  const Part& part = queue.parts[head % queue.parts.size()];
  PLEXUS_DCHECK(queue.moved_bytes < part.size_bytes, queue.moved_bytes, part.size_bytes);
  std::byte* data = part.data + queue.moved_bytes;
  const uint64_t size_bytes = std::min(part.size_bytes - queue.moved_bytes, kHelperBytesPerCall);
  Socket& used = *options_.sockets[socket];
  const ssize_t n = options_.direction == Direction::kSend ? used.session.send(data, size_bytes)
                                                           : used.session.receive(data, size_bytes);
  if (n <= 0) {
    if (n == 0 || !is_would_block(errno)) {
      break_connection(used, n == 0 ? 0 : errno);
    }
    return false;
  }
  queue.moved_bytes += static_cast<uint64_t>(n);
  if (queue.moved_bytes == part.size_bytes) {
    queue.moved_bytes = 0;
    std::atomic<uint32_t>* parts_left = part.parts_left;
    queue.head.store(head + 1, std::memory_order_relaxed);
    // pairs with the acquire in is_done()
    const uint32_t left = parts_left->fetch_sub(1, std::memory_order_release);
    PLEXUS_DCHECK(left > 0, socket);
  }
  return true;
}

void Helper::break_connection(const Socket& socket, int error) {
  options_.fault->set(fail(PLEXUS_REMOTE_ERROR,
                           "lost the connection {} {} in the middle of a message: {}",
                           options_.direction == Direction::kSend ? "to" : "from", options_.peer,
                           socket.describe_loss(error, options_.timeout)));
}

bool Helper::may_move(size_t socket) const noexcept {
  return options_.direction == Direction::kRecv &&
         options_.sockets[socket]->session.may_have_more();
}

void Helper::sleep() {
  is_asleep_.store(true);
  states_.clear();
  states_.push_back({wake_.get(), POLLIN, 0});
  const auto events = static_cast<short>(options_.direction == Direction::kSend ? POLLOUT : POLLIN);
  int patience_ms = -1;
  for (size_t socket = 0; socket < queues_.size() && !options_.fault->is_set(); ++socket) {
    if (queues_[socket]->head.load(std::memory_order_relaxed) != queues_[socket]->tail.load()) {
      states_.push_back({options_.sockets[socket]->fd.get(), events, 0});
      patience_ms = may_move(socket) ? 0 : patience_ms;
    }
  }
  if (!is_stopping_.load()) {
    ::poll(states_.data(), states_.size(), patience_ms);
  }
  is_asleep_.store(false);
  uint64_t count = 0;
  const ssize_t drained = ::read(wake_.get(), &count, sizeof count);
  static_cast<void>(drained);  // nothing to read: a socket woke the helper
}

}  // namespace plexus::net_socket
