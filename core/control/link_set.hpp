// SPDX-License-Identifier: Apache-2.0
// The connections of one endpoint of the control plane: a listening socket, connections that others
// made to it and that it made to others. Each proves in both directions that the other side knows
// the job's secret (security/session.hpp) before a message is taken. Pending peers (port scans,
// garbage, half-open connections, a wrong secret) are dropped without effect on the job.
//
// Nothing blocks but wait(). Threads: one at a time, except that wait() may run beside other calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.hpp"
#include "core/control/control_link.hpp"
#include "core/os/own_fds.hpp"

namespace plexus {

/// A connection whose sides have proved themselves, and on which nothing was received since.
struct ProvenSocket {
  Socket socket;
  security::Session session;  // borrows it
};

class LinkSet {
 public:
  using Link = uint32_t;
  enum class End {
    kRefused,  // the connection was never made, or the other side never said anything
    kBroken,   // it ended, and not by finish()
  };
  struct Handler {
    std::function<void(Link, Message)> take;
    /// The last call for this link.
    std::function<void(Link, End, const std::string& why)> end;
    /// A caller that knows the secret was refused, because its PLEXUS_NET_SECURITY differs. May be
    /// empty.
    std::function<void(const std::string& why)> differ = {};
    /// What still comes over a link that finishes. May be empty: it is ignored.
    std::function<void(Link, Message)> take_late = {};
  };
  struct Times {
    std::chrono::milliseconds handshake{std::chrono::seconds(10)};  // of a pending peer
    std::chrono::milliseconds connect{std::chrono::seconds(20)};
    std::chrono::milliseconds finish{std::chrono::seconds(10)};   // for the other side to close
    std::chrono::milliseconds silence{std::chrono::seconds(30)};  // of a host that is cut off
  };

  /// The key that those who connect have to know. An agent has one of its own, made of the job's
  /// secret and its address, so that nobody can lead a connection to another process of the job.
  enum class ListenerKey { kOfJob, kOfAddress };
  static security::Key key_of(const security::Key& job, const SocketAddress& listener);

  /// An Error: the system gives no descriptor.
  static Result<std::unique_ptr<LinkSet>> make(const security::Terms& terms,
                                               ListenerKey key,
                                               Socket listener,
                                               const Times& times,
                                               Handler handler);
  LinkSet(const LinkSet&) = delete;
  LinkSet& operator=(const LinkSet&) = delete;

  /// Begins to connect to a listener with this key; nullopt: of this job with kOfAddress. Messages
  /// may be sent at once. An Error: no descriptor is left, or the address cannot be reached from
  /// here; there is no link then.
  Result<Link> connect(const SocketAddress& address,
                       const std::optional<security::Key>& key = std::nullopt);
  /// The same where connect() has found no descriptor: with the one that is kept in reserve. An
  /// Error: that is in use, until a connection ends.
  Result<Link> connect_by_reserve(const SocketAddress& address);
  /// Takes over a connection that has proved itself on both sides.
  Result<Link> adopt(ProvenSocket proven);
  void send(Link link, const Message& message);
  /// Sends what is left, then closes when the other side does; what still comes goes to
  /// Handler::take_late.
  /// Handler::end is not called.
  void finish(Link link);
  void finish_all();
  /// Closes at once. Handler::end is called.
  void drop(Link link, const std::string& why);
  /// Nobody may connect any more.
  void stop_listening();
  /// No connection is left, not counting pending peers.
  [[nodiscard]] bool is_empty() const;
  /// What was sent over connections that finish is where the other sides are, though they need not
  /// have read it. If this process ended before, what comes then could end a connection first.
  [[nodiscard]] bool is_delivered() const;
  /// A connection is about to be made, to prove itself or to end.
  [[nodiscard]] bool is_busy() const;

  /// Callers that were refused for want of descriptors; some may have been of this job.
  [[nodiscard]] uint64_t refusals() const noexcept { return refusals_; }

  /// Waits until something happens. May run while other threads use the other functions.
  void wait(std::chrono::milliseconds time) const;
  /// Receives and sends what can be, and calls the handler.
  void progress();
  /// Nothing can come any more: the program has closed the descriptor with which this waits.
  [[nodiscard]] bool is_lost() const { return is_lost_; }

 private:
  LinkSet(const security::Terms& terms, Socket listener, const Times& times, Handler handler)
      : terms_(terms),
        listener_(std::move(listener)),
        times_(times),
        next_look_(Clock::now() + times.silence / (security::Silence::kLooks + 1)),
        handler_(std::move(handler)) {}
  Link add(ControlLink entry);
  void flush(Link link, ControlLink& entry);
  void accept();
  bool may_accept();
  void advance(Link link, uint32_t events);
  /// False: not proven yet, or the connection is over.
  bool prove(Link link, ControlLink& entry);
  void read(Link link);
  /// False: the connection is over.
  bool take_messages(Link link);
  void expire();
  void drop_silent();
  void erase(Link link);
  ControlLink* find(Link link);

  security::Terms terms_;  // of the job
  security::Key listener_key_{};
  SocketAddress own_;  // where it listens
  Socket listener_;
  Socket reserve_;  // a descriptor in reserve, to refuse a caller, and for connect_by_reserve()
  Times times_;
  Clock::time_point next_expiry_{};
  Clock::time_point next_look_;  // for connections whose other ends do not answer
  Handler handler_;
  bool is_full_ = false;  // no connection can be accepted
  bool is_lost_ = false;
  std::vector<char> received_;  // by read(), which is the only one to use it
  uint64_t refusals_ = 0;
  OwnFd epoll_;
  std::map<Link, std::unique_ptr<ControlLink>> links_;
  size_t pending_count_ = 0;  // of these
  Link next_ = 1;             // 0 is the listener
};

}  // namespace plexus
