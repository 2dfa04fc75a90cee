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
#include "core/control/message.hpp"
#include "core/os/own_fds.hpp"
#include "core/os/socket.hpp"
#include "security/session.hpp"
#include "security/silence.hpp"

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
  ~LinkSet();
  LinkSet(const LinkSet&) = delete;
  LinkSet& operator=(const LinkSet&) = delete;

  /// Begins to connect to a listener of this job with kOfAddress. Messages may be sent at once. An
  /// Error: no descriptor is left, or the address cannot be reached from here; there is no link
  /// then.
  Result<Link> connect(const SocketAddress& address);
  /// The same for a listener with another key.
  Result<Link> connect(const SocketAddress& address, const security::Key& key);
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
  struct Entry {
    enum class State { kConnecting, kProving, kOpen, kFinishing } state;
    Socket socket;
    security::Session session = {};  // from kProving on
    SocketAddress address = {};      // of the other side, where this one connects
    security::Key key = {};          // of the listener there
    Deadline deadline = Deadline::never();
    MessageReader reader = {};
    std::string out = {};      // to be sent
    size_t sent_bytes = 0;     // sent so far of `out`
    std::string waiting = {};  // to be sent after the handshake
    bool watches_out = false;
    security::Silence silence = {};
    bool is_pending = false;  // has not proved itself, or sent no message yet
    bool finishes = false;    // when it is open
    // Whether the other side has taken this connection as a whole. One that made it cannot know
    // that before it hears something: who leaves at this moment has not died.
    bool is_mutual = true;
  };

  LinkSet(const security::Terms& terms, Socket listener, const Times& times, Handler handler)
      : terms_(terms),
        listener_(std::move(listener)),
        times_(times),
        next_look_(Clock::now() + times.silence / (security::Silence::kLooks + 1)),
        handler_(std::move(handler)) {}
  Link add(Entry entry);
  void watch(Link link, Entry& entry);
  void accept();
  void watch_listener(uint32_t events);
  void refuse();
  bool may_accept();
  void advance(Link link, uint32_t events);
  /// False: the connection is over.
  bool finish_connect(Link link, Entry& entry);
  /// False: not proven yet, or the connection is over.
  bool prove(Link link, Entry& entry);
  void read(Link link);
  /// False: the connection is over.
  bool take_bytes(Link link, const char* bytes, size_t size_bytes);
  bool take_messages(Link link);
  void open(Entry& entry);
  void flush(Link link, Entry& entry);
  void expire();
  void drop_silent();
  void erase(Link link);
  Entry* find(Link link);

  security::Terms terms_;  // of the job
  security::Key listener_key_{};
  SocketAddress own_;  // where it listens
  Socket listener_;
  Socket reserve_;  // a descriptor in reserve, for refuse() and connect_by_reserve()
  Times times_;
  Clock::time_point next_expiry_{};
  Clock::time_point next_look_;  // for connections whose other ends do not answer
  Handler handler_;
  bool is_full_ = false;  // no connection can be accepted
  bool is_lost_ = false;
  std::vector<char> received_;  // by read(), which is the only one to use it
  uint64_t refusals_ = 0;
  int epoll_ = -1;
  uint64_t forks_ = Forks::count();
  std::map<Link, std::unique_ptr<Entry>> links_;
  size_t pending_count_ = 0;  // of these
  Link next_ = 1;             // 0 is the listener
};

}  // namespace plexus
