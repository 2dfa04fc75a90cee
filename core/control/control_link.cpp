// SPDX-License-Identifier: Apache-2.0
#include "core/control/control_link.hpp"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <utility>

#include "guest/assert.hpp"

namespace plexus {

Result<void> ControlLink::start_proof(security::Mode mode) {
  PLEXUS_TRY(socket.finish_connect(address));
  session = security::Session(socket.fd(), security::Role::kCaller, {.mode = mode, .key = key});
  state = State::kProving;
  return ok();
}

void ControlLink::open(std::chrono::milliseconds finish_time) {
  PLEXUS_DCHECK(state == State::kProving && sent_bytes == 0, state, sent_bytes);
  state = finishes ? State::kFinishing : State::kOpen;
  if (finishes) {
    deadline = Deadline::after(finish_time);
  } else if (!is_pending) {
    deadline = Deadline::never();
  }  // else until its first message
}

void ControlLink::finish(std::chrono::milliseconds finish_time) {
  finishes = true;
  deadline = Deadline::after(finish_time);
  if (state == State::kOpen) {
    state = State::kFinishing;
  }
}

void ControlLink::flush() {
  constexpr size_t kCompactBytes = size_t{1} << 20;  // sent ones, which are moved out of the way
  while (is_open() && !out.empty()) {
    const ssize_t sent = session.send(out.data() + sent_bytes, out.size() - sent_bytes);
    if (sent <= 0) {
      return;
    }
    PLEXUS_DCHECK(static_cast<size_t>(sent) <= out.size() - sent_bytes, sent, sent_bytes,
                  out.size());
    sent_bytes += static_cast<size_t>(sent);
    if (sent_bytes == out.size() || sent_bytes >= kCompactBytes) {
      out.erase(0, std::exchange(sent_bytes, 0));
    }
  }
  if (state == State::kFinishing) {
    shutdown(socket.fd(), SHUT_WR);
  }
}

bool ControlLink::is_delivered() const {
  int under_way_bytes = 0;
  return state != State::kFinishing ||
         (out.empty() && ioctl(socket.fd(), SIOCOUTQ, &under_way_bytes) == 0 &&
          under_way_bytes == 0);
}

uint32_t ControlLink::awaited() const {
  const bool wants_out =
      state == State::kConnecting ||
      (state == State::kProving ? (session.awaits() & POLLOUT) != 0 : !out.empty());
  return wants_out ? EPOLLIN | EPOLLOUT : EPOLLIN;
}

std::string ControlLink::peer_name() const {
  return state == State::kConnecting ? address.to_string() : socket.peer_name();
}

}  // namespace plexus
