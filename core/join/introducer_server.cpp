// SPDX-License-Identifier: Apache-2.0
#include "core/join/introducer_server.hpp"

#include <memory>
#include <new>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "core/base/log.hpp"
#include "core/base/thread.hpp"
#include "core/join/introducer.hpp"
#include "core/join/relay.hpp"
#include "guest/assert.hpp"
#include "security/seal.hpp"

namespace plexus {
namespace {

constexpr auto kIntroducerTick = std::chrono::milliseconds(100);

class IntroducerServer {
 public:
  IntroducerServer(const UniqueId& id, const IntroducerOptions& options)
      : id_(id),
        options_(options),
        introducer_(
            id.job,
            [this](uint32_t client, const Message& message) { links_->send(client, message); }),
        deadline_(Deadline::after(options.join_time)) {}

  Result<void> listen(Socket listener) {
    PLEXUS_TRY(links,
               LinkSet::make({.mode = options_.mode, .key = id_.secret},
                             LinkSet::ListenerKey::kOfJob, std::move(listener), options_.times,
                             {.take = [this](LinkSet::Link link,
                                             const Message& message) { take(link, message); },
                              .end = [this](LinkSet::Link link, LinkSet::End,
                                            const std::string& why) { end(link, why); },
                              .differ = [this](const std::string& why) { differ(why); }}));
    links_ = std::move(links);
    return ok();
  }

  void serve() {
    try {
      while (!is_over()) {
        links_->wait(kIntroducerTick);
        step();
      }
    } catch (const std::bad_alloc&) {  // the ranks see that the connection ends
      log(LogLevel::kWarn, Subsystem::kBootstrap, __FILE__, __LINE__,
          "bootstrap: no memory is left to introduce the ranks of a job");
    }
  }

 private:
  void step() {
    links_->progress();
    if (!gave_up_ && deadline_.expired()) {
      gave_up_ = true;
      if (!introducer_.have_all_joined()) {
        introducer_.give_up(links_->refusals());
      }
    }
    if (first_ != 0 && relay_->is_over()) {
      links_->send(first_, {.type = MessageType::kLeave});
      links_->finish(std::exchange(first_, 0));
    }
  }
  /// A process of this job will never get in.
  void differ(const std::string& why) {
    const Message failure{.type = MessageType::kFail,
                          .from = kNobody,
                          .payload = encode(fail(Code::kInvalidUsage, "{}", why))};
    (void)(relay_.has_value() ? relay_->take(kNobody, failure)
                              : introducer_.take(kNobody, failure));
  }
  void take(LinkSet::Link link, const Message& message) {
    if (link == first_) {
      relay_->take_from_first(message);
      return;
    }
    if (!anybody_came()) {
      deadline_ = Deadline::after(options_.join_time);
    }
    auto taken = message.type == MessageType::kFirstId ? follow(link, message.payload)
                 : relay_.has_value()                  ? take_for_relay(link, message)
                                                       : introducer_.take(link, message);
    if (taken.has_error()) {
      links_->drop(link, taken.error().message());
    } else if (message.type == MessageType::kLeave) {
      links_->finish(link);
    }
  }
  void end(LinkSet::Link link, const std::string& why) {
    if (link == first_) {
      first_ = 0;
      relay_->lose_first(why);
    } else if (followers_.erase(link) != 0) {
      relay_->lose(link);
    } else {
      introducer_.lose(link);
    }
  }

  /// A process uses several unique ids, of which this is not the first.
  Result<void> follow(LinkSet::Link link, std::string_view sealed) {
    const auto bytes = security::unseal(id_.secret, kFirstIdPurpose, sealed);
    if (!bytes.has_value() || bytes->size() != UniqueId::kBytes) {
      return break_of_protocol("no unique id that this one's secret seals");
    }
    PLEXUS_TRY(first, UniqueId::from_bytes(std::span(*bytes).first<UniqueId::kBytes>()));
    if (introducer_.anybody_came() || (relay_.has_value() && first.job != world_)) {
      disagree(link);
      return ok();
    }
    followers_.insert(link);
    if (!relay_.has_value()) {
      start_relay(first);
    }
    return ok();
  }
  void start_relay(const UniqueId& first) {
    PLEXUS_INFO(kBootstrap, "bootstrap: the ranks that join here are passed on to {}",
                first.address.to_string());
    world_ = first.job;
    relay_.emplace(
        world_,
        Relay::Output{
            .send = [this](uint32_t client,
                           const Message& message) { links_->send(client, message); },
            .send_to_first = [this](const Message& message) { links_->send(first_, message); }});
    auto link = links_->connect(first.address, first.secret);
    if (link.has_error()) {
      relay_->lose_first(link.error().message());
      return;
    }
    PLEXUS_DCHECK(first_ == 0, first_);
    first_ = link.value();
  }
  Result<void> take_for_relay(LinkSet::Link link, const Message& message) {
    if (followers_.count(link) == 0) {
      disagree(link);
      return ok();
    }
    return relay_->take(link, message);
  }
  void disagree(LinkSet::Link link) {
    const Error error = fail(Code::kInvalidUsage,
                             "the ranks differ in their lists of unique ids: give all of them the "
                             "same ids in the same order");
    links_->send(link, {.type = MessageType::kFail, .payload = encode(error)});
    differ(error.message());
  }

  [[nodiscard]] bool anybody_came() const {
    return relay_.has_value() || introducer_.anybody_came();
  }
  [[nodiscard]] bool is_over() const {
    if (!anybody_came()) {
      return gave_up_;
    }
    const bool have_all_joined =
        relay_.has_value() ? relay_->have_all_joined() : introducer_.have_all_joined();
    const bool has_failed = relay_.has_value() ? relay_->has_failed() : introducer_.has_failed();
    const bool awaits = !have_all_joined && !gave_up_ && (options_.stays || !has_failed);
    return links_->is_empty() && !awaits;
  }

  const UniqueId id_;
  IntroducerOptions options_;
  std::unique_ptr<LinkSet> links_;
  Introducer introducer_;
  Deadline deadline_;
  bool gave_up_ = false;
  // Set if there are several unique ids and this is not the first one.
  std::optional<Relay> relay_;
  uint64_t world_ = 0;                 // group of all ranks
  LinkSet::Link first_ = 0;            // connection to the first one's introducer
  std::set<LinkSet::Link> followers_;  // clients that said so
};

}  // namespace

Result<void> start_introducer(const UniqueId& id,
                              Socket listener,
                              const IntroducerOptions& options) {
  auto server = std::make_unique<IntroducerServer>(id, options);
  PLEXUS_TRY(server->listen(std::move(listener)));
  PLEXUS_TRY(thread, start_thread("introducing the ranks",
                                  [server = std::move(server)] { server->serve(); }));
  thread.detach();
  return ok();
}

}  // namespace plexus
